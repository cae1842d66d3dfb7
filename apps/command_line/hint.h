// Suggestions for unknown options: the known option with the most similar spelling or, for the
// options of nanoGPT (github.com/karpathy/nanoGPT, train.py and sample.py) and llm.c
// (github.com/karpathy/llm.c, train_gpt2.py), the one with the same meaning.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "runtime/names.h"

namespace weft {

struct ForeignWord {
  std::vector<std::string> words;
  std::vector<std::string> ours;  // the first of these that the command has is suggested
  std::string note = {};          // printed instead if weft has no such option
};

inline const std::vector<ForeignWord>& foreign_words() {
  static const std::vector<ForeignWord> list = {
      {{"n-layer", "num-layers"}, {"depth", "layers"}},
      {{"n-embd", "d-model", "channels"}, {"width"}},
      {{"n-head", "num-heads"}, {"heads"}},
      {{"block-size", "sequence-length", "seq-len"}, {"length"}},
      {{"vocab-size"}, {"vocabulary", "pieces"}},
      {{"model", "model-type"}, {"preset"}},
      {{"batch-size"}, {"batch"}},
      {{"max-iters", "num-iterations", "max-steps", "lr-decay-iters"}, {"steps"}},
      {{"learning-rate"}, {"lr"}},
      {{"learning-rate-decay-frac"}, {"min-lr"}},
      {{"decay-lr", "lr-scheduler"}, {"schedule"}},
      {{"warmup-iters", "warmup-steps"}, {"warmup"}},
      {{"grad-clip"}, {"clip"}},
      {{"eval-interval", "val-loss-every"}, {"epoch-steps"}},
      {{"eval-iters", "val-max-steps"}, {"validation-batches"}},
      {{"log-interval"}, {"report-steps"}},
      {{"always-save-checkpoint", "save-every"}, {"checkpoint-steps"}},
      {{"out-dir", "output-dir"}, {"out"}},
      {{"init-from"}, {"resume", "checkpoint"}},
      {{"dataset", "data-dir", "input-bin", "input-val-bin"}, {"data"}},
      {{"start"}, {"prompt"}},
      {{"max-new-tokens"}, {"tokens"}},
      {{"num-samples"}, {"samples"}},
      {{"beta1", "beta2", "epsilon", "momentum"},
       {},
       "it belongs to the optimizer, as in --optimizer adamw:beta1=0.9,beta2=0.95"},
      {{"grad-accum", "grad-accum-steps", "gradient-accumulation-steps", "total-batch-size"},
       {"shards"}},
      {{"gradient-checkpointing", "activation-checkpointing", "checkpoint-activations"},
       {"recompute"}},
      {{"dtype", "tensorcores"}, {"precision"}},
      {{"compile"}, {}, "there is nothing to compile"},
      {{"flash"}, {}, "attention matrices are never stored"},
      {{"eval-only", "inference-only"}, {}, "eval is a command of its own"},
  };
  return list;
}

// The continuation of the error about the unknown option `wanted`: "; did you mean --width?",
// ": there is nothing to compile;", or ";" if no known option is similar. Names in `wanted` and
// `known` may begin with dashes; `dashes` is put before the suggested name.
inline std::string hint(const std::string& wanted, std::vector<std::string> known,
                        const std::string& dashes) {
  std::string plain = wanted;
  plain.erase(0, plain.find_first_not_of('-'));
  for (std::string& name : known) name.erase(0, name.find_first_not_of('-'));
  for (char& c : plain) {
    if (c == '_') c = '-';
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  const auto has = [](const std::vector<std::string>& names, const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  const auto meant = [&](const std::string& name) {
    return fmt::format("; did you mean {}{}?", dashes, name);
  };
  if (has(known, plain)) return meant(plain);
  for (const ForeignWord& foreign : foreign_words()) {
    if (!has(foreign.words, plain)) continue;
    if (!foreign.note.empty()) return ": " + foreign.note + ";";
    for (const std::string& ours : foreign.ours) {
      if (has(known, ours)) return meant(ours);
    }
  }
  const std::string near = nearest_name(plain, known);
  return near.empty() ? ";" : meant(near);
}

}  // namespace weft
