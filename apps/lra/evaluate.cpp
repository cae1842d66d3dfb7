#include "apps/lra/evaluate.h"

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
      accuracy_of(which, model.settings.batch, std::array{i64{1}}, classify, advance);
  return {found.loss, found.loss, {{"accuracy", "% right", found.top[0]}}};
}

}  // namespace weft::lra
