#include "apps/wordlm/evaluate.h"

#include <cmath>
#include <numeric>

#include "apps/common/shuffle.h"

namespace weft::wordlm {

namespace {

i64 batches_of(const WordChunks& chunks, i64 batch) { return (chunks.count() + batch - 1) / batch; }

ContiguousTexts<std::int32_t> texts_of(const Settings& s, const WordChunks& training) {
  return {training.ids(), s.batch, s.model.length};
}

}  // namespace

i64 epoch_steps(const Settings& s, const WordChunks& training) {
  return s.model.memory > 0 ? texts_of(s, training).segments() : batches_of(training, s.batch);
}

Pass pass_over_chunks(const UniversalTransformer& network, const WordChunks& chunks, i64 batch,
                      const Advance& advance) {
  const auto batch_at = [&](i64 i) {
    const i64 first = i * batch;
    std::vector<i64> some(static_cast<std::size_t>(std::min(batch, chunks.count() - first)));
    std::iota(some.begin(), some.end(), first);
    return chunks.batch(some);
  };
  return pass_over(network, Texts::apart, batches_of(chunks, batch), batch_at, advance);
}

Task training_task(const Model& model, const WordChunks& training, const WordChunks& validation) {
  const Settings& s = model.settings;
  const UniversalTransformer& network = *model.network;
  Task task = training_of(*model.network, s);
  struct Epoch {
    i64 number = -1;
    std::vector<i64> order;
  };
  task.batch = [&s, &training, epoch = Epoch{}](std::uint32_t step) mutable {
    const i64 steps = batches_of(training, s.batch), number = (step - 1) / steps;
    if (number != epoch.number) {
      epoch = {number, shuffled(training.count(), batch_key(Purpose::train, s.seed,
                                                  static_cast<std::uint32_t>(number)))};
    }
    std::vector<i64> some;
    for (i64 i = 0; i < s.batch; ++i) {
      const i64 place = ((step - 1) % steps * s.batch + i) % training.count();
      some.push_back(epoch.order[static_cast<std::size_t>(place)]);
    }
    const Batch batch = training.batch(some);
    return std::vector{batch.inputs, batch.targets};
  };
  if (s.model.memory > 0) {
    task.batch = [texts = texts_of(s, training)](std::uint32_t step) {
      return following_batch(texts, step);
    };
  }
  task.validate = [&](const Advance& advance) {
    const Pass pass = s.model.memory > 0
                          ? pass_over_all(network, validation.ids(), s.batch, advance)
                          : pass_over_chunks(network, validation, s.batch, advance);
    return Measure{pass.loss,
                   pass.cross_entropy,
                   {{"paper_perplexity", "ppl as the paper counts", pass.row_perplexity}}};
  };
  task.score = {"perplexity", "ppl", [](double nats) { return std::exp(nats); }};
  task.metadata = metadata_of(model);
  return task;
}

void odd_batches(const Model& model, const WordCorpus& corpus) {
  const UniversalTransformer& network = *model.network;
  const Settings& s = model.settings;
  const auto batch = static_cast<std::size_t>(s.batch * s.model.length);
  const auto ignored = [](double) {};
  for (const std::vector<std::int32_t>* const part : {&corpus.validation, &corpus.test}) {
    const std::span<const std::int32_t> ids(*part);
    const WordChunks chunks(ids.last(ids.size() % batch), s.model.length,
                            model.pieces->special().pad);
    pass_over_chunks(network, chunks, s.batch, ignored);
    pass_over_all(network, ids.last((ids.size() - 1) % batch + 1), s.batch, ignored);
  }
}

Perplexities perplexities(const Model& model, std::span<const std::int32_t> ids,
                          const WordCounts& counts, const Advance& advance) {
  const UniversalTransformer& network = *model.network;
  const Settings& s = model.settings;
  const WordChunks chunks(ids, s.model.length, model.pieces->special().pad);
  Perplexities found;
  found.chunks =
      pass_over_chunks(network, chunks, s.batch, [&](double share) { advance(share / 2); });
  found.all = pass_over_all(network, ids, s.batch, [&](double share) { advance((1 + share) / 2); });
  found.token = std::exp(found.all.cross_entropy);
  found.word = std::exp(found.all.cross_entropy * static_cast<double>(found.all.targets) /
                        static_cast<double>(counts.words));
  return found;
}

}  // namespace weft::wordlm
