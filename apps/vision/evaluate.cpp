#include "apps/vision/evaluate.h"

#include <numeric>

#include "ops/cross_entropy/cross_entropy.h"
#include "runtime/communicator.h"

namespace weft::vision {

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

Measure measure(const Model& model, const Pictures& pictures, std::span<const i64> which,
                const Advance& advance) {
  const Normalisation normalisation = normalisation_of(model.settings.dataset);
  const VisionTransformer& network = *model.network;
  const auto most = static_cast<std::size_t>(model.settings.batch);
  // The loss of all pictures of a batch, and how many are right.
  const auto measured = [&](i64 i) {
    const std::size_t begin = static_cast<std::size_t>(i) * most;
    const auto part = which.subspan(begin, std::min(most, which.size() - begin));
    const PictureBatch batch = plain_batch(pictures, part, normalisation);
    Context context = Context::evaluation();
    const Variable logits = network(context, batch.images.to(network.device()));
    const Tensor labels = batch.labels.to(network.device());
    advance(static_cast<double>(begin + part.size()) / static_cast<double>(which.size()));
    return std::vector<double>{
        cross_entropy(logits, labels).value().item() * static_cast<double>(part.size()),
        static_cast<double>(count_top(logits.value(), batch.labels, 1)),
        static_cast<double>(count_top(logits.value(), batch.labels, 5))};
  };
  double loss = 0, first = 0, fifth = 0;
  const auto batches = static_cast<i64>((which.size() + most - 1) / most);
  for (const std::vector<double>& found : ranks().divide(batches, measured)) {
    loss += found[0], first += found[1], fifth += found[2];
  }
  const auto count = static_cast<double>(which.size());
  return {loss / count,
          loss / count,
          {{"top_1", "% top-1", 100 * first / count}, {"top_5", "% top-5", 100 * fifth / count}}};
}

double percent(const Measure& measure, const std::string& key) {
  for (const Figure& figure : measure.figures) {
    if (figure.key == key) return figure.value;
  }
  fail("vision: nothing measured {}", key);
}

Parts divide(const PictureSet& set, const Settings& settings) {
  const i64 count = set.train.count();
  require(
      settings.validation <= count - settings.batch,
      "--validation: holding out {} of {} training pictures leaves no batch of {}; choose fewer",
      settings.validation, count, settings.batch);
  Division division = hold_out(count, settings.validation, settings.seed);
  std::vector<i64> test(static_cast<std::size_t>(set.test.count()));
  std::iota(test.begin(), test.end(), 0);
  return {set, std::move(division.kept), std::move(division.held), std::move(test)};
}

}  // namespace weft::vision
