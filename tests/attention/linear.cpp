// Properties of linear attention alone (mechanism page: ops/attention/linear/linear.h).
#include "tests/attention/run_attention.h"
#include "tests/attention/sample.h"

namespace weft {
namespace {

TEST_SUITE("attention") {

TEST_CASE("linear, cosformer: the last causal row sees what every row of the full form sees") {
  for (const char* spec : {"linear", "linear:feature=relu", "linear:feature=exp", "cosformer"}) {
    CAPTURE(spec);
    for (const i64 N : {1, 63, 64, 65, 200}) {
      const QueryKeyValue in(2, N, N, 3, 5, 4);
      const Tensor full = attended(spec, in.list()), past = attended(spec, in.list(), causal());
      check_close(past.slice(1, N - 1, N), full.slice(1, N - 1, N));
    }
  }
}

TEST_CASE("linear: gradients where a feature's argument is 0 are those of the definition") {
  const QueryKeyValue in(1, 8, 8, 2, 4, 3);
  const std::vector<Tensor> inputs{Tensor::zeros(in.q.shape(), DType::f64), in.k, in.v};
  const Run got = attended_run("linear", inputs), wanted = defined_run("linear", inputs);
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(relative_error(got.gradients[i], wanted.gradients[i]) <= tolerance::backward_f64);
  }
}

TEST_CASE("linear: keys that are all the same give the mean of the values") {
  const QueryKeyValue in(1, 80, 80, 2, 4, 3);
  const Tensor k = in.k.slice(1, 0, 1).expand(in.k.shape()).clone();
  const Tensor out = attended("linear", {in.q, k, in.v});
  const std::vector<double> got = out.to_vector<double>(), values = in.v.to_vector<double>();
  for (i64 column = 0; column < 6; ++column) {
    double mean = 0;
    for (i64 j = 0; j < 80; ++j) mean += values[j * 6 + column] / 80;
    for (i64 i = 0; i < 80; ++i) CHECK(got[i * 6 + column] == doctest::Approx(mean).epsilon(1e-6));
  }
}

}

}  // namespace
}  // namespace weft
