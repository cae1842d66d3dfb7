// Captured steps and steps that the host does not wait for, on a CUDA device, real or emulated.
#include "runtime/cuda/graph.h"

#include "autograd/gradcheck.h"
#include "runtime/allocator.h"
#include "runtime/arithmetic.h"
#include "tests/check.h"
#include "tests/cuda_there.h"

namespace weft {
namespace {

constexpr Device device{DeviceType::cuda, 0};

TEST_SUITE("runtime") {

TEST_CASE("graph: replays compute what was captured, on what stands in memory then") {
  if (!cuda_is_there()) return;
  const Tensor x = random_normal({300}, DType::f64, 1).to(device);
  const Tensor sum = Tensor::zeros({300}, DType::f64, device);
  CudaGraph graph(Cuda{});
  const auto step = [&] {
    const Tensor twice = added(x, x);  // its memory is the graph's own
    add_into(sum, twice);
  };
  CHECK_ERROR(graph.replay(), "nothing was captured yet");
  graph.run(step);
  graph.capture(step);  // computes nothing
  const Tensor y = added(x, x);
  CHECK(same_bits(sum, y));
  graph.replay();
  x.copy_from(random_normal({300}, DType::f64, 2));
  const Tensor others[] = {Tensor::full({300}, 7, DType::f64, device), x.clone()};
  graph.replay();
  CHECK(relative_error(sum, added(added(y, y), added(x, x))) <= tolerance::forward_f64);
  CHECK(others[0].to_vector<double>() == std::vector<double>(300, 7));
  CHECK_ERROR(graph.capture(step), "was captured before");
}

TEST_CASE("graph: a call of the host is repeated with every replay, and waited for") {
  if (!cuda_is_there()) return;
  int calls = 0;
  CudaGraph graph(Cuda{});
  const auto step = [&] {
    call_in_order(
        Cuda{}, [](void* count) { ++*static_cast<int*>(count); }, &calls);
  };
  graph.run(step);
  graph.capture(step);
  for (int i = 0; i < 3; ++i) graph.replay();
  synchronize(Cuda{});
  CHECK(calls == 4);
  CHECK(idle(Cuda{}));
}

TEST_CASE("graph: what cannot be captured") {
  if (!cuda_is_there()) return;
  const Tensor x = random_normal({30}, DType::f64, 1).to(device);
  {
    CudaGraph graph(Cuda{});
    CHECK_ERROR(graph.capture([&] { x.slice(0, 0, 1).item(); }), "captur");
  }
  {
    CudaGraph graph(Cuda{});
    CHECK_THROWS_AS(graph.capture([&] { added(x, x); }), Error);  // memory not allocated by run()
  }
  const Tensor here = x.to(Device{});
  CHECK(same_bits(added(x, x).to(Device{}), added(here, here)));  // the device still works
}

TEST_CASE("graph: its memory comes back with its end") {
  if (!cuda_is_there()) return;
  const std::size_t live = allocator(device).counts().live;
  const Tensor x = Tensor::full({1000}, 1, DType::f64, device);
  {
    CudaGraph graph(Cuda{});
    Tensor kept;
    const auto step = [&] { kept = added(x, x); };
    graph.run(step);
    graph.run(step);  // with the first result still kept
    graph.capture(step);
    graph.replay();
    CHECK(kept.to_vector<double>() == std::vector<double>(1000, 2));
  }
  CHECK(allocator(device).counts().live == live + 8192);
}

TEST_CASE("steps: each gets its inputs, and reports come in order") {
  if (!cuda_is_there()) return;
  const Tensor number = Tensor::empty({1}, DType::i32, device);
  const Tensor rate = Tensor::empty({2}, DType::f64, device);
  const Tensor report = Tensor::empty({3}, DType::f64, device);
  StepQueue queue(Cuda{}, {number, rate}, report);
  int submitted = 0, taken = 0;
  const auto take = [&] {
    const double n = ++taken;
    while (!queue.arrived()) {
    }
    CHECK(queue.take() == std::vector<double>{n, n / 2, -n});
  };
  const auto submit = [&](double n, const std::function<void()>& also) {
    queue.submit({Tensor::full({1}, n, DType::i32), Tensor::from(std::vector{n / 2, -n}, {2})},
                 [&] {
                   report.slice(0, 0, 1).copy_from(number);
                   report.slice(0, 1, 3).copy_from(rate);
                   also();
                 });
  };
  while (submitted < 11) {
    if (queue.under_way() == StepQueue::most_under_way) take();
    CHECK_ERROR(submit(77, [] { fail("no memory"); }), "no memory");  // it takes no place
    submit(++submitted, [] {});
  }
  while (queue.under_way() > 0) take();
  CHECK(taken == 11);
  CHECK_ERROR(queue.take(), "no report");
  CHECK_ERROR(queue.submit({Tensor::full({1}, 1, DType::i32)}, [] {}), "wanted 2 inputs, got 1");
  CHECK_ERROR(queue.submit({Tensor::full({2}, 1, DType::i32), rate.to(Device{})}, [] {}),
              "input 0 is i32 [1], got i32 [2]");
  CHECK_ERROR(
      queue.submit({Tensor::full({1}, 1, DType::i32), Tensor::zeros({2}, DType::f32)}, [] {}),
      "input 1 is f64 [2], got f32 [2]");
}

}  // TEST_SUITE("runtime")

}  // namespace
}  // namespace weft
