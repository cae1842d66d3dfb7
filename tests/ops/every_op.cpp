// Properties of every op, over the cases of cases.h.
#include "runtime/allocator.h"
#include "tests/check.h"
#include "tests/ops/cases.h"
#include "tests/threads.h"

namespace weft {
namespace {

std::vector<Tensor> all_scattered(const std::vector<Tensor>& inputs) {
  std::vector<Tensor> views;
  for (const Tensor& x : inputs) views.push_back(scattered(x));
  return views;
}

TEST_SUITE("ops") {

TEST_CASE("every op: gradients against central differences") {
  const ThreadsOf one(1);
  for (const OpCase& c : op_cases()) {
    CAPTURE(c.name);
    CHECK_GRADIENTS(c.f, c.inputs);
  }
}

TEST_CASE("every op in several pieces: some elements of the gradients") {
  if (few_on_device()) return;  // "f32 against f64" compares them with the CPU's
  const ThreadsOf one(1);
  for (const OpCase& c : large_op_cases()) {
    CAPTURE(c.name);
    CHECK_GRADIENTS(c.f, c.inputs, 3, 1e-6, 7);
  }
}

TEST_CASE("every op: the same for inputs that lie anywhere in memory") {
  const ThreadsOf one(1);
  for (const OpCase& c : op_cases()) {
    CAPTURE(c.name);
    const Run packed = run(c.f, c.inputs), views = run(c.f, all_scattered(c.inputs));
    for (std::size_t i = 0; i < packed.outputs.size(); ++i) {
      CHECK(relative_error(views.outputs[i], packed.outputs[i]) <= tolerance::forward_f64);
    }
    for (std::size_t i = 0; i < packed.gradients.size(); ++i) {
      if (!packed.gradients[i].defined()) continue;
      CHECK(relative_error(views.gradients[i], packed.gradients[i]) <= tolerance::backward_f64);
    }
    CHECK_GRADIENTS(c.f, all_scattered(c.inputs));
  }
}

void check_f32_against_f64(const OpCase& c) {
  CAPTURE(c.name);
  const std::vector<Tensor> narrow = in_f32(c.inputs);
  // In f64 on the CPU, whose gradients are compared with differences.
  const Run got = run(c.f, narrow), wanted = run(c.f, in_f64(narrow), 17, Device{});
  for (std::size_t i = 0; i < got.outputs.size(); ++i) {
    CHECK(got.outputs[i].dtype() == DType::f32);
    CHECK(relative_error(got.outputs[i], wanted.outputs[i]) <= tolerance::forward_f32);
  }
  for (std::size_t i = 0; i < got.gradients.size(); ++i) {
    if (!wanted.gradients[i].defined()) continue;
    CHECK(got.gradients[i].dtype() == DType::f32);
    CHECK(relative_error(got.gradients[i], wanted.gradients[i]) <= tolerance::backward_f32);
  }
}

TEST_CASE("every op: f32 against f64") {
  const ThreadsOf one(1);
  for (const OpCase& c : op_cases()) check_f32_against_f64(c);
  for (const OpCase& c : large_op_cases()) check_f32_against_f64(c);
}

TEST_CASE("every op: an input that wants no gradient changes nothing for the others") {
  for (const OpCase& c : op_cases()) {
    if (c.inputs.size() < 2) continue;
    CAPTURE(c.name);
    const Run all = run(c.f, c.inputs);
    for (std::size_t constant = 0; constant < c.inputs.size(); ++constant) {
      if (!is_floating(c.inputs[constant].dtype())) continue;
      if (c.inputs.size() == 2 && !is_floating(c.inputs[1 - constant].dtype())) continue;
      const auto detached = [&](std::span<const Variable> in) {
        std::vector<Variable> inputs(in.begin(), in.end());
        inputs[constant] = inputs[constant].detached();
        return c.f(inputs);
      };
      const Run some = run(detached, c.inputs);
      CHECK_FALSE(some.gradients[constant].defined());
      for (std::size_t i = 0; i < c.inputs.size(); ++i) {
        if (i != constant && all.gradients[i].defined()) {
          CHECK(same_bits(some.gradients[i], all.gradients[i]));
        }
      }
    }
  }
}

TEST_CASE("every op: two runs and any number of threads give the same bits") {
  // An emulated device runs on one thread; another case covers its orders of threads.
  if (few_on_device()) return;
  const auto check = [](const OpCase& c, const std::vector<Tensor>& inputs) {
    CAPTURE(c.name);
    const ThreadsOf one(1);
    const Run first = run(c.f, inputs);
    for (const int team : {2, 3}) {
      const ThreadsOf scope(team);
      check_same_bits(first, run(c.f, inputs));
    }
  };
  for (const OpCase& c : op_cases()) check(c, c.inputs);
  for (const OpCase& c : large_op_cases()) check(c, in_f32(c.inputs));
}

TEST_CASE("every op: nothing stays allocated") {
  const ThreadsOf one(1);
  for (const OpCase& c : op_cases()) {
    CAPTURE(c.name);
    const std::size_t before = allocator(tested_device()).counts().live;
    { const Run once = run(c.f, c.inputs); }
    CHECK(allocator(tested_device()).counts().live == before);
  }
}

}  // TEST_SUITE("ops")
}  // namespace
}  // namespace weft
