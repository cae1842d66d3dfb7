// The protocol of the clustered-attention paper's Table 1 (A. Vyas et al., arXiv 2007.04825): train
// a model with one attention, then evaluate the same weights with another.
//
//     build/bench/swap --data text8 --out swap.json         (--steps, --seeds scale it)
//
// The paper does it on speech, with 100 and 200 clusters. Here a small transformer that is not
// causal fills in masked characters: 15 % of the symbols of a window of 512 are replaced by the
// unused id 0, and the loss is the cross-entropy at those positions, in bits a masked character, on
// the validation part. The input of a position also has the two symbols to each side of it, as a
// frame of speech shows its surroundings: from single symbols and positions alone, thousands of
// steps pass before attention learns where to look. Clusters 25 and 64, top-k 16 and 32. Every
// evaluation sees the same windows and masks.
//
// Further parameters of a mechanism (linformer's matrices, say) are learnt with the model, and an
// evaluation by a mechanism that needs parameters which the model does not have stays empty, too.
// So does that of a block (isab, star, biblosa, mega), which has projections of its own, by any
// other mechanism.
//
// Weights are kept as three projections q, k, v, or, if keys are the queries (shared-full, lsh), as
// two. Such weights are evaluated by every mechanism with k = q / |q|, as they were trained; a
// mechanism whose keys are the queries has no use for a trained k, and those cells stay empty.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <map>
#include <optional>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "apps/command_line/options.h"
#include "apps/command_line/output.h"
#include "apps/command_line/progress.h"
#include "apps/data/text.h"
#include "autograd/tape.h"
#include "bench/measure.h"
#include "nn/attention.h"
#include "nn/file.h"
#include "nn/initializer.h"
#include "nn/layers.h"
#include "nn/optimizer.h"
#include "nn/schedule.h"
#include "ops/attention/definitions.h"
#include "ops/attention/scores.h"
#include "ops/cross_entropy/cross_entropy.h"
#include "ops/embedding/embedding.h"
#include "ops/layer_norm/layer_norm.h"
#include "ops/pointwise/pointwise.h"
#include "ops/views/views.h"
#include "runtime/parallel.h"

namespace weft::bench {
namespace {

struct Options {
  std::string data, out = "swap.json";
  std::vector<std::uint64_t> seeds{1, 2, 3};
  std::vector<std::string> train, evaluate;
  i64 steps = 1200, batch = 4, length = 512, width = 64, heads = 4, layers = 2;
  i64 windows = 64;  // of an evaluation
  double rate = 3e-3;
  int threads = 1;
};

const std::vector<std::string> trained_with = {
    "full",
    "shared-full:normalize_keys=1",
    "lsh:rounds=1",
    "lsh:rounds=4",
    "clustered:clusters=25",
    "i-clustered:clusters=25,topk=16",
};
const std::vector<std::string> evaluated_with = {
    "full",
    "shared-full:normalize_keys=1",
    "lsh:rounds=1",
    "lsh:rounds=4",
    "clustered:clusters=25",
    "clustered:clusters=64",
    "i-clustered:clusters=25,topk=16",
    "i-clustered:clusters=25,topk=32",
    "i-clustered:clusters=64,topk=16",
    "i-clustered:clusters=64,topk=32",
    "topk:topk=16",
    "topk:topk=32",
};

bool has_input(const AttentionSpec& spec, const std::string& name) {
  return std::ranges::count(attention_inputs(spec), name, &AttentionInput::name) == 1;
}
bool shares_keys(const AttentionSpec& spec) {
  return has_input(spec, "q") && !has_input(spec, "k");
}

// Attention whose mechanism can be exchanged while the weights stay.
struct Attention {
  struct Learnt {
    std::string name;
    Parameter parameter;
  };

  i64 heads;
  bool shared;  // keys are queries
  nn::Linear projection, output;
  std::vector<Learnt> learnt = {};  // further parameters of the trained mechanism

  Attention(const Options& o, const AttentionSpec& trained)
      : heads(o.heads),
        shared(shares_keys(trained)),
        projection(o.width, (shared ? 2 : 3) * o.width),
        output(o.width, o.width) {
    const AttentionSizes sizes{.B = o.batch,
                               .N = o.length,
                               .S = o.length,
                               .H = heads,
                               .E = o.width / heads,
                               .M = o.width / heads,
                               .d = o.width,
                               .N_max = o.length};
    for (const AttentionInput& input : attention_inputs(trained, sizes)) {
      if (input.role != Role::parameter || input.causal) continue;
      Parameter made(input.shape, input.weight, DType::f32);
      learnt.push_back({input.name, std::move(made)});
    }
  }

  Variable operator()(Context& context, const AttentionSpec& spec, const Variable& x) const {
    const i64 B = x.size(0), N = x.size(1), d = x.size(2);
    std::vector<Variable> parts = split(projection(x), 2, std::vector<i64>(shared ? 2 : 3, d));
    for (Variable& part : parts) part = reshape(part, {B, N, heads, d / heads});
    std::map<std::string, Variable> known = {{"q", parts[0]}, {"v", parts.back()}};
    known["k"] = shared ? unit_rows(parts[0]) : parts[1];
    for (const Learnt& one : learnt) known[one.name] = one.parameter;
    std::vector<Variable> inputs;
    for (const AttentionInput& input : attention_inputs(spec)) {
      if (known.contains(input.name)) inputs.push_back(known.at(input.name));
    }
    AttentionCall call;
    call.random = context.random.next();
    call.training = context.training;
    return output(reshape(attend(spec, call, inputs).out, {B, N, d}));
  }
  // Whether the weights fit this mechanism.
  bool serves(const AttentionSpec& spec) const {
    if (shares_keys(spec) && !shared) return false;
    if (spec.mechanism().causal_only) return false;
    return std::ranges::all_of(attention_inputs(spec), [&](const AttentionInput& input) {
      const bool made = std::ranges::count(std::array{"q", "k", "v"}, input.name) == 1;
      const bool unneeded = input.causal || input.role == Role::drawn ||
                            (input.optional && input.role != Role::parameter);
      return made || unneeded || std::ranges::count(learnt, input.name, &Learnt::name) == 1;
    });
  }
  void each(const auto& visit) {
    visit("projection", projection), visit("output", output);
    for (Learnt& one : learnt) visit(one.name, one.parameter);
  }
};

struct Block {
  std::optional<Attention> attention;
  std::optional<nn::Attention> block;  // in its place
  std::optional<nn::LayerNorm> norm1;  // none where the block normalises by itself
  nn::LayerNorm norm2;
  nn::FeedForward feed_forward;

  Block(const Options& o, const AttentionSpec& trained)
      : norm2(o.width), feed_forward(o.width, 4 * o.width) {
    const Mechanism& mechanism = trained.mechanism();
    if (!mechanism.owns_residual) norm1.emplace(o.width);
    if (mechanism.kind != Kind::block) {
      attention.emplace(o, trained);
    } else {
      block.emplace(nn::AttentionOptions{.mechanism = trained.text(),
                                         .width = o.width,
                                         .heads = o.heads,
                                         .causal = false,
                                         .max_length = o.length});
    }
  }

  Variable operator()(Context& context, const AttentionSpec& spec, const Variable& x) const {
    const Variable before = norm1 ? (*norm1)(x) : x;
    const Variable found = block ? (*block)(context, before) : (*attention)(context, spec, before);
    const Variable y = norm1 ? add(x, found) : found;
    return add(y, feed_forward(norm2(y)));
  }
  // Whether the weights serve this mechanism.
  bool serves(const AttentionSpec& spec) const {
    return block ? spec.text() == block->spec().text()
                 : spec.mechanism().kind != Kind::block && attention->serves(spec);
  }
  void each(const auto& visit) {
    if (attention) visit("attention", *attention);
    if (block) visit("attention", *block);
    if (norm1) visit("norm1", *norm1);
    visit("norm2", norm2), visit("feed_forward", feed_forward);
  }
};

// Windows with some of their symbols hidden.
struct Masked {
  Tensor ids;      // [B, N], 0 if hidden
  Tensor places;   // [R] of the flattened windows
  Tensor targets;  // [R]
};

Masked masked_windows(Ids text, const RandomKey& key, i64 batch, i64 length) {
  const Tensor windows = random_windows(text, key, batch, length).inputs;
  Masked result{windows.clone(), {}, {}};
  std::vector<i64> places, targets;
  RandomKey hiding = key;
  hiding.stream ^= 0x5ca1ab1eu;
  for (i64 i = 0; i < windows.count(); ++i) {
    if (uniform(hiding.words(static_cast<std::uint64_t>(i)).word[0]) >= 0.15f) continue;
    places.push_back(i);
    targets.push_back(std::exchange(result.ids.data<i64>()[i], 0));
  }
  const auto count = static_cast<i64>(places.size());
  require(count > 0, "swap: no symbol was hidden in {} windows of {}", batch, length);
  result.places = Tensor::from(places, {count});
  result.targets = Tensor::from(targets, {count});
  return result;
}

// A frame, like those of speech, shows the symbols around its position: ids [B, N] of the one at
// `offset`, counted from offset · 28; 0 outside of the window.
constexpr i64 reach = 2;  // symbols to each side

Tensor neighbours(const Tensor& ids, i64 offset) {
  const i64 N = ids.size(1), first = (offset + reach) * Vocabulary::text8().size();
  const Tensor moved = Tensor::full(ids.shape(), static_cast<double>(first), DType::i64);
  const View<i64, 2> from = ids.view<i64, 2>(), to = moved.view<i64, 2>();
  for (i64 b = 0; b < ids.size(0); ++b) {
    for (i64 i = std::max<i64>(0, -offset); i < std::min(N, N - offset); ++i) {
      to(b, i) = first + from(b, i + offset);
    }
  }
  return moved;
}

struct Model {
  nn::Embedding symbols;  // [(2 reach + 1) · 28, d]
  Parameter positions;  // [N, d]
  std::vector<Block> blocks;
  nn::LayerNorm norm;
  nn::Linear output;

  Model(const Options& o, const AttentionSpec& trained, std::uint64_t seed)
      : symbols((2 * reach + 1) * Vocabulary::text8().size(), o.width),
        positions({o.length, o.width}, {Initializer::uniform, 0.05}, DType::f32),
        norm(o.width),
        output(o.width, Vocabulary::text8().size()) {
    for (i64 l = 0; l < o.layers; ++l) blocks.emplace_back(o, trained);
    initialize(*this, seed);
  }

  // Mean cross-entropy at the hidden positions, in nats.
  Variable loss(Context& context, const AttentionSpec& spec, const Masked& windows) const {
    Variable h = positions;
    for (i64 offset = -reach; offset <= reach; ++offset) {
      h = add(symbols(neighbours(windows.ids, offset)), h);
    }
    for (const Block& block : blocks) h = block(context, spec, h);
    const i64 rows = h.size(0) * h.size(1);
    const Variable hidden = embedding(reshape(norm(h), {rows, h.size(2)}), windows.places);
    return cross_entropy(output(hidden), windows.targets);
  }
  void each(const auto& visit) {
    visit("symbols", symbols), visit("positions", positions), visit("blocks", blocks);
    visit("norm", norm), visit("output", output);
  }
};

void train(Model& model, const AttentionSpec& spec, Ids text, const Options& o, std::uint64_t seed,
           Progress& progress) {
  const auto optimizer = make_optimizer("adamw", parameters(model));
  const Schedule schedule{Schedule::cosine, o.rate, o.steps / 20, o.steps};
  const Stopwatch watch;
  for (i64 step = 0; step < o.steps; ++step) {
    const auto number = static_cast<std::uint32_t>(step + 1);
    zero_gradients(model);
    Context context(true, seed, number);
    Tape tape;
    const Variable loss =
        model.loss(context, spec, masked_windows(text, {seed, number, 77}, o.batch, o.length));
    const double nats = loss.value().item();
    require(std::isfinite(nats), "swap: {}: the loss is not finite at step {}", spec.text(),
            number);
    tape.backward(loss);
    optimizer->step(schedule.at(step), 1);
    if (progress.wants_update()) {
      const double left = watch.seconds() / double(number) * double(o.steps - number);
      progress.update(fmt::format("{} seed {}: step {}/{}  {:.3f} bits  {} left", spec.text(), seed,
                                  number, o.steps, nats / std::log(2), duration(left)));
    }
  }
}

double evaluate(const Model& model, const AttentionSpec& spec, Ids text, const Options& o) {
  double nats = 0, count = 0;
  for (i64 i = 0; i < o.windows / o.batch; ++i) {
    const auto number = static_cast<std::uint32_t>(i + 1);
    const Masked windows = masked_windows(text, {12345, number, 78}, o.batch, o.length);
    Context context(false, 12345, number);
    const auto hidden = static_cast<double>(windows.targets.count());
    nats += hidden * model.loss(context, spec, windows).value().item();
    count += hidden;
  }
  return nats / count / std::log(2);
}

using Scores = std::map<std::pair<std::string, std::string>, std::vector<double>>;

std::string cell(const std::vector<double>& scores) {
  if (scores.empty()) return "–";
  double mean = 0, squares = 0;
  const auto n = static_cast<double>(scores.size());
  for (const double score : scores) mean += score / n;
  for (const double score : scores) squares += (score - mean) * (score - mean);
  if (scores.size() == 1) return fmt::format("{:.3f}", mean);
  return fmt::format("{:.3f} ± {:.3f}", mean, std::sqrt(squares / (n - 1) / n));
}

void print_matrix(const Options& o, const Scores& scores) {
  fmt::print("Bits per masked character, mean and standard error over {} seeds, {} steps.\n\n",
             o.seeds.size(), o.steps);
  fmt::print("| evaluated with \\ trained with |");
  for (const std::string& column : o.train) fmt::print(" {} |", column);
  fmt::print("\n| --- |");
  for (std::size_t i = 0; i < o.train.size(); ++i) fmt::print(" --- |");
  for (const std::string& row : o.evaluate) {
    fmt::print("\n| {} |", row);
    for (const std::string& column : o.train) {
      const auto found = scores.find({row, column});
      fmt::print(" {} |", cell(found == scores.end() ? std::vector<double>{} : found->second));
    }
  }
  fmt::print("\n");
}

void write_json(const Options& o, const Scores& scores) {
  Row json = machine();
  json["steps"] = o.steps, json["batch"] = o.batch, json["length"] = o.length;
  json["width"] = o.width, json["heads"] = o.heads, json["layers"] = o.layers;
  json["seeds"] = o.seeds;
  for (const auto& [pair, values] : scores) {
    json["scores"].push_back({{"evaluated_with", pair.first},
                              {"trained_with", pair.second},
                              {"bits_per_masked_character", values}});
  }
  write_file(o.out, json.dump(1) + "\n");
}

int main_of(int argc, char** argv) {
  Program app("Trains with one attention and evaluates with another.");
  Options o;
  o.train = trained_with, o.evaluate = evaluated_with;
  app.add_option("--data", o.data, "text8").required();
  app.add_option("--out", o.out, "JSON file to write").show_default();
  app.add_option("--seeds", o.seeds).comma_separated().show_default();
  app.add_option("--train", o.train, "attention specifications to train with");
  app.add_option("--evaluate", o.evaluate, "attention specifications to evaluate with");
  app.add_option("--steps", o.steps).positive().show_default();
  app.add_option("--batch", o.batch).positive().show_default();
  app.add_option("--length", o.length).positive().show_default();
  app.add_option("--layers", o.layers).positive().show_default();
  app.add_option("--windows", o.windows, "windows per evaluation").positive().show_default();
  app.add_option("--rate", o.rate).positive().show_default();
  app.add_option("--threads", o.threads).between(1, 4096).show_default();
  add_plugin_option(app);
  if (const auto status = app.parse(argc, argv)) return *status;
  set_threads(o.threads);
  std::vector<AttentionSpec> rows;
  for (const std::string& row : o.evaluate) rows.emplace_back(row);
  for (const std::string& column : o.train) AttentionSpec{column};
  require(o.windows % o.batch == 0, "--windows: wanted a multiple of --batch {}, got {}", o.batch,
          o.windows);
  require_folder_for(o.out);
  const Text text = load_text(o.data, "text8");
  const Parts parts = split_text(text, parse_split("60/30/10"), o.length);
  Scores scores;
  Progress progress;
  for (const std::uint64_t seed : o.seeds) {
    for (const std::string& column : o.train) {
      const AttentionSpec spec(column);
      Model model(o, spec, seed);
      train(model, spec, parts.train, o, seed, progress);
      for (std::size_t i = 0; i < rows.size(); ++i) {
        if (!model.blocks.front().serves(rows[i])) continue;
        const double bits = evaluate(model, rows[i], parts.validation, o);
        scores[{o.evaluate[i], column}].push_back(bits);
      }
      progress.print(fmt::format("seed {}: trained with {}: {:.3f} bits", seed, column,
                                 evaluate(model, spec, parts.validation, o)));
      write_json(o, scores);
    }
  }
  progress.clear();
  print_matrix(o, scores);
  return 0;
}

}  // namespace
}  // namespace weft::bench

int main(int argc, char** argv) {
  return weft::bench::run_bench("swap", weft::bench::main_of, argc, argv);
}
