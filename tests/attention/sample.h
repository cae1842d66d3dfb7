// Calls of every registered mechanism, for the tests that hold for all of them.
#pragma once

#include <string>
#include <vector>

#include "ops/attention/mechanism.h"
#include "tests/check.h"

namespace weft {

struct Sample {
  AttentionSpec spec;
  AttentionSizes sizes;
  AttentionCall call;
  std::vector<Tensor> inputs;  // in the fact sheet's order; optional and drawn ones may be missing
  std::string text;            // for messages

  const Mechanism& mechanism() const { return spec.mechanism(); }
  // The fact sheet's inputs for these sizes; `inputs` may leave out the last of them.
  AttentionInputs sheets() const { return attention_inputs(spec, sizes); }
  Shape output_shape() const { return weft::output_shape(spec, sizes); }
  Differentiable attend() const;     // the kernel: out, and the penalty where there is one
  Differentiable reference() const;  // the definition
  Run run() const { return weft::run(attend(), inputs); }
  // The inputs, of which those that are stored as activations are have another type.
  std::vector<Tensor> stored_in(DType type) const;
  Run defined() const;  // the definition, on the CPU
  Tensor output() const;  // of the kernel, unrecorded
  Sample with(std::vector<Tensor> other) const;
  // The same call with all draws and decisions given: a smooth function of its inputs.
  Sample decided() const;
  // The number of valid positions of batch item b.
  i64 positions(i64 b) const;
  // The number of valid keys (queries) of batch item b.
  i64 keys(i64 b) const;
  i64 queries(i64 b) const;
};

// An iterable; the time of each iteration is attributed to its mechanism (tests/budget.h).
class Samples {
 public:
  class Iterator {
   public:
    explicit Iterator(const Sample* at) : at_(at) {}
    const Sample& operator*() const;
    Iterator& operator++();
    bool operator==(const Iterator&) const = default;

   private:
    const Sample* at_;
  };

  explicit Samples(std::vector<Sample> list) : list_(std::move(list)) {}
  Iterator begin() const { return Iterator(list_.data()); }
  Iterator end() const { return Iterator(list_.data() + list_.size()); }

 private:
  std::vector<Sample> list_;
};

// The variations of a mechanism's calls; each is applied if the mechanism has it.
struct Variety {
  bool causal = true, lengths = true, query_lengths = true, dropout = true;
  bool options = true;  // the values that option sheets name
  bool extras = true;   // optional inputs: absent, whole, and of size 1 where they may be
  std::size_t every = 1;  // takes one of so many calls, for what hardly depends on them
};

// Each mechanism with its defaults and without masks.
inline const Variety plain{
    .causal = false, .lengths = false, .query_lengths = false, .dropout = false, .options = false};

// Every mechanism that fits `sizes`, in which N and S count positions (N ≠ S needs cross-attention,
// or with S > N keys before the queries): with its defaults every combination of masks, with every
// value of an option each mask alone and all of them. Of four batch items one has all keys and some
// queries, one some keys and all queries, one no keys and one no queries. Where that would take
// hours, under the sanitizers and on an emulated device, a few of them for each mechanism,
// different ones for different sizes; and at most 40 of a mechanism everywhere. All of them with
// `./weft test --all`, which sets WEFT_TEST_ALL.
Samples samples(const AttentionSizes& sizes, DType type, const Variety& variety = {});

// Sizes around the tile sizes, for an emulated device and under the sanitizers: at most two heads
// there, one where both slow the test, unless all cases are wanted. Short sequences test more
// heads.
AttentionSizes with_few_heads(AttentionSizes sizes);

// The first axis of an input that counts positions of its sequence (queries: N, references: S), or
// −1.
int position_axis(const AttentionInput& input, char symbol);
// The index of the input that is linear: the one of width M.
std::size_t values_input(const Sample& sample);
// Whether the input has an axis that counts batch items.
bool has_batch(const AttentionInput& input);

// x scaled to the initial size of a learnt input, if its fact sheet has one, and clamped to its
// bounds if there are any; otherwise x.
Tensor as_it_starts(const Tensor& x, const AttentionInput& input);

// x with value at the elements [begin, end) of an axis, for batch item b, or for all where b < 0.
Tensor filled(const Tensor& x, int axis, i64 begin, i64 end, double value, i64 b = -1);

}  // namespace weft
