// Decoding step by step for mechanisms that may look at any earlier key: keys and values are kept.
#pragma once

#include <functional>
#include <vector>

#include "ops/attention/mechanism.h"

namespace weft {

// Keys and values of the positions so far, in a ring of `capacity` rows on the device of the first
// of them; `spec` attends to them with the inputs q, k, v, and must not mind the order of the keys,
// so that the ring needs no unrolling.
class KeyValueCache : public DecodingState {
 public:
  KeyValueCache(const AttentionSpec& spec, const AttentionSizes& sizes, DType type, i64 capacity);

  Tensor step(std::span<const Tensor> inputs) override;  // q, k, v, and a bias where `spec` takes one
  i64 bytes() const override;

 protected:
  // The output of the newest position, whose key and value are in the ring.
  virtual Tensor newest(std::span<const Tensor> inputs) const;

  AttentionSpec spec_;
  AttentionSizes sizes_;
  DType type_;
  i64 capacity_, seen_ = 0;
  std::size_t bias_;  // its place among the inputs; their number where there is none
  Tensor k_, v_;  // undefined before the first step

 private:
  Tensor prompt(std::span<const Tensor> inputs);
  Tensor one(std::span<const Tensor> inputs);
  Tensor bias_of_held(const Tensor& bias) const;
};

// Mechanism::decode of those whose inputs are q, k, v.
std::unique_ptr<DecodingState> decode_by_cache(const AttentionSpec& spec,
                                               const AttentionSizes& sizes, DType type,
                                               i64 capacity);

// The positions that query i of head h sees, ascending, none behind i.
using KeysOfQuery = std::function<std::vector<i64>(i64 h, i64 i)>;

// The same for softmax attention over some of the earlier keys: a step takes time for those alone.
std::unique_ptr<DecodingState> decode_by_keys(const AttentionSpec& spec,
                                              const AttentionSizes& sizes, DType type, i64 capacity,
                                              KeysOfQuery keys);

}  // namespace weft
