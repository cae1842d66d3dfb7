// LSH attention: the op, its definition and the fact sheet. Equations: lsh.h.
#include "ops/attention/lsh/lsh.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "autograd/apply.h"
#include "ops/attention/definitions.h"
#include "ops/attention/lsh/rounds.h"
#include "ops/attention/mechanism.h"
#include "ops/attention/scores.h"
#include "ops/matmul/matmul.h"
#include "ops/normals/normals.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "ops/select/sort_rows.h"
#include "ops/softmax/softmax.h"
#include "ops/views/views.h"
#include "runtime/dispatch.h"

namespace weft {
namespace {

// Kernels compare positions as numbers of the element type: positions must be exact in f32.
constexpr i64 most_positions = i64{1} << 24;

LshRules rules_of(const AttentionSpec& spec) {
  LshRules r;
  r.rounds = spec.integer("rounds");
  r.chunk = spec.integer("chunk");
  r.buckets = spec.integer("buckets");
  require(r.buckets % 2 == 0, "lsh: buckets must be even (each plane has two sides), got {}",
          r.buckets);
  r.logsumexp = spec.word("combine") == "logsumexp";
  r.wrap = spec.integer("wrap") == 1;
  r.across_buckets = spec.integer("across_buckets") == 1;
  r.correct = spec.word("duplicates") == "correct";
  r.normalize = spec.integer("normalize_keys") == 1;
  const std::string& self = spec.word("self");
  r.self = self == "allow"     ? LshSelf::allow
           : self == "exclude" ? LshSelf::exclude
                               : LshSelf::last;
  return r;
}

Tensor drawn_planes(const LshRules& r, i64 E, const RandomKey& key, const Tensor& like) {
  const Tensor planes = Tensor::empty({r.rounds, r.buckets / 2, E}, like.dtype(), like.device());
  draw_normals(key.further(DrawPurpose::planes), 1, planes);
  return planes;
}

// Buckets that the caller gave; otherwise undefined.
Tensor given_buckets(const AttentionSpec& spec, const AttentionCall& call, const LshRules& rules,
                     const Tensor& q) {
  const Shape shape{rules.rounds, q.size(0), q.size(2), q.size(1)};
  const Tensor given = given_choice(spec.mechanism(), call, "buckets", shape);
  return given.defined() ? given.to(DType::i32) : given;
}

struct LshOp {
  static constexpr const char* name = "lsh";
  LshRules rules;
  double temperature = 1;
  bool causal = false;
  double dropout = 0;
  RandomKey random = {};
  Tensor lengths;
  Tensor buckets;  // i32 [R, B, H, N]

  struct Saved {
    Tensor q, v, out, log_sums;
  };

  template <class T>
  Lsh<T> problem(const Tensor& q, const Tensor& v) const {
    return {q.view<const T, 4>(),
            v.view<const T, 4>(),
            numbers_of(lengths),
            buckets.data<std::int32_t>(),
            rules,
            static_cast<T>(temperature),
            causal,
            dropout,
            random};
  }

  void hash(const Tensor& q, const Tensor& planes) {
    const Shape shape{rules.rounds, q.size(0), q.size(2), q.size(1)};
    buckets = Tensor::empty(shape, DType::i32, q.device());
    dispatch(q, [&](auto device, auto type) {
      using T = decltype(type);
      LshHashKernels<decltype(device), T>::hash(device, problem<T>(q, q), planes.data<T>(),
                                                buckets.data<std::int32_t>());
    });
  }

  Tensor forward(Saved& saved, const Tensor& q, const Tensor& v) const {
    const i64 B = q.size(0), N = q.size(1), H = q.size(2);
    saved = {q, v, Tensor::empty(v.shape(), q.dtype(), q.device()),
             Tensor::empty({B, H, rules.kept(), N}, q.dtype(), q.device())};
    dispatch(q, [&](auto device, auto type) {
      using T = decltype(type);
      LshKernels<decltype(device), T>::forward(device, problem<T>(q, v), saved.out.view<T, 4>(),
                                               saved.log_sums.view<T, 4>());
    });
    return saved.out;
  }

  std::array<Tensor, 2> backward(const Saved& saved, const Tensor& dout) const {
    const Tensor dq = Tensor::empty(saved.q.shape(), dout.dtype(), dout.device());
    const Tensor dv = Tensor::empty(saved.v.shape(), dout.dtype(), dout.device());
    dispatch(dout, [&](auto device, auto type) {
      using T = decltype(type);
      LshBackwardKernels<decltype(device), T>::backward(
          device, problem<T>(saved.q, saved.v), saved.out.view<const T, 4>(),
          saved.log_sums.view<const T, 4>(), dout.view<const T, 4>(), dq.view<T, 4>(),
          dv.view<T, 4>());
    });
    return {dq, dv};
  }
};

Tensor planes_of(const AttentionSpec& spec, const AttentionCall& call, const LshRules& rules,
                 const Tensor& q) {
  const i64 E = q.size(3);
  const Tensor given = given_choice(spec.mechanism(), call, "planes",
                                    {rules.rounds, rules.buckets / 2, E}, q.dtype());
  return given.defined() ? given : drawn_planes(rules, E, call.random, q);
}

Attended attend_lsh(const AttentionSpec& spec, const AttentionCall& call,
                    std::span<const Variable> inputs) {
  const Tensor& q = inputs[0].value();
  const LshRules rules = rules_of(spec);
  require(q.size(1) <= most_positions, "lsh: {} positions; the largest number is {}", q.size(1),
          most_positions);
  LshOp op{rules,       temperature_of(spec, q.size(3)), call.causal, call.dropout,
           call.random, call.lengths,                    {}};
  op.buckets = given_buckets(spec, call, rules, q);
  if (!op.buckets.defined() || call.chosen != nullptr) {
    const Tensor planes = planes_of(spec, call, rules, q);
    if (!op.buckets.defined()) op.hash(q, planes);
    report_choice(call, "planes", planes);
  }
  if (call.chosen != nullptr) report_choice(call, "buckets", op.buckets.to(DType::i64));
  return apply(op, inputs[0], inputs[1]);
}

// The buckets by the definition.
std::vector<i64> defined_buckets(const LshRules& rules, const Tensor& q, const Tensor& planes,
                                 i64 r, i64 b, i64 h, i64 length) {
  const View<const double, 4> x = q.view<const double, 4>();
  const View<const double, 3> plane = planes.view<const double, 3>();
  std::vector<i64> buckets;
  for (i64 i = 0; i < length; ++i) {
    std::vector<double> heights;
    for (i64 k = 0; k < rules.buckets / 2; ++k) {
      double sum = 0;
      for (i64 e = 0; e < q.size(3); ++e) sum += x(b, i, h, e) * plane(r, k, e);
      heights.push_back(sum);
    }
    for (i64 k = 0; k < rules.buckets / 2; ++k) {
      heights.push_back(-heights[static_cast<std::size_t>(k)]);
    }
    buckets.push_back(std::max_element(heights.begin(), heights.end()) - heights.begin());
  }
  return buckets;
}

// For one head: how often each query sees each key in each round, and the sum of dropout factors;
// [R][i N + j].
struct Seen {
  std::vector<std::vector<double>> places, factors;
};

Seen seen_of(const LshRules& rules, const AttentionCall& call,
             const std::vector<std::vector<i64>>& buckets, i64 N, i64 all, i64 H, i64 head) {
  const i64 R = rules.rounds, c = std::min(rules.chunk, N);
  const DropoutMask mask(call.random, call.dropout, 2 * std::min(rules.chunk, all), H * R * all);
  Seen seen;
  seen.places.assign(std::size_t(R), std::vector<double>(std::size_t(N * N), 0));
  seen.factors = seen.places;
  if (N == 0) return seen;
  std::vector<std::vector<i64>> lists;
  for (const std::vector<i64>& bucket : buckets) {
    std::vector<i64> list(static_cast<std::size_t>(N));
    std::iota(list.begin(), list.end(), 0);
    std::stable_sort(list.begin(), list.end(),
                     [&](i64 a, i64 o) { return bucket[std::size_t(a)] < bucket[std::size_t(o)]; });
    lists.push_back(list);
  }
  for (i64 r = 0; r < R; ++r) {
    const std::vector<i64>& list = lists[std::size_t(r)];
    const std::vector<i64>& before = lists[std::size_t((r + R - 1) % R)];
    const std::vector<i64>& bucket = buckets[std::size_t(r)];
    for (i64 rank = 0; rank < N; ++rank) {
      const i64 begin = rank / c * c, i = list[std::size_t(rank)];
      std::vector<i64> candidates;
      if (begin > 0) candidates.assign(list.begin() + begin - c, list.begin() + begin);
      if (begin == 0 && rules.wrap) {
        candidates.assign(before.begin() + (N - 1) / c * c, before.end());
      }
      candidates.insert(candidates.end(), list.begin() + begin,
                        list.begin() + std::min(begin + c, N));
      for (std::size_t slot = 0; slot < candidates.size(); ++slot) {
        const i64 j = candidates[slot];
        if (call.causal && j > i) continue;
        if (rules.self == LshSelf::exclude && i == j) continue;
        if (!rules.across_buckets && bucket[std::size_t(i)] != bucket[std::size_t(j)]) continue;
        const i64 row = (head * R + r) * all + rank;
        const bool kept = call.dropout == 0 || mask.keeps(row, i64(slot));
        seen.places[std::size_t(r)][std::size_t(i * N + j)] += 1;
        seen.factors[std::size_t(r)][std::size_t(i * N + j)] +=
            call.dropout == 0 ? 1 : kept ? mask.factor : 0;
      }
    }
  }
  return seen;
}

// Hides a query's own key if it sees others, in this round or in any.
void hide_self(const LshRules& rules, std::vector<std::vector<double>>& places, i64 N) {
  const std::vector<std::vector<double>> all = places;
  const auto sees_others = [&](std::size_t r, i64 i) {
    for (i64 j = 0; j < N; ++j) {
      if (j != i && all[r][std::size_t(i * N + j)] > 0) return true;
    }
    return false;
  };
  for (i64 i = 0; i < N; ++i) {
    bool any = false;
    for (std::size_t r = 0; r < all.size(); ++r) any = any || sees_others(r, i);
    for (std::size_t r = 0; r < all.size(); ++r) {
      if (rules.logsumexp ? any : sees_others(r, i)) places[r][std::size_t(i * N + i)] = 0;
    }
  }
}

// The lists as matrices [B, H, i, r, j]: the logarithm of how often query i sees key j in round r,
// minus log n_ij if duplicates are corrected, −∞ if it does not; and the mean of the dropout
// factors of these places.
struct Places {
  Tensor log_count, factor;
};

Places defined_places(const AttentionSpec& spec, const AttentionCall& call, const LshRules& rules,
                      const Tensor& q) {
  const i64 B = q.size(0), N = q.size(1), H = q.size(2), R = rules.rounds;
  const Tensor wide = q.to(DType::f64);
  const Tensor planes = planes_of(spec, call, rules, q).to(DType::f64);
  const Tensor given = given_buckets(spec, call, rules, q);
  const double none = -std::numeric_limits<double>::infinity();
  const Tensor log_count = Tensor::full({B, H, N, R, N}, none, DType::f64);
  const Tensor factor = Tensor::zeros({B, H, N, R, N}, DType::f64);
  for (i64 head = 0; head < B * H; ++head) {
    const i64 b = head / H, length = length_of(call.lengths, b, N);
    std::vector<std::vector<i64>> buckets;
    for (i64 r = 0; r < R; ++r) {
      buckets.push_back(defined_buckets(rules, wide, planes, r, b, head % H, length));
      for (i64 i = 0; given.defined() && i < length; ++i) {
        buckets.back()[std::size_t(i)] = given.data<std::int32_t>()[(r * B * H + head) * N + i];
      }
    }
    const Seen seen = seen_of(rules, call, buckets, length, N, H, head);
    std::vector<std::vector<double>> counts = seen.places;
    if (rules.self == LshSelf::last) hide_self(rules, counts, length);
    for (std::size_t r = 0; r < counts.size(); ++r) {
      for (std::size_t k = 0; k < counts[r].size(); ++k) {
        if (counts[r][k] == 0) continue;
        double places = 0;  // of all rounds
        for (const std::vector<double>& of_round : seen.places) places += of_round[k];
        const i64 i = i64(k) / length, j = i64(k) % length;
        const i64 to = ((head * N + i) * R + i64(r)) * N + j;
        log_count.data<double>()[to] = std::log(counts[r][k] / (rules.correct ? places : 1));
        factor.data<double>()[to] = seen.factors[r][k] / seen.places[r][k];
      }
    }
  }
  return {log_count.to(q.dtype()), factor.to(q.dtype())};
}

// The definition.
Attended reference_lsh(const AttentionSpec& spec, const AttentionCall& call,
                       std::span<const Variable> inputs) {
  const LshRules rules = rules_of(spec);
  const Variable q = transpose(inputs[0], 1, 2), v = transpose(inputs[1], 1, 2);  // [B, H, N, …]
  const i64 B = q.size(0), H = q.size(1), N = q.size(2), R = rules.rounds;
  const Places places = defined_places(spec, call, rules, inputs[0].value());
  const Variable k = rules.normalize ? unit_rows(q) : q;
  Variable z = scale(matmul(q, transpose(k, 2, 3)), temperature_of(spec, q.size(3)));
  if (rules.self == LshSelf::last) {
    const Tensor others = Tensor::full({N, N}, 1, q.value().dtype());
    for (i64 i = 0; i < N; ++i) others.slice(0, i, i + 1).slice(1, i, i + 1).fill(0);
    z = mul(z, others);
  }
  z = add(reshape(z, {B, H, N, 1, N}), places.log_count);
  // For logsumexp one softmax over the keys of all rounds.
  const Variable a = rules.logsumexp
                         ? reshape(softmax(reshape(z, {B, H, N, R * N})), {B, H, N, R, N})
                         : scale(softmax(z), 1 / double(R));
  return transpose(matmul(sum(mul(a, places.factor), 3), v), 1, 2);
}

AttentionCost cost_lsh(const AttentionSpec& spec, const AttentionSizes& s, bool, DType type) {
  const LshRules r = rules_of(spec);
  const auto E = double(s.E), M = double(s.M), N = double(s.N), R = double(r.rounds);
  const auto c = double(std::min(r.chunk, s.N)), block = double(lsh_detail::lsh_block(i64(c)));
  const double rows = double(s.B * s.H) * N, pairs = rows * R * std::min(2 * c, N);
  const double item = double(size_of(type)), list = N + c, correct = r.correct ? 1 : 0;
  // The deltas, and for the mean with self=last the flags of queries that see only themselves.
  const double of_rounds = r.logsumexp ? 1 : r.self == LshSelf::last ? 2 * R : R;
  const double forward = N * (2 * E + M + 1) + list * (E + M + 2 + correct * R) +
                         block * (E + 2 * c + 1);
  const double backward = N * (2 * E + 2 * M + 3) + list * (E + M) +
                          block * (2 * c + 2 * M + 2 * E + 2);
  return {.forward_operations = pairs * 2 * (E + M) + rows * R * E * double(r.buckets),
          .backward_operations = pairs * (6 * E + 4 * M),
          .exponentials = 2 * pairs,
          .saved_bytes = rows * (4 * R + item * double(r.kept())),
          .working_bytes = item * (forward + backward) + 4 * (1 + correct) * R * N,
          .cuda_working_bytes =
              4 * rows * R * (1 + correct) +
              std::max(sort_rows_bytes(rows * R), rows * item * (1 + E + of_rounds))};
}

const Registration registered_lsh{Mechanism{
    .name = "lsh",
    .title = "attention inside chunks of a list sorted by random hashes",
    .paper = "N. Kitaev, L. Kaiser, A. Levskaya, Reformer: the efficient transformer, ICLR 2020, "
             "arXiv 2001.04451",
    .equations = "section 2",
    .inputs = [](const AttentionSpec&, const AttentionSizes&) -> AttentionInputs {
      return {{.name = "q", .axes = "B N H E"},
              {.name = "v", .side = Side::reference, .axes = "B S H M"}};
    },
    .choices = {{.name = "planes", .shape = "rounds buckets/2 E", .integer = false},
                {.name = "buckets",
                 .shape = "rounds B H N",
                 .sizes =
                     [](const AttentionSpec& spec, const AttentionSizes& s) {
                       return Shape{spec.integer("rounds"), s.B, s.H, s.N};
                     },
                 .values =
                     [](const ChoicePlace& at) {
                       const i64 length = length_of(at.call.lengths, at.place[1], at.sizes.N);
                       return at.place[3] < length ? at.spec.integer("buckets")
                                                   : AttentionChoice::no_such_element;
                     }}},
    .options = {{.name = "rounds",
                 .initial = "4",
                 .help = "hashes, and sorted lists",
                 .least = 1,
                 .most = 1024,
                 .tried = {"1", "2"}},
                {.name = "chunk",
                 .initial = "32",
                 .help = "positions of a chunk of the sorted list",
                 .least = 1,
                 .most = 1e9,
                 .tried = {"1", "7", "100000"}},
                {.name = "buckets",
                 .initial = "64",
                 .help = "buckets of a hash; even",
                 .least = 2,
                 .most = 1e6,
                 .tried = {"2", "6"}},
                {.name = "combine",
                 .initial = "mean",
                 .help = "weights of the rounds: equal, or by the sum of their exponentials",
                 .choices = {"mean", "logsumexp"},
                 .with = "rounds!=1"},
                flag_option("wrap", false,
                            "1: the first chunk looks back to the last of the round before"),
                {.name = "self",
                 .initial = "allow",
                 .help = "a query's own key: as any other, never, or where there is no other",
                 .choices = {"allow", "exclude", "last"}},
                flag_option("across_buckets", true,
                            "0: keys of other buckets in the chunk are masked"),
                {.name = "duplicates",
                 .initial = "count",
                 .help = "a key seen in several rounds counts each time, or once",
                 .choices = {"count", "correct"}},
                flag_option("normalize_keys", true,
                            "1: a key is its query divided by its norm; 0: the query"),
                temperature_option()},
    .masks = {.causal = true, .lengths = true},
    .linear_in_values = true,
    .scaling = "N",
    .attend = attend_lsh,
    .reference = reference_lsh,
    .cost = cost_lsh}};

}  // namespace
}  // namespace weft
