#include "apps/lra/evaluate.h"

#include <algorithm>
#include <numeric>

#include "ops/cross_entropy/cross_entropy.h"

namespace weft::lra {

Measure measure(const Model& model, const Sequences& part, const Advance& advance) {
  const SequenceClassifier& network = *model.network;
  const i64 classes = model.settings.model.classes;
  std::vector<i64> which(static_cast<std::size_t>(part.count()));
  std::iota(which.begin(), which.end(), 0);
  const auto most = static_cast<std::size_t>(model.settings.batch);
  double loss = 0;
  i64 right = 0;
  for (std::size_t begin = 0; begin < which.size(); begin += most) {
    const auto now = std::span(which).subspan(begin, std::min(most, which.size() - begin));
    const SequenceBatch batch = batch_of(part, now, model.settings.model.length);
    Context context = Context::evaluation();
    const Variable logits =
        network(context, batch.symbols.to(network.device()), batch.lengths.to(network.device()));
    const Tensor labels = batch.labels.to(network.device());
    loss += cross_entropy(logits, labels).value().item() * static_cast<double>(now.size());
    const std::vector<float> values = logits.value().to_vector<float>();
    for (std::size_t i = 0; i < now.size(); ++i) {
      const auto row = std::span(values).subspan(i * static_cast<std::size_t>(classes),
                                                 static_cast<std::size_t>(classes));
      right +=
          std::max_element(row.begin(), row.end()) - row.begin() == batch.labels.data<i64>()[i];
    }
    advance(static_cast<double>(begin + now.size()) / static_cast<double>(which.size()));
  }
  const auto count = static_cast<double>(which.size());
  return {loss / count,
          loss / count,
          {{"accuracy", "% right", 100 * static_cast<double>(right) / count}}};
}

double accuracy(const Measure& measure) { return measure.figures.at(0).value; }

}  // namespace weft::lra
