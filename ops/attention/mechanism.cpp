#include "ops/attention/mechanism.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <map>
#include <numeric>
#include <sstream>

#include <fmt/format.h>

#include "ops/dropout/mask.h"

namespace weft {
namespace {

std::map<std::string, Mechanism>& registry() {
  static std::map<std::string, Mechanism> all;
  return all;
}

// Levenshtein distance.
std::size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1, replaced}));
    }
  }
  return row.back();
}

std::int64_t* find(AttentionSizes& sizes, const std::string& symbol) {
  if (symbol == "B" || symbol == "b") return &sizes.B;
  if (symbol == "N") return &sizes.N;
  if (symbol == "S") return &sizes.S;
  if (symbol == "H" || symbol == "h") return &sizes.H;
  if (symbol == "E") return &sizes.E;
  if (symbol == "M") return &sizes.M;
  if (symbol == "d") return &sizes.d;
  fail("mechanism: a shape names the unknown size {}", symbol);
}

std::vector<std::string> symbols(const AttentionInput& input) {
  std::istringstream words(input.shape);
  return {std::istream_iterator<std::string>(words), {}};
}

std::string listed(const Mechanism& mechanism, std::span<const Variable> inputs) {
  std::string text;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const std::string name = i < mechanism.inputs.size() ? mechanism.inputs[i].name : "?";
    text += fmt::format("{}{} {}", i == 0 ? "" : ", ", name,
                        inputs[i].defined() ? fmt::format("{}", inputs[i].shape()) : "undefined");
  }
  return text;
}

void check_lengths(const Mechanism& mechanism, const char* name, const Tensor& lengths,
                   std::int64_t batch, std::int64_t most) {
  require(lengths.shape() == Shape{batch} && lengths.dtype() == DType::i64,
          "{}: {} must be [{}] of i64, got {} of {}", mechanism.name, name, batch, lengths.shape(),
          name_of(lengths.dtype()));
  if (lengths.device() != Device{}) return;  // not waited for: kernels keep within 0 … most
  for (const std::int64_t length : lengths.to_vector<std::int64_t>()) {
    require(length >= 0 && length <= most, "{}: {} holds {}, outside 0 … {}", mechanism.name, name,
            length, most);
  }
}

}  // namespace

const std::vector<const Mechanism*>& mechanisms() {
  static const std::vector<const Mechanism*> list = [] {
    std::vector<const Mechanism*> all;
    for (const auto& [name, mechanism] : registry()) all.push_back(&mechanism);
    return all;
  }();
  return list;
}

Registration::Registration(Mechanism mechanism) {
  const std::string name = mechanism.name;
  const bool inserted = registry().emplace(name, std::move(mechanism)).second;
  require(inserted, "mechanism {}: the name is registered twice", name);
}

std::string nearest_name(const std::string& wanted, const std::vector<std::string>& names) {
  require(!names.empty(), "nearest_name: there are no names");
  return *std::min_element(names.begin(), names.end(), [&](auto& a, auto& b) {
    return edit_distance(a, wanted) < edit_distance(b, wanted);
  });
}

std::string known_names(const std::string& wanted, const std::vector<std::string>& names) {
  if (names.empty()) return "none";
  return fmt::format("{}; did you mean {}?", fmt::join(names, ", "), nearest_name(wanted, names));
}

const Mechanism& mechanism(const std::string& name) {
  const auto found = registry().find(name);
  if (found != registry().end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [known, sheet] : registry()) names.push_back(known);
  fail("attention: there is no mechanism '{}'; there are {}", name, known_names(name, names));
}

Shape input_shape(const AttentionInput& input, const AttentionSizes& sizes) {
  AttentionSizes values = sizes;
  Shape shape;
  for (const std::string& symbol : symbols(input)) shape.push_back(*find(values, symbol));
  return shape;
}

AttentionSizes checked_sizes(const Mechanism& mechanism, const AttentionCall& call,
                             std::span<const Variable> inputs) {
  require(inputs.size() <= mechanism.inputs.size(), "{}: wanted at most {} inputs, got {}",
          mechanism.name, mechanism.inputs.size(), listed(mechanism, inputs));
  AttentionSizes sizes;
  std::map<std::string, std::int64_t> known;
  const Tensor* first = nullptr;
  for (std::size_t i = 0; i < mechanism.inputs.size(); ++i) {
    const AttentionInput& sheet = mechanism.inputs[i];
    if (i >= inputs.size() || !inputs[i].defined()) {
      require(sheet.optional, "{}: the input {} is missing; got {}", mechanism.name, sheet.name,
              listed(mechanism, inputs));
      continue;
    }
    const Tensor& value = inputs[i].value();
    const std::vector<std::string> axes = symbols(sheet);
    require(value.rank() == static_cast<int>(axes.size()), "{}: {} must be [{}]; got {}",
            mechanism.name, sheet.name, fmt::join(axes, ", "), listed(mechanism, inputs));
    for (int axis = 0; axis < value.rank(); ++axis) {
      std::string symbol = axes[static_cast<std::size_t>(axis)];
      if (std::islower(static_cast<unsigned char>(symbol[0])) && symbol != "d") {
        if (value.size(axis) == 1) continue;
        symbol[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(symbol[0])));
      }
      const auto [entry, fresh] = known.emplace(symbol, value.size(axis));
      require(entry->second == value.size(axis),
              "{}: {} is [{}] with {} = {}, but {} = {} elsewhere; got {}", mechanism.name,
              sheet.name, fmt::join(axes, ", "), symbol, value.size(axis), symbol, entry->second,
              listed(mechanism, inputs));
      *find(sizes, symbol) = value.size(axis);
    }
    if (first == nullptr) first = &value;
    require(value.dtype() == DType::f32 || value.dtype() == DType::f64,
            "{}: {} must be f32 or f64, got {}; inputs are {}", mechanism.name, sheet.name,
            name_of(value.dtype()), listed(mechanism, inputs));
    require(value.dtype() == first->dtype(),
            "{}: wanted one element type, {} is {} and the first input {}; inputs are {}",
            mechanism.name, sheet.name, name_of(value.dtype()), name_of(first->dtype()),
            listed(mechanism, inputs));
  }
  for (const auto& [symbol, size] : known) {
    require(size > 0 || symbol == "B" || symbol == "N",
            "{}: {} is 0; every length and width must be at least 1; got {}", mechanism.name,
            symbol, listed(mechanism, inputs));
  }
  if (known.contains("N") && !known.contains("S")) sizes.S = sizes.N;
  require(mechanism.cross || sizes.N == sizes.S,
          "{}: cannot attend across two sequences, but N = {} and S = {}; use full for "
          "cross-attention",
          mechanism.name, sizes.N, sizes.S);
  require(!call.causal || mechanism.masks.causal,
          "{}: has no causal form; use full or agglomerative", mechanism.name);
  require(call.causal || !mechanism.causal_only, "{}: has only a causal form", mechanism.name);
  require(!call.causal || sizes.N == sizes.S,
          "{}: causal attention wants as many queries as keys, got N = {}, S = {}", mechanism.name,
          sizes.N, sizes.S);
  check_dropout_rate(mechanism.name.c_str(), call.dropout);
  if (call.lengths.defined()) {
    require(mechanism.masks.lengths, "{}: does not take lengths; use full", mechanism.name);
    check_lengths(mechanism, "lengths", call.lengths, sizes.B, sizes.S);
  }
  if (call.query_lengths.defined()) {
    require(mechanism.masks.query_lengths, "{}: does not take query lengths; use full",
            mechanism.name);
    check_lengths(mechanism, "query lengths", call.query_lengths, sizes.B, sizes.N);
  }
  return sizes;
}

Tensor given_choice(const Mechanism& mechanism, const AttentionCall& call, const std::string& name,
                    const Shape& shape, DType type) {
  const auto found = call.given.find(name);
  if (found == call.given.end()) return {};
  const Tensor& value = found->second;
  require(value.shape() == shape && value.dtype() == type,
          "{}: {} handed in must be {} of {}, got {} of {}", mechanism.name, name, shape,
          name_of(type), value.shape(), name_of(value.dtype()));
  return value.packed();
}

void report_choice(const AttentionCall& call, const std::string& name, const Tensor& value) {
  if (call.chosen != nullptr) call.chosen->insert_or_assign(name, value);
}

Variable attend(const AttentionSpec& spec, const AttentionCall& call,
                std::span<const Variable> inputs) {
  const Mechanism& mechanism = spec.mechanism();
  checked_sizes(mechanism, call, inputs);
  std::vector<std::string> accepted;
  for (const AttentionChoice& choice : mechanism.choices) {
    if (choice.accepted) accepted.push_back(choice.name);
  }
  for (const auto& [name, value] : call.given) {
    require(std::count(accepted.begin(), accepted.end(), name) == 1,
            "{}: {} cannot be handed in; what can: {}", mechanism.name, name,
            known_names(name, accepted));
  }
  // What kernels read besides the inputs goes where these are.
  Device device;
  for (const Variable& input : inputs) {
    if (input.defined()) device = input.value().device();
  }
  const auto placed = [&](Tensor& x) {
    if (x.defined()) x = x.packed().to(device);
  };
  AttentionCall ready = call;
  placed(ready.lengths);
  placed(ready.query_lengths);
  for (auto& [name, value] : ready.given) placed(value);
  return mechanism.attend(spec, ready, inputs);
}

}  // namespace weft
