// Properties of LSH attention alone (mechanism page: ops/attention/lsh/lsh.h).
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "ops/matmul/matmul.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "ops/softmax/softmax.h"
#include "ops/views/views.h"
#include "tests/attention/run_attention.h"
#include "tests/threads.h"

namespace weft {
namespace {

struct LshInputs {
  Tensor q, v;
  LshInputs(i64 B, i64 N, i64 H, i64 E, i64 M)
      : q(random_normal({B, N, H, E}, DType::f64, 1)),
        v(random_normal({B, N, H, M}, DType::f64, 2)) {}
  std::vector<Tensor> both() const { return {q, v}; }
};

enum class Self { allow, last };

// Attention over all pairs where `seen` [B, 1 or H, N, N] is 1, keys being normalised queries.
Differentiable shared_full(const Tensor& seen, Self self = Self::allow) {
  return [=](std::span<const Variable> inputs) {
    const Variable q = transpose(inputs[0], 1, 2), v = transpose(inputs[1], 1, 2);
    const i64 B = q.size(0), H = q.size(1), N = q.size(2), E = q.size(3);
    const Variable norm = sqrt(reshape(sum(mul(q, q), -1), {B, H, N, 1}));
    const Variable k = div(q, norm);
    const Tensor hidden = seen.clone();
    const Tensor others = Tensor::full({N, N}, 1, DType::f64);
    for (i64 i = 0; i < N; ++i) others.slice(0, i, i + 1).slice(1, i, i + 1).fill(0);
    Variable z = scale(matmul(q, transpose(k, 2, 3)), 1 / std::sqrt(double(E)));
    double* const mask = hidden.data<double>();
    for (i64 row = 0; row < hidden.count() / N; ++row) {
      double seen_others = 0;
      for (i64 j = 0; j < N; ++j) seen_others += j == row % N ? 0 : mask[row * N + j];
      for (i64 j = 0; j < N; ++j) {
        const bool dropped = self == Self::last && j == row % N && seen_others > 0;
        const bool visible = mask[row * N + j] == 1 && !dropped;
        mask[row * N + j] = visible ? 0 : -std::numeric_limits<double>::infinity();
      }
    }
    if (self == Self::last) z = mul(z, others);
    return std::vector{transpose(matmul(softmax(add(z, hidden)), v), 1, 2)};
  };
}

Tensor all_seen(i64 B, i64 N, bool causal = false, const std::vector<i64>& lengths = {}) {
  const Tensor seen = Tensor::zeros({B, 1, N, N}, DType::f64);
  for (i64 b = 0; b < B; ++b) {
    const i64 length = lengths.empty() ? N : lengths[static_cast<std::size_t>(b)];
    for (i64 i = 0; i < length; ++i) {
      for (i64 j = 0; j < (causal ? i + 1 : length); ++j) {
        seen.view<double, 4>()(b, 0, i, j) = 1;
      }
    }
  }
  return seen;
}

void check_same(const Differentiable& got, const Differentiable& wanted,
                const std::vector<Tensor>& inputs) {
  check_close(run(got, inputs), run(wanted, inputs, 17, Device{}));
}

// Buckets that are the same for all rounds, by position.
AttentionCall with_buckets(i64 R, i64 B, i64 H, const std::vector<i64>& of_position) {
  const auto N = static_cast<i64>(of_position.size());
  const Tensor buckets = Tensor::empty({R, B, H, N}, DType::i64);
  for (i64 i = 0; i < buckets.count(); ++i) {
    buckets.data<i64>()[i] = of_position[static_cast<std::size_t>(i % N)];
  }
  AttentionCall call;
  call.given["buckets"] = buckets;
  return call;
}

TEST_SUITE("attention") {

TEST_CASE("lsh: one chunk is attention over all, for any rounds") {
  for (const i64 N : {1, 5, 33, 70, 130}) {
    const i64 longest = tested_is_emulated() ? 70 : 130;
    if (few_here() && N != 5 && N != longest) continue;
    const LshInputs in(2, N, 3, 4, 5);
    for (const std::string options :
         {"rounds=1", "rounds=3", "rounds=2,combine=logsumexp", "rounds=2,wrap=1",
          "rounds=3,combine=logsumexp,duplicates=correct,wrap=1", "rounds=2,duplicates=correct"}) {
      CAPTURE(options);
      check_same(mechanism_of("lsh:chunk=130," + options), shared_full(all_seen(2, N)), in.both());
    }
  }
}

TEST_CASE("lsh: a query of zeros has a key of zeros and no gradient through it") {
  const Tensor v = normal({2, 37, 2, 4}, 2);
  for (const std::string options : {"", ",combine=logsumexp", ",self=last", ",self=exclude,wrap=1",
                                    ",across_buckets=0,duplicates=correct"}) {
    for (const bool all : {false, true}) {
      const std::string spec = "lsh:rounds=2,chunk=8,buckets=6" + options;
      CAPTURE(fmt::format("{} {}", spec, all));
      const Tensor q = with_zero_rows(normal({2, 37, 2, 3}, 1), all);
      for (const AttentionCall& call : {AttentionCall{}, causal()}) {
        const Run got = attended_run(spec, {q, v}, call);
        check_finite(got);
        check_close(got, defined_run(spec, {q, v}, call));
      }
    }
  }
}

TEST_CASE("lsh: one chunk with the masks of the call") {
  const LshInputs in(3, 70, 2, 4, 5);
  AttentionCall call = causal();
  check_same(mechanism_of("lsh:chunk=70,rounds=2", call), shared_full(all_seen(3, 70, true)),
             in.both());
  check_same(mechanism_of("lsh:chunk=70,rounds=2,self=last", call),
             shared_full(all_seen(3, 70, true), Self::last), in.both());
  check_same(mechanism_of("lsh:chunk=70,rounds=2,self=last,combine=logsumexp", call),
             shared_full(all_seen(3, 70, true), Self::last), in.both());
  const std::vector<i64> lengths{70, 31, 0};
  call.lengths = lengths_of(lengths);
  check_same(mechanism_of("lsh:chunk=70,rounds=2", call),
             shared_full(all_seen(3, 70, true, lengths)), in.both());
}

TEST_CASE("lsh: two chunks in a ring see all, themselves last") {
  const LshInputs in(2, 48, 2, 4, 5);
  for (const std::string options :
       {"rounds=1", "rounds=3,combine=logsumexp,duplicates=correct"}) {
    CAPTURE(options);
    // The look-back of the first chunk reaches the last one of the round before: if rounds have the
    // same list, that is the other half.
    const AttentionCall call = with_buckets(options[7] - '0', 2, 2, std::vector<i64>(48));
    const std::string spec = "lsh:chunk=24,wrap=1," + options;
    check_same(mechanism_of(spec + ",self=last", call), shared_full(all_seen(2, 48), Self::last),
               in.both());
    check_same(mechanism_of(spec, call), shared_full(all_seen(2, 48)), in.both());
  }
}

TEST_CASE("lsh: rounds that are alike are one") {
  const LshInputs in(2, 100, 2, 4, 5);
  const Tensor plane = random_normal({1, 4, 4}, DType::f64, 8);
  const auto rounds = [&](i64 R, const std::string& options) {
    AttentionCall call;
    const Tensor planes = Tensor::empty({R, 4, 4}, DType::f64);
    for (i64 r = 0; r < R; ++r) planes.slice(0, r, r + 1).copy_from(plane);
    call.given["planes"] = planes;
    return mechanism_of(fmt::format("lsh:buckets=8,chunk=16,rounds={}{}", R, options), call);
  };
  const Differentiable one = rounds(1, "");
  for (const std::string options :
       {"", ",combine=logsumexp", ",combine=logsumexp,duplicates=correct"}) {
    check_same(rounds(3, options), one, in.both());
  }
  check_same(rounds(3, ",wrap=1"), rounds(1, ",wrap=1"), in.both());
}

// Naive lists and candidates, from the reported buckets.
Tensor union_of_candidates(const Tensor& buckets, i64 chunk, bool wrap, bool across) {
  const i64 R = buckets.size(0), B = buckets.size(1), H = buckets.size(2), N = buckets.size(3);
  const View<const i64, 4> at = buckets.view<const i64, 4>();
  const Tensor seen = Tensor::zeros({B, H, N, N}, DType::f64);
  for (i64 b = 0; b < B; ++b) {
    for (i64 h = 0; h < H; ++h) {
      const auto rank = [&](i64 r, i64 i) {
        i64 before = 0;
        for (i64 j = 0; j < N; ++j) {
          before += at(r, b, h, j) < at(r, b, h, i) || (at(r, b, h, j) == at(r, b, h, i) && j < i);
        }
        return before;
      };
      for (i64 r = 0; r < R; ++r) {
        for (i64 i = 0; i < N; ++i) {
          for (i64 j = 0; j < N; ++j) {
            const i64 own = rank(r, i) / chunk, other = rank(r, j) / chunk;
            const bool ring = wrap && own == 0 &&
                              rank((r + R - 1) % R, j) / chunk == (N - 1) / chunk;
            if (!across && at(r, b, h, i) != at(r, b, h, j)) continue;
            if (own == other || own == other + 1 || ring) seen.view<double, 4>()(b, h, i, j) = 1;
          }
        }
      }
    }
  }
  return seen;
}

TEST_CASE("lsh: duplicates corrected, rounds are attention over the union of what they see") {
  const ThreadsOf one(1);
  const LshInputs in(2, 75, 2, 4, 5);
  for (const bool wrap : {false, true}) {
    for (const bool across : {false, true}) {
      for (const std::string self : {"allow", "last"}) {
        // Each value with each value of the others.
        if (tested_is_emulated() && few_here() && (wrap == across) != (self == "last")) continue;
        const std::string spec = fmt::format(
            "lsh:chunk=8,buckets=6,rounds=3,combine=logsumexp,duplicates=correct,wrap={},"
            "across_buckets={},self={}",
            int(wrap), int(across), self);
        CAPTURE(spec);
        AttentionCall call;
        call.random = {3, 1, 4};
        const Tensor buckets = chosen(spec, in.both(), call).at("buckets");
        const Tensor seen = union_of_candidates(buckets, 8, wrap, across);
        check_same(mechanism_of(spec, call),
                   shared_full(seen, self == "last" ? Self::last : Self::allow), in.both());
      }
    }
  }
}

// The weights [B, N, H, N].
Tensor weights(const std::string& spec, const Tensor& q, const AttentionCall& call) {
  return attended(spec, {q, unit_values(q.size(0), q.size(1), q.size(2))}, call);
}

std::set<i64> seen_by(const Tensor& weights, i64 i) {
  std::set<i64> seen;
  for (i64 j = 0; j < weights.size(3); ++j) {
    if (weights.view<const double, 4>()(0, i, 0, j) != 0) seen.insert(j);
  }
  return seen;
}

TEST_CASE("lsh: the list is sorted by bucket, then by position") {
  using Set = std::set<i64>;
  const Tensor q = random_normal({1, 7, 1, 3}, DType::f64, 1);
  // The list: 1 4 | 0 3 | 2 5 | 6.
  const AttentionCall call = with_buckets(1, 1, 1, {2, 0, 3, 2, 1, 3, 3});
  const Tensor a = weights("lsh:rounds=1,chunk=2,buckets=4", q, call);
  CHECK(seen_by(a, 1) == Set{1, 4});
  CHECK(seen_by(a, 4) == Set{1, 4});
  CHECK(seen_by(a, 0) == Set{0, 1, 3, 4});
  CHECK(seen_by(a, 3) == Set{0, 1, 3, 4});
  CHECK(seen_by(a, 2) == Set{0, 2, 3, 5});
  CHECK(seen_by(a, 6) == Set{2, 5, 6});
  const Tensor ring = weights("lsh:rounds=1,chunk=2,buckets=4,wrap=1", q, call);
  CHECK(seen_by(ring, 1) == Set{1, 4, 6});
  CHECK(seen_by(ring, 6) == Set{2, 5, 6});
  const Tensor inside = weights("lsh:rounds=1,chunk=2,buckets=4,across_buckets=0", q, call);
  CHECK(seen_by(inside, 1) == Set{1});
  CHECK(seen_by(inside, 0) == Set{0, 3});
  CHECK(seen_by(inside, 6) == Set{2, 5, 6});
  const Tensor others = weights("lsh:rounds=1,chunk=2,buckets=4,across_buckets=0,self=exclude", q,
                                call);
  CHECK(seen_by(others, 1).empty());
  CHECK(seen_by(others, 6) == Set{2, 5});
}

TEST_CASE("lsh: causal, no value of the future reaches an output") {
  const LshInputs in(1, 90, 1, 4, 5);
  AttentionCall call = causal();
  call.random = {9, 9, 9};
  for (const std::string options : {"", ",wrap=1,combine=logsumexp", ",self=last",
                                     ",self=exclude,duplicates=correct"}) {
    const Tensor a = weights("lsh:chunk=16,buckets=8" + options, in.q, call);
    for (i64 i = 0; i < 90; ++i) {
      const std::set<i64> seen = seen_by(a, i);
      CHECK((seen.empty() || *seen.rbegin() <= i));
    }
    CHECK(seen_by(a, 89).size() > 1);
  }
}

TEST_CASE("lsh: equal inputs fall into one bucket, and the ties into the lowest") {
  const Tensor row = random_normal({1, 1, 1, 6}, DType::f64, 4);
  const Tensor v = random_normal({2, 40, 3, 2}, DType::f64, 5);
  const std::vector<Tensor> inputs{row.expand({2, 40, 3, 6}), v};
  const Tensor buckets = chosen("lsh:chunk=8", inputs).at("buckets");
  for (i64 r = 0; r < 4; ++r) {
    const auto list = buckets.slice(0, r, r + 1).to_vector<i64>();
    CHECK(std::set<i64>(list.begin(), list.end()).size() == 1);
  }
  AttentionCall call;
  call.given["planes"] = Tensor::zeros({4, 32, 6}, DType::f64);
  const Tensor lowest = chosen("lsh:chunk=8", inputs, call).at("buckets");
  for (const i64 bucket : lowest.to_vector<i64>()) CHECK(bucket == 0);
}

TEST_CASE("lsh: the planes are those of the definition of a bucket") {
  const LshInputs in(1, 200, 2, 5, 2);
  const Choices choices = chosen("lsh:buckets=10,rounds=3", in.both());
  const View<const double, 3> plane = choices.at("planes").view<const double, 3>();
  const View<const i64, 4> bucket = choices.at("buckets").view<const i64, 4>();
  bool same = true;
  for (i64 r = 0; r < 3; ++r) {
    for (i64 h = 0; h < 2; ++h) {
      for (i64 i = 0; i < 200; ++i) {
        double best = -1;
        i64 wanted = 0;
        for (i64 k = 0; k < 10; ++k) {
          double height = 0;
          for (i64 e = 0; e < 5; ++e) {
            height += in.q.view<const double, 4>()(0, i, h, e) * plane(r, k % 5, e);
          }
          if (k >= 5) height = -height;
          if (height > best) best = height, wanted = k;
        }
        same &= bucket(r, 0, h, i) == wanted;
      }
    }
  }
  CHECK(same);
}

TEST_CASE("lsh: what cannot be") {
  const LshInputs in(1, 6, 1, 4, 3);
  const auto call_of = [&](const std::string& spec, const AttentionCall& call) {
    const std::vector<Variable> inputs{in.q, in.v};
    return attend(AttentionSpec(spec), call, inputs).out;
  };
  CHECK_ERROR(call_of("lsh:buckets=5", {}), "lsh: buckets must be even");
  CHECK_ERROR(call_of("lsh:chunk=0", {}), "chunk is a number in [1,");
  CHECK_ERROR(call_of("lsh:rounds=0", {}), "rounds is a number in [1,");
  CHECK_ERROR(call_of("lsh:rounds=1,combine=logsumexp", {}),
              "attention lsh: combine=logsumexp has an effect only with rounds!=1");
  CHECK_ERROR(call_of("lsh:rounds=2,buckets=4", with_buckets(2, 1, 1, {0, 1, 2, 3, 4, 0})),
              "lsh: the given buckets[0, 0, 0, 4] is 4; wanted 0 … 3");
  CHECK_ERROR(call_of("lsh:rounds=1,buckets=4", with_buckets(1, 1, 1, {0, 1, -2, 3, 0, 0})),
              "lsh: the given buckets[0, 0, 0, 2] is -2");
  CHECK_ERROR(call_of("lsh:rounds=3", with_buckets(2, 1, 1, {0, 1, 2, 3, 4, 0})),
              "lsh: the given buckets must be");
  AttentionCall call;
  call.given["planes"] = Tensor::zeros({4, 32, 5}, DType::f64);
  CHECK_ERROR(call_of("lsh", call), "lsh: the given planes must be");
}

}  // TEST_SUITE("attention")

}  // namespace
}  // namespace weft
