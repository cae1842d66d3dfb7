// Shared by the language models' apps: the network's settings, losses, loading, and generation.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "apps/command_line/settings.h"
#include "apps/data/windows.h"
#include "apps/training/train.h"
#include "nn/checkpoint.h"
#include "nn/universal_transformer.h"

namespace weft {

// Preset names of the models in M. Spellings, "Agglomerative attention", arXiv 1907.06607, tables 1
// and 2, for a data set: "text8-full-position" and so on.
std::vector<std::string> spellings_presets(const std::string& dataset);
// The network of such a preset, and the training settings of the paper's code. The app sets width
// and vocabulary.
UniversalTransformerConfig spellings_network(const std::string& preset);
void train_as_spellings(TrainingSettings& settings);

// A network that learns a built-in text in about a minute on one core.
UniversalTransformerConfig small_network();

constexpr Limits dropout_rates{0, 1 - 1e-9};

template <class SomeConfig, class F>
void each_network_setting(SomeConfig& m, const F& f) {
  constexpr Limits any{}, rate = dropout_rates;
  f("attention", m.attention, any, "a mechanism, as name:option=value,option=value");
  f("encoding", m.encoding, any, "position encoding: position, conv, rotary or none");
  f("width", m.width, Limits{1, 16384}, "width of the model");
  f("depth", m.depth, Limits{1, 1024}, "number of times the block is applied");
  f("heads", m.heads, Limits{1, 16384}, "heads, or classes, of the attention");
  f("hidden", m.hidden, Limits{.most = 65536, .later = true},
    "width inside the feed-forward layer; 0: four times the width");
  f("length", m.length, Limits{1, 1 << 20}, "tokens in a window");
  f("memory", m.memory, Limits{.most = 1 << 20, .later = true},
    "tokens of earlier windows that attention sees; training reads contiguous text");
  f("conv-width", m.conv_width, Limits{1, 1024}, "width of the causal convolution, in tokens");
  f("wiring", m.wiring, any,
    "universal, vanilla or prenorm: the place of dropout and layer norms in the block");
  f("shared", m.shared, any, "share one block over the whole depth");
  f("act", m.act, any, "adaptive computation time");
  f("attention-dropout", m.attention_dropout, rate, "dropout rate of the attention weights");
  f("residual-dropout", m.residual_dropout, rate, "dropout rate in the block");
  f("output-dropout", m.output_dropout, rate, "dropout rate before the output");
  f("l2", m.l2, Limits{0, 1e3}, "L2 penalty of embedding and output matrix");
  precision_setting(m.precision, f);
}

// The names of these settings.
std::vector<std::string> network_setting_names();

// Throws, naming the setting, for an unknown word.
void check_network(const UniversalTransformerConfig& network);
// Throws if rotary encoding or a memory does not fit the attention. Call it before the network is
// made.
void check_encoding(const UniversalTransformerConfig& network);
// Throws if the attention is not strictly causal, unless `allow_leaky`: if predictions depend on
// future tokens, the score is meaningless.
void check_causal(const std::string& attention, bool allow_leaky);

// The line that describes a run's model; `name` may be empty.
std::string description(const std::string& name, const UniversalTransformerConfig& network,
                        i64 parameters);

// --- losses

// A task that trains `network`, which must outlive it. The loss is the cross-entropy plus the
// network's penalty. The app adds the batches ({inputs, targets}, or following_batch() if the
// network has a memory), the validation, the score and the checkpoint's metadata.
Task training_of(UniversalTransformer& network, const TrainingSettings& settings);

// The measurements of a pass over batches.
struct Pass {
  double loss = 0, cross_entropy = 0;  // means over the targets, in nats
  double row_perplexity = 0;           // mean over windows of exp(mean cross-entropy of the window)
  i64 targets = 0;
};
// Whether each batch continues the streams of the batch before; the first has an empty memory.
enum class Texts { apart, go_on };
Pass pass_over(const UniversalTransformer& network, Texts texts, i64 batches,
               const std::function<Batch(i64)>& batch_at, const Advance& advance);
// Over every id but the first, in consecutive windows of the network's length; one by one if the
// network has a memory.
template <class Id>
Pass pass_over_all(const UniversalTransformer& network, std::span<const Id> ids, i64 batch,
                   const Advance& advance) {
  const bool goes_on = network.config().memory > 0;
  const ConsecutiveWindows<Id> windows(ids, goes_on ? 1 : batch, network.config().length);
  return pass_over(
      network, goes_on ? Texts::go_on : Texts::apart, windows.count(),
      [&](i64 i) { return windows[i]; }, advance);
}

// The batch of a training step on streams that continue from step to step: windows, targets, and 1
// if the memory of the steps before is valid, or 0 if all streams begin here.
template <class Id>
std::vector<Tensor> following_batch(const ContiguousTexts<Id>& texts, std::uint32_t step) {
  const i64 segment = static_cast<i64>(step - 1) % texts.segments();
  const Batch windows = texts[segment];
  return {windows.inputs, windows.targets, Tensor::full({1}, segment == 0 ? 0 : 1, DType::f32)};
}

// Random streams 0, 1, … of a step belong to the modules; those of batches are far above them. The
// batches of a purpose are a function of the seed and the purpose alone.
enum class Purpose : std::uint32_t { train = 1, validation = 2, test = 3 };
RandomKey batch_key(Purpose purpose, std::uint64_t seed, std::uint32_t step);

// --- from a checkpoint

// Builds the network of a checkpoint. The file is not trusted: the sizes in `config` are checked
// against its tensors before anything is allocated. Weights that are not finite are loaded, with a
// warning on stderr that begins with `app`.
std::unique_ptr<UniversalTransformer> load_network(const UniversalTransformerConfig& config,
                                                   const Checkpoint& checkpoint,
                                                   const std::string& app, const std::string& file);
// Changes the mechanism in `config`; throws, with the reason, if the weights do not fit it.
void swap_attention(UniversalTransformerConfig& config, const std::string& attention,
                    const std::string& file);

// --- generation

// The decoding state of one text: reads tokens and returns the logits of the next. A prompt is read
// in one step.
//
// A model with a convolution can continue without limit. One with position embeddings, or whose
// attention has parameters by position, is limited to `length` positions; after that it restarts by
// reading the last half window again.
class Generator {
 public:
  explicit Generator(const UniversalTransformer& network);

  // Reads n ≥ 1 more tokens, up to `length` in a step; returns the logits [V] of the next.
  Tensor read(std::span<const i64> ids);
  Tensor read(i64 id) { return read({&id, 1}); }

 private:
  void restart();

  const UniversalTransformer& network_;
  UniversalTransformer::State state_;
  std::vector<i64> window_;  // tokens for a restart to read again; at most `length`
};

// Whether reading this many tokens takes a restart.
bool restarts(const UniversalTransformer& network, i64 tokens);

// In the order in which they are applied.
struct SamplingOptions {
  double temperature = 1;  // 0: the most probable token
  i64 top_k = 0;           // only this many most probable tokens; 0: all
  double top_p = 1;        // of these, the smallest set of most probable ones with this probability
  std::uint64_t seed = 1;
  std::uint32_t sample = 0;  // index among the texts of this seed
};
void check(const SamplingOptions& options);

// Draws an id of at least `first` from softmax(logits / temperature), restricted to the top_k
// largest and then to the nucleus of top_p (A. Holtzman et al., "The curious case of neural text
// degeneration", ICLR 2020, arXiv 1904.09751, section 3.1). A function of seed, sample and `index`.
i64 draw(const Tensor& logits, const SamplingOptions& options, i64 first, std::uint64_t index);

}  // namespace weft
