// How a weight starts.
#pragma once

namespace weft {

// `scale` is the value of `constant`, the limit of `uniform` and the deviation of `normal`.
// glorot_uniform is U(±√(6/(fan in + fan out))), he_uniform U(±√(6/fan in)).
struct Initializer {
  enum Kind { zeros, constant, uniform, normal, glorot_uniform, he_uniform } kind = glorot_uniform;
  double scale = 0;
};

}  // namespace weft
