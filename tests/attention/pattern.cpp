// Full attention with a user-defined pattern (ops/attention/pattern.h).
#include <limits>

#include "ops/attention/pattern.h"
#include "tests/attention/run_attention.h"
#include "tests/attention/sample.h"

namespace weft {
namespace {

using ItemSees = std::function<bool(i64 b, i64 h, i64 i, i64 j)>;

// Numbers of [b|1, h|1, rows, columns], most of them 0.
Tensor random_mask(const Shape& shape, DType type) {
  std::vector<double> values(static_cast<std::size_t>(shape.count()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint32_t word = RandomKey{7, 0, 2}.words(i).word[0];
    values[i] = word % 3 > 0 ? 0 : type == DType::f32 || type == DType::f64 ? 0.25 : 1 + word % 9;
  }
  return Tensor::from(values, shape).to(type);
}

ItemSees by(const Tensor& mask, i64 block) {
  const Tensor numbers = mask.to(DType::f64);
  return [numbers, block](i64 b, i64 h, i64 i, i64 j) {
    return numbers.view<double, 4>()(b % numbers.size(0), h % numbers.size(1), i / block,
                                     j / block) != 0;
  };
}

// The same with a bias of −∞ for hidden pairs.
Run dense(const QueryKeyValue& in, const ItemSees& sees, const AttentionCall& call) {
  const i64 B = in.q.size(0), N = in.q.size(1), H = in.q.size(2), S = in.k.size(1);
  const Tensor bias = Tensor::zeros({B, H, N, S}, DType::f64);
  for (i64 pair = 0; pair < bias.count(); ++pair) {
    const i64 j = pair % S, i = pair / S % N, h = pair / S / N % H, b = pair / S / N / H;
    if (!sees(b, h, i, j)) bias.data<double>()[pair] = -std::numeric_limits<double>::infinity();
  }
  Run wanted = defined_run("full", {in.q, in.k, in.v, bias}, call);
  wanted.gradients.pop_back();
  return wanted;
}

Run by_pattern(const QueryKeyValue& in, const Tensor& mask, i64 block, const AttentionCall& call) {
  AttentionCall moved = call;
  return run(
      [&](std::span<const Variable> x) {
        return std::vector{
            pattern_attention(mask, x[0], x[1], x[2], {.block = block, .call = moved})};
      },
      in.list());
}

TEST_SUITE("attention") {

TEST_CASE("pattern: it is dense attention under the mask") {
  const bool few = few_wanted();
  const i64 N = few ? 70 : 150, S = few ? 90 : 210, H = 2;
  const QueryKeyValue cross(2, N, S, H, 3, 4), self(2, S, S, H, 3, 4);
  for (const i64 block : {1, 7, 64, 300}) {
    for (const bool causal : {false, true}) {
      CAPTURE(block);
      CAPTURE(causal);
      const QueryKeyValue& in = causal ? self : cross;
      const i64 queries = in.q.size(1), rows = (queries + block - 1) / block;
      AttentionCall call;
      call.causal = causal;
      const Tensor mask = random_mask({1, H, rows, (S + block - 1) / block}, DType::u8);
      check_close(by_pattern(in, mask.reshape({H, rows, mask.size(3)}), block, call),
                  dense(in, by(mask, block), call));
      call.lengths = lengths_of({S, S - 30});
      call.query_lengths = causal ? call.lengths : lengths_of({0, N});
      call.dropout = 0.3;
      call.random = {4, 5, 6};
      const Tensor items = random_mask({2, 1, rows, mask.size(3)}, DType::u8);
      check_close(by_pattern(in, items, block, call), dense(in, by(items, block), call));
    }
  }
}

TEST_CASE("pattern: a mask may be of any type, on any device, and used many times") {
  const i64 N = 20;
  const QueryKeyValue in(1, N, N, 1, 2, 2);
  for (const DType type : {DType::u8, DType::i32, DType::i64, DType::f32, DType::f64}) {
    CAPTURE(name_of(type));
    const Tensor mask = random_mask({1, 1, N, N}, type);
    const Run wanted = dense(in, by(mask, 1), {});
    check_close(by_pattern(in, mask.reshape({N, N}).to(tested_device()), 1, {}), wanted);
    const auto pattern = std::make_shared<const AttentionPattern>(mask, N, N);
    const auto lists = pattern->lists(tested_device(), false);
    for (int time = 0; time < 2; ++time) {
      const Run got = run(
          [&](std::span<const Variable> x) {
            return std::vector{pattern_attention(pattern, x[0], x[1], x[2])};
          },
          in.list());
      check_close(got, wanted);
    }
    CHECK(pattern->lists(tested_device(), false) == lists);
    CHECK(pattern->lists(tested_device(), true) != lists);
  }
}

TEST_CASE("pattern: the definition of full attention takes it, with a bias") {
  const i64 N = 40;
  const QueryKeyValue in(2, N, N, 2, 3, 4);
  AttentionCall call = causal();
  call.pattern =
      std::make_shared<const AttentionPattern>(random_mask({2, 5, 5}, DType::u8), N, N, 8);
  std::vector<Tensor> inputs = in.list();
  inputs.push_back(normal({1, 2, N, N}, 4));
  check_close(attended_run("full", inputs, call), defined_run("full", inputs, call));
}

TEST_CASE("pattern: a query that sees nothing gives 0 and takes no gradient") {
  const i64 N = 70;
  const QueryKeyValue in(1, N, N, 1, 2, 2);
  const Tensor mask = Tensor::full({N, N}, 1, DType::u8);
  mask.slice(0, 3, 4).fill(0);
  const Run got = by_pattern(in, mask, 1, {});
  check_finite(got);
  for (const Tensor& x : {got.outputs[0], got.gradients[0]}) {
    for (const double value : x.slice(1, 3, 4).to_vector<double>()) CHECK(value == 0);
  }
  for (const double value :
       by_pattern(in, Tensor::zeros({N, N}, DType::u8), 1, {}).outputs[0].to_vector<double>()) {
    CHECK(value == 0);
  }
}

TEST_CASE("pattern: what it refuses") {
  const QueryKeyValue in(2, 9, 9, 3, 2, 2);
  const std::vector<Variable> x{in.q, in.k, in.v};
  const auto attend_by = [&](const Shape& shape, i64 block = 1) {
    return pattern_attention(Tensor::zeros(shape, DType::u8), x[0], x[1], x[2], {.block = block});
  };
  CHECK_ERROR(attend_by({9, 8}),
              "pattern: wanted a mask [9, 9], [H, 9, 9] or [B, H, 9, 9] for 9 "
              "queries and 9 keys in blocks of 1, got [9,8]");
  CHECK_ERROR(attend_by({9, 9}, 4), "wanted a mask [3, 3], [H, 3, 3] or [B, H, 3, 3]");
  CHECK_ERROR(attend_by({0, 0}, std::numeric_limits<i64>::max()), "wanted a mask [1, 1]");
  CHECK_ERROR(attend_by({9}), "got [9]");
  CHECK_ERROR(attend_by({1, 1, 1, 9, 9}), "got [1,1,1,9,9]");
  CHECK_ERROR(attend_by({9, 9}, 0), "pattern: wanted blocks of at least 1 position, got 0");
  CHECK_ERROR(attend_by({2, 9, 9}),
              "full: the pattern's mask has 1 batch items and 2 heads, the "
              "inputs 2 and 3; wanted as many, or 1");
  AttentionCall call;
  call.pattern = std::make_shared<const AttentionPattern>(Tensor::zeros({8, 9}, DType::u8), 8, 9);
  CHECK_ERROR(attended("full", in.list(), call),
              "full: the pattern is for 8 queries and 9 keys, got 9 and 9");
  CHECK_ERROR(attended("local", in.list(), call), "local: does not take a pattern; use full");
}

}  // TEST_SUITE("attention")

}  // namespace
}  // namespace weft
