// Longformer attention: the pattern, the definition, decoding and the fact sheet. Equations:
// longformer.h.
#include "ops/attention/longformer/longformer.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <vector>

#include "ops/attention/definitions.h"
#include "ops/attention/engines/pairs/attention.h"
#include "ops/attention/key_value_cache.h"
#include "ops/attention/scores.h"
#include "ops/gather/gather.h"
#include "ops/views/views.h"

namespace weft {
namespace {

struct Window {
  i64 reach, dilation;

  explicit Window(const AttentionSpec& spec)
      : reach(spec.integer("window")), dilation(spec.integer("dilation")) {}

  bool shows(i64 i, i64 j) const {
    return (i - j) % dilation == 0 && std::abs(i - j) / dilation <= reach;
  }
  // Residue classes of N positions: more classes than positions would be empty.
  i64 classes(i64 N) const { return std::min(dilation, std::max<i64>(N, 1)); }
  // Its pairs among N positions, without the keys before `first_key`.
  PairsPart part(i64 N, bool causal, i64 first_key) const {
    return {.band = Band::window(reach, causal ? 0 : reach),
            .classes = classes(N),
            .first_key = first_key};
  }
};

// How many of the first positions a mask names, if it names these for every item as far as its
// length; −1 if it names others.
i64 leading_positions(const Tensor& mask, const Tensor& lengths) {
  const View<const i64, 2> marks = mask.view<const i64, 2>();
  const auto length = [&](i64 b) { return length_of(lengths, b, marks.size(1)); };
  i64 first = 0;
  for (i64 b = 0; b < marks.size(0); ++b) {
    while (first < length(b) && marks(b, first) == 1) ++first;
  }
  for (i64 b = 0; b < marks.size(0); ++b) {
    for (i64 i = 0; i < length(b); ++i) {
      if ((marks(b, i) == 1) != (i < first)) return -1;
    }
  }
  return first;
}

// A call, and its global positions: the first ones of every item, or those of a mask.
struct Longformer {
  const AttentionCall& call;
  std::span<const Variable> inputs;
  Window window;
  double temperature;
  i64 B, N;
  std::vector<i64> positions = {};  // global in some item, ascending
  Tensor mask = {};                 // [B, N] on the CPU; undefined: the same first positions in all
  Tensor lengths = {};              // on the CPU, for a given mask

  Longformer(const AttentionSpec& spec, const AttentionCall& call, std::span<const Variable> inputs)
      : call(call),
        inputs(inputs),
        window(spec),
        temperature(temperature_of(spec, inputs[0].size(3))),
        B(inputs[0].size(0)),
        N(inputs[0].size(1)) {
    choose(spec);
  }
  void choose(const AttentionSpec& spec);

  Device device() const { return inputs[0].value().device(); }
  bool projected() const { return inputs[3].defined(); }
  bool sees(i64 i, i64 j) const { return !call.causal || j <= i; }
  // The dropout mask of the global queries is a second one.
  RandomKey second_random() const { return call.random.further(DrawPurpose::bottom_dropout); }

  bool leading() const { return !mask.defined(); }
  i64 globals() const { return static_cast<i64>(positions.size()); }
  bool is_global(i64 b, i64 i) const {
    if (leading()) return i < globals();
    return mask.data<i64>()[b * N + i] == 1;
  }
  // The index of a global position in `positions`.
  i64 rank(i64 position) const {
    return std::lower_bound(positions.begin(), positions.end(), position) - positions.begin();
  }
  Tensor index() const { return Tensor::from(positions, {1, globals(), 1, 1}).to(device()); }
  // [B]: how many of the positions are within the length.
  Tensor existing() const {
    std::vector<i64> counts;
    for (i64 b = 0; b < B; ++b) counts.push_back(rank(length_of(lengths, b, N)));
    return Tensor::from(counts, {B}).to(device());
  }
  // [B, N, 1, 1]: the source of each row of out, N local rows followed by the global ones.
  Tensor places() const {
    const Tensor rows = Tensor::empty({B, N, 1, 1}, DType::i64);
    for (i64 row = 0; row < B * N; ++row) {
      rows.data<i64>()[row] = is_global(row / N, row % N) ? N + rank(row % N) : row % N;
    }
    return rows.to(device());
  }
};

void Longformer::choose(const AttentionSpec& spec) {
  const Tensor given = given_choice(spec.mechanism(), call, "global_mask", {B, N});
  i64 first = std::min(spec.integer("global_tokens"), N);
  if (given.defined()) {
    const Tensor marks = given.to(Device{});
    if (call.lengths.defined()) lengths = call.lengths.to(Device{});
    first = leading_positions(marks, lengths);
    if (first < 0) mask = marks;
    report_choice(call, "global_mask", given);
  } else if (call.chosen != nullptr) {
    const Tensor marks = Tensor::zeros({B, N}, DType::i64, device());
    marks.slice(1, 0, first).fill(1);
    report_choice(call, "global_mask", marks);
  }
  for (i64 i = 0; i < (leading() ? first : N); ++i) {
    bool any = leading();
    for (i64 b = 0; b < B && !any; ++b) any = is_global(b, i);
    if (any) positions.push_back(i);
  }
  if (!leading() && positions.empty()) positions = {0};  // a placeholder, which is not global
  const auto there = std::count_if(inputs.begin() + 3, inputs.end(),
                                   [](const Variable& x) { return x.defined(); });
  require(there == 3 || (there == 0 && globals() == 0),
          "longformer: wanted all of q_global, k_global and v_global, or none where no position is "
          "global; got {} of them, with {} global positions",
          there, globals());
}

// A list of tiles of the pairs (i, j), i < rows, j < columns, where sees(b, i, j).
template <class F>
std::shared_ptr<const TileListTensors> tiles_where(i64 B, i64 rows, i64 columns, Device device,
                                                   const F& sees) {
  const Tensor mask = Tensor::empty({B, 1, rows, columns}, DType::u8);
  const View<std::uint8_t, 4> view = mask.view<std::uint8_t, 4>();
  for (i64 b = 0; b < B; ++b) {
    for (i64 i = 0; i < rows; ++i) {
      for (i64 j = 0; j < columns; ++j) view(b, 0, i, j) = sees(b, i, j);
    }
  }
  return std::make_shared<const TileListTensors>(
      tiles_of_mask(mask, {.queries = rows, .keys = columns}, device));
}

// The queries that are not global. The rows of the others are ignored.
Variable attend_local(const Longformer& c) {
  const Variable &k = c.inputs[1], &v = c.inputs[2];
  std::vector<PairsSource> sources{{k, v, c.call.lengths}};
  std::vector<PairsPart> parts{c.window.part(c.N, c.call.causal, c.leading() ? c.globals() : 0)};
  if (!c.leading()) {
    const Tensor index = c.index();
    sources.push_back({gather(k, 1, index), gather(v, 1, index), c.existing()});
    const auto sees = [&](i64 b, i64 i, i64 number) {
      const i64 j = c.positions[number];
      return c.sees(i, j) && c.is_global(b, j) && !c.window.shows(i, j);
    };
    parts.push_back({.lists = tiles_where(c.B, c.N, c.globals(), c.device(), sees), .source = 1});
  } else if (c.globals() > 0) {
    parts.push_back({.band = {.end = {.offset = c.globals()}}});
  }
  return pairs_attention(
      {"longformer", c.temperature, c.call.lengths, c.call.dropout, c.call.random}, c.inputs[0],
      sources, parts);
}

// The pairs of global queries that are the first positions.
PairsPart global_part(bool causal) { return {.band = causal ? Band::causal() : Band::all()}; }

// The global queries: [B, |G|, H, M].
Variable attend_global(const Longformer& c) {
  PairsPart part = global_part(c.call.causal);
  Variable q = c.inputs[3];
  Tensor existing = c.call.lengths;
  if (c.leading()) {
    q = slice(q, 1, 0, c.globals());
  } else {
    q = gather(q, 1, c.index());
    existing = c.existing();
    const auto sees = [&](i64, i64 row, i64 j) { return c.sees(c.positions[row], j); };
    part = {.lists = tiles_where(1, c.globals(), c.N, c.device(), sees)};
  }
  return pairs_attention({"longformer", c.temperature, existing, c.call.dropout, c.second_random()},
                         q, {c.inputs[4], c.inputs[5], c.call.lengths}, part);
}

Attended attend_longformer(const AttentionSpec& spec, const AttentionCall& call,
                           std::span<const Variable> inputs) {
  const Longformer c(spec, call, inputs);
  const Variable local = attend_local(c);
  if (!c.projected()) return local;
  if (c.leading()) {
    const Variable rest = slice(local, 1, c.globals(), c.N);
    const Variable rows[] = {attend_global(c), rest};
    return concatenate(rows, 1);
  }
  const Variable rows[] = {local, attend_global(c)};
  return gather(concatenate(rows, 1), 1, c.places());
}

// The keys of a class have the first columns; global keys follow.
MaskColumns mask_columns(const Longformer& c) {
  const i64 N = c.N, count = c.globals(), classes = c.window.classes(N);
  const i64 first = (N + classes - 1) / classes;
  const i64 second = next_mask_columns(first);
  if (count == 0) return {first, [=](i64, i64 j) { return j / classes; }};
  if (c.leading()) {
    return {second + N, [=](i64, i64 j) { return j < count ? second + j : j / classes; }};
  }
  return {second + count, [=, &c](i64 i, i64 j) {
            if (c.window.shows(i, j)) return j / classes;
            return second + std::min(c.rank(j), count - 1);
          }};
}

Attended reference_longformer(const AttentionSpec& spec, const AttentionCall& call,
                              std::span<const Variable> inputs) {
  const Longformer c(spec, call, inputs);
  const auto near = [&](i64 b, i64, i64 i, i64 j) {
    return !c.is_global(b, i) && (c.is_global(b, j) || c.window.shows(i, j));
  };
  const Tensor seen = self_visibility(call, c.B, 1, c.N, near);
  const Variable local = attention_over(seen, c.temperature, call, inputs[0], inputs[1], inputs[2],
                                        {}, mask_columns(c));
  if (!c.projected()) return local;
  const auto from_global = [&](i64 b, i64, i64 i, i64) { return c.is_global(b, i); };
  const Tensor all = self_visibility(call, c.B, 1, c.N, from_global);
  const Tensor seen_rows = Tensor::empty({c.B, 1, c.globals(), c.N}, DType::f64);
  for (i64 number = 0; number < c.globals(); ++number) {
    const i64 row = c.positions[number];
    seen_rows.slice(2, number, number + 1).copy_from(all.slice(2, row, row + 1));
  }
  AttentionCall second = call;
  second.random = c.second_random();
  const Variable rows[] = {
      local, attention_over(seen_rows, c.temperature, second, gather(inputs[3], 1, c.index()),
                            inputs[4], inputs[5])};
  return gather(concatenate(rows, 1), 1, c.places());
}

// The pairs are those of both calls: the first one has all N queries, whose rows are saved, since
// out has other rows in place of some.
AttentionCost cost_longformer(const AttentionSpec& spec, const AttentionSizes& s, bool causal,
                              DType type) {
  const i64 g = std::min(spec.integer("global_tokens"), s.N);
  const double near = pairs_of(Window(spec).part(s.N, causal, g), s.N, s.N) + double(s.N * g);
  const double far = pairs_of(global_part(causal), g, s.N);
  AttentionCost cost = pairs_cost(s, double(s.B * s.H) * (near + far), type);
  if (g == 0) return cost;
  const double item = double(size_of(type)), heads = double(s.B * s.H);
  cost.saved_bytes += item * heads * double(s.N * s.M + g * (s.M + 1));
  const double dlocal = item * heads * double(s.N * s.M);
  cost.working_bytes += dlocal;
  cost.cuda_working_bytes += dlocal;
  return cost;
}

// Keys and values of all positions; and for the first ones, which are global, those of the further
// projections.
class LongformerDecoding final : public DecodingState {
 public:
  LongformerDecoding(const AttentionSpec& spec, const AttentionSizes& sizes, DType type,
                     i64 capacity)
      : first_(spec.integer("global_tokens")) {
    const auto keys = [window = Window(spec), first = first_](i64, i64 i) {
      std::vector<i64> list(std::min(first, i));
      std::iota(list.begin(), list.end(), i64{0});
      const i64 steps = std::min(window.reach, i / window.dilation);
      for (i64 j = i - steps * window.dilation; j <= i; j += window.dilation) {
        if (j >= first || j == i) list.push_back(j);
      }
      return list;
    };
    local_ = decode_by_keys(spec, sizes, type, capacity, keys);
    if (first_ == 0) return;
    const AttentionSpec full("full:temperature=" + spec.word("temperature"));
    global_ = decode_by_cache(full, sizes, type, std::min(capacity, first_));
  }

  Tensor step(std::span<const Tensor> inputs) override {
    const Tensor out = local_->step(inputs);
    const i64 n = out.size(1), rows = std::clamp<i64>(first_ - seen_, 0, n);
    if (rows > 0) {
      std::vector<Tensor> projected;
      for (const Tensor& input : inputs.subspan(3)) projected.push_back(input.slice(1, 0, rows));
      out.slice(1, 0, rows).copy_from(global_->step(projected));
    }
    seen_ += n;
    return out;
  }

  i64 bytes() const override { return local_->bytes() + (global_ ? global_->bytes() : 0); }

 private:
  i64 first_, seen_ = 0;
  std::unique_ptr<DecodingState> local_, global_;
};

std::unique_ptr<DecodingState> decode_longformer(const AttentionSpec& spec,
                                                 const AttentionSizes& sizes, DType type,
                                                 i64 capacity) {
  return std::make_unique<LongformerDecoding>(spec, sizes, type, capacity);
}

AttentionInputs longformer_inputs(const AttentionSpec& spec, const AttentionSizes& sizes) {
  AttentionInputs inputs = query_key_value(spec, sizes);
  for (AttentionInput further : query_key_value(spec, sizes)) {
    further.name += "_global";
    further.weight.like = "qkv";
    further.matrix += "_global";
    further.optional = spec.integer("global_tokens") == 0;
    inputs.push_back(further);
  }
  return inputs;
}

const Registration registered_longformer{Mechanism{
    .name = "longformer",
    .title = "softmax attention over a window and some global positions, which see everything",
    .paper = "I. Beltagy, M. E. Peters, A. Cohan, Longformer: the long-document transformer, 2020, "
             "arXiv 2004.05150",
    .equations = "section 3.1",
    .inputs = longformer_inputs,
    .choices = {{.name = "global_mask",
                 .shape = "B N",
                 .sizes =
                     [](const AttentionSpec&, const AttentionSizes& s) {
                       return Shape{s.B, s.N};
                     },
                 .values =
                     [](const ChoicePlace& at) {
                       const i64 length = length_of(at.call.lengths, at.place[0], at.sizes.N);
                       return at.place[1] < length ? 2 : AttentionChoice::no_such_element;
                     }}},
    .options = {{.name = "window",
                 .initial = "64",
                 .help = "w: steps that a query sees to each side",
                 .least = 0,
                 .most = 1 << 24,
                 .tried = {"0", "7"}},
                {.name = "dilation",
                 .initial = "1",
                 .help = "positions that a step of the window goes",
                 .least = 1,
                 .most = 1 << 24,
                 .with = "window!=0",
                 .tried = {"3"}},
                {.name = "global_tokens",
                 .initial = "1",
                 .help = "g: first positions that see everything and are seen by everything",
                 .least = 0,
                 .most = 1 << 24,
                 .tried = {"0", "3"}},
                temperature_option()},
    .masks = {.causal = true, .lengths = true},
    .strictly_causal = true,
    .scaling = "N (w + g)",
    .attend = attend_longformer,
    .reference = reference_longformer,
    .cost = cost_longformer,
    .decode = decode_longformer}};

}  // namespace
}  // namespace weft
