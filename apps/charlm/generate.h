// Text from a model, one character at a time through its decoding state.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "apps/charlm/model.h"

namespace weft {

// The state belongs to the generator: one for each text that is written at once.
//
// A model with a convolution goes on for ever. One with positions has `length` of them: when they
// are used up it starts again from the last half window, which it reads anew.
class Generator {
 public:
  explicit Generator(const UniversalTransformer& network);

  // Reads one more character; returns the logits [V] of the next.
  Tensor read(std::int64_t id);
  std::int64_t restarts() const { return restarts_; }

 private:
  const UniversalTransformer& network_;
  UniversalTransformer::State state_;
  std::vector<std::int64_t> window_;  // what a restart may have to read again
  std::int64_t restarts_ = 0;
};

struct SamplingOptions {
  double temperature = 1;  // 0: the most probable character
  std::int64_t top_k = 0;  // among this many most probable ones; 0: among all
  std::uint64_t seed = 1;
};

// An id of at least `first`, drawn from softmax(logits / temperature); a function of the seed and
// `index`.
std::int64_t draw(const Tensor& logits, const SamplingOptions& options, std::int64_t first,
                  std::uint64_t index);

// Reads `prompt` (a space where it is empty), then hands `characters` characters to `say`.
// `restarted` is called at the first restart.
void write_text(const Model& model, const std::string& prompt, std::int64_t characters,
                const SamplingOptions& options, const std::function<void(char)>& say,
                const std::function<void()>& restarted);

}  // namespace weft
