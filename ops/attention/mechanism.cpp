#include "ops/attention/mechanism.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include <fmt/core.h>

#include "ops/attention/pattern.h"
#include "ops/cast/cast.h"
#include "ops/dropout/mask.h"
#include "runtime/listed.h"
#include "runtime/names.h"

namespace weft {
namespace {

std::map<std::string, Mechanism>& registry() {
  static std::map<std::string, Mechanism> all;
  return all;
}

RegistrationWatch* watch = nullptr;

// The size that a word of an input's axes names; null if it names none.
i64* find(AttentionSizes& sizes, const std::string& word) {
  if (word == "B" || word == "b") return &sizes.B;
  if (word == "N") return &sizes.N;
  if (word == "S") return &sizes.S;
  if (word == "H" || word == "h") return &sizes.H;
  if (word == "E") return &sizes.E;
  if (word == "M") return &sizes.M;
  if (word == "d") return &sizes.d;
  if (word == "N_max") return &sizes.N_max;
  return nullptr;
}

bool may_be_one(const std::string& word) { return word == "b" || word == "h"; }

Shape shape_by_axes(const AttentionSpec& spec, const AttentionInput& input, AttentionSizes sizes) {
  Shape shape;
  for (const std::string& word : axes_of(input)) {
    const i64* const size = find(sizes, word);
    require(size != nullptr || spec.has(word),
            "{}: the axis {} of {} is neither a size nor an option", spec.mechanism().name, word,
            input.name);
    shape.push_back(size != nullptr ? *size : spec.integer(word));
  }
  return shape;
}

// The names and shapes of a call's inputs, for messages. Nothing is formatted before that.
struct GivenInputs {
  const AttentionInputs& sheets;
  std::span<const Variable> inputs;

  std::string text() const {
    std::string text;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const std::string name = i < sheets.size() ? sheets[i].name : "?";
      text += fmt::format("{}{} {}", i == 0 ? "" : ", ", name,
                          inputs[i].defined() ? fmt::format("{}", inputs[i].shape()) : "undefined");
    }
    return text;
  }
};

}  // namespace
}  // namespace weft

template <>
struct fmt::formatter<weft::GivenInputs> : fmt::formatter<std::string_view> {
  template <class Context>
  auto format(const weft::GivenInputs& inputs, Context& context) const {
    return fmt::format_to(context.out(), "{}", inputs.text());
  }
};

namespace weft {
namespace {

void check_lengths(const Mechanism& mechanism, const char* name, const Tensor& lengths, i64 batch,
                   i64 most) {
  require(lengths.shape() == Shape{batch} && lengths.dtype() == DType::i64,
          "{}: {} must be [{}] of i64, got {} of {}", mechanism.name, name, batch, lengths.shape(),
          name_of(lengths.dtype()));
  if (lengths.device() != Device{}) return;  // no waiting: kernels clamp to 0 … most
  for (const i64 length : lengths.to_vector<i64>()) {
    require(length >= 0 && length <= most, "{}: {} holds {}, outside 0 … {}", mechanism.name, name,
            length, most);
  }
}

}  // namespace

std::vector<const Mechanism*> mechanisms_so_far() {
  std::vector<const Mechanism*> all;
  for (const auto& [name, mechanism] : registry()) all.push_back(&mechanism);
  return all;
}

const std::vector<const Mechanism*>& mechanisms() {
  static const std::vector<const Mechanism*> list = mechanisms_so_far();
  return list;
}

Registration::Registration(Mechanism mechanism, ThisInterface) {
  try {
    const std::string name = mechanism.name;
    const auto plain = [](unsigned char c) { return std::isalnum(c) || c == '-' || c == '_'; };
    require(!name.empty() && std::all_of(name.begin(), name.end(), plain),
            "mechanism '{}': a name is of letters, digits, - and _", name);
    require(mechanism.wrapper || (mechanism.attend != nullptr && mechanism.inputs != nullptr),
            "mechanism {}: wanted the functions `inputs` and `attend`", name);
    const bool inserted = registry().emplace(name, std::move(mechanism)).second;
    require(inserted, "mechanism {}: the name is registered twice", name);
    if (watch != nullptr) watch->registered.push_back(name);
  } catch (const Error& error) {
    if (watch == nullptr) throw;
    if (watch->error.empty()) watch->error = error.what();
  }
}

RegistrationWatch::RegistrationWatch() {
  require(watch == nullptr, "mechanism: registrations are watched already");
  watch = this;
}

RegistrationWatch::~RegistrationWatch() { watch = nullptr; }

const Mechanism& mechanism(const std::string& name) {
  const auto found = registry().find(name);
  if (found != registry().end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [known, sheet] : registry()) names.push_back(known);
  fail("attention: there is no mechanism '{}'; there are {}", name, known_names(name, names));
}

std::vector<std::string> axes_of(const AttentionInput& input) {
  std::vector<std::string> words;
  const std::string& axes = input.axes;
  for (std::size_t begin = axes.find_first_not_of(' '); begin < axes.size();) {
    const std::size_t end = std::min(axes.find(' ', begin), axes.size());
    words.push_back(axes.substr(begin, end - begin));
    begin = axes.find_first_not_of(' ', end);
  }
  return words;
}

i64 rows_of(const Mechanism& mechanism, i64 positions) {
  return mechanism.rows.count != nullptr ? mechanism.rows.count(positions) : positions;
}

i64 positions_of(const Mechanism& mechanism, i64 rows, const std::string& inputs) {
  if (mechanism.rows.count == nullptr) return rows;
  i64 positions = 0, above = rows + 1;  // count() is monotonic, and at least `positions`
  while (above - positions > 1) {
    const i64 middle = (positions + above) / 2;
    (mechanism.rows.count(middle) <= rows ? positions : above) = middle;
  }
  const i64 found = mechanism.rows.count(positions);
  require(found == rows, "{}: no sequence has {} rows; {} positions have {}, {} have {}{}",
          mechanism.name, rows, positions, found, above, mechanism.rows.count(above),
          inputs.empty() ? "" : "; got " + inputs);
  return positions;
}

bool can_decode(const AttentionSpec& spec) {
  const Mechanism& m = spec.mechanism();
  return m.decode != nullptr && has_causal_form(spec) &&
         (m.decode_wants.empty() || !spec.is_default(m.decode_wants));
}

bool has_causal_form(const AttentionSpec& spec) {
  const Mechanism& m = spec.mechanism();
  return m.masks.causal && spec.unmet(m.causal_wants).empty();
}

bool learns_by_position(const AttentionSpec& spec) {
  const AttentionInputs inputs = attention_inputs(spec);
  return std::any_of(inputs.begin(), inputs.end(), [](const AttentionInput& input) {
    return input.role == Role::parameter && input.axes.find("N_max") != std::string::npos;
  });
}

AttentionInputs attention_inputs(const AttentionSpec& spec, const AttentionSizes& sizes) {
  AttentionInputs inputs = spec.mechanism().inputs(spec, sizes);
  for (AttentionInput& input : inputs) {
    if (input.shape.rank() == 0) input.shape = shape_by_axes(spec, input, sizes);
  }
  return inputs;
}

bool cost_is_at_most(const AttentionSpec& spec) {
  return spec.inner() != nullptr ? cost_is_at_most(*spec.inner()) : spec.mechanism().cost_at_most;
}

AttentionCost attention_cost(const AttentionSpec& spec, const AttentionSizes& sizes, bool causal,
                             DType type) {
  const auto cost = spec.mechanism().cost;
  return cost != nullptr ? cost(spec, sizes, causal, type) : AttentionCost{};
}

Shape output_shape(const AttentionSpec& spec, const AttentionSizes& s) {
  const Mechanism& mechanism = spec.mechanism();
  if (mechanism.kind != Kind::block) return {s.B, s.N, s.H, s.M};
  return {s.B, s.N, mechanism.out_width != nullptr ? mechanism.out_width(spec, s) : s.d};
}

namespace {

void check_type(const Mechanism& mechanism, const AttentionInput& sheet, DType type,
                const std::optional<DType>& first, const GivenInputs& all) {
  if (sheet.role == Role::index) {
    require(type == DType::i64, "{}: {} must be i64, got {}; inputs are {}", mechanism.name,
            sheet.name, name_of(type), all);
    return;
  }
  require(is_floating(type), "{}: {} must be f32, f64 or bf16, got {}; inputs are {}",
          mechanism.name, sheet.name, name_of(type), all);
  // bf16 beside f32 is computed in f32.
  require(accumulator_of(type) == accumulator_of(first.value_or(type)),
          "{}: wanted one element type, {} is {} and the first input {}; inputs are {}",
          mechanism.name, sheet.name, name_of(type), name_of(first.value_or(type)), all);
}

// Sizes and options bound by the words of the axes.
struct Binding {
  AttentionSpec spec;
  std::map<std::string, i64> known = {};
  bool by_query = false;  // a parameter has an axis of query positions

  void add(const AttentionInput& sheet, const Tensor& value, const GivenInputs& all) {
    const Mechanism& mechanism = spec.mechanism();
    const std::vector<std::string> axes = axes_of(sheet);
    require(value.rank() == static_cast<int>(axes.size()), "{}: {} must be [{}]; got {}",
            mechanism.name, sheet.name, listed(axes), all);
    AttentionSizes sizes;
    for (int axis = 0; axis < value.rank(); ++axis) {
      std::string word = axes[static_cast<std::size_t>(axis)];
      if (may_be_one(word)) {
        if (value.size(axis) == 1) continue;
        word[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(word[0])));
      }
      const bool option = find(sizes, word) == nullptr;
      if (option && !spec.has(word)) continue;  // an expression: compared when all is known
      by_query |= word == "N_max" && sheet.side == Side::query;
      const auto [entry, fresh] = known.emplace(word, value.size(axis));
      require(entry->second == value.size(axis),
              "{}: {} is [{}] with {} = {}, but {} = {} elsewhere; got {}", mechanism.name,
              sheet.name, listed(axes), word, value.size(axis), word, entry->second, all);
      if (!option || !fresh) continue;
      const i64 wanted = spec.sets(word) ? spec.integer(word) : 0;  // 0: by the tensors
      require(wanted == 0 || wanted == value.size(axis),
              "{}: {} is [{}] with {} = {}, but the option says {}={}; got {}", mechanism.name,
              sheet.name, listed(axes), word, value.size(axis), word, spec.word(word), all);
      spec = spec.with(word, value.size(axis));
    }
  }

  AttentionSizes sizes(const GivenInputs& all) const {
    AttentionSizes sizes;
    for (const auto& [word, size] : known) {
      require(size > 0 || word == "B" || word == "N",
              "{}: {} is 0; every length and width must be at least 1; got {}",
              spec.mechanism().name, word, all);
      if (i64* const place = find(sizes, word)) *place = size;
    }
    if (known.contains("N") && !known.contains("S")) sizes.S = sizes.N;
    const bool by_key = known.contains("N_max") && !by_query;
    const Mechanism& mechanism = spec.mechanism();
    i64 longest = by_key ? sizes.S : std::max(sizes.N, sizes.S);
    if (mechanism.rows.count != nullptr) longest = positions_of(mechanism, longest, all.text());
    if (!known.contains("N_max")) sizes.N_max = longest;
    require(sizes.N_max >= longest, "{}: its learnt tensors are for {} positions, got {}; {}",
            spec.mechanism().name, sizes.N_max, longest, all);
    return sizes;
  }
};

void check_masks(const AttentionSpec& spec, const AttentionCall& call,
                 const AttentionSizes& sizes) {
  const Mechanism& mechanism = spec.mechanism();
  const bool earlier = mechanism.earlier_keys && sizes.S > sizes.N;
  require(
      !mechanism.earlier_keys || sizes.S >= sizes.N,
      "{}: wanted as many keys as queries or more, the last of them those of the queries, got N = "
      "{} and S = {}",
      mechanism.name, sizes.N, sizes.S);
  require(mechanism.cross || earlier || sizes.N == sizes.S,
          "{}: cannot attend across two sequences, but N = {} and S = {}; use full for "
          "cross-attention",
          mechanism.name, sizes.N, sizes.S);
  require(!call.causal || mechanism.masks.causal,
          "{}: has no causal form; use full or agglomerative", mechanism.name);
  require(!call.causal || has_causal_form(spec), "{}: has a causal form with {} alone",
          mechanism.name, spec.unmet(mechanism.causal_wants));
  if (const std::string& option = mechanism.multiple_of; !option.empty()) {
    require(sizes.N % spec.integer(option) == 0,
            "{}: wanted whole blocks, a multiple of {}={} positions, got {}", mechanism.name,
            option, spec.integer(option), sizes.N);
  }
  require(call.causal || !mechanism.causal_only, "{}: has only a causal form", mechanism.name);
  require(!call.causal || earlier || sizes.N == sizes.S,
          "{}: causal attention needs as many queries as keys, got N = {}, S = {}", mechanism.name,
          sizes.N, sizes.S);
  check_dropout_rate(mechanism.name.c_str(), call.dropout);
  if (call.lengths.defined()) {
    require(mechanism.masks.lengths, "{}: does not take lengths; use full", mechanism.name);
    require(!earlier, "{}: takes lengths where N = S, got N = {} and S = {}", mechanism.name,
            sizes.N, sizes.S);
    const i64 most = positions_of(mechanism, sizes.S);
    check_lengths(mechanism, "lengths", call.lengths, sizes.B, most);
  }
  if (call.pattern) {
    require(mechanism.masks.pattern, "{}: does not take a pattern; use full", mechanism.name);
    call.pattern->check(mechanism.name, sizes);
  }
  if (call.query_lengths.defined()) {
    require(mechanism.masks.query_lengths, "{}: does not take query lengths; use full",
            mechanism.name);
    const i64 most = positions_of(mechanism, sizes.N);
    check_lengths(mechanism, "query lengths", call.query_lengths, sizes.B, most);
  }
}

}  // namespace

BoundCall bound(const AttentionSpec& spec, const AttentionCall& call,
                std::span<const Variable> inputs) {
  const Mechanism& mechanism = spec.mechanism();
  const AttentionInputs named = attention_inputs(spec);
  const GivenInputs all{named, inputs};
  require(inputs.size() <= named.size(), "{}: wanted at most {} inputs, got {}", mechanism.name,
          named.size(), all);
  Binding binding{spec};
  std::optional<DType> first;
  const auto there = [&](std::size_t i) { return i < inputs.size() && inputs[i].defined(); };
  for (std::size_t i = 0; i < named.size(); ++i) {
    const bool left_out = named[i].causal && !call.causal;
    require(!left_out || !there(i), "{}: {} is an input of causal calls only; got {}",
            mechanism.name, named[i].name, all);
    require(there(i) || left_out || named[i].optional || named[i].role == Role::drawn,
            "{}: the input {} is missing; got {}", mechanism.name, named[i].name, all);
    if (!there(i)) continue;
    const Tensor& value = inputs[i].value();
    binding.add(named[i], value, all);
    check_type(mechanism, named[i], value.dtype(), first, all);
    if (!first && named[i].role != Role::index) first = value.dtype();
  }
  AttentionSizes sizes = binding.sizes(all);
  sizes.causal = call.causal;
  check_masks(binding.spec, call, sizes);
  const AttentionInputs sheets = attention_inputs(binding.spec, sizes);
  for (std::size_t i = 0; i < sheets.size(); ++i) {
    const std::vector<std::string> axes = axes_of(sheets[i]);
    for (int axis = 0; there(i) && axis < sheets[i].shape.rank(); ++axis) {
      const std::string& word = axes[static_cast<std::size_t>(axis)];
      // A tensor that is learnt by position may have more positions than the call.
      const bool longer =
          word.find("max") != std::string::npos && inputs[i].size(axis) > sheets[i].shape[axis];
      require(sheets[i].shape[axis] == inputs[i].size(axis) || may_be_one(word) || longer,
              "{}: {} must be [{}] with {} = {}; got {}", mechanism.name, sheets[i].name,
              listed(axes), word, sheets[i].shape[axis], all);
    }
  }
  return {binding.spec, sizes, sheets};
}

namespace {

Tensor drawn(const AttentionInput& sheet, RandomKey key, DType type) {
  const Tensor target = Tensor::empty(sheet.shape, type);
  sheet.draw(key, target);
  return target;
}

Attended run(const AttentionSpec& spec, const AttentionCall& call, std::span<const Variable> inputs,
             Mechanism::Forward Mechanism::*forward) {
  const BoundCall fitted = bound(spec, call, inputs);
  const Mechanism& mechanism = fitted.spec.mechanism();
  const AttentionInputs& sheets = fitted.sheets;
  AttentionCall ready = call;
  ready.given = checked_choices(fitted, call);
  // Tensors that kernels read besides the inputs are moved to the device of the inputs.
  Device device;
  DType type = DType::f32;
  for (const Variable& input : inputs) {
    if (!input.defined()) continue;
    device = input.value().device();
    if (is_floating(input.value().dtype())) type = accumulator_of(input.value().dtype());
  }
  const auto placed = [&](Tensor& x) {
    if (x.defined()) x = x.packed().to(device);
  };
  placed(ready.lengths);
  placed(ready.query_lengths);
  for (auto& [name, value] : ready.given) placed(value);
  std::vector<Variable> whole(inputs.begin(), inputs.end());
  whole.resize(sheets.size());
  std::uint32_t number = 0;
  for (std::size_t i = 0; i < sheets.size(); ++i) {
    if (sheets[i].role != Role::drawn) continue;
    const RandomKey key = call.random.further(DrawPurpose::drawn_inputs, number++);
    if (!whole[i].defined()) {
      const Tensor given = given_choice(mechanism, ready, sheets[i].name, sheets[i].shape, type);
      whole[i] = given.defined() ? given : drawn(sheets[i], key, type).to(device);
    }
    report_choice(call, sheets[i].name, whole[i].value());
    ready.given.erase(sheets[i].name);
  }
  Attended attended = (mechanism.*forward)(fitted.spec, ready, whole);
  const Shape wanted = output_shape(fitted.spec, fitted.sizes);
  require(attended.out.shape() == wanted,
          "{}: its fact sheet says an output {}, its forward made {}", mechanism.name, wanted,
          attended.out.shape());
  return attended;
}

// Unless the mechanism takes bf16, such inputs are widened to f32, and the output is rounded. The
// definition is given f32.
Attended run_widened(const AttentionSpec& spec, const AttentionCall& call,
                     std::span<const Variable> inputs, Mechanism::Forward Mechanism::*forward) {
  const auto narrow = [](const Variable& x) {
    return x.defined() && x.value().dtype() == DType::bf16;
  };
  const bool taken = spec.mechanism().takes_bf16 && forward == &Mechanism::attend;
  if (taken || std::ranges::none_of(inputs, narrow)) return run(spec, call, inputs, forward);
  std::vector<Variable> wide(inputs.begin(), inputs.end());
  for (Variable& x : wide) {
    if (narrow(x)) x = cast(x, DType::f32);
  }
  Attended attended = run(spec, call, wide, forward);
  attended.out = cast(attended.out, DType::bf16);
  return attended;
}

}  // namespace

Attended attend(const AttentionSpec& spec, const AttentionCall& call,
                std::span<const Variable> inputs) {
  return run_widened(spec, call, inputs, &Mechanism::attend);
}

Attended defined(const AttentionSpec& spec, const AttentionCall& call,
                 std::span<const Variable> inputs) {
  require(spec.mechanism().reference != nullptr,
          "{}: its fact sheet has no `reference`, a definition in plain ops",
          spec.mechanism().name);
  return run_widened(spec, call, inputs, &Mechanism::reference);
}

}  // namespace weft
