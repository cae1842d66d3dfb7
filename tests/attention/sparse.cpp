// Properties of sparse attention alone (mechanism page: ops/attention/sparse/sparse.h).
#include "ops/attention/definitions.h"
#include "tests/attention/run_attention.h"
#include "tests/attention/sample.h"

namespace weft {
namespace {

// Dense attention with the pattern, implemented independently from the paper.
Run dense(bool strided, bool merged, i64 l, i64 c, const QueryKeyValue& in,
          const AttentionCall& call) {
  const auto sees = [=](i64, i64 h, i64 i, i64 j) {
    const bool near = strided ? i - j < l : i / l == j / l;
    const bool far = strided ? (i - j) % l == 0 : j % l >= l - c;
    return j <= i && (merged ? near || far : h % 2 == 0 ? near : far);
  };
  const i64 B = in.q.size(0), N = in.q.size(1), H = in.q.size(2), E = in.q.size(3);
  const auto f = [&](std::span<const Variable> v) {
    const Tensor seen = self_visibility(call, B, H, N, sees);
    return std::vector{attention_over(seen, 1 / std::sqrt(double(E)), call, v[0], v[1], v[2])};
  };
  return run(f, in.list(), 17, Device{});
}

TEST_SUITE("attention") {

TEST_CASE("sparse: it is dense attention under the masks of the paper") {
  const i64 longest = few_wanted() ? 70 : 130;
  for (const i64 N : {i64{5}, i64{64}, longest}) {
    const QueryKeyValue in(3, N, N, 3, 4, 5);
    AttentionCall call = causal();
    for (const bool cut : {false, true}) {
      if (cut) call.lengths = lengths_of({N, N / 2, 0});
      for (const bool merged : {true, false}) {
        const std::string heads = merged ? "" : ",combine=heads";
        for (const i64 l : {1, 6, 64}) {
          if (fewest_on_device() && (l == 6) == cut) continue;
          const std::string stride = "sparse:stride=" + std::to_string(l) + heads;
          CAPTURE(stride);
          CAPTURE(N);
          check_close(attended_run(stride + ",pattern=strided", in.list(), call),
                      dense(true, merged, l, 0, in, call));
          const i64 c = (l + 1) / 2;
          check_close(attended_run(stride + ",summary=" + std::to_string(c), in.list(), call),
                      dense(false, merged, l, c, in, call));
        }
      }
    }
  }
}

TEST_CASE("sparse: a stride of 1, and a block over everything, are causal attention") {
  const QueryKeyValue in(2, 70, 70, 2, 4, 5);
  const Tensor full = attended("full", in.list(), causal());
  check_close(attended("sparse:pattern=strided,stride=1", in.list(), causal()), full);
  check_close(attended("sparse:pattern=strided,stride=70", in.list(), causal()), full);
  check_close(attended("sparse:stride=70,summary=1", in.list(), causal()), full);
}

TEST_CASE("sparse: strides and summaries reach every earlier position in two layers") {
  const i64 N = 70;
  const QueryKeyValue in(1, N, N, 1, 4, 5);
  for (const char* const spec :
       {"sparse:pattern=strided,stride=8", "sparse:stride=8,summary=1", "sparse:stride=8"}) {
    CAPTURE(spec);
    const Tensor map = attended(spec, {in.q, in.k, unit_values(1, N, 1)}, causal());
    const auto seen = map.view<const double, 4>();
    for (i64 i = 0; i < N; ++i) {
      for (i64 j = 0; j < N; ++j) {
        bool reached = false;
        for (i64 by = 0; by < N; ++by) {
          reached = reached || (seen(0, i, 0, by) > 0 && seen(0, by, 0, j) > 0);
        }
        CHECK(reached == (j <= i));
      }
    }
  }
}

TEST_CASE("sparse: its cost counts the keys that each query sees") {
  for (const i64 N : {5, 12, 70}) {
    for (const i64 l : {1, 6, 64}) {
      for (const bool strided : {false, true}) {
        const i64 c = (l + 1) / 2;
        const auto near = [&](i64 i, i64 j) { return strided ? i - j < l : i / l == j / l; };
        const auto far = [&](i64 i, i64 j) { return strided ? (i - j) % l == 0 : j % l >= l - c; };
        const auto pairs = [&](const auto& sees) {
          return pairs_where(N, [&](i64 i, i64 j) { return j <= i && sees(i, j); });
        };
        const std::string spec = fmt::format(
            "sparse:stride={},{}", l, strided ? "pattern=strided" : fmt::format("summary={}", c));
        CAPTURE(spec);
        CAPTURE(N);
        CHECK(counted_pairs(spec, N, true) ==
              pairs([&](i64 i, i64 j) { return near(i, j) || far(i, j); }));
        CHECK(counted_pairs(spec + ",combine=heads", N, true, 3) == 2 * pairs(near) + pairs(far));
      }
    }
  }
}

TEST_CASE("sparse: what it refuses") {
  const QueryKeyValue in(1, 9, 9, 1, 2, 2);
  CHECK_ERROR(attended("sparse:stride=4,summary=5", in.list(), causal()),
              "sparse: summary=5 is more than the 4 positions of a block; at most stride=4");
  CHECK_ERROR(attended("sparse:pattern=strided,summary=5", in.list(), causal()),
              "attention sparse: summary=5 has an effect only with pattern=fixed");
  CHECK_ERROR(attended("sparse:stride=4,summary=32", in.list(), causal()),
              "sparse: summary=32 is more than the 4 positions of a block");
  CHECK_ERROR(attended("sparse:stride=0", in.list(), causal()), "stride");
  CHECK_ERROR(attended("sparse", in.list()), "sparse: has only a causal form");
}

}

}  // namespace
}  // namespace weft
