#include "apps/training/accuracy.h"

#include <algorithm>

#include "ops/cross_entropy/cross_entropy.h"
#include "runtime/communicator.h"

namespace weft {

i64 count_top(const Tensor& logits, const Tensor& labels, i64 k) {
  const i64 rows = logits.size(0), classes = logits.size(1);
  const std::vector<float> values = logits.to_vector<float>();
  const std::vector<i64> wanted = labels.to_vector<i64>();
  i64 right = 0;
  for (i64 i = 0; i < rows; ++i) {
    const float* const row = values.data() + i * classes;
    const i64 label = wanted[static_cast<std::size_t>(i)];
    i64 before = 0;
    for (i64 j = 0; j < classes; ++j) {
      before += row[j] > row[label] || (row[j] == row[label] && j < label);
    }
    right += before < k && row[label] == row[label];
  }
  return right;
}

Accuracy accuracy_of(std::span<const i64> which, i64 most, std::span<const i64> k,
                     const std::function<Classified(std::span<const i64>)>& classify,
                     const Advance& advance) {
  const auto count = static_cast<i64>(which.size());
  // The loss of all examples of a batch, and how many are right for each k.
  const auto measured = [&](i64 i) {
    const i64 begin = i * most, size = std::min(most, count - begin);
    const Classified found =
        classify(which.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(size)));
    const Tensor labels = found.labels.to(found.logits.device());
    const double loss = cross_entropy(found.logits, labels).value().item();
    const Tensor logits = found.logits.to(Device{});
    std::vector<double> sums{loss * static_cast<double>(size)};
    for (const i64 largest : k) {
      sums.push_back(static_cast<double>(count_top(logits, found.labels, largest)));
    }
    advance(static_cast<double>(begin + size) / static_cast<double>(count));
    return sums;
  };
  std::vector<double> sums(k.size() + 1);
  for (const std::vector<double>& found : ranks().divide((count + most - 1) / most, measured)) {
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += found[i];
  }
  Accuracy accuracy{sums[0] / static_cast<double>(count), {}};
  for (std::size_t i = 1; i < sums.size(); ++i) {
    accuracy.top.push_back(100 * sums[i] / static_cast<double>(count));
  }
  return accuracy;
}

}  // namespace weft
