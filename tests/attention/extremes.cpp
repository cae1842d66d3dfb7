// Every registered mechanism at the limits of grids, tiles, shared memory and loops.
#include <algorithm>
#include <cmath>

#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "ops/views/views.h"
#include "tests/attention/run_attention.h"
#include "tests/attention/sample.h"
#include "tests/threads.h"

namespace weft {
namespace {

void check_defined(const Sample& sample) {
  CAPTURE(sample.text);
  check_close(sample.run(), sample.defined());
}

TEST_SUITE("attention") {

TEST_CASE("every mechanism: more heads in a batch than a grid has rows") {
  // The CPU has no grid. The emulated device would take an hour: orders.cpp tests a grid limit of
  // fewer rows.
  if (tested_device() == Device{} || tested_is_emulated()) return;
  const ThreadsOf one(1);
  // 65,792 of them, where a grid has 65,535 blocks along y and z.
  const AttentionSizes sizes{.B = 256, .N = 2, .S = 2, .H = 257, .E = 1, .M = 1};
  for (const Sample& sample : samples(sizes, DType::f64, plain)) check_defined(sample);
}

// φ(q) cancels in φ(q) Σ φ(k) v / (φ(q) Σ φ(k)): the gradient of q is 0, and two ways to compute it
// have different rounding errors.
TEST_CASE("a gradient that vanishes identically is held to the size of the others") {
  const std::vector<Tensor> inputs = QueryKeyValue(8, 2, 2, 9, 1, 1).list();
  const auto quotient = [](const Variable& a, const Variable& b) {
    return mul(a, exp(scale(log(b), -1)));
  };
  const auto one = [&](std::span<const Variable> in) {
    const Variable q = exp(in[0]), k = exp(in[1]);
    const auto summed = [&](const Variable& x) { return mul(q, reshape(sum(x, 1), {8, 1, 9, 1})); };
    return std::vector{quotient(summed(mul(k, in[2])), summed(k))};
  };
  const auto other = [&](std::span<const Variable> in) {
    const Variable q = exp(in[0]), k = exp(in[1]);
    const Variable first = mul(q, slice(k, 1, 0, 1)), second = mul(q, slice(k, 1, 1, 2));
    return std::vector{
        quotient(add(mul(first, slice(in[2], 1, 0, 1)), mul(second, slice(in[2], 1, 1, 2))),
                 add(first, second))};
  };
  const Run got = run(one, inputs);
  Run wanted = run(other, inputs, 17, Device{});
  CHECK(relative_error(got.gradients[0], wanted.gradients[0]) > 1e-3);
  for (const double error : gradient_errors(got, wanted)) CHECK(error <= tolerance::backward_f64);
  wanted.gradients[0] = Tensor::full(inputs[0].shape(), 1e-10, DType::f64);
  CHECK(gradient_errors(got, wanted)[0] > tolerance::backward_f64);
}

TEST_CASE("every mechanism: no positions give an empty result, no queries send nothing back") {
  const ThreadsOf one(1);
  for (const AttentionSizes& sizes :
       {AttentionSizes{.B = 3, .N = 0, .S = 0, .H = 2, .E = 3, .M = 4},
        AttentionSizes{.B = 3, .N = 0, .S = 5, .H = 2, .E = 3, .M = 4}}) {
    for (const Sample& sample : samples(sizes, DType::f64, plain)) {
      CAPTURE(sample.text);
      const bool references = std::ranges::any_of(
          sample.sheets(),
          [](const AttentionInput& input) { return position_axis(input, 'S') >= 0; });
      if (sizes.S == 0 && references) continue;  // an error: errors.cpp
      const Run run = sample.run();
      CHECK(run.outputs[0].shape() == sample.output_shape());
      for (std::size_t i = 0; i < sample.inputs.size(); ++i) {
        const Tensor none = Tensor::zeros(sample.inputs[i].shape(), DType::f64);
        const bool sent = run.gradients[i].defined() && has_batch(sample.sheets()[i]);
        if (sent) CHECK(relative_error(run.gradients[i], none) == 0);
      }
    }
  }
}

TEST_CASE("every mechanism: two positions, one more than tiles have, and wide heads") {
  const ThreadsOf one(1);
  for (const AttentionSizes& sizes :
       {AttentionSizes{.B = 1, .N = 2, .S = 2, .H = 2, .E = 40, .M = 270},
        AttentionSizes{.B = 1, .N = 65, .S = 65, .H = 1, .E = 130, .M = 129},
        AttentionSizes{.B = 1, .N = 1, .S = 65, .H = 1, .E = 3, .M = 257}}) {
    for (const Sample& sample : samples(sizes, DType::f64, plain)) check_defined(sample);
  }
}

TEST_CASE("the largest options: what a block has of shared memory is enough") {
  const ThreadsOf one(1);
  const auto check = [](const std::string& spec, const std::vector<Tensor>& inputs) {
    CAPTURE(spec);
    const Run wanted = weft::run(mechanism_of(spec), inputs, 17, Device{});
    check_close(attended_run(spec, inputs), wanted);
  };
  const std::vector<Tensor> few = QueryKeyValue(1, 3, 4100, 1, 2, 3).list();
  check("topk:topk=4096", few);
  check("clustered:clusters=4096,bits=63", few);
  if (!fewest_on_device()) check("i-clustered:clusters=4096,bits=63,topk=4096", few);
  check("lsh:rounds=33,chunk=1000000000,buckets=1000",
        {normal({1, 5, 1, 2}, 1), normal({1, 5, 1, 3}, 2)});
  check("agglomerative",
        {normal({1, 3, 300}, 1), normal({1, 3, 300}, 2), normal({1, 3, 300, 2}, 3)});
}

}  // TEST_SUITE("attention")

}  // namespace
}  // namespace weft
