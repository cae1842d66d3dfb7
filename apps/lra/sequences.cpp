#include "apps/lra/sequences.h"

#include <algorithm>

#include "apps/command_line/settings.h"

namespace weft::lra {

std::span<const std::uint8_t> Sequences::at(i64 sequence) const {
  const auto i = static_cast<std::size_t>(sequence);
  const auto begin = static_cast<std::size_t>(i == 0 ? 0 : ends[i - 1]);
  return {symbols.data() + begin, static_cast<std::size_t>(ends[i]) - begin};
}

void Sequences::add(std::span<const std::uint8_t> sequence, std::uint8_t label) {
  symbols.insert(symbols.end(), sequence.begin(), sequence.end());
  ends.push_back(static_cast<i64>(symbols.size()));
  labels.push_back(label);
}

void Sequences::add(std::span<const std::uint8_t> first, std::span<const std::uint8_t> second,
                    std::uint8_t label) {
  symbols.insert(symbols.end(), first.begin(), first.end());
  ends.push_back(static_cast<i64>(symbols.size()));
  add(second, label);
}

double Sequences::mean_length() const {
  return static_cast<double>(symbols.size()) / static_cast<double>(ends.size());
}

const Sequences& SequenceTask::part(const std::string& name) const {
  check_word("split", name, {"train", "validation", "test"});
  return name == "train" ? train : name == "validation" ? validation : test;
}

SequenceBatch batch_of(const Sequences& sequences, std::span<const i64> which, i64 length) {
  const auto B = static_cast<i64>(which.size()), together = sequences.together;
  const SequenceBatch batch{Tensor::zeros({B * together, length}, DType::i64),
                            Tensor::empty({B * together}, DType::i64),
                            Tensor::empty({B}, DType::i64)};
  for (i64 b = 0; b < B; ++b) {
    const i64 from = which[static_cast<std::size_t>(b)];
    for (i64 i = 0; i < together; ++i) {
      const std::span<const std::uint8_t> sequence = sequences.at(from * together + i);
      const i64 row = b * together + i;
      std::copy(sequence.begin(), sequence.end(), batch.symbols.data<i64>() + row * length);
      batch.lengths.data<i64>()[row] = static_cast<i64>(sequence.size());
    }
    batch.labels.data<i64>()[b] = sequences.labels[static_cast<std::size_t>(from)];
  }
  return batch;
}

namespace {

constexpr std::uint32_t order_stream = 0xFFFF'0000;  // far above the streams of a step

}  // namespace

SequenceBatches::SequenceBatches(const Sequences& sequences, i64 length, i64 batch,
                                 std::uint64_t seed)
    : sequences_(sequences),
      length_(length),
      rows_(own_rows(batch)),
      order_(sequences.count(), batch, seed, order_stream) {
  require(epoch_steps() >= 1,
          "--batch: wanted no more than the {} sequences of the training part, got {}",
          sequences.count(), batch);
}

SequenceBatch SequenceBatches::operator()(std::uint32_t step) {
  return batch_of(sequences_, rows_.of(order_(step)), length_);
}

}  // namespace weft::lra
