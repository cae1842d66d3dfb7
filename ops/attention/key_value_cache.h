// Step-by-step decoding for mechanisms that may look at any earlier key: keys and values are
// cached.
#pragma once

#include <functional>
#include <vector>

#include "ops/attention/mechanism.h"

namespace weft {

// Keys and values of the positions so far, in a ring buffer of `capacity` rows on the device of the
// first. `spec` attends to them with the inputs q, k, v, and must be invariant to the order of the
// keys, so that the ring is never unrolled.
class KeyValueCache : public DecodingState {
 public:
  KeyValueCache(const AttentionSpec& spec, const AttentionSizes& sizes, DType type, i64 capacity);

  Tensor step(std::span<const Tensor> inputs) override;  // q, k, v, and a bias if `spec` takes one
  i64 bytes() const override;

 protected:
  // The output of the newest position, whose key and value are in the ring.
  virtual Tensor newest(std::span<const Tensor> inputs) const;

  AttentionSpec spec_;
  AttentionSizes sizes_;
  DType type_;
  i64 capacity_, seen_ = 0;
  std::size_t bias_;  // its index among the inputs; their number if there is none
  Tensor k_, v_;  // undefined before the first step

 private:
  Tensor prompt(std::span<const Tensor> inputs);
  Tensor one(std::span<const Tensor> inputs);
  Tensor bias_of_held(const Tensor& bias) const;
};

// Keys and values of the last positions in order, for mechanisms that count back from the query.
// The buffer has room for twice as many as are kept, so that the kept ones are moved to its front
// once in `kept` steps. Inputs after q, k and v are passed on unchanged.
class OrderedCache : public DecodingState {
 public:
  // `whole`: no position sees more than `kept`, itself included; otherwise what is further back is
  // dropped.
  OrderedCache(const AttentionSpec& spec, const AttentionSizes& sizes, DType type, i64 kept,
               bool whole);

  Tensor step(std::span<const Tensor> inputs) override;
  i64 bytes() const override;

 protected:
  // The outputs of the last N of the S positions of k and v: q [B, N, H, E].
  virtual Tensor attended(const Tensor& q, const Tensor& k, const Tensor& v,
                          std::span<const Tensor> others) = 0;

  AttentionSpec spec_;
  AttentionSizes sizes_;
  DType type_;
  i64 kept_;  // rows that a later position may see

 private:
  Tensor some(std::span<const Tensor> inputs, i64 begin, i64 end);

  bool whole_;
  i64 held_ = 0;  // rows that are filled
  Tensor k_, v_;  // undefined before the first step
};

// Mechanism::decode of mechanisms whose inputs are q, k, v.
std::unique_ptr<DecodingState> decode_by_cache(const AttentionSpec& spec,
                                               const AttentionSizes& sizes, DType type,
                                               i64 capacity);

// The positions that query i of head h sees, ascending, none after i.
using KeysOfQuery = std::function<std::vector<i64>(i64 h, i64 i)>;

// The same for softmax attention over some of the earlier keys: a step takes time for those alone.
std::unique_ptr<DecodingState> decode_by_keys(const AttentionSpec& spec,
                                              const AttentionSizes& sizes, DType type, i64 capacity,
                                              KeysOfQuery keys);

}  // namespace weft
