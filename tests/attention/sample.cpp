#include "tests/attention/sample.h"

#include <algorithm>
#include <bit>
#include <cctype>
#include <cmath>
#include <limits>
#include <numeric>
#include <sstream>

#include "autograd/tape.h"
#include "ops/pointwise/pointwise.h"
#include "tests/budget.h"

namespace weft {
namespace {

constexpr std::size_t all_calls = 1'000'000;

bool may_be_one(const std::string& axis) { return axis == "b" || axis == "h"; }

// The options that its conditions name, with the first of several values: ",attention=csp". Where
// a value is excluded the default fits.
std::string needed_by(const OptionSheet& option) {
  std::string text, condition;
  for (std::istringstream all(option.with); std::getline(all, condition, ',');) {
    if (condition.find('!') != std::string::npos) continue;
    text += "," + condition.substr(0, condition.find('|'));
  }
  return text;
}

std::vector<std::string> specs(const Mechanism& mechanism, bool options) {
  if (mechanism.wrapper) {  // one inner mechanism with the wrapper's options, then the others
    std::vector<std::string> texts;
    for (const std::string& inner : mechanism.inner_tried) {
      Mechanism bare = mechanism;
      bare.wrapper = false;
      for (const std::string& own : specs(bare, options && texts.empty())) {
        texts.push_back(own + "/" + inner);
      }
    }
    return texts;
  }
  std::vector<std::string> texts{mechanism.name};
  for (const OptionSheet& option : mechanism.options) {
    std::vector<std::string> values = option.tried;
    values.insert(values.end(), option.choices.begin(), option.choices.end());
    for (const std::string& value : values) {
      if (!options || value == option.initial) continue;  // the default is the first text
      texts.push_back(mechanism.name + ":" + option.name + "=" + value + needed_by(option));
    }
  }
  return texts;
}

// A specification with whole blocks: if N is not a multiple of its block, with blocks of at most
// sixteen positions and half of all.
AttentionSpec of_whole_blocks(const AttentionSpec& spec, i64 N) {
  const std::string& block = spec.mechanism().multiple_of;
  if (block.empty() || N % spec.integer(block) == 0) return spec;
  i64 size = std::min<i64>(16, std::max<i64>(N / 2, 1));
  while (N % size != 0) --size;
  return spec.with(block, size);
}

// A block whose heads are equal parts of its width: as many as the sizes say, or a divisor of that.
AttentionSpec of_whole_heads(const AttentionSpec& spec, const AttentionSizes& sizes) {
  if (spec.mechanism().kind != Kind::block || !spec.has("heads") || !spec.has("width")) return spec;
  const i64 width = spec.integer("width") > 0 ? spec.integer("width") : sizes.H * sizes.M;
  return spec.with("heads", std::gcd(spec.sets("heads") ? spec.integer("heads") : sizes.H, width));
}

enum class Extras { absent, whole, single };

// Drawn inputs are left out, with what follows them: calls draw them.
std::vector<Tensor> sampled(const AttentionSpec& spec, const AttentionSizes& sizes, DType type,
                            Extras extras, bool causal) {
  std::vector<Tensor> inputs;
  std::uint64_t seed = 1000;
  for (const AttentionInput& input : attention_inputs(spec, sizes)) {
    ++seed;
    if ((input.optional && extras == Extras::absent) || input.role == Role::drawn) break;
    if (input.causal && !causal) break;
    Shape shape = input.shape;
    const std::vector<std::string> axes = axes_of(input);
    for (int axis = 0; axis < shape.rank() && extras == Extras::single; ++axis) {
      if (may_be_one(axes[static_cast<std::size_t>(axis)])) shape[axis] = 1;
    }
    const Tensor numbers = random_normal(shape, DType::f64, seed);
    inputs.push_back(as_it_starts(numbers, input).to(type));
  }
  return inputs;
}

Tensor cut_lengths(i64 batch, i64 most, bool keys) {
  const i64 some = (most + 1) / 2;
  const std::vector<i64> pattern =
      keys ? std::vector{most, some, i64{0}, most} : std::vector{some, most, most, i64{0}};
  std::vector<i64> lengths;
  for (i64 b = 0; b < batch; ++b) {
    lengths.push_back(pattern[static_cast<std::size_t>(b % 4)]);
  }
  return lengths_of(lengths);
}

// Every combination of masks and dropout; with `few` none, each one alone, and all together.
std::vector<AttentionCall> calls(const AttentionSpec& spec, const AttentionSizes& s,
                                 const Variety& variety, bool few) {
  const Mechanism& mechanism = spec.mechanism();
  const unsigned always = mechanism.causal_only ? 1 : 0;
  const bool causal = has_causal_form(spec) && (s.N == s.S || mechanism.earlier_keys);
  const unsigned possible =
      (variety.causal && causal ? 1u : 0u) |
      (variety.lengths && mechanism.masks.lengths && (s.N == s.S || mechanism.cross) ? 2u : 0u) |
      (variety.query_lengths && mechanism.masks.query_lengths ? 4u : 0u) |
      (variety.dropout ? 8u : 0u);
  std::vector<AttentionCall> all;
  for (unsigned bits = 0; bits < 16; ++bits) {
    if ((bits & always) != always || (bits & ~possible) != 0) continue;
    if (few && std::popcount(bits & ~always) > 1 && bits != possible) continue;
    const bool causal = bits & 1, lengths = bits & 2, queries = bits & 4, dropout = bits & 8;
    AttentionCall call;
    call.causal = causal;
    if (lengths) call.lengths = cut_lengths(s.B, s.S, true);
    if (queries) call.query_lengths = cut_lengths(s.B, s.N, false);
    call.dropout = dropout ? 0.3 : 0;
    call.random = {5, 6, 7};
    all.push_back(call);
  }
  return all;
}

std::vector<Extras> extras_of(const AttentionSpec& spec, bool varied) {
  const AttentionInputs inputs = attention_inputs(spec);
  const bool any = !inputs.empty() && inputs.back().optional;
  if (!any || !varied) return {Extras::absent};
  const bool broadcasts = std::ranges::any_of(inputs, [](const AttentionInput& input) {
    return input.optional && std::ranges::any_of(axes_of(input), may_be_one);
  });
  if (!broadcasts) return {Extras::absent, Extras::whole};
  return {Extras::absent, Extras::whole, Extras::single};
}

// `wanted` of the numbers below `count`, others for other sizes. The masks of calls repeat with
// their number, so these are a stride apart that shares no factor with `count`: near its golden
// section, which spreads any number of them evenly.
std::vector<std::size_t> spread(std::size_t count, std::size_t wanted,
                                const AttentionSizes& sizes) {
  auto stride = static_cast<std::size_t>(0.618 * static_cast<double>(count));
  while (std::gcd(stride, count) > 1) ++stride;
  const auto size = static_cast<std::uint64_t>(sizes.N << 20 ^ sizes.S);
  std::size_t at = size * 0x9e3779b97f4a7c15 >> 32;  // its upper bits depend on all of size's
  std::vector<std::size_t> numbers;
  while (numbers.size() < wanted) numbers.push_back((at += stride) % count);
  std::ranges::sort(numbers);
  return numbers;
}

}  // namespace

std::vector<Variable> outputs_of(const Attended& attended) {
  if (!attended.penalty.defined()) return {attended.out};
  return {attended.out, attended.penalty};
}

Differentiable Sample::attend() const {
  return [spec = spec, call = call](std::span<const Variable> inputs) {
    return outputs_of(weft::attend(spec, call, inputs));
  };
}

// The options are those implied by the tensors, drawn inputs those that the call draws.
Differentiable Sample::reference() const {
  return [spec = spec, call = call](std::span<const Variable> inputs) {
    return outputs_of(weft::defined(spec, call, inputs));
  };
}

Run Sample::defined() const { return weft::run(reference(), inputs, 17, Device{}); }

Tensor Sample::output() const {
  const std::vector<Tensor> moved = on_device(inputs);
  const std::vector<Variable> variables(moved.begin(), moved.end());
  const Tape::Pause pause;
  return weft::attend(spec, call, variables).out.value().to(Device{});
}

Sample Sample::decided() const {
  Sample fixed = *this;
  Choices chosen;
  Sample asking = *this;
  asking.call.chosen = &chosen;
  asking.output();
  for (const AttentionInput& sheet : sheets()) {
    if (sheet.role != Role::drawn) continue;
    fixed.call.given[sheet.name] = chosen.at(sheet.name).to(Device{});
  }
  for (const AttentionChoice& choice : mechanism().choices) {
    const auto found = chosen.find(choice.name);
    // A wrapper may run a mechanism that decides nothing.
    const bool may_lack = mechanism().wrapper;
    const bool wanted = may_lack || choice.decided == nullptr || choice.decided(spec, call);
    CHECK((may_lack || (found != chosen.end()) == wanted));
    if (choice.accepted && found != chosen.end()) {
      fixed.call.given[choice.name] = found->second.to(Device{});
    }
  }
  return fixed;
}

Sample Sample::with(std::vector<Tensor> other) const {
  Sample changed = *this;
  changed.inputs = std::move(other);
  return changed;
}

std::vector<Tensor> Sample::stored_in(DType type) const {
  std::vector<Tensor> changed = inputs;
  const AttentionInputs own = sheets();
  for (std::size_t i = 0; i < changed.size(); ++i) {
    const Role role = own[i].role;
    if (!changed[i].defined() || (role != Role::projected && role != Role::sequence)) continue;
    changed[i] = changed[i].to(type);
  }
  return changed;
}

i64 Sample::positions(i64 b) const {
  return call.lengths.defined() ? call.lengths.data<i64>()[b] : positions_of(mechanism(), sizes.S);
}

i64 Sample::keys(i64 b) const { return rows_of(mechanism(), positions(b)); }

i64 Sample::queries(i64 b) const {
  const bool self = !mechanism().cross && !mechanism().masks.query_lengths;
  if (self && sizes.N == sizes.S) return keys(b);
  return call.query_lengths.defined() ? call.query_lengths.data<i64>()[b] : sizes.N;
}

const Sample& Samples::Iterator::operator*() const {
  work_for(at_->mechanism().name);
  return *at_;
}

Samples::Iterator& Samples::Iterator::operator++() {
  work_for("");
  ++at_;
  return *this;
}

Samples samples(const AttentionSizes& sizes, DType type, const Variety& variety) {
  const bool emulated = few_on_device(), watched = few_here();
  // One of how many calls is taken, and the most calls of a mechanism.
  const std::size_t step = watched ? 7 : emulated ? 9 : all_wanted() ? 1 : variety.every;
  const std::size_t most = watched && emulated ? 1
                           : watched           ? 6
                           : emulated          ? 4
                           : all_wanted()      ? all_calls
                                               : 40;
  std::vector<Sample> taken;
  for (const Mechanism* registered : mechanisms()) {
    std::vector<Sample> all;
    for (const std::string& spec : specs(*registered, variety.options)) {
      const AttentionSpec parsed =
          of_whole_heads(of_whole_blocks(AttentionSpec(spec), sizes.N), sizes);
      const Mechanism& mechanism = parsed.mechanism();
      const bool earlier = mechanism.earlier_keys && sizes.S > sizes.N;
      if (sizes.N != sizes.S && !mechanism.cross && !earlier) continue;
      AttentionSizes own = sizes;  // a block's model is as wide as its heads together
      if (mechanism.kind == Kind::block) own.d = sizes.H * sizes.M;
      own.N = rows_of(mechanism, sizes.N), own.S = rows_of(mechanism, sizes.S);
      own.N_max = std::max(sizes.N, sizes.S) + 3;
      for (const Extras extras : extras_of(parsed, variety.extras)) {
        const bool few = spec != mechanism.name || extras == Extras::single;
        for (const AttentionCall& call : calls(parsed, sizes, variety, few)) {
          std::string text = parsed.text();
          own.causal = call.causal;
          const std::vector<Tensor> inputs = sampled(parsed, own, type, extras, call.causal);
          for (const Tensor& input : inputs) text += fmt::format(" {}", input.shape());
          if (call.causal) text += " causal";
          if (call.lengths.defined()) text += " lengths";
          if (call.query_lengths.defined()) text += " query_lengths";
          if (call.dropout > 0) text += " dropout";
          all.push_back({parsed, own, call, inputs, text});
        }
      }
    }
    const std::size_t wanted = std::min(most, (all.size() + step - 1) / step);
    for (const std::size_t i : spread(all.size(), wanted, sizes)) {
      taken.push_back(std::move(all[i]));
    }
  }
  return Samples(std::move(taken));
}

AttentionSizes with_few_heads(AttentionSizes sizes) {
  if (few_wanted()) sizes.H = std::min<i64>(sizes.H, fewest_on_device() ? 1 : 2);
  return sizes;
}

int position_axis(const AttentionInput& input, char symbol) {
  const std::vector<std::string> axes = axes_of(input);
  const auto found = std::find(axes.begin(), axes.end(), std::string(1, symbol));
  return found == axes.end() ? -1 : static_cast<int>(found - axes.begin());
}

std::size_t values_input(const Sample& sample) {
  const AttentionInputs sheets = sample.sheets();
  for (std::size_t i = 0; i < sheets.size(); ++i) {
    const std::vector<std::string> axes = axes_of(sheets[i]);
    if (!axes.empty() && axes.back() == "M") return i;
  }
  fail("{}: no input has width M", sample.mechanism().name);
}

bool has_batch(const AttentionInput& input) {
  return position_axis(input, 'B') == 0 || position_axis(input, 'b') == 0;
}

Tensor as_it_starts(const Tensor& x, const AttentionInput& input) {
  if (const auto [least, most] = input.bounds; std::isfinite(most - least)) {
    return add(scale(sigmoid(x), most - least), Tensor::full({}, least, x.dtype())).value();
  }
  const auto kind = input.weight.kind;
  const bool says = kind == Initializer::uniform || kind == Initializer::normal;
  if (input.role != Role::parameter || !says) return x;
  return scale(x, input.weight.scale).value();
}

Tensor filled(const Tensor& x, int axis, i64 begin, i64 end, double value, i64 b) {
  const Tensor copy = x.clone();
  const Tensor part = b < 0 || copy.size(0) == 1 ? copy : copy.slice(0, b, b + 1);
  part.slice(axis, begin, end).fill(value);
  return copy;
}

}  // namespace weft
