// Labelled symbol sequences of a task, and their batches.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "apps/data/rows.h"
#include "apps/data/shuffle.h"
#include "runtime/tensor.h"

namespace weft::lra {

// Batches have symbol 0 after the end of a sequence. Models take the lengths and do not look there,
// so that 0 may also be a symbol of the task. An example is a label and one sequence, or `together`
// of them, one after the other.
struct Sequences {
  std::vector<std::uint8_t> symbols;  // all sequences, concatenated
  std::vector<i64> ends;              // end offset of each sequence
  std::vector<std::uint8_t> labels;   // of each example
  i64 together = 1;

  i64 count() const { return static_cast<i64>(labels.size()); }
  std::span<const std::uint8_t> at(i64 sequence) const;
  void add(std::span<const std::uint8_t> sequence, std::uint8_t label);
  void add(std::span<const std::uint8_t> first, std::span<const std::uint8_t> second,
           std::uint8_t label);
  double mean_length() const;  // of a sequence
};

struct SequenceTask {
  std::string source;                // "builtin" or a folder
  std::vector<std::string> symbols;  // names of symbols 1, 2, …; empty: they have none
  std::vector<std::string> classes;
  i64 longest = 0;           // upper bound of the lengths
  bool first_tells = false;  // the first symbol alone tells much about the class
  Sequences train, validation, test;

  const Sequences& part(const std::string& name) const;  // "train", "validation" or "test"
};

// Numbers of sequences.
struct PartCounts {
  i64 train, validation, test;
};

struct SequenceBatch {
  Tensor symbols;  // [B · together, length] i64
  Tensor lengths;  // [B · together] i64
  Tensor labels;   // [B] i64
};
// A batch of these examples, padded to `length`.
SequenceBatch batch_of(const Sequences& sequences, std::span<const i64> which, i64 length);

// The training batches of steps 1, 2, …. Each rank reads its own_rows().
class SequenceBatches {
 public:
  // The sequences must outlive this object. Throws if there are fewer than `batch`.
  SequenceBatches(const Sequences& sequences, i64 length, i64 batch, std::uint64_t seed);

  i64 epoch_steps() const { return order_.steps(); }
  SequenceBatch operator()(std::uint32_t step);

 private:
  const Sequences& sequences_;
  i64 length_;
  Rows rows_;
  EpochOrder order_;
};

}  // namespace weft::lra
