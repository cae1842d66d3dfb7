#include "apps/lra/evaluate.h"

#include <algorithm>
#include <numeric>

#include "ops/cross_entropy/cross_entropy.h"
#include "runtime/communicator.h"

namespace weft::lra {

Measure measure(const Model& model, const Sequences& part, const Advance& advance) {
  const SequenceClassifier& network = *model.network;
  const i64 classes = model.settings.model.classes;
  std::vector<i64> which(static_cast<std::size_t>(part.count()));
  std::iota(which.begin(), which.end(), 0);
  const auto most = static_cast<std::size_t>(model.settings.batch);
  // The loss of all sequences of a batch, and how many are right.
  const auto measured = [&](i64 i) {
    const std::size_t begin = static_cast<std::size_t>(i) * most;
    const auto now = std::span(which).subspan(begin, std::min(most, which.size() - begin));
    const SequenceBatch batch = batch_of(part, now, model.settings.model.length);
    Context context = Context::evaluation();
    const Variable logits =
        network(context, batch.symbols.to(network.device()), batch.lengths.to(network.device()));
    const Tensor labels = batch.labels.to(network.device());
    const double loss =
        cross_entropy(logits, labels).value().item() * static_cast<double>(now.size());
    double right = 0;
    const std::vector<float> values = logits.value().to_vector<float>();
    for (std::size_t i = 0; i < now.size(); ++i) {
      const auto row = std::span(values).subspan(i * static_cast<std::size_t>(classes),
                                                 static_cast<std::size_t>(classes));
      right +=
          std::max_element(row.begin(), row.end()) - row.begin() == batch.labels.data<i64>()[i];
    }
    advance(static_cast<double>(begin + now.size()) / static_cast<double>(which.size()));
    return std::vector<double>{loss, right};
  };
  double loss = 0, right = 0;
  const auto batches = static_cast<i64>((which.size() + most - 1) / most);
  for (const std::vector<double>& found : ranks().divide(batches, measured)) {
    loss += found[0], right += found[1];
  }
  const auto count = static_cast<double>(which.size());
  return {loss / count, loss / count, {{"accuracy", "% right", 100 * right / count}}};
}

double accuracy(const Measure& measure) { return measure.figures.at(0).value; }

}  // namespace weft::lra
