// Properties of cosFormer alone (mechanism page: ops/attention/cosformer/cosformer.h).
#include "tests/attention/run_attention.h"
#include "tests/attention/sample.h"

namespace weft {
namespace {

TEST_SUITE("attention") {

TEST_CASE("cosformer: with a long reach it is linear attention with relu") {
  const QueryKeyValue in(2, 90, 90, 3, 5, 4);
  const Tensor near = attended("cosformer:max_length=16777216", in.list());
  CHECK(relative_error(near, attended("linear:feature=relu", in.list())) < 1e-5);
  CHECK(relative_error(attended("cosformer", in.list()), near) > 1e-2);
}

TEST_CASE("cosformer: with max_length a prefix gives what the whole sequence gives") {
  const QueryKeyValue in(1, 80, 80, 2, 4, 3);
  const std::vector half{in.q.slice(1, 0, 50), in.k.slice(1, 0, 50), in.v.slice(1, 0, 50)};
  const auto prefix = [&](const char* spec) {
    return relative_error(attended(spec, half, causal()),
                          attended(spec, in.list(), causal()).slice(1, 0, 50));
  };
  CHECK(prefix("cosformer:max_length=100") < 1e-13);
  CHECK(prefix("cosformer") > 1e-3);
}

TEST_CASE("cosformer: what it refuses") {
  const QueryKeyValue in(1, 30, 30, 2, 4, 3);
  CHECK_ERROR(attended("cosformer:max_length=29", in.list()),
              "cosformer: 30 positions, and max_length is 29");
  const AttentionSpec endless("cosformer"), short_one("cosformer:max_length=3");
  const AttentionSizes sizes{.B = 1, .H = 2, .E = 4, .M = 3};
  CHECK_ERROR(endless.mechanism().decode(endless, sizes, DType::f64, 8),
              "cosformer: decoding needs max_length");
  CHECK_FALSE(can_decode(AttentionSpec("cosformer:max_length=00")));
  const auto state = short_one.mechanism().decode(short_one, sizes, DType::f64, 8);
  const auto positions = [&](i64 from, i64 to) {
    return std::vector{in.q.slice(1, from, to), in.k.slice(1, from, to), in.v.slice(1, from, to)};
  };
  state->step(positions(0, 3));
  CHECK_ERROR(state->step(positions(3, 4)), "cosformer: 4 positions, and max_length is 3");
}

}

}  // namespace
}  // namespace weft
