// What the apps that model language share: the network's settings, reading it back, and writing
// with it.
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

// The models of M. Spellings, "Agglomerative attention", arXiv 1907.06607, tables 1 and 2, as
// presets of a data set: "text8-full-position" and its like.
std::vector<std::string> spellings_presets(const std::string& dataset);
// The network of such a preset, and how the paper's code trains it; width and vocabulary are the
// app's.
UniversalTransformerConfig spellings_network(const std::string& preset);
void train_as_spellings(TrainingSettings& settings);

// One that learns a built-in text in about a minute on one core.
UniversalTransformerConfig small_network();

template <class SomeConfig, class F>
void each_network_setting(SomeConfig& m, const F& f) {
  constexpr Limits any{}, rate{0, 1 - 1e-9};
  f("attention", m.attention, any, "a mechanism, as name:option=value,option=value");
  f("encoding", m.encoding, any, "how order is known: position, conv, rotary or none");
  f("width", m.width, Limits{1, 16384}, "of the model");
  f("depth", m.depth, Limits{1, 1024}, "how often the block is applied");
  f("heads", m.heads, Limits{1, 16384}, "heads, or classes, of the attention");
  f("hidden", m.hidden, Limits{.most = 65536, .later = true},
    "width inside the feed-forward layer; 0: four times the width");
  f("length", m.length, Limits{1, 1 << 20}, "tokens in a window");
  f("memory", m.memory, Limits{.most = 1 << 20, .later = true},
    "tokens of earlier windows that attention sees; trains on texts that go on from window to "
    "window");
  f("conv-width", m.conv_width, Limits{1, 1024}, "tokens that the convolution sees");
  f("wiring", m.wiring, any,
    "universal, vanilla or prenorm: where dropout and layer norms of the block stand");
  f("shared", m.shared, any, "one block for all of the depth");
  f("act", m.act, any, "adaptive computation time");
  f("attention-dropout", m.attention_dropout, rate, "rate on the attention weights");
  f("residual-dropout", m.residual_dropout, rate, "rate in the block");
  f("output-dropout", m.output_dropout, rate, "rate before the output");
  f("l2", m.l2, Limits{0, 1e3}, "weight of the squares of embedding and output matrix");
}

// The names of those.
std::vector<std::string> network_setting_names();

// Throws, naming the setting, where a word is none that is known.
void check_network(const UniversalTransformerConfig& network);
// Throws where the attention has nothing that the encoding could turn, or does not go with a
// memory: for a network that is about to be made.
void check_encoding(const UniversalTransformerConfig& network);
// Throws where the attention is not strictly causal, unless that is allowed: a prediction that the
// future reaches measures nothing.
void check_causal(const std::string& attention, bool allow_leaky);

// The line that describes the model of a run; `name` may be empty.
std::string description(const std::string& name, const UniversalTransformerConfig& network,
                        i64 parameters);

// --- losses

// The training of `network`, which stays where it is meanwhile: its loss is the cross-entropy and
// the network's penalty. The app adds its batches {inputs, targets}, or those of following_batch()
// where the network has a memory, the validation, the score and what a checkpoint says.
Task training_of(UniversalTransformer& network, const TrainingSettings& settings);

// Called now and then with the share that is done.
using Advance = std::function<void(double)>;

// What a pass over batches measured.
struct Pass {
  double loss = 0, cross_entropy = 0;  // means over the targets, in nats
  double row_perplexity = 0;  // the mean over all windows of e to the mean cross-entropy of one
  i64 targets = 0;
};
// Whether each batch goes on with the texts of the one before, the first with an empty memory.
enum class Texts { apart, go_on };
Pass pass_over(const UniversalTransformer& network, Texts texts, i64 batches,
               const std::function<Batch(i64)>& batch_at, const Advance& advance);
// Over every id but the first, in consecutive windows of the network's length; with a memory one
// after the other.
template <class Id>
Pass pass_over_all(const UniversalTransformer& network, std::span<const Id> ids, i64 batch,
                   const Advance& advance) {
  const bool goes_on = network.config().memory > 0;
  const ConsecutiveWindows<Id> windows(ids, goes_on ? 1 : batch, network.config().length);
  return pass_over(
      network, goes_on ? Texts::go_on : Texts::apart, windows.count(),
      [&](i64 i) { return windows[i]; }, advance);
}

// The batch of a training step on texts that go on from step to step: windows, targets, and whether
// what the steps before remember counts (1), or all texts begin here (0).
template <class Id>
std::vector<Tensor> following_batch(const ContiguousTexts<Id>& texts, std::uint32_t step) {
  const i64 segment = static_cast<i64>(step - 1) % texts.segments();
  const Batch windows = texts[segment];
  return {windows.inputs, windows.targets, Tensor::full({1}, segment == 0 ? 0 : 1, DType::f32)};
}

// Modules draw from the streams 0, 1, … of a step; batches stand far above. Those of one purpose
// are a function of the seed and the purpose, whatever else is drawn.
enum class Purpose : std::uint32_t { train = 1, validation = 2, test = 3 };
RandomKey batch_key(Purpose purpose, std::uint64_t seed, std::uint32_t step);

// --- from a checkpoint

// Makes the network of a checkpoint that is not trusted: sizes that `config` claims are compared
// with what it holds before anything is built. Weights that are not finite are loaded, with a
// warning on stderr that begins with `app`.
std::unique_ptr<UniversalTransformer> load_network(const UniversalTransformerConfig& config,
                                                   const Checkpoint& checkpoint,
                                                   const std::string& app, const std::string& file);
// The weights serve another mechanism; throws, saying why, where they do not fit.
void swap_attention(UniversalTransformerConfig& config, const std::string& attention,
                    const std::string& file);

// --- writing

// Reads a text, a prompt at once. The state belongs to the generator: one for each text that is
// written at once.
//
// A model with a convolution goes on for ever. One with positions, or whose attention learns by
// position, has `length` of them: when they are used up it starts again from the last half window,
// which it reads anew.
class Generator {
 public:
  // `restarted` is called at the first restart.
  explicit Generator(const UniversalTransformer& network, std::function<void()> restarted = {});

  // Reads n ≥ 1 more tokens, `length` of them in a step; returns the logits [V] of the next.
  Tensor read(std::span<const i64> ids);
  Tensor read(i64 id) { return read({&id, 1}); }

 private:
  void restart();

  const UniversalTransformer& network_;
  std::function<void()> restarted_;  // until it is called
  UniversalTransformer::State state_;
  std::vector<i64> window_;  // what a restart may have to read again; at most `length`
};

// In the order in which they count.
struct SamplingOptions {
  double temperature = 1;  // 0: the most probable token
  i64 top_k = 0;           // among this many most probable ones; 0: among all
  double top_p = 1;        // of these, the fewest most probable with this share of their sum
  std::uint64_t seed = 1;
  std::uint32_t sample = 0;  // which of the texts of this seed
};
void check(const SamplingOptions& options);

// An id of at least `first`, drawn from softmax(logits / temperature), cut to the top_k largest,
// and then to the nucleus of top_p (A. Holtzman et al., "The curious case of neural text
// degeneration", ICLR 2020, arXiv 1904.09751, section 3.1); a function of seed, sample and `index`.
i64 draw(const Tensor& logits, const SamplingOptions& options, i64 first, std::uint64_t index);

}  // namespace weft
