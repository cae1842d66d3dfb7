// Properties of local attention alone (mechanism page: ops/attention/local/local.h).
#include "tests/attention/run_attention.h"
#include "tests/attention/sample.h"

namespace weft {
namespace {

TEST_SUITE("attention") {

TEST_CASE("local: one key gives its own value") {
  const QueryKeyValue in(2, 70, 70, 3, 4, 5);
  check_close(attended("local:context=1", in.list()), in.v);
  check_close(attended("local:context=1", in.list(), causal()), in.v);
  // For any score: queries and keys get no gradient.
  const Run got = attended_run("local:context=1", in.list());
  for (const double slope : got.gradients[0].to_vector<double>()) CHECK(std::abs(slope) < 1e-13);
  for (const double slope : got.gradients[1].to_vector<double>()) CHECK(std::abs(slope) < 1e-13);
}

TEST_CASE("local: a window over everything is full attention") {
  const QueryKeyValue in(2, 70, 70, 3, 4, 5);
  check_close(attended("local:context=140", in.list()), attended("full", in.list()));
  check_close(attended("local:context=140", in.list(), causal()),
              attended("full", in.list(), causal()));
}

TEST_CASE("local: an even window reaches one key further back than ahead") {
  const i64 N = 9;
  const QueryKeyValue in(1, N, N, 1, 2, 1);
  for (const i64 context : {2, 3, 4}) {
    const std::string spec = "local:context=" + std::to_string(context);
    const Tensor out = attended(spec, in.list());
    // Changes only the value at `place`: which outputs change?
    const i64 place = 4;
    Tensor other = in.v.clone();
    other.data<double>()[place] += 1;
    const Tensor moved = attended(spec, {in.q, in.k, other});
    for (i64 i = 0; i < N; ++i) {
      const bool sees = i - context / 2 <= place && place <= i + (context + 1) / 2 - 1;
      CHECK((moved.data<double>()[i] != out.data<double>()[i]) == sees);
    }
  }
}

TEST_CASE("local: its cost counts the keys that each query sees") {
  for (const i64 N : {1, 9, 70}) {
    for (const i64 context : {1, 4, 9, 64, 150}) {
      for (const bool causal : {false, true}) {
        CAPTURE(N);
        CAPTURE(context);
        const i64 ahead = causal ? 0 : (context + 1) / 2 - 1;
        CHECK(counted_pairs(fmt::format("local:context={}", context), N, causal) ==
              pairs_where(N, [&](i64 i, i64 j) { return i - context / 2 <= j && j <= i + ahead; }));
      }
    }
  }
}
}

}  // namespace
}  // namespace weft
