// Captured steps, on a CUDA device, real or emulated.
#include "autograd/tape.h"
#include "ops/attention/pattern.h"
#include "runtime/cuda/graph.h"
#include "tests/attention/run_attention.h"
#include "tests/cuda_there.h"

namespace weft {
namespace {

constexpr Device device{DeviceType::cuda, 0};

// Output and gradients of one step.
using Step = std::function<std::vector<Tensor>()>;

Step step_of(const std::vector<Tensor>& inputs, const Differentiable& f) {
  return [=] {
    std::vector<Variable> leaves;
    for (const Tensor& x : inputs) leaves.push_back(Variable::leaf(x));
    Tape tape;
    const Variable out = f(leaves)[0];
    tape.backward(out, Tensor::full(out.shape(), 0.5, DType::f64, device));
    std::vector<Tensor> results{out.value()};
    for (const Variable& leaf : leaves) results.push_back(leaf.gradient());
    return results;
  };
}

// `change` alters the memory that the step reads.
void check_captured(const Step& step, const std::function<void()>& change) {
  CudaGraph graph(Cuda{});
  std::vector<Tensor> results;
  for (int time = 0; time < 2; ++time) graph.run([&] { results = step(); });
  graph.capture([&] { results = step(); });
  change();
  graph.replay();
  const std::vector<Tensor> wanted = step();
  for (std::size_t i = 0; i < wanted.size(); ++i) CHECK(same_bits(results[i], wanted[i]));
}

// `lengths`, which the step reads, become N − 9 and N: the replay is of these, and not of those
// before.
void check_other_lengths(const Step& step, const Tensor& lengths, i64 N) {
  const Tensor before = step()[0];
  check_captured(step, [&] { lengths.copy_from(lengths_of({N - 9, N})); });
  CHECK_FALSE(same_bits(step()[0], before));
}

std::vector<Tensor> moved(const QueryKeyValue& in) {
  std::vector<Tensor> list;
  for (const Tensor& x : in.list()) list.push_back(x.to(device));
  return list;
}

TEST_SUITE("attention") {

TEST_CASE("bigbird: a captured step makes its lists of the lengths that stand there then") {
  if (!cuda_is_there() || tested_device() == Device{}) return;
  for (const char* spec : {"bigbird:block=3", "bigbird:block=64,random=1"}) {
    CAPTURE(spec);
    const bool short_blocks = std::string(spec).ends_with("3");
    const i64 N = short_blocks ? 60 : 400;
    const QueryKeyValue in(2, N, N, 1, 2, 2);
    AttentionCall call;
    call.lengths = lengths_of({N, N / 2}).to(device);
    const Step step = step_of(moved(in), mechanism_of(spec, call));
    check_other_lengths(step, call.lengths, N);
  }
}

TEST_CASE("segtree: a captured step makes the trees of the lengths that stand there then") {
  if (!cuda_is_there() || tested_device() == Device{}) return;
  const i64 leaves = 21, T = 21 + 11 + 6 + 3 + 2 + 1;
  std::vector<Tensor> inputs = moved(QueryKeyValue(2, T, T, 1, 2, 2));
  inputs.push_back(normal({18, 2}, 4).to(device));
  AttentionCall call;
  call.lengths = lengths_of({leaves, 9}).to(device);
  const Step step = step_of(inputs, mechanism_of("segtree", call));
  check_other_lengths(step, call.lengths, leaves);
}

TEST_CASE("shared-full: a captured step normalises the keys of the lengths that stand there then") {
  if (!cuda_is_there() || tested_device() == Device{}) return;
  const i64 N = 20;
  const Tensor q = with_zero_rows(normal({2, N, 1, 3}, 1), false);
  const std::vector<Tensor> inputs{q.to(device), normal({2, N, 1, 2}, 2).to(device)};
  AttentionCall call;
  call.lengths = lengths_of({N, 9}).to(device);
  const Step step = step_of(inputs, mechanism_of("shared-full:normalize_keys=1", call));
  check_other_lengths(step, call.lengths, N);
}

TEST_CASE("pattern: a captured step uses one that is ready") {
  if (!cuda_is_there() || tested_device() == Device{}) return;
  const i64 N = 70;
  const std::vector<Tensor> inputs = moved(QueryKeyValue(1, N, N, 1, 2, 2));
  const Tensor mask = Tensor::full({N, N}, 1, DType::u8);
  mask.slice(1, 3, 20).fill(0);
  const auto pattern = std::make_shared<const AttentionPattern>(mask, N, N);
  const Step step = step_of(inputs, [&](std::span<const Variable> x) {
    return std::vector{pattern_attention(pattern, x[0], x[1], x[2])};
  });
  check_captured(step, [&] { inputs[0].copy_from(normal({1, N, 1, 2}, 9)); });
}

}  // TEST_SUITE("attention")

}  // namespace
}  // namespace weft
