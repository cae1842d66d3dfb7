// Ops on the emulated device under other orders of threads.
#include "tests/orders.h"

#include "tests/check.h"
#include "tests/ops/cases.h"
#include "tests/threads.h"

namespace weft {
namespace {

TEST_SUITE("ops") {

TEST_CASE("every op: the same bits in any order of threads") {
  if (tested_device() == Device{}) return;
  const ThreadsOf one(1);
  const auto check = [](const OpCase& c, const std::vector<Tensor>& inputs) {
    CAPTURE(c.name);
    const Run usual = run(c.f, inputs);
    under_other_orders([&] { check_same_bits(run(c.f, inputs), usual); });
  };
  for (const OpCase& c : op_cases()) check(c, c.inputs);
  for (const OpCase& c : large_op_cases()) check(c, in_f32(c.inputs));
}

}  // TEST_SUITE("ops")

}  // namespace
}  // namespace weft
