// Channel-wise sample permutation: the op, its definition and the fact sheets of csp, csp-shift and
// csp-sort. Equations: csp.h.
#include "ops/attention/csp/csp.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "autograd/apply.h"
#include "ops/attention/csp/ring.h"
#include "ops/attention/csp/transport.h"
#include "ops/attention/definitions.h"
#include "ops/attention/scores.h"
#include "ops/dropout/dropout.h"
#include "ops/gather/gather.h"
#include "ops/pointwise/pointwise.h"
#include "ops/views/views.h"
#include "runtime/dispatch.h"

namespace weft {
namespace {

struct Settings {
  CspShiftRule rule;
  bool sorted = true;
  i64 group = 2, groups = 0;
  CspOrder order = CspOrder::reference;
  CspTransport transport;
};

template <class Enum>
Enum chosen_of(const AttentionSpec& spec, const char* option,
               std::initializer_list<std::pair<const char*, Enum>> words) {
  for (const auto& [word, value] : words) {
    if (spec.word(option) == word) return value;
  }
  fail("{}: {} is '{}'", spec.mechanism().name, option, spec.word(option));
}

Settings settings_of(const AttentionSpec& spec) {
  const std::string& name = spec.mechanism().name;
  const bool released = name == "csp" && spec.word("preset") == "released";
  require(
      !released || (spec.word("rule") == "paper" && spec.word("order") == "reference"),
      "csp: preset=released means rule=code,order=ascending; omit rule and order, or the preset");
  Settings s;
  s.rule.shift = CspShift::none;
  if (name != "csp-sort") {
    s.rule.shift = chosen_of<CspShift>(spec, "shift",
                                       {{"none", CspShift::none},
                                        {"linear", CspShift::linear},
                                        {"power", CspShift::power},
                                        {"head", CspShift::head},
                                        {"custom", CspShift::custom}});
    s.rule.code = released || spec.word("rule") == "code";
    require(!s.rule.code || s.rule.shift == CspShift::linear || s.rule.shift == CspShift::power,
            "{}: {} is a variant of shift=linear and shift=power, got shift={}", name,
            released ? "preset=released" : "rule=code", spec.word("shift"));
  }
  s.sorted = name == "csp-sort" || (name == "csp" && spec.integer("sort") == 1);
  if (name == "csp-shift") return s;
  s.group = spec.integer("group");
  s.groups = spec.integer("groups");
  require(s.sorted || (s.group == 2 && s.groups == 0 && spec.word("order") == "reference"),
          "{}: sort=0 sorts nothing; omit group, groups and order", name);
  require(s.groups == 0 || s.group == 2,
          "{}: group={} (samples in a group) and groups={} (how many) exclude each other; give one",
          name, s.group, s.groups);
  s.order = chosen_of<CspOrder>(spec, "order",
                                {{"reference", CspOrder::reference},
                                 {"ascending", CspOrder::ascending},
                                 {"descending", CspOrder::descending}});
  if (released) s.order = CspOrder::ascending;
  if (name != "csp") return s;
  s.transport = {spec.integer("sinkhorn"), spec.number("temperature")};
  require(s.transport.steps > 0 || s.transport.temperature == 1,
          "csp: temperature={} needs sinkhorn=t", s.transport.temperature);
  require(s.transport.steps == 0 || (s.sorted && s.order == CspOrder::reference),
          "csp: sinkhorn={} tends to order=reference; omit order, preset and sort",
          s.transport.steps);
  return s;
}

// What the caller gave.
struct Given {
  Tensor src, shifts;
};

Given given_of(Settings& s, const AttentionSpec& spec, const AttentionCall& call, const Shape& v) {
  const Mechanism& mechanism = spec.mechanism();
  const i64 B = v[0], N = v[1], C = v[2] * v[3];
  Given given{given_choice(mechanism, call, "src", {B, N, C}), {}};
  if (mechanism.name != "csp-sort") {
    given.shifts = given_choice(mechanism, call, "shifts", {C});
    require(given.shifts.defined() || s.rule.shift != CspShift::custom,
            "{}: shift=custom needs the choice shifts [{}]", mechanism.name, C);
    s.rule.layer = call.layer + call.depth;
    s.rule.layers = call.layers;
    require(s.rule.shift != CspShift::power || s.rule.layer < s.rule.layers,
            "{}: shift=power counts all layers, but this is layer {} (from 0) of {}",
            mechanism.name, s.rule.layer, s.rule.layers);
  }
  return given;
}

struct CspOp {
  static constexpr const char* name = "csp";
  Settings settings;
  Tensor lengths;
  Tensor shifts;       // [1, C], or [B, C] if there are lengths; i32
  Tensor decided;      // the record, if it was given
  bool whole = false;  // of positions, not of offsets in groups

  struct Saved {
    Tensor kept;
  };

  CspProblem problem(const Tensor& x, const Tensor& kept) const {
    CspProblem p;
    p.B = x.size(0), p.N = x.size(1), p.C = x.size(2) * x.size(3);
    p.lengths = numbers_of(lengths);
    p.shifts = shifts.data<std::int32_t>();
    p.shifts_row = shifts.size(0) == 1 ? 0 : p.C;
    p.group = whole ? p.N : settings.group;
    p.groups = whole ? 0 : settings.groups;
    p.order = settings.order;
    const i64 G = p.N > 0 ? p.group_of(p.N) : 1;
    // Given sources are recorded as offsets, however short the sequence.
    p.record = whole             ? csp_record(std::max<i64>(G, 3))
               : settings.sorted ? csp_record(G)
                                 : CspRecord::nothing;
    p.kept = kept.defined() ? kept.data<std::uint8_t>() : nullptr;
    p.decided = whole;
    return p;
  }

  static Tensor room(const CspProblem& p, Device device) {
    if (p.record == CspRecord::nothing) return {};
    return Tensor::empty({p.B * p.C * CspProblem::row_bytes(p.record, p.N) + 8}, DType::u8, device);
  }

  Tensor forward(Saved& saved, const Tensor& v) const {
    saved.kept = whole ? decided : room(problem(v, {}), v.device());
    const Tensor out = Tensor::empty_like(v);
    dispatch(v, [&](auto device, auto type) {
      using T = decltype(type);
      CspKernels<decltype(device), T>::forward(device, problem(v, saved.kept), v.view<const T, 4>(),
                                               out.view<T, 4>());
    });
    return out;
  }

  Tensor backward(const Saved& saved, const Tensor& dout) const {
    const Tensor dv = Tensor::empty_like(dout);
    dispatch(dout, [&](auto device, auto type) {
      using T = decltype(type);
      CspKernels<decltype(device), T>::backward(device, problem(dout, saved.kept),
                                                dout.view<const T, 4>(), dv.view<T, 4>());
    });
    return dv;
  }

  // Converts given sources to a record: one group, no shift.
  void decide(const Tensor& v, const Tensor& src) {
    whole = true;
    shifts.fill(0);
    decided = room(problem(v, {}), v.device());
    dispatch_device(v.device(), [&](auto device) {
      CspSourceKernels<decltype(device)>::decide(device, problem(v, decided),
                                                 src.view<const i64, 3>());
    });
  }
};

// The source of each output, [B, N, C]: the permutation applied to the positions 0 … N − 1.
Tensor sources(const CspOp& op, const CspOp::Saved& saved, const Tensor& v) {
  const CspProblem p = op.problem(v, saved.kept);
  const Tensor src = Tensor::empty({p.B, p.N, p.C}, DType::i64, v.device());
  dispatch_device(v.device(), [&](auto device) {
    CspSourceKernels<decltype(device)>::sources(device, p, src.view<i64, 3>());
  });
  return src;
}

// The op, which reports its sources if the call asks for them.
struct ReportingCsp : CspOp {
  const AttentionCall* call = nullptr;
  Tensor forward(Saved& saved, const Tensor& v) const {
    Tensor out = CspOp::forward(saved, v);
    report_choice(*call, "src", sources(*this, saved, v));
    return out;
  }
};

// The shifts of v [B, N, H, M]. With shift=head one head is eight, as in the paper's Table 1.
CspShiftTable table_for(const Settings& s, const Shape& v, const Tensor& given = {},
                        const Tensor& lengths = {}) {
  const i64 heads = s.rule.shift == CspShift::head && v[2] == 1 ? 8 : v[2];
  return {s.rule, v[1], heads, v[2] * v[3], numbers_of(given), numbers_of(lengths)};
}

// J of every channel of v for each of `lengths`, or for all of its positions if there are none.
Tensor shift_table(const Settings& s, const Tensor& given, const Tensor& lengths, const Shape& v,
                   Device device) {
  const i64 rows = lengths.defined() ? v[0] : 1;
  const Tensor table = Tensor::empty({rows, v[2] * v[3]}, DType::i32, device);
  const CspShiftTable rule = table_for(s, v, given, lengths);
  dispatch_device(device, [&](auto place) {
    CspSourceKernels<decltype(place)>::shifts(place, rule, rows, table.data<std::int32_t>());
  });
  return table;
}

Variable dropped(const Variable& out, const AttentionCall& call) {
  if (call.dropout == 0) return out;
  const Shape shape = out.shape();
  const Variable channels = reshape(out, {shape[0], shape[1], shape[2] * shape[3]});
  return reshape(dropout(channels, call.dropout, call.random), shape);
}

// Whether a call reports its permutation, `src`; and whether it reports `shifts`: without a
// permutation not those of a rule with lengths, which would be a list for each length.
bool decides_sources(const AttentionSpec& spec, const AttentionCall&) {
  return !spec.has("sinkhorn") || spec.integer("sinkhorn") == 0;
}
bool decides_shifts(const AttentionSpec& spec, const AttentionCall& call) {
  return decides_sources(spec, call) || !call.lengths.defined() || spec.word("shift") == "custom";
}

// The shifted samples u [B, N, H, M] in groups, each mapped as in transport.h.
Attended transported(const Settings& s, const AttentionCall& call, const Variable& u,
                     PotentialsFunction attention) {
  const Shape shape = u.shape();
  const i64 N = shape[1];
  require(
      s.groups == 0 || !call.lengths.defined(),
      "csp: with sinkhorn, groups={} takes no lengths, by which groups of items would differ in "
      "size; give group",
      s.groups);
  const i64 group = N > 0 ? CspProblem::group_of(N, s.group, s.groups) : 1;
  const Variable channels = reshape(u, {shape[0], N, shape[2] * shape[3]});
  return dropped(
      reshape(csp_transport(s.transport, channels, group, call.lengths, attention), shape), call);
}

Attended attend_csp(const AttentionSpec& spec, const AttentionCall& call,
                    std::span<const Variable> inputs) {
  const Tensor& v = inputs[0].value();
  Settings settings = settings_of(spec);
  require(v.size(1) <= std::numeric_limits<std::int32_t>::max(), "{}: {} positions are too many",
          spec.mechanism().name, v.size(1));
  const Given given = given_of(settings, spec, call, v.shape());
  const auto shifts_for = [&](const Tensor& lengths) {
    return shift_table(settings, given.shifts, lengths, v.shape(), v.device());
  };
  CspOp op{settings, call.lengths, shifts_for(call.lengths), {}, false};
  const bool shifts_decided = spec.mechanism().name != "csp-sort" && decides_shifts(spec, call);
  if (call.chosen != nullptr && shifts_decided) {
    const Tensor shifts = shifts_for({}).to(DType::i64).reshape({v.size(2) * v.size(3)});
    report_choice(call, "shifts", shifts);
  }
  if (settings.transport.steps > 0) {
    op.settings.sorted = false;
    return transported(settings, call, apply(op, inputs[0]), potentials_attention);
  }
  if (given.src.defined()) op.decide(v, given.src);
  if (call.chosen == nullptr) return dropped(apply(op, inputs[0]), call);
  return dropped(apply(ReportingCsp{op, &call}, inputs[0]), call);
}

// The sources by the definition: a list of positions, shifted, and each group of it sorted.
void define_sources(const Settings& s, const std::vector<i64>& shifts,
                    const View<const double, 4>& v, i64 b, i64 length, const View<i64, 3>& src) {
  const i64 M = v.size(3), C = v.size(2) * M;
  const auto value = [&](i64 c, i64 n) { return v(b, n, c / M, c % M); };
  const auto shifted = [&](i64 c, i64 n) {
    return ((n - shifts[std::size_t(c)]) % length + length) % length;
  };
  const i64 K = s.groups;
  const i64 G = !s.sorted ? 1 : K > 0 ? (length + K - 1) / K : s.group;
  for (i64 first = 0; first < length; first += G) {
    std::vector<i64> plain(static_cast<std::size_t>(std::min(G, length - first)));
    std::iota(plain.begin(), plain.end(), first);
    const auto ranked = [&](i64 c) {
      std::vector<i64> list = plain;
      std::stable_sort(list.begin(), list.end(), [&](i64 a, i64 o) {
        return csp_precedes(s.order, value(c, shifted(c, a)), value(c, shifted(c, o)));
      });
      return list;
    };
    const std::vector<i64> to = s.order == CspOrder::reference ? ranked(0) : plain;
    for (i64 c = 0; c < C; ++c) {
      const std::vector<i64> from = ranked(c);
      for (std::size_t r = 0; r < to.size(); ++r) src(b, to[r], c) = shifted(c, from[r]);
    }
  }
}

// The definition: out_c[n] = v_c[src_c(n)], and with `sinkhorn` groups of the shifted samples.
Attended reference_csp(const AttentionSpec& spec, const AttentionCall& call,
                       std::span<const Variable> inputs) {
  const Shape shape = inputs[0].shape();
  const i64 B = shape[0], N = shape[1], C = shape[2] * shape[3];
  const DType type = inputs[0].value().dtype();
  Settings s = settings_of(spec);
  const bool soft = s.transport.steps > 0;
  const Given given = given_of(s, spec, call, shape);
  s.sorted = s.sorted && !soft;
  const Tensor src = Tensor::zeros({B, N, C}, DType::i64);
  const Tensor v = inputs[0].value().to(DType::f64);
  const CspShiftTable table = table_for(s, shape, given.shifts, call.lengths);
  for (i64 b = 0; b < B; ++b) {
    const i64 length = length_of(call.lengths, b, N);
    if (given.src.defined()) {
      const auto there = [&](const Tensor& x) { return x.slice(0, b, b + 1).slice(1, 0, length); };
      there(src).copy_from(there(given.src));
      continue;
    }
    std::vector<i64> shifts;
    for (i64 c = 0; c < C; ++c) shifts.push_back(table(b, c));
    define_sources(s, shifts, v.view<const double, 4>(), b, length, src.view<i64, 3>());
  }
  const Variable taken = gather(reshape(inputs[0], {B, N, C}), 1, src);
  const Variable out = reshape(mul(taken, existence(call.lengths, B, N, type)), shape);
  return soft ? transported(s, call, out, potentials_definition) : dropped(out, call);
}

// A comparison and a move count as one operation each.
AttentionCost cost_csp(const AttentionSpec& spec, const AttentionSizes& sizes, bool, DType type) {
  const Settings s = settings_of(spec);
  CspProblem p;
  p.B = sizes.B, p.N = sizes.N, p.C = sizes.H * sizes.M;
  p.group = s.group, p.groups = s.groups;
  const i64 G = s.sorted ? p.group_of(p.N) : 1;
  p.record = csp_record(G);
  const auto samples = double(p.B) * double(p.N * p.C), item = double(size_of(type));
  const auto room = [&](i64 count) {
    return double(type == DType::f32 ? column_room<float>(count) : column_room<double>(count));
  };
  const auto kept = double(CspProblem::row_bytes(p.record, p.N));
  const i64 block = csp_block(p.N, p.C, i64(size_of(type)));
  const auto columns = [&] {  // of a block, those in memory together
    double most = 0;
    const CspShiftTable table = table_for(s, {p.B, p.N, sizes.H, sizes.M});
    for (i64 c = 0; c < p.C; c += block) {
      std::vector<i64> shifts;
      for (i64 i = c; i < std::min(c + block, p.C); ++i) {
        shifts.push_back(table(i64{0}, i));
      }
      const bool known = s.rule.shift != CspShift::custom;
      const i64 places = known ? CspDelays(std::move(shifts), p.N).places() : p.N;
      most = std::max(most, room(places) + room(csp_tile(p.N)));
    }
    return double(block) * most;
  };
  if (s.transport.steps > 0) {
    AttentionCost cost = csp_transport_cost(s.transport, p.B, p.N, p.C, p.group_of(p.N), type);
    cost.saved_bytes += 4 * double(p.C);
    return cost;
  }
  // Sorting groups takes scratch in forward, less than the gradient, which does not exist yet.
  return {.forward_operations = samples * (1 + std::log2(double(G)) / 2),
          .backward_operations = samples * 2,
          .saved_bytes = double(p.B * p.C) * kept + 4 * double(p.C),
          .working_bytes = item * (G <= 2 ? columns() : double(block + 1) * room(p.N)),
          .cuda_working_bytes = 0};
}

std::vector<OptionSheet> shift_options() {
  return {
      {.name = "shift",
       .initial = "linear",
       .help = "how far each channel is shifted; custom: by the given choice shifts",
       .choices = {"none", "linear", "power", "head"},
       .handed = {"custom"}},
      {.name = "rule",
       .initial = "paper",
       .help = "definition of shift=linear and power: the paper's, or that of the released code",
       .choices = {"paper", "code"}}};
}

std::vector<OptionSheet> sort_options() {
  return {{.name = "group",
           .initial = "2",
           .help = "samples in a group; the last may be short",
           .least = 1,
           .most = 1e9,
           .tried = {"1", "3", "64", "100000"}},
          {.name = "groups",
           .initial = "0",
           .help = "number of groups, instead of group; 1 sorts completely",
           .least = 0,
           .most = 1e9,
           .tried = {"1", "3"}},
          {.name = "order",
           .initial = "reference",
           .help = "order in a group: that of the first channel (the paper), ascending (the "
                   "released code) or descending",
           .choices = {"reference", "ascending", "descending"},
           .with = "group!=1"}};
}

Mechanism sheet(const char* name, const char* title, bool shifts, bool sorts) {
  Mechanism m{
      .name = name,
      .title = title,
      .paper =
          "S. Yuan, H. Xu, Towards better multi-head attention via channel-wise sample "
          "permutation, 2024, arXiv 2410.10914",
      .equations = "eq. 3 and 4",
      .page = "csp",
      .inputs = [](const AttentionSpec&, const AttentionSizes&) -> AttentionInputs {
        return {{.name = "v", .axes = "B N H M"}};
      },
      .choices = {{.name = "src",
                   .shape = "B N C",
                   .sizes =
                       [](const AttentionSpec&, const AttentionSizes& s) {
                         return Shape{s.B, s.N, s.H * s.M};
                       },
                   .values =
                       [](const ChoicePlace& at) {
                         const i64 length = length_of(at.call.lengths, at.place[0], at.sizes.N);
                         return at.place[1] < length ? length : AttentionChoice::no_such_element;
                       },
                   .order = ChoiceOrder::permutation,
                   .decided = decides_sources}},
      .masks = {.lengths = true},
      .joined = true,
      .scaling = sorts ? "N log G" : "N",
      .attend = attend_csp,
      .reference = reference_csp,
      .cost = cost_csp};
  if (shifts) {
    m.choices.push_back(
        {.name = "shifts",
         .shape = "C",
         .sizes = [](const AttentionSpec&, const AttentionSizes& s) { return Shape{s.H * s.M}; },
         .values = [](const ChoicePlace&) { return AttentionChoice::unbounded; },
         .decided = decides_shifts});
  }
  if (shifts) m.options = shift_options();
  const std::vector<OptionSheet> sorting = sort_options();
  if (sorts) m.options.insert(m.options.end(), sorting.begin(), sorting.end());
  if (shifts && sorts) {
    m.options.push_back(
        {.name = "preset",
         .initial = "paper",
         .help = "the paper's operator, or the released code's: rule=code,order=ascending",
         .choices = {"paper", "released"}});
    m.options.push_back(flag_option("sort", true, "1: groups are sorted; 0: shifted only"));
    m.options.push_back({.name = "sinkhorn",
                         .initial = "0",
                         .help = "t: normalisations of rows and columns that make doubly "
                                 "stochastic maps (eq. 9); 0: permutations",
                         .least = 0,
                         .most = 100000,
                         .with = "group!=1",
                         .tried = {"1,group=70", "3,group=70"}});
    m.options.push_back({.name = "temperature",
                         .initial = "1",
                         .help = "τ of eq. 9, with sinkhorn: products are divided by it",
                         .least = 1e-6,
                         .most = 1e6,
                         .whole = false,
                         .tried = {"0.5,sinkhorn=2,group=70"}});
  }
  return m;
}

const Registration both{
    sheet("csp", "samples of each channel shifted, then sorted in groups", true, true)};
const Registration shift_only{
    sheet("csp-shift", "samples of each channel shifted along the sequence", true, false)};
const Registration sort_only{
    sheet("csp-sort", "samples of each channel sorted in groups", false, true)};

}  // namespace
}  // namespace weft
