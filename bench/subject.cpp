#include "bench/subject.h"

#include <cmath>
#include <memory>
#include <set>

#include "apps/command_line/settings.h"
#include "autograd/gradcheck.h"
#include "nn/attention.h"
#include "nn/initializer.h"
#include "nn/precision.h"
#include "nn/vision_transformer.h"
#include "ops/attention/mega/mega.h"
#include "ops/moving_average/moving_average.h"
#include "ops/views/views.h"

namespace weft::bench {
namespace {

// Bytes of an element of projected inputs and of outputs; what is learnt or drawn is f32.
double item(const Settings& settings) {
  return double(size_of(stored_type(DType::f32, settings.precision)));
}

Tensor normal(const Shape& shape, std::uint64_t seed, Device device) {
  return random_normal(shape, DType::f32, seed).to(device);
}

Tensor in_precision(const Tensor& x, const Settings& settings) {
  return x.to(stored_type(x.dtype(), settings.precision));
}

void fill_learnt(const std::string& name, const Settings& settings, const Tensor& numbers) {
  const auto found = settings.learnt.find(name);
  if (found != settings.learnt.end()) numbers.fill(found->second);
}

Subject operator_subject(const Candidate& candidate, const Settings& settings,
                         const AttentionSizes& sizes, Device device) {
  Subject built;
  std::vector<Variable> inputs;
  std::uint64_t seed = 1;
  const bool causal = masks_future(candidate.spec, settings);
  for (const AttentionInput& input : attention_inputs(candidate.spec, sizes)) {
    if (input.causal && !causal) {
      break;
    } else if (input.optional && input.role != Role::parameter) {
      inputs.emplace_back();
    } else if (input.role == Role::drawn) {
      const Tensor drawn = Tensor::empty(input.shape, DType::f32);
      input.draw({.seed = seed++}, drawn);
      inputs.emplace_back(drawn.to(device));
    } else {
      const Tensor numbers = normal(input.shape, seed, Device{});
      if (input.role == Role::parameter) {
        draw(input.weight, input.name, seed, numbers);
        fill_learnt(input.name, settings, numbers);
      }
      ++seed;
      const Tensor held = input.role == Role::parameter ? numbers : in_precision(numbers, settings);
      inputs.push_back(Variable::leaf(held.to(device)));
      built.leaves.push_back(inputs.back());
    }
  }
  AttentionCall call;
  call.causal = causal;
  const Mechanism& mechanism = candidate.spec.mechanism();
  require(!candidate.reference || mechanism.reference != nullptr,
          "--reference: {} has no definition in plain ops", mechanism.name);
  const auto run = candidate.reference ? mechanism.reference : attend;
  built.forward = [=, spec = candidate.spec] { return run(spec, call, inputs).out; };
  return built;
}

// mega's moving average of x and its attention over given q, k and v. Other mechanisms are
// unchanged operators.
Subject core_subject(const Candidate& candidate, const Settings& settings,
                     const AttentionSizes& sizes, Device device) {
  const AttentionSpec& spec = candidate.spec;
  std::map<std::string, Variable> learnt;
  Subject built;
  std::uint64_t seed = 1;
  const auto leaf = [&](const Tensor& numbers) {
    built.leaves.push_back(Variable::leaf(numbers.to(device)));
    return built.leaves.back();
  };
  for (const AttentionInput& input : attention_inputs(spec, sizes)) {
    if (!input.name.starts_with("ema_") && input.name != "rel_bias") continue;
    const Tensor numbers = Tensor::empty(input.shape, DType::f32);
    draw(input.weight, input.name, seed++, numbers);
    learnt[input.name] = leaf(numbers);
  }
  const i64 z = spec.integer("key_width"), given = spec.integer("value_width");
  const auto rows = [&](i64 width) {
    return leaf(normal({sizes.B, sizes.N, width}, seed++, Device{}));
  };
  const Variable x = rows(sizes.d), q = rows(z), k = rows(z),
                 v = rows(given > 0 ? given : 2 * sizes.d);
  AttentionCall call;
  call.causal = masks_future(spec, settings);
  built.forward = [=]() mutable {
    const DampedAverage by{learnt["ema_delta"], learnt["ema_alpha"], learnt["ema_beta"],
                           learnt["ema_gamma"]};
    const Variable y = moving_average(x, by.decay, by.weight, {}, spec.integer("truncation"));
    return concatenate(std::vector{y, mega_attention(spec, call, q, k, v, learnt["rel_bias"])}, 2);
  };
  return built;
}

// A module as a subject: its parameters and its input x [B, N, d] get gradients.
template <class Module>
Subject module_subject(std::shared_ptr<Module> module, const Settings& settings,
                       const AttentionSizes& sizes, Device device) {
  initialize(*module, 1);
  for (const NamedParameter& p : parameters(*module)) {
    fill_learnt(p.name.substr(p.name.rfind('.') + 1), settings, p.variable.value());
  }
  move_to(*module, device);
  Subject built;
  const Tensor rows = normal({sizes.B, sizes.N, sizes.d}, 1, device);
  const Variable x = Variable::leaf(in_precision(rows, settings));
  for (const NamedParameter& p : parameters(*module)) built.leaves.push_back(p.variable);
  built.leaves.push_back(x);
  built.forward = [module, x] {
    Context context = Context::evaluation();
    return (*module)(context, x);
  };
  return built;
}

struct Blocks {
  std::vector<nn::VisionBlock> blocks;

  Variable operator()(Context& context, Variable x) const {
    for (const nn::VisionBlock& block : blocks) x = block(context, x);
    return x;
  }
  void each(const auto& visit) {
    for (std::size_t i = 0; i < blocks.size(); ++i) visit(std::to_string(i), blocks[i]);
  }
};

double bytes_of_inputs(const Candidate& candidate, const Settings& settings,
                       const AttentionSizes& sizes) {
  double bytes = 0;
  for (const AttentionInput& input : attention_inputs(candidate.spec, sizes)) {
    const bool made = !input.optional || input.role == Role::parameter;
    const bool halved = input.role != Role::parameter && input.role != Role::drawn;
    const double element = halved ? item(settings) : double(size_of(DType::f32));
    if (made && !input.causal) bytes += element * double(input.shape.count());
  }
  return bytes;
}

// Attention that holds N × N: the weights are saved, and two more maps are workspace in backward.
AttentionCost naive(AttentionCost cost, const Settings& settings, const AttentionSizes& s) {
  const double map = item(settings) * double(s.B * s.H) * double(s.N) * double(s.S);
  cost.saved_bytes += map;
  cost.working_bytes += 2 * map;
  cost.cuda_working_bytes += 2 * map;
  return cost;
}

}  // namespace

AttentionSizes Settings::sizes(const Mechanism& mechanism, i64 length) const {
  return {.B = batch,
          .N = rows_of(mechanism, queries_at(length)),
          .S = rows_of(mechanism, length),
          .H = heads,
          .E = key_width,
          .M = value_width,
          .d = width(),
          .N_max = length,
          .causal = causal};
}

std::string Settings::text() const {
  std::string part = core ? "core" : "operator";
  if (layer) part = "layer";
  if (blocks > 0) part = fmt::format("{} blocks with {} hidden units", blocks, feed_forward());
  const std::string few = queries > 0 ? fmt::format("{} queries, ", queries) : "";
  std::string filled;
  for (const auto& [name, number] : learnt) filled += fmt::format("{} = {}, ", name, number);
  return fmt::format("{}, {}{}{}batch {}, {} heads of {} and {}, {}, {} thread{}, {} s", part,
                     causal ? "causal, " : "", filled, few, batch, heads, key_width, value_width,
                     precision, threads, threads == 1 ? "" : "s", seconds);
}

void check_learnt(const std::vector<Candidate>& candidates, const Settings& settings) {
  if (settings.learnt.empty()) return;
  std::set<std::string> known;
  for (const Candidate& candidate : candidates) {
    for (const AttentionInput& input : attention_inputs(candidate.spec)) {
      const bool unused = input.causal && !masks_future(candidate.spec, settings);
      if (input.role == Role::parameter && !unused) known.insert(input.name);
    }
  }
  require(!known.empty(), "--learnt: no mechanism of --attention has a learnt input");
  for (const auto& [name, number] : settings.learnt) {
    check_word("learnt", name, {known.begin(), known.end()});
  }
}

bool masks_future(const AttentionSpec& spec, const Settings& settings) {
  return settings.causal || spec.mechanism().causal_only;
}

Subject subject(const Candidate& candidate, const Settings& settings, i64 length, Device device) {
  const AttentionSizes sizes = settings.sizes(candidate.spec.mechanism(), length);
  const bool causal = masks_future(candidate.spec, settings);
  if (settings.blocks > 0) {
    require(!causal, "--blocks are of an encoder: not with --causal or {}", candidate.spec.text());
    require(settings.key_width == settings.value_width,
            "--blocks: wanted heads of one width, got keys of {} and values of {}",
            settings.key_width, settings.value_width);
    const VisionTransformerConfig config{.width = sizes.d,
                                         .layers = settings.blocks,
                                         .heads = sizes.H,
                                         .hidden = settings.feed_forward(),
                                         .attention = candidate.spec.text(),
                                         .attention_dropout = 0,
                                         .dropout = 0};
    const auto stack = std::make_shared<Blocks>();
    for (i64 i = 0; i < settings.blocks; ++i) stack->blocks.emplace_back(config);
    return module_subject(stack, settings, sizes, device);
  }
  if (settings.core && candidate.spec.mechanism().name == "mega") {
    return core_subject(candidate, settings, sizes, device);
  }
  if (!settings.layer) return operator_subject(candidate, settings, sizes, device);
  const nn::AttentionOptions options{.mechanism = candidate.spec.text(),
                                     .width = sizes.d,
                                     .heads = sizes.H,
                                     .key_width = sizes.E,
                                     .value_width = sizes.M,
                                     .causal = causal,
                                     .max_length = length};
  return module_subject(std::make_shared<nn::Attention>(options, DType::f32), settings, sizes,
                        device);
}

Expected expected(const Candidate& candidate, const Settings& settings, i64 length, Device device) {
  const AttentionSpec& spec = candidate.spec;
  const AttentionSizes sizes = settings.sizes(spec.mechanism(), length);
  AttentionCost cost = attention_cost(spec, sizes, masks_future(spec, settings),
                                      stored_type(DType::f32, settings.precision));
  if (candidate.reference) cost = naive(cost, settings, sizes);
  const double inputs = bytes_of_inputs(candidate, settings, sizes);
  const double rows = double(sizes.B * sizes.N), d = double(sizes.d);
  const double output = item(settings) * rows * d;
  const double working = device == Device{} ? cost.working_bytes : cost.cuda_working_bytes;
  Expected sum{.operations = cost.forward_operations + cost.backward_operations,
               .exponentials = cost.exponentials,
               .at_most = !candidate.reference && cost_is_at_most(spec),
               // Forward reads the inputs, writes the output and what is saved; backward reads
               // these and the output's gradient, and writes the inputs' gradients.
               .moved_bytes = 3 * inputs + 3 * output + 2 * cost.saved_bytes,
               .saved_bytes = cost.saved_bytes,
               .peak_bytes = inputs + output + cost.saved_bytes + working,
               .held_bytes = inputs + output};
  if (settings.layer || settings.blocks > 0) {
    const double depth = double(std::max<i64>(1, settings.blocks));
    const double ff = settings.blocks > 0 ? double(settings.feed_forward()) : 0;
    sum.operations = depth * (sum.operations + 6 * rows * d * (4 * d + 2 * ff));
    sum.saved_bytes =
        depth * (cost.saved_bytes + inputs + item(settings) * rows * (4 * d + 2 * ff));
    sum.peak_bytes = sum.saved_bytes + inputs + working + item(settings) * rows * (4 * d + ff);
    sum.moved_bytes = 3 * sum.saved_bytes;
    sum.held_bytes = 2 * item(settings) * rows * d;
    sum.exponentials *= depth;
  }
  return sum;
}

bool stays_linear(const Candidate& candidate, const Settings& settings, Device device, i64 shorter,
                  i64 longer) {
  const Expected low = expected(candidate, settings, shorter, device);
  const Expected high = expected(candidate, settings, longer, device);
  const double growth = std::log(double(longer) / double(shorter));
  constexpr double linear = 1.1;  // also for N log N over these lengths
  return std::log(high.operations / low.operations) <= linear * growth &&
         std::log(high.peak_bytes / low.peak_bytes) <= linear * growth;
}

}  // namespace weft::bench
