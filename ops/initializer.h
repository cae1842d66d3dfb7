// The initial value of a weight, and its bounds.
#pragma once

#include <limits>

namespace weft {

// `scale` is the value of `constant`, the limit of `uniform` and the deviation of `normal`.
// glorot_uniform is U(±√(6/(fan in + fan out))), he_uniform U(±√(6/fan in)); alternating is
// N(scale²) around 1, −1, 1, … along the last axis.
struct Initializer {
  enum Kind {
    zeros,
    constant,
    uniform,
    normal,
    glorot_uniform,
    he_uniform,
    alternating
  } kind = glorot_uniform;
  double scale = 0;
  // The module beside the parameter's own whose numbers it starts with: those of "a.b.weight" with
  // like = "c" are those of "a.c.weight". Null: numbers of its own.
  const char* like = nullptr;
};

// The interval to which a learnt tensor is clamped after every update, element by element.
struct Bounds {
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();

  friend bool operator==(const Bounds&, const Bounds&) = default;
};

}  // namespace weft
