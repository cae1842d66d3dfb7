#include "apps/language/model.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "apps/command_line/configuration.h"
#include "apps/training/model_products.h"
#include "autograd/tape.h"
#include "ops/attention/mechanism.h"
#include "ops/gather/gather.h"
#include "ops/pointwise/pointwise.h"
#include "ops/views/views.h"
#include "runtime/random.h"

namespace weft {
namespace {

// The number of parameters that depend on the length, in one attention layer; `held` + 1 for any
// number above `held`.
i64 learnt_by_position(const UniversalTransformerConfig& config, i64 held) {
  const AttentionSpec spec(config.attention);
  if (!learns_by_position(spec)) return 0;
  const i64 e = std::max<i64>(config.width / std::max<i64>(config.heads, 1), 1);
  const AttentionSizes sizes{
      .H = config.heads, .E = e, .M = e, .d = config.width, .N_max = config.length};
  double numbers = 0;
  for (const AttentionInput& input : attention_inputs(spec, sizes)) {
    double count = input.role == Role::parameter ? 1 : 0;
    for (const i64 side : input.shape) count *= static_cast<double>(side);
    numbers += count;
  }
  return numbers > static_cast<double>(held) ? held + 1 : static_cast<i64>(numbers);
}

i64 hidden_of(const UniversalTransformerConfig& config) {
  return config.hidden > 0 ? config.hidden : 4 * config.width;
}

// A lower bound of the number of elements, of which the file holds `held`.
i64 claimed(const UniversalTransformerConfig& config, i64 held) {
  const i64 d = config.width;  // sizes are within their limits: products do not overflow
  i64 numbers = std::max(d * config.vocabulary, 2 * d * hidden_of(config));
  if (config.encoding == "conv") numbers = std::max(numbers, d * d * config.conv_width);
  if (config.encoding == "position") numbers = std::max(numbers, d * config.length);
  if (!config.shared) numbers = std::max(numbers, d * d * config.depth);
  return std::max(numbers, learnt_by_position(config, held));
}

// "q [B N H E], k [B S H E]": the inputs that a layer's weights project to.
std::string learnt_inputs(const AttentionSpec& spec) {
  std::string text;
  for (const AttentionInput& input : attention_inputs(spec)) {
    if (input.optional && input.role != Role::parameter) continue;
    text += fmt::format("{}{} [{}]{}", text.empty() ? "" : ", ", input.name, input.axes,
                        input.biased ? " with a bias" : "");
  }
  return text;
}

// Task::operations for each token.
double products_per_token(const UniversalTransformerConfig& m,
                          const std::vector<NamedParameter>& parameters) {
  const i64 e = m.width / m.heads;
  const AttentionLayers layers{.spec = AttentionSpec(m.attention),
                               .sizes = {.B = 1,
                                         .N = m.length,
                                         .S = m.length + m.memory,
                                         .H = m.heads,
                                         .E = e,
                                         .M = e,
                                         .d = m.width,
                                         .N_max = m.length},
                               .causal = true,
                               .count = m.depth};
  const auto length = static_cast<double>(m.length);
  const auto uses = [&](const std::string& name) {
    if (name == "position" || name == "depth" || name.starts_with("halting")) return 0.0;
    // The convolution is one for all steps even where each has a block of its own.
    const bool again = name.starts_with("convolution") || (m.shared && name.starts_with("block"));
    return length * static_cast<double>(again ? m.depth : 1);
  };
  return products_per_sequence(parameters, layers, uses) / length;
}

// The memory carried from segment to segment in training, at fixed addresses.
class Remembered {
 public:
  Remembered() = default;
  explicit Remembered(UniversalTransformer::Memory start) : kept_(std::move(start)) {}

  std::vector<NamedTensor> named() const {
    std::vector<NamedTensor> all;
    for (std::size_t t = 0; t < kept_.steps.size(); ++t) {
      const auto& [attention, convolution] = kept_.steps[t];
      all.push_back({fmt::format("memory.{}", t), attention});
      if (convolution.window.defined()) {
        all.push_back({fmt::format("memory.convolution.{}", t), convolution.window});
      }
    }
    return all;
  }

  // The memory for one shard of the next step to read and update; `counts` [1] is 0 where the
  // streams begin.
  UniversalTransformer::Memory& next(const Tensor& counts, const Task::Step& step) {
    next_.resize(static_cast<std::size_t>(step.parts));
    UniversalTransformer::Memory& next = next_[static_cast<std::size_t>(step.part)] = kept_;
    each_pair(next, [&](const Tensor& kept, Tensor& next) {
      next = mul(step.rows_of(kept), counts.to(kept.dtype())).value();
    });
    return next;
  }

  // Keeps the step's memory if `updated` is 1. `updated` is a tensor because on a CUDA device the
  // host does not know its value.
  void carry(const Tensor& updated) {
    const Tape::Pause pause;
    Task::Step step{.parts = static_cast<i64>(next_.size())};
    for (UniversalTransformer::Memory& left : next_) {
      each_pair(left, [&](const Tensor& all, Tensor& next) {
        const Tensor kept = step.rows_of(all);
        const Variable both[] = {kept.reshape({1, kept.count()}), next.reshape({1, next.count()})};
        const Tensor which = updated.to(DType::i64).reshape({1, 1});
        kept.copy_from(gather(concatenate(both, 0), 0, which).value().reshape(kept.shape()));
      });
      ++step.part;
    }
  }

 private:
  void each_pair(UniversalTransformer::Memory& other, const auto& f) {
    for (std::size_t t = 0; t < kept_.steps.size(); ++t) {
      f(kept_.steps[t].attention, other.steps[t].attention);
      const Tensor& window = kept_.steps[t].convolution.window;
      if (window.defined()) f(window, other.steps[t].convolution.window);
    }
  }

  UniversalTransformer::Memory kept_;
  std::vector<UniversalTransformer::Memory> next_;  // of the shards
};

}  // namespace

std::vector<std::string> spellings_presets(const std::string& dataset) {
  std::vector<std::string> names;
  for (const char* attention : {"full", "agglomerative"}) {
    for (const char* encoding : {"position", "conv"}) {
      names.push_back(fmt::format("{}-{}-{}", dataset, attention, encoding));
    }
  }
  return names;
}

UniversalTransformerConfig spellings_network(const std::string& preset) {
  const std::size_t first = preset.find('-') + 1, last = preset.rfind('-');
  UniversalTransformerConfig network;
  network.attention = preset.substr(first, last - first);
  network.encoding = preset.substr(last + 1);
  return network;
}

void train_as_spellings(TrainingSettings& s) {
  s.optimizer = "adadelta:rho=0.95,epsilon=1e-7";
  s.lr = 1;
  s.schedule = "constant";
  s.warmup = 0;
  s.clip = 0;
  s.epochs = 256;
  s.patience = 10;
}

UniversalTransformerConfig small_network() {
  UniversalTransformerConfig network;
  network.attention = "agglomerative";
  network.encoding = "conv";
  network.depth = 2;
  network.act = false;
  network.attention_dropout = network.residual_dropout = network.output_dropout = 0;
  return network;
}

std::vector<std::string> network_setting_names() {
  std::vector<std::string> names;
  const UniversalTransformerConfig network;
  each_network_setting(network, [&](const char* name, const auto&, const Limits&, const char*) {
    names.emplace_back(name);
  });
  return names;
}

void check_network(const UniversalTransformerConfig& network) {
  check_word("encoding", network.encoding, {"position", "conv", "rotary", "none"});
  check_word("wiring", network.wiring, {"universal", "vanilla", "prenorm"});
  AttentionSpec{network.attention};
}

void check_encoding(const UniversalTransformerConfig& network) {
  try {
    check_memory(network);
  } catch (const Error& error) {
    fail("--{}", error.what());
  }
  if (network.encoding != "rotary" || network.width % network.heads != 0) return;
  const i64 e = network.width / network.heads;
  try {
    nn::check_rotary(AttentionSpec(network.attention),
                     {.H = network.heads, .E = e, .M = e, .d = network.width});
  } catch (const Error& error) {
    fail("--encoding rotary: {}", error.what());
  }
}

void check_causal(const std::string& attention, bool allow_leaky) {
  const AttentionSpec spec(attention);
  const Mechanism& mechanism = spec.mechanism();
  require(mechanism.masks.causal,
          "--attention {}: has no causal form, which a language model needs", spec.text());
  require(mechanism.strictly_causal || allow_leaky,
          "--attention {}: is not strictly causal: a position depends on later ones, which makes "
          "the loss meaningless; --allow-leaky accepts it",
          spec.text());
}

std::string description(const std::string& name, const UniversalTransformerConfig& m,
                        i64 parameters) {
  const char* const order = m.encoding == "conv"     ? "causal convolution"
                            : m.encoding == "rotary" ? "rotary positions"
                            : m.encoding == "none"   ? "no positions"
                                                     : "trained positions";
  const std::string memory = m.memory > 0 ? fmt::format(", memory {}", m.memory) : "";
  return fmt::format(
      "model  {}: {} attention, {}, width {}, depth {}, heads {}, length {}{}; {} parameters",
      name.empty() ? "universal transformer" : name, m.attention, order, m.width, m.depth, m.heads,
      m.length, memory, grouped(parameters));
}

Task training_of(UniversalTransformer& network, const TrainingSettings& settings) {
  Task task;
  take_parts(task, network, settings.seed);
  const auto remembered = std::make_shared<Remembered>();
  if (network.config().memory > 0) {
    *remembered = Remembered(network.start_of(own_rows(settings.batch).count));
    task.carried = remembered->named();
    task.carry = [remembered](const Tensor& updated) { remembered->carry(updated); };
  }
  task.loss = [&network, remembered, settings](const std::vector<Tensor>& batch,
                                               const Task::Step& step) {
    Context context = step.context(settings);
    const bool follows = batch.size() > 2;
    const auto [entropy, penalty] = network.loss(
        context, batch[0], batch[1], follows ? &remembered->next(batch[2], step) : nullptr);
    return Task::Loss{add(entropy, penalty), entropy.value()};
  };
  task.targets_per_step = settings.batch * network.config().length;
  task.operations = static_cast<double>(task.targets_per_step) *
                    products_per_token(network.config(), task.parameters);
  task.operations_at_most = cost_is_at_most(AttentionSpec(network.config().attention));
  return task;
}

Pass pass_over(const UniversalTransformer& network, Texts texts, i64 batches,
               const std::function<Batch(i64)>& batch_at, const Advance& advance) {
  const bool goes_on = texts == Texts::go_on;
  Pass pass;
  UniversalTransformer::Memory memory;
  // The penalty, the targets of a row, and the nats of each row.
  const auto measured = [&](i64 i) {
    const Batch batch = batch_at(i);
    const Device device = network.device();
    if (goes_on && i == 0) memory = network.start_of(batch.inputs.size(0));
    const auto [nats, penalty] = network.score(batch.inputs.to(device), batch.targets.to(device),
                                               goes_on ? &memory : nullptr);
    const std::vector<double> values = nats.to_vector<double>();
    const auto length = static_cast<std::size_t>(batch.targets.size(1));
    std::vector<double> found = {penalty.item(), static_cast<double>(length)};
    for (std::size_t row = 0; row < values.size(); row += length) {
      double sum = 0;
      for (std::size_t t = 0; t < length; ++t) sum += values[row + t];
      found.push_back(sum);
    }
    advance(static_cast<double>(i + 1) / static_cast<double>(batches));
    return found;
  };
  i64 rows = 0;
  const auto add_up = [&](const std::vector<double>& found) {
    const double penalty = found[0], length = found[1];
    double all = 0;
    for (std::size_t row = 2; row < found.size(); ++row) {
      pass.row_perplexity += std::exp(found[row] / length);
      all += found[row];
    }
    const auto count = static_cast<i64>(found.size()) - 2;
    const i64 targets = count * static_cast<i64>(length);
    pass.cross_entropy += all;
    pass.loss += all + penalty * static_cast<double>(targets);
    pass.targets += targets;
    rows += count;
  };
  if (goes_on) {  // each batch wants the one before: every rank reads all
    for (i64 i = 0; i < batches; ++i) add_up(measured(i));
  } else {
    for (const std::vector<double>& found : ranks().divide(batches, measured)) add_up(found);
  }
  pass.loss /= static_cast<double>(pass.targets);
  pass.cross_entropy /= static_cast<double>(pass.targets);
  pass.row_perplexity /= static_cast<double>(rows);
  return pass;
}

RandomKey batch_key(Purpose purpose, std::uint64_t seed, std::uint32_t step) {
  constexpr std::uint32_t streams = 0xffff0000;
  return {seed, step, streams + static_cast<std::uint32_t>(purpose)};
}

std::unique_ptr<UniversalTransformer> load_network(const UniversalTransformerConfig& config,
                                                   const Checkpoint& checkpoint,
                                                   const std::string& app,
                                                   const std::string& file) {
  check_claims(claimed(config, numbers_in(checkpoint)), checkpoint, file,
               fmt::format("width {}, hidden {}, length {}, depth {}", config.width,
                           hidden_of(config), config.length, config.depth));
  auto network = std::make_unique<UniversalTransformer>(config, 0);
  load_weights(tensors(*network), checkpoint, app, file);
  return network;
}

void swap_attention(UniversalTransformerConfig& config, const std::string& attention,
                    const std::string& file) {
  const AttentionSpec own(config.attention), other(attention);
  const std::string learnt = learnt_inputs(own);
  const std::string wanted = learnt_inputs(other);
  require(
      learnt == wanted,
      "--attention {}: its weights are not in {}, which was trained with {}: that one takes {}, "
      "this one {}",
      other.text(), file, own.text(), learnt, wanted);
  config.attention = other.text();
}

Generator::Generator(const UniversalTransformer& network)
    : network_(network), state_(network.start()) {}

void Generator::restart() {
  state_ = network_.start();
  window_.erase(window_.begin(), window_.end() - network_.config().length / 2);
  if (!window_.empty()) network_.step(state_, window_);
}

Tensor Generator::read(std::span<const i64> ids) {
  const i64 length = network_.config().length;
  const bool ends = network_.has_last_position();
  Tensor logits;
  while (!ids.empty()) {
    if (ends && state_.position == length) restart();
    const i64 most = ends ? length - state_.position : length;
    const auto piece = ids.first(std::min(ids.size(), static_cast<std::size_t>(most)));
    ids = ids.subspan(piece.size());
    logits = network_.step(state_, piece);
    if (ends) window_.insert(window_.end(), piece.begin(), piece.end());
  }
  return logits;
}

bool restarts(const UniversalTransformer& network, i64 tokens) {
  return network.has_last_position() && tokens > network.config().length;
}

void check(const SamplingOptions& options) {
  require(std::isfinite(options.temperature) && options.temperature >= 0,
          "--temperature: wanted 0 or more, got {}", options.temperature);
  require(options.top_k >= 0, "--top-k: wanted 0 or more, got {}", options.top_k);
  require(options.top_p > 0 && options.top_p <= 1,
          "--top-p: wanted a number above 0 and of at most 1, got {}", options.top_p);
}

i64 draw(const Tensor& logits, const SamplingOptions& options, i64 first, std::uint64_t index) {
  require(all_finite(logits), "sample: the model's logits are not finite; its weights are damaged");
  const std::vector<float> values = logits.to_vector<float>();
  std::vector<i64> ids(values.size() - static_cast<std::size_t>(first));
  std::iota(ids.begin(), ids.end(), first);
  const auto logit = [&](i64 id) { return values[static_cast<std::size_t>(id)]; };
  const auto before = [&](i64 a, i64 b) {
    return logit(a) > logit(b) || (logit(a) == logit(b) && a < b);
  };
  // A full sort would take most of the time of a token, so only top_k logits are sorted, and all
  // only for top_p.
  const i64 most = options.temperature == 0 ? 1 : options.top_k;
  if (most > 0 && most < static_cast<i64>(ids.size())) {
    std::partial_sort(ids.begin(), ids.begin() + most, ids.end(), before);
    ids.resize(static_cast<std::size_t>(most));
  } else if (options.top_p < 1) {
    std::sort(ids.begin(), ids.end(), before);
  }
  const double greatest = logit(*std::min_element(ids.begin(), ids.end(), before));
  if (options.temperature == 0) return ids.front();
  std::vector<double> weights;
  double sum = 0;
  for (const i64 id : ids) {
    weights.push_back(std::exp((logit(id) - greatest) / options.temperature));
    sum += weights.back();
  }
  if (options.top_p < 1) {
    double held = 0;
    std::size_t kept = 0;
    while (held < options.top_p * sum) held += weights[kept++];
    ids.resize(kept);
    sum = held;
  }
  const Philox words = RandomKey{.seed = options.seed, .step = options.sample}.words(index);
  double rest = (words.word[0] + words.word[1] * 0x1p-32) * 0x1p-32 * sum;
  std::size_t choice = 0;
  while (choice + 1 < ids.size() && rest >= weights[choice]) rest -= weights[choice++];
  return ids[choice];
}

}  // namespace weft
