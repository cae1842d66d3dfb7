// Counter-based random numbers: Philox 4×32-10.
// J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw, "Parallel random numbers: as easy as 1, 2,
// 3", SC 2011.
//
// Nothing is stored: a number is a function of (seed, step, stream, index), so it is the same on
// any device, for any number of threads, and can be drawn again in a backward pass.
#pragma once

#include <cmath>
#include <cstdint>

namespace weft {

struct Philox {
  std::uint32_t word[4];
};

// The ten rounds over a counter of four words with a key of two.
constexpr Philox philox(Philox counter, std::uint32_t key0, std::uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = std::uint64_t{0xD2511F53u} * counter.word[0];
    const std::uint64_t product1 = std::uint64_t{0xCD9E8D57u} * counter.word[2];
    counter = {{static_cast<std::uint32_t>(product1 >> 32) ^ counter.word[1] ^ key0,
                static_cast<std::uint32_t>(product1),
                static_cast<std::uint32_t>(product0 >> 32) ^ counter.word[3] ^ key1,
                static_cast<std::uint32_t>(product0)}};
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return counter;
}

// The purpose of a draw, where one key serves several. An op's key is that of its first draw,
// usually dropout; further() derives the others. Keys count their streams from 0, far below 2²⁴, so
// that the highest byte of a stream is free for the purpose.
enum class DrawPurpose : std::uint8_t {
  dropout = 0,             // of the weights: the key unchanged
  drawn_inputs = 1,        // and the next numbers: random features of a mechanism (31 at most)
  bottom_dropout = 0x20,   // i-clustered: of the weights outside the largest keys
  random_blocks = 0x30,    // bigbird
  sort_noise = 0x38,       // sinkhorn
  positions = 0x40,        // of clusters' first centroids
  further_dropout = 0x48,  // and the next numbers: of a block's further attentions (56)
  planes = 0x80,           // hash planes of queries
};

// Names one draw of random numbers; element i of it is a function of these and i.
struct RandomKey {
  std::uint64_t seed = 0;
  std::uint32_t step = 0;
  std::uint32_t stream = 0;  // index of the draw within its step
  // If set, the step is read from this address, in the memory of the device that draws: a captured
  // graph of kernels draws other numbers at each replay.
  const std::uint32_t* step_at = nullptr;
  // The place in the global batch of the first example of the tensors that are drawn for. A draw
  // with rows for each example counts them from there, so that a shard of a batch draws what the
  // whole batch draws for these examples. It is no part of words(): a draw that the examples share
  // is the same in every shard.
  std::int64_t first_example = 0;

  // The key of another draw of the same op.
  constexpr RandomKey further(DrawPurpose purpose, std::uint32_t number = 0) const {
    RandomKey key = *this;
    key.stream ^= (static_cast<std::uint32_t>(purpose) + number) << 24;
    return key;
  }

  constexpr std::uint32_t current_step() const { return step_at != nullptr ? *step_at : step; }

  // Four words for the index: elements 4·index … 4·index + 3 of a draw of 32-bit words.
  constexpr Philox words(std::uint64_t index) const {
    return philox({{static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32),
                    current_step(), stream}},
                  static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32));
  }
};

// Uniform in [0, 1) with 24 bits.
constexpr float uniform(std::uint32_t word) {
  return static_cast<float>(word >> 8) * 0x1p-24f;
}

// Uniform integer in 0 … bound−1 (multiply-shift; the bias is below bound / 2^32).
constexpr std::uint32_t below(std::uint32_t word, std::uint32_t bound) {
  return static_cast<std::uint32_t>((std::uint64_t{word} * bound) >> 32);
}

// cos(2π b / 2³²). The nearest quarter turn is exact in integers; over the remaining eighth of a
// turn on either side, Taylor's series up to t¹⁶ are exact to the last bits of f64. They need no
// table in local memory, as CUDA's own range reduction does. It is a constexpr template so that
// device code can call it.
template <class Word>
constexpr double cosine_of_turns(Word b) {
  const auto turns = static_cast<std::uint32_t>(b), quarter = (turns + 0x20000000u) >> 30;
  const auto rest = static_cast<std::int32_t>(turns - (quarter << 30));
  const double t = rest * (6.283185307179586 * 0x1p-32), square = t * t;
  const bool sine = quarter % 2 == 1;
  double series = 1;  // of sin t / t, or of cos t
  for (int k = sine ? 15 : 16; k > 1; k -= 2) series = 1 - series * square / (k * (k - 1));
  const double value = sine ? t * series : series;
  return quarter == 1 || quarter == 2 ? -value : value;
}

// Standard normal from two words (Box and Muller 1958).
template <class Word>
constexpr double normal(Word a, Word b) {
  const double radius = std::sqrt(-2 * std::log((a + 0.5) * 0x1p-32));
  return radius * cosine_of_turns(b);
}

// Hands out the streams of one step in order. A module asks for a key at each draw; the same
// program asks in the same order, so the same seed and step give the same numbers.
class RandomStreams {
 public:
  RandomStreams(std::uint64_t seed, std::uint32_t step, const std::uint32_t* step_at = nullptr,
                std::int64_t first_example = 0)
      : seed_(seed), step_(step), step_at_(step_at), first_example_(first_example) {}
  RandomKey next() { return {seed_, step_, stream_++, step_at_, first_example_}; }

 private:
  std::uint64_t seed_;
  std::uint32_t step_;
  const std::uint32_t* step_at_;
  std::int64_t first_example_;
  std::uint32_t stream_ = 0;
};

}  // namespace weft
