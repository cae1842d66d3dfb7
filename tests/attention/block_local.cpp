// Properties of block-local attention alone (mechanism page:
// ops/attention/block_local/block_local.h).
#include "ops/attention/definitions.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "ops/views/views.h"
#include "tests/attention/run_attention.h"
#include "tests/attention/sample.h"
#include "tests/threads.h"

namespace weft {
namespace {

using Pool = std::function<Variable(const Variable& rows)>;  // [1, n, H, E] → [1, 1, H, E]

Variable mean_of(const Variable& rows) {
  return reshape(mean(rows, 1), {1, 1, rows.size(2), rows.size(3)});
}
Variable maximum_of(const Variable& rows) {
  Variable largest = slice(rows, 1, 0, 1);
  for (i64 i = 1; i < rows.size(1); ++i) largest = maximum(largest, slice(rows, 1, i, i + 1));
  return largest;
}

Variable full(const Variable& q, const Variable& k, const Variable& v) {
  const Variable list[] = {q, k, v};
  return defined(AttentionSpec("full"), {}, list).out;
}

// Item by item and block by block, each a sequence of its own: the valid blocks, then zeros.
Run piecewise(i64 block, const Pool& pool, const std::vector<i64>& lengths,
              const std::vector<Tensor>& inputs) {
  const auto f = [&](std::span<const Variable> x) {
    std::vector<Variable> items;
    for (std::size_t b = 0; b < lengths.size(); ++b) {
      const i64 item = static_cast<i64>(b), length = lengths[b];
      const auto cut = [&](const Variable& whole, i64 begin) {
        const i64 end = std::min(begin + block, length);
        return slice(slice(whole, 0, item, item + 1), 1, begin, end);
      };
      std::vector<Variable> pooled[3], rows;
      for (i64 begin = 0; begin < length; begin += block) {
        for (std::size_t i = 0; i < 3; ++i) pooled[i].push_back(pool(cut(x[i], begin)));
      }
      Variable between;
      if (length > 0) {
        between =
            full(concatenate(pooled[0], 1), concatenate(pooled[1], 1), concatenate(pooled[2], 1));
      }
      for (i64 begin = 0; begin < length; begin += block) {
        const i64 t = begin / block;
        rows.push_back(add(full(cut(x[0], begin), cut(x[1], begin), cut(x[2], begin)),
                           slice(between, 1, t, t + 1)));
      }
      const Shape rest{1, x[0].size(1) - length, x[0].size(2), x[2].size(3)};
      if (rest[1] > 0) rows.push_back(Tensor::zeros(rest, DType::f64));
      items.push_back(concatenate(rows, 1));
    }
    return std::vector{concatenate(items, 0)};
  };
  return run(f, inputs, 17, Device{});
}

TEST_SUITE("attention") {

TEST_CASE("block-local: it is full attention of each block, and of the pooled rows") {
  const ThreadsOf one(1);
  const i64 longest = few_wanted() ? 70 : 150;
  for (const i64 N : {i64{6}, longest}) {
    const QueryKeyValue in(3, N, N, 2, 4, 5);
    for (const std::vector<i64>& lengths : {std::vector{N, N, N}, std::vector{N, N / 2, i64{0}}}) {
      AttentionCall call;
      if (lengths[1] < N) call.lengths = lengths_of(lengths);
      for (const i64 block : {1, 3, 64, 1000}) {
        CAPTURE(N);
        CAPTURE(block);
        CAPTURE(call.lengths.defined());
        const std::string spec = fmt::format("block-local:block={}", block);
        check_close(attended_run(spec, in.list(), call),
                    piecewise(block, mean_of, lengths, in.list()));
        check_close(attended_run(spec + ",pool=max", in.list(), call),
                    piecewise(block, maximum_of, lengths, in.list()));
      }
    }
  }
}

TEST_CASE("block-local: blocks of one position, and one block") {
  const QueryKeyValue in(2, 40, 40, 2, 4, 5);
  const Tensor all = attended("full", in.list());
  check_close(attended("block-local:block=1", in.list()),
              add(Variable(all), Variable(in.v)).value());
  const Variable v(in.v), pooled = reshape(mean(v, 1), {2, 1, 2, 5});
  check_close(attended("block-local:block=40", in.list()), add(Variable(all), pooled).value());
}

TEST_CASE("block-local: the weights of a mean sum to two, and reach every block alike") {
  const i64 N = 10, block = 4;
  const QueryKeyValue in(1, N, N, 1, 3, 1);
  const Tensor map = attended("block-local:block=4", {in.q, in.k, unit_values(1, N, 1)});
  const View<double, 4> weight = map.view<double, 4>();
  for (i64 i = 0; i < N; ++i) {
    double row = 0;
    for (i64 j = 0; j < N; ++j) {
      row += weight(0, i, 0, j);
      const i64 other = j / block * block;  // the first position of the block of j
      if (i / block != j / block) CHECK(weight(0, i, 0, j) == weight(0, i, 0, other));
    }
    CHECK(row == doctest::Approx(2).epsilon(tolerance::forward_f64));
  }
}

TEST_CASE("block-local: what it refuses") {
  const QueryKeyValue in(1, 9, 9, 1, 2, 2);
  CHECK_ERROR(attended("block-local:block=0", in.list()),
              "attention block-local: block is a number in [1, 16777216], got '0'");
  CHECK_ERROR(attended("block-local:pool=sum", in.list()),
              "attention block-local: pool is one of mean, max, got 'sum'");
  CHECK_ERROR(attended("block-local", in.list(), causal()), "block-local: has no causal form");
}

}  // TEST_SUITE("attention")

}  // namespace
}  // namespace weft
