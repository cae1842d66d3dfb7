#include "apps/wordlm/evaluate.h"

#include <cmath>
#include <numbers>
#include <numeric>

namespace weft::wordlm {

Pass pass_over_chunks(const UniversalTransformer& network, const WordChunks& chunks, i64 batch,
                      const Advance& advance) {
  const auto batch_at = [&](i64 i) {
    const i64 first = i * batch;
    std::vector<i64> some(static_cast<std::size_t>(std::min(batch, chunks.count() - first)));
    std::iota(some.begin(), some.end(), first);
    return chunks.batch(some);
  };
  return pass_over(network, Texts::apart, chunks.batches(batch), batch_at, advance);
}

Perplexities perplexities(const Model& model, std::span<const std::int32_t> ids,
                          const WordCounts& counts, const Advance& advance) {
  const UniversalTransformer& network = *model.network;
  const Settings& s = model.settings;
  const WordChunks chunks(ids, s.model.length, model.pieces->special().pad);
  Perplexities found;
  found.chunks =
      pass_over_chunks(network, chunks, s.at_once(), [&](double share) { advance(share / 2); });
  found.all =
      pass_over_all(network, ids, s.at_once(), [&](double share) { advance((1 + share) / 2); });
  found.token = std::exp(found.all.cross_entropy);
  const double nats = found.all.cross_entropy * static_cast<double>(found.all.targets);
  found.word = std::exp(nats / static_cast<double>(counts.words));
  found.bits_per_character = nats / std::numbers::ln2 / static_cast<double>(counts.characters);
  return found;
}

}  // namespace weft::wordlm
