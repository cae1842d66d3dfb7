// Channel-wise sample permutation: the op, its definition and the fact sheets of csp, csp-shift and
// csp-sort. Equations: csp.h.
#include "ops/attention/csp/csp.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "autograd/apply.h"
#include "ops/attention/csp/columns.h"
#include "ops/attention/csp/group_order.h"
#include "ops/attention/scores.h"
#include "ops/dropout/dropout.h"
#include "ops/embedding/embedding.h"
#include "ops/pointwise/pointwise.h"
#include "ops/views/views.h"
#include "runtime/dispatch.h"

namespace weft {
namespace {

struct Settings {
  CspShiftRule rule;
  bool sorted = true;
  std::int64_t group = 2, groups = 0;
  CspOrder order = CspOrder::reference;
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
  require(!released || (spec.word("rule") == "paper" && spec.word("order") == "reference"),
          "csp: preset=released stands for rule=code,order=ascending; leave rule and order out, or the "
          "preset");
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
            "{}: rule=code is a variant of shift=linear and shift=power, got shift={}", name,
            spec.word("shift"));
  }
  s.sorted = name == "csp-sort" || (name == "csp" && spec.integer("sort") == 1);
  if (name == "csp-shift") return s;
  s.group = spec.integer("group");
  s.groups = spec.integer("groups");
  require(s.groups == 0 || s.group == 2,
          "{}: group={} (samples in a group) and groups={} (how many) exclude each other; give one",
          name, s.group, s.groups);
  s.order = chosen_of<CspOrder>(spec, "order",
                                {{"reference", CspOrder::reference},
                                 {"ascending", CspOrder::ascending},
                                 {"descending", CspOrder::descending}});
  if (released) s.order = CspOrder::ascending;
  return s;
}

// J of every channel of a sequence of `length`, handed in or by the rule.
std::int64_t shift_of(const Settings& s, const Tensor& given, const Shape& v, std::int64_t c,
                      std::int64_t length) {
  if (length == 0) return 0;
  if (given.defined()) return given.data<std::int64_t>()[c] % length;
  return s.rule(c, c / v[3], v[2] * v[3], length);
}

// What is handed in, checked.
struct Given {
  Tensor src, shifts;
};

Given given_of(Settings& s, const AttentionSpec& spec, const AttentionCall& call, const Shape& v) {
  const Mechanism& mechanism = spec.mechanism();
  const std::int64_t B = v[0], N = v[1], C = v[2] * v[3];
  Given given{given_choice(mechanism, call, "src", {B, N, C}), {}};
  if (mechanism.name != "csp-sort") {
    given.shifts = given_choice(mechanism, call, "shifts", {C});
    require(given.shifts.defined() || s.rule.shift != CspShift::custom,
            "{}: shift=custom wants the choice shifts [{}] handed in", mechanism.name, C);
    s.rule.layer = call.layer + call.depth;
    s.rule.layers = call.layers;
    require(s.rule.shift != CspShift::power || s.rule.layer < s.rule.layers,
            "{}: shift=power counts all layers, but this is layer {} (from 0) of {}",
            mechanism.name, s.rule.layer, s.rule.layers);
  }
  for (std::int64_t c = 0; given.shifts.defined() && c < C; ++c) {
    const std::int64_t J = given.shifts.data<std::int64_t>()[c];
    require(J >= 0, "{}: shifts[{}] is {}; a shift is 0 or more (it counts modulo the length)",
            mechanism.name, c, J);
  }
  return given;
}

// Throws unless src is a permutation of the positions that exist, for every channel.
void check_sources(const std::string& name, const AttentionCall& call, const Tensor& src) {
  const std::int64_t B = src.size(0), N = src.size(1), C = src.size(2);
  const View<const std::int64_t, 3> at = src.view<const std::int64_t, 3>();
  std::vector<std::int64_t> seen(static_cast<std::size_t>(N * C), -1);
  for (std::int64_t b = 0; b < B; ++b) {
    const std::int64_t length = length_of(call.lengths, b, N);
    for (std::int64_t n = 0; n < length; ++n) {
      for (std::int64_t c = 0; c < C; ++c) {
        const std::int64_t from = at(b, n, c);
        require(from >= 0 && from < length, "{}: src[{}, {}, {}] is {}, outside 0 … {}", name, b, n,
                c, from, length - 1);
        std::int64_t& place = seen[static_cast<std::size_t>(from * C + c)];
        require(place < b, "{}: src takes position {} of channel {} twice in batch item {}; it must "
                "be a permutation", name, from, c, b);
        place = b;
      }
    }
  }
}

struct CspOp {
  static constexpr const char* name = "csp";
  Settings settings;
  Tensor lengths;
  Tensor shifts;   // [1, C], or [B, C] where there are lengths; i32
  Tensor decided;  // what is kept, where it was handed in
  bool whole = false;  // that of positions, not of offsets in groups

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
    const std::int64_t G = p.N > 0 ? p.group_of(p.N) : 1;
    // What was handed in is kept as offsets, however short the sequence.
    p.record = whole             ? csp_record(std::max<std::int64_t>(G, 3))
               : settings.sorted ? csp_record(G)
                                 : CspRecord::nothing;
    p.kept = kept.defined() ? kept.data<std::uint8_t>() : nullptr;
    p.decided = whole;
    return p;
  }

  static Tensor room(const CspProblem& p) {
    if (p.record == CspRecord::nothing) return {};
    return Tensor::empty({p.B * p.C * CspProblem::row_bytes(p.record, p.N) + 8}, DType::u8);
  }

  Tensor forward(Saved& saved, const Tensor& v) const {
    saved.kept = whole ? decided : room(problem(v, {}));
    const Tensor out = Tensor::empty_like(v);
    dispatch(v, [&](auto device, auto type) {
      using T = decltype(type);
      csp_forward<T>(device, problem(v, saved.kept), v.view<const T, 4>(), out.view<T, 4>());
    });
    return out;
  }

  Tensor backward(const Saved& saved, const Tensor& dout) const {
    const Tensor dv = Tensor::empty_like(dout);
    dispatch(dout, [&](auto device, auto type) {
      using T = decltype(type);
      csp_backward<T>(device, problem(dout, saved.kept), dout.view<const T, 4>(),
                      dv.view<T, 4>());
    });
    return dv;
  }

  // Sources handed in become what is kept: one group, no shift.
  void decide(const Tensor& v, const Tensor& src) {
    whole = true;
    shifts.fill(0);
    const CspProblem bare = problem(v, {});
    decided = room(bare);
    const CspProblem p = problem(v, decided);
    const View<const std::int64_t, 3> at = src.view<const std::int64_t, 3>();
    for (std::int64_t b = 0; b < p.B; ++b) {
      for (std::int64_t c = 0; c < p.C; ++c) {
        for (std::int64_t n = 0; n < p.length(b); ++n) {
          if (p.record == CspRecord::narrow) {
            reinterpret_cast<std::uint16_t*>(p.row(b, c))[n] = std::uint16_t(at(b, n, c));
          } else {
            reinterpret_cast<std::uint32_t*>(p.row(b, c))[n] = std::uint32_t(at(b, n, c));
          }
        }
      }
    }
  }
};

// Where each output comes from, [B, N, C]: the permutation, as it was applied to the numbers
// 0 … N − 1 of the positions.
Tensor sources(const CspOp& op, const CspOp::Saved& saved, const Tensor& v) {
  const CspProblem p = op.problem(v, saved.kept);
  const Tensor src = Tensor::empty({p.B, p.N, p.C}, DType::i64);
  const View<std::int64_t, 3> at = src.view<std::int64_t, 3>();
  for (std::int64_t b = 0; b < p.B; ++b) {
    const std::int64_t length = p.length(b);
    for (std::int64_t c = 0; c < p.C; ++c) {
      const std::uint8_t* const row = p.kept == nullptr ? nullptr : p.row(b, c);
      const std::int64_t J = p.shift(b, c);
      for (std::int64_t n = 0; n < length; ++n) {
        const std::int64_t G = p.group_of(length), first = n - n % G;
        std::int64_t u = n;  // among the shifted
        switch (p.record) {
          case CspRecord::pairs:
            if (G == 2 && first + 1 < length && (row[n / 16] >> n / 2 % 8 & 1)) u = n ^ 1;
            break;
          case CspRecord::narrow: u = first + reinterpret_cast<const std::uint16_t*>(row)[n]; break;
          case CspRecord::wide: u = first + reinterpret_cast<const std::uint32_t*>(row)[n]; break;
          case CspRecord::nothing: break;
        }
        at(b, n, c) = (u - J + length) % length;
      }
      for (std::int64_t n = length; n < p.N; ++n) at(b, n, c) = n;
    }
  }
  return src;
}

// The op, and, where the call asks, the sources that it found.
struct ReportingCsp : CspOp {
  const AttentionCall* call = nullptr;
  Tensor forward(Saved& saved, const Tensor& v) const {
    Tensor out = CspOp::forward(saved, v);
    report_choice(*call, "src", sources(*this, saved, v));
    return out;
  }
};

Tensor shift_table(const Settings& s, const Tensor& given, const AttentionCall& call,
                   const Shape& v) {
  const std::int64_t rows = call.lengths.defined() ? v[0] : 1, C = v[2] * v[3];
  const Tensor table = Tensor::empty({rows, C}, DType::i32);
  for (std::int64_t b = 0; b < rows; ++b) {
    for (std::int64_t c = 0; c < C; ++c) {
      table.data<std::int32_t>()[b * C + c] =
          static_cast<std::int32_t>(shift_of(s, given, v, c, length_of(call.lengths, b, v[1])));
    }
  }
  return table;
}

Variable dropped(const Variable& out, const AttentionCall& call) {
  if (call.dropout == 0) return out;
  const Shape shape = out.shape();
  const Variable channels = reshape(out, {shape[0], shape[1], shape[2] * shape[3]});
  return reshape(dropout(channels, call.dropout, call.random), shape);
}

Variable attend_csp(const AttentionSpec& spec, const AttentionCall& call,
                    std::span<const Variable> inputs) {
  const Tensor& v = inputs[0].value();
  Settings settings = settings_of(spec);
  require(v.size(1) <= std::numeric_limits<std::int32_t>::max(), "{}: {} positions are too many",
          spec.mechanism().name, v.size(1));
  const Given given = given_of(settings, spec, call, v.shape());
  CspOp op{settings, call.lengths, shift_table(settings, given.shifts, call, v.shape()), {}, false};
  if (given.src.defined()) {
    check_sources(spec.mechanism().name, call, given.src);
    op.decide(v, given.src);
  }
  if (call.chosen == nullptr) return dropped(apply(op, inputs[0]), call);
  if (spec.mechanism().name != "csp-sort") {
    const Tensor shifts = Tensor::empty({v.size(2) * v.size(3)}, DType::i64);
    for (std::int64_t c = 0; c < shifts.count(); ++c) {
      shifts.data<std::int64_t>()[c] = shift_of(settings, given.shifts, v.shape(), c, v.size(1));
    }
    report_choice(call, "shifts", shifts);
  }
  return dropped(apply(ReportingCsp{op, &call}, inputs[0]), call);
}

// The sources by the definition: a list of positions, shifted, and each group of it sorted.
void define_sources(const Settings& s, const std::vector<std::int64_t>& shifts,
                    const View<const double, 4>& v, std::int64_t b, std::int64_t length,
                    const View<std::int64_t, 3>& src) {
  const std::int64_t M = v.size(3), C = v.size(2) * M;
  const auto value = [&](std::int64_t c, std::int64_t n) { return v(b, n, c / M, c % M); };
  const auto shifted = [&](std::int64_t c, std::int64_t n) {
    return ((n - shifts[std::size_t(c)]) % length + length) % length;
  };
  const std::int64_t K = s.groups;
  const std::int64_t G = !s.sorted ? 1 : K > 0 ? (length + K - 1) / K : s.group;
  for (std::int64_t first = 0; first < length; first += G) {
    std::vector<std::int64_t> plain(static_cast<std::size_t>(std::min(G, length - first)));
    std::iota(plain.begin(), plain.end(), first);
    const auto ranked = [&](std::int64_t c) {
      std::vector<std::int64_t> list = plain;
      std::stable_sort(list.begin(), list.end(), [&](std::int64_t a, std::int64_t o) {
        return csp_precedes(s.order, value(c, shifted(c, a)), value(c, shifted(c, o)));
      });
      return list;
    };
    const std::vector<std::int64_t> to = s.order == CspOrder::reference ? ranked(0) : plain;
    for (std::int64_t c = 0; c < C; ++c) {
      const std::vector<std::int64_t> from = ranked(c);
      for (std::size_t r = 0; r < to.size(); ++r) src(b, to[r], c) = shifted(c, from[r]);
    }
  }
}

// Rows of a table of single samples, taken by number.
Variable reference_csp(const AttentionSpec& spec, const AttentionCall& call,
                       std::span<const Variable> inputs) {
  const Shape shape = inputs[0].shape();
  const std::int64_t B = shape[0], N = shape[1], C = shape[2] * shape[3];
  Settings s = settings_of(spec);
  const Given given = given_of(s, spec, call, shape);
  const Tensor ids = Tensor::empty({B, N, C}, DType::i64);
  const Tensor mask = Tensor::zeros({B, N, C, 1}, inputs[0].value().dtype());
  const View<std::int64_t, 3> at = ids.view<std::int64_t, 3>();
  const Tensor v = inputs[0].value().to(DType::f64);
  for (std::int64_t b = 0; b < B; ++b) {
    const std::int64_t length = length_of(call.lengths, b, N);
    for (std::int64_t n = 0; n < N; ++n) {
      for (std::int64_t c = 0; c < C; ++c) at(b, n, c) = n;
    }
    std::vector<std::int64_t> shifts;
    for (std::int64_t c = 0; c < C; ++c) {
      shifts.push_back(shift_of(s, given.shifts, shape, c, length));
    }
    define_sources(s, shifts, v.view<const double, 4>(), b, length, at);
    if (given.src.defined()) ids.slice(0, b, b + 1).copy_from(given.src.slice(0, b, b + 1));
    mask.slice(0, b, b + 1).slice(1, 0, length).fill(1);
    for (std::int64_t n = 0; n < N; ++n) {
      for (std::int64_t c = 0; c < C; ++c) at(b, n, c) = (b * N + at(b, n, c)) * C + c;
    }
  }
  const Variable taken = embedding(reshape(inputs[0], {B * N * C, 1}), ids);
  return dropped(reshape(mul(taken, mask), shape), call);
}

// A comparison and a move count as one operation each.
AttentionCost cost_csp(const AttentionSpec& spec, const AttentionSizes& sizes, bool, DType type) {
  const Settings s = settings_of(spec);
  CspProblem p;
  p.B = sizes.B, p.N = sizes.N, p.C = sizes.H * sizes.M;
  p.group = s.group, p.groups = s.groups;
  const std::int64_t G = s.sorted ? p.group_of(p.N) : 1;
  p.record = csp_record(G);
  const auto samples = double(p.B) * double(p.N * p.C), item = double(size_of(type));
  const auto room = double(type == DType::f32 ? column_room<float>(p.N) : column_room<double>(p.N));
  const auto kept = double(CspProblem::row_bytes(p.record, p.N));
  const std::int64_t block = csp_block(p.N, p.C, std::int64_t(size_of(type)));
  return {.forward_operations = samples * (1 + std::log2(double(G)) / 2),
          .backward_operations = samples * 2,
          .saved_bytes = double(p.B * p.C) * kept + 4 * double(p.C),
          .working_bytes = item * room * double(block + 2)};
}

std::vector<OptionSheet> shift_options() {
  return {{.name = "shift",
           .initial = "linear",
           .help = "how far each channel is shifted; custom: by the choice shifts, handed in",
           .choices = {"none", "linear", "power", "head"},
           .handed = {"custom"}},
          {.name = "rule",
           .initial = "paper",
           .help = "of shift=linear and power: the paper's, or that of the released code",
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
           .help = "how many groups, in the place of group; 1 sorts completely",
           .least = 0,
           .most = 1e9,
           .tried = {"1", "3"}},
          {.name = "order",
           .initial = "reference",
           .help = "as the first channel's group (the paper), or up (the released code), or down",
           .choices = {"reference", "ascending", "descending"}}};
}

Mechanism sheet(const char* name, const char* title, bool shifts, bool sorts) {
  Mechanism m{
      .name = name,
      .title = title,
      .paper = "S. Yuan, H. Xu, Towards better multi-head attention via channel-wise sample "
               "permutation, 2024, arXiv 2410.10914",
      .equations = "eq. 3 and 4",
      .page = "csp",
      .inputs = {{.name = "v", .shape = "B N H M"}},
      .choices = {{.name = "src", .shape = "B N C"}},
      .masks = {.lengths = true},
      .joined = true,
      .scaling = sorts ? "N log G" : "N",
      .attend = attend_csp,
      .reference = reference_csp,
      .cost = cost_csp};
  if (shifts) m.choices.push_back({.name = "shifts", .shape = "C"});
  if (shifts) m.options = shift_options();
  const std::vector<OptionSheet> sorting = sort_options();
  if (sorts) m.options.insert(m.options.end(), sorting.begin(), sorting.end());
  if (shifts && sorts) {
    m.options.push_back({.name = "preset",
                         .initial = "paper",
                         .help = "the paper's operator, or the released code's: rule=code,order=ascending",
                         .choices = {"paper", "released"}});
    m.options.push_back({.name = "sort",
                         .initial = "1",
                         .help = "1: groups are sorted; 0: shifted only",
                         .least = 0,
                         .most = 1,
                         .tried = {"0"}});
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
