#include "apps/lra/evaluate.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "apps/training/accuracy.h"

namespace weft::lra {

Measure measure(const Model& model, const Sequences& part, const Advance& advance) {
  const SequenceClassifier& network = *model.network;
  std::vector<i64> which(static_cast<std::size_t>(part.count()));
  std::iota(which.begin(), which.end(), 0);
  const auto classify = [&](std::span<const i64> some) -> Classified {
    const SequenceBatch batch = batch_of(part, some, model.settings.model.length);
    Context context = Context::evaluation();
    const Variable logits =
        network(context, batch.symbols.to(network.device()), batch.lengths.to(network.device()));
    return {logits.value(), batch.labels};
  };
  const Accuracy found =
      accuracy_of(which, model.settings.at_once(), std::array{i64{1}}, classify, advance);
  return {found.loss, found.loss, {{"accuracy", "% right", found.top[0]}}};
}

std::vector<Figure> baselines(const SequenceTask& task, const Sequences& part) {
  using Counts = std::vector<i64>;
  const std::size_t classes = task.classes.size();
  Counts all(classes, 0);
  std::vector<Counts> behind(256, Counts(classes, 0));
  for (i64 i = 0; i < task.train.count(); ++i) {
    const std::size_t label = task.train.labels[static_cast<std::size_t>(i)];
    ++all[label];
    if (task.first_tells) ++behind[task.train.at(i).front()][label];
  }
  const auto most = [](const Counts& counts) {
    return static_cast<std::size_t>(std::max_element(counts.begin(), counts.end()) -
                                    counts.begin());
  };
  i64 by_majority = 0, by_word = 0;
  for (i64 i = 0; i < part.count(); ++i) {
    const std::size_t label = part.labels[static_cast<std::size_t>(i)];
    by_majority += label == most(all);
    if (task.first_tells) by_word += label == most(behind[part.at(i).front()]);
  }
  const double share = 100 / static_cast<double>(part.count());
  std::vector<Figure> found = {
      {"majority", "% by the most frequent class", share * static_cast<double>(by_majority)}};
  if (task.first_tells) {
    found.push_back(
        {"first_word", "% by the first word alone", share * static_cast<double>(by_word)});
  }
  return found;
}

}  // namespace weft::lra
