#include "apps/attend/derive.h"

#include <algorithm>

#include <fmt/core.h>

#include "nn/initializer.h"
#include "ops/matmul/matmul.h"
#include "ops/pointwise/pointwise.h"

namespace weft {
namespace {

// A sequence from the file: [B, L, H, X].
struct Source {
  std::string name;
  Side side;
  bool values;
  Tensor tensor;

  i64 length() const { return tensor.size(1); }
  i64 joined_width() const { return tensor.size(2) * tensor.size(3); }
  Tensor joined() const {  // [B, L, H·X]
    return tensor.packed().reshape({tensor.size(0), length(), joined_width()});
  }
};

bool is_values(const AttentionInput& input) { return input.axes.ends_with("H M"); }

// The sequences [B, L, H, X] among the file's tensors, found by the names of mechanisms' inputs.
std::vector<Source> sources_of(const Given& given) {
  Mechanism joining;
  joining.joined = true;
  std::vector<Source> sources;
  for (const AttentionInput& input : known_inputs()) {
    if (input.role != Role::projected) continue;
    const Tensor tensor = input_of(given, joining, input);
    if (!tensor.defined() || tensor.rank() != 4) continue;
    sources.push_back({input.name, input.side, is_values(input), tensor});
  }
  return sources;
}

// The sizes of a call on these sequences.
AttentionSizes sizes_of(const std::vector<Source>& sources) {
  AttentionSizes sizes;
  for (const bool queries : {false, true}) {  // queries come last: if there are any, they set N
    for (const Source& source : sources) {
      const bool query = source.side == Side::query && !source.values;
      if (query != queries) continue;
      sizes.B = source.tensor.size(0);
      sizes.H = source.tensor.size(2);
      sizes.N = source.length();
      if (!query || sources.size() == 1) sizes.S = source.length();
    }
  }
  const bool keys = std::any_of(sources.begin(), sources.end(), [](auto& s) { return !s.values; });
  const bool values = std::any_of(sources.begin(), sources.end(), [](auto& s) { return s.values; });
  for (const Source& source : sources) {
    if (source.values || !values) sizes.M = source.tensor.size(3);
    if (!source.values || !keys) sizes.E = source.tensor.size(3);
  }
  sizes.d = sizes.H * sizes.M;
  sizes.N_max = std::max(sizes.N, sizes.S);
  return sizes;
}

class Deriver {
 public:
  Deriver(const Given& given, const AttentionSpec& spec, bool causal, std::uint64_t seed,
          std::set<std::string>& used)
      : given_(given),
        spec_(spec),
        seed_(seed),
        used_(used),
        sources_(sources_of(given)),
        sizes_(sizes_of(sources_)) {
    sizes_.causal = causal;
  }

  Derived all() {
    for (const AttentionInput& input : attention_inputs(spec_, sizes_)) {
      if (input.causal && !sizes_.causal) break;  // they come last
      Tensor value = input_of(given_, spec_.mechanism(), input);
      if (value.defined()) {
        used_.insert(input.name);
      } else if (!input.optional && input.role != Role::drawn) {
        value = made(input);
      }
      derived_.inputs.push_back(value);
    }
    while (!derived_.inputs.empty() && !derived_.inputs.back().defined()) {
      derived_.inputs.pop_back();
    }
    return std::move(derived_);
  }

 private:
  Tensor made(const AttentionInput& input) {
    if (input.role == Role::parameter) {
      derived_.said.push_back(fmt::format("{} {} is drawn", input.name, input.shape));
      return drawn(input, input.name, input.shape);
    }
    require(input.role == Role::projected || input.role == Role::sequence,
            "{}: there is no {} [{}], and it cannot be derived", given_.path, input.name,
            input.axes);
    const Source& from = source(input);
    used_.insert(from.name);
    const bool whole = is_values(input) && from.values;
    if (!whole && input.role == Role::projected) return projected(input, from);
    derived_.said.push_back(
        fmt::format("{} is {}{}", input.name, from.name, whole ? "" : " with its heads joined"));
    return whole ? from.tensor : from.joined();
  }

  Tensor projected(const AttentionInput& input, const Source& from) {
    const i64 rows = sizes_.B * from.length();
    std::vector<i64> widths = input.through;
    widths.push_back(input.shape.count() / rows);
    Variable x = from.joined().reshape({rows, from.joined_width()});
    std::string how = from.name;
    for (std::size_t i = 0; i < widths.size(); ++i) {
      const Shape shape = {x.size(1), widths[i]};
      x = matmul(x, drawn(input, fmt::format("{}.{}", input.name, i), shape));
      if (i + 1 < widths.size()) x = relu(x);
      how += fmt::format(" W{}", shape);
    }
    derived_.said.push_back(fmt::format("{} is {}, {}W drawn", input.name, how,
                                        widths.size() > 1 ? "ReLU between, " : ""));
    return x.value().reshape(input.shape);
  }

  Tensor drawn(const AttentionInput& input, const std::string& name, const Shape& shape) const {
    const Tensor value = Tensor::empty(shape, given_.type);
    draw(input.weight, name, seed_, value);
    return value;
  }

  // The best sequence of the file for this input, among those of its length: prefers one of the
  // same side (queries or keys), and values for values.
  const Source& source(const AttentionInput& input) const {
    const bool values = is_values(input) || input.role == Role::sequence;
    const i64 length = input.side == Side::query ? sizes_.N : sizes_.S;
    const Source* best = nullptr;
    int most = -1;
    for (const Source& candidate : sources_) {
      const int score = 2 * (candidate.values == values) + (candidate.side == input.side);
      if (candidate.length() == length && score > most) best = &candidate, most = score;
    }
    require(best != nullptr, "{}: there is no {} [{}], nor anything to derive it from", given_.path,
            input.name, input.axes);
    return *best;
  }

  const Given& given_;
  const AttentionSpec& spec_;
  std::uint64_t seed_;
  std::set<std::string>& used_;
  std::vector<Source> sources_;
  AttentionSizes sizes_;
  Derived derived_;
};

}  // namespace

Derived derived_inputs(const Given& given, const AttentionSpec& spec, bool causal,
                       std::uint64_t seed, std::set<std::string>& used) {
  return Deriver(given, spec, causal, seed, used).all();
}

AttentionInputs known_inputs() {
  AttentionInputs known;
  for (const Mechanism* mechanism : mechanisms()) {
    if (mechanism->wrapper) continue;  // its inputs are those of the inner mechanism
    for (const AttentionInput& input : attention_inputs(AttentionSpec(mechanism->name))) {
      const bool fresh = std::none_of(known.begin(), known.end(), [&](const AttentionInput& other) {
        return other.name == input.name;
      });
      if (fresh) known.push_back(input);
    }
  }
  return known;
}

}  // namespace weft
