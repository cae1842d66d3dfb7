#include "apps/wordlm/task.h"

#include <cmath>

#include "apps/data/shuffle.h"
#include "apps/wordlm/evaluate.h"

namespace weft::wordlm {
namespace {

ContiguousTexts<std::int32_t> texts_of(const Settings& s, const WordChunks& training) {
  return {training.ids(), s.batch, s.model.length, own_rows(s.batch)};
}

}  // namespace

i64 epoch_steps(const Settings& s, const WordChunks& training) {
  return s.model.memory > 0 ? texts_of(s, training).segments() : training.batches(s.batch);
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
    const i64 steps = training.batches(s.batch), number = (step - 1) / steps;
    if (number != epoch.number) {
      epoch = {number, shuffled(training.count(), batch_key(Purpose::train, s.seed,
                                                            static_cast<std::uint32_t>(number)))};
    }
    std::vector<i64> some;
    const Rows rows = own_rows(s.batch);
    for (i64 i = rows.first; i < rows.first + rows.count; ++i) {
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
                          ? pass_over_all(network, validation.ids(), s.at_once(), advance)
                          : pass_over_chunks(network, validation, s.at_once(), advance);
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
  const auto batch = static_cast<std::size_t>(s.at_once() * s.model.length);
  const auto ignored = [](double) {};
  for (const std::vector<std::int32_t>* const part : {&corpus.validation, &corpus.test}) {
    const std::span<const std::int32_t> ids(*part);
    const WordChunks chunks(ids.last(ids.size() % batch), s.model.length,
                            model.pieces->special().pad);
    pass_over_chunks(network, chunks, s.at_once(), ignored);
    pass_over_all(network, ids.last((ids.size() - 1) % batch + 1), s.at_once(), ignored);
  }
}

}  // namespace weft::wordlm
