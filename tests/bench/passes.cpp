// What a measurement counts: times by a clock that the test sets, bytes by an op with known
// allocations.
#include "bench/passes.h"

#include "autograd/apply.h"
#include "runtime/allocator.h"

#include "doctest/doctest.h"

using namespace weft;
using namespace weft::bench;

namespace {

constexpr i64 unit = 1 << 20;  // a size that the allocator does not round

double now = 0;

// y = x, [unit] u8 elements' worth of f32. Forward takes `forward` seconds, saves 3 units and uses
// 5 more as workspace; backward takes 10 seconds and uses 2.
struct TakesKnown {
  static constexpr const char* name = "takes_known";
  struct Saved {
    Tensor kept;
  };
  double forward_seconds = 0;

  static Tensor bytes(i64 units) { return Tensor::empty({units * unit}, DType::u8); }
  Tensor forward(Saved& saved, const Tensor& x) const {
    saved.kept = bytes(3);
    const Tensor at_work = bytes(5);
    now += forward_seconds;
    return x.clone();
  }
  Tensor backward(const Saved&, const Tensor& dy) const {
    const Tensor at_work = bytes(2);
    now += 10;
    return dy.clone();
  }
};

// Forward passes take 100 (it warms up), 1, 2, 3, … seconds.
struct Counted {
  int runs = 0;
  Subject subject;

  Counted() {
    subject.leaves.push_back(Variable::leaf(Tensor::zeros({unit / 4}, DType::f32)));
    subject.forward = [this] {
      const double seconds = runs == 0 ? 100 : runs;
      ++runs;
      return apply(TakesKnown{seconds}, subject.leaves[0]);
    };
  }
};

const Clock clock_of_test = [] { return now; };
const auto never = [] { return false; };

TEST_SUITE("bench") {

TEST_CASE("passes: times of forward and backward, exactly, the first run left out") {
  Counted counted;
  const Passes passes =
      measure_passes(counted.subject, {}, {.runs = 4, .seconds = 0}, clock_of_test, never);
  CHECK(passes.forward == std::vector<double>{1, 2, 3, 4});
  CHECK(passes.backward == std::vector<double>{10, 10, 10, 10});
}

TEST_CASE("passes: runs until the least time has passed, the warm-up not counted") {
  Counted counted;  // 11 + 12 + 13 = 36 s, and 14 more
  const Passes passes =
      measure_passes(counted.subject, {}, {.runs = 3, .seconds = 37}, clock_of_test, never);
  CHECK(passes.forward.size() == 4);
}

TEST_CASE("passes: past the most time they stop, with one run at least") {
  Counted counted;  // the warm-up takes 110 s
  const Passes passes = measure_passes(
      counted.subject, {}, {.runs = 9, .seconds = 0, .most_seconds = 130}, clock_of_test, never);
  CHECK(passes.forward == std::vector<double>{1, 2});  // 110, 121, 133 s
  Counted slow;
  CHECK(measure_passes(slow.subject, {}, {.runs = 9, .seconds = 0, .most_seconds = 1},
                       clock_of_test, never)
            .forward.size() == 1);
}

TEST_CASE("passes: bytes saved and peak bytes above the inputs, exactly") {
  Counted counted;
  const Passes passes =
      measure_passes(counted.subject, {}, {.runs = 2, .seconds = 0}, clock_of_test, never);
  CHECK(passes.saved_bytes == 3 * unit);
  CHECK(passes.peak_bytes == 9 * unit);  // in forward: saved, workspace, output
}

TEST_CASE("passes: an interruption drops the measurement") {
  Counted counted;
  CHECK_THROWS_AS(measure_passes(counted.subject, {}, {.runs = 9, .seconds = 0}, clock_of_test,
                                 [&] { return counted.runs == 3; }),
                  Interrupted);
  CHECK(counted.runs == 3);
}

}  // TEST_SUITE("bench")

}  // namespace
