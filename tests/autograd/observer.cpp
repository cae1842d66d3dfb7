#include "autograd/observer.h"

#include <array>
#include <memory>

#include "autograd/recompute.h"
#include "autograd/tape.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "runtime/error.h"
#include "tests/check.h"

namespace weft {
namespace {

// Records what it sees, and throws at the op named.
struct Notes final : Observer {
  std::vector<std::string> all = {};
  std::string stop = {};

  void made(const char* op, std::span<const Variable> inputs,
            std::span<const Tensor> values) override {
    require(stop != op, "stopped at {}", op);
    all.push_back(fmt::format("{} of {}: {}", op, inputs.size(), values[0].item()));
  }
  void gathered(const char* op, std::size_t input, const Gradient& place) override {
    all.push_back(fmt::format("{} to {}: {}", op, input, place.sum().item()));
  }
};

TEST_SUITE("autograd") {

TEST_CASE("observer: every value as it is made, every gradient after each addition") {
  const Variable x = leaf({3});
  Notes notes;
  CHECK(Observer::current() == &notes);
  {
    Tape tape;
    tape.backward(scale(mul(x, x), 5));
  }
  CHECK(notes.all == std::vector<std::string>{"mul of 2: 9", "scale of 1: 45", "scale to 0: 5",
                                              "mul to 0: 15", "mul to 1: 30"});
  notes.all.clear();
  scale(x, 2);  // what no tape records is seen, too
  CHECK(notes.all == std::vector<std::string>{"scale of 1: 6"});
}

TEST_CASE("observer: what is recomputed is seen again, op by op") {
  const Variable x = leaf({2});
  const auto twice = [](std::span<const Variable> in) { return std::vector{scale(in[0], 2)}; };
  Notes notes;
  Tape tape;
  tape.backward(recompute(twice, std::array{x})[0]);
  CHECK(notes.all == std::vector<std::string>{"scale of 1: 4", "scale of 1: 4", "scale to 0: 2",
                                              "recompute to 0: 2"});
}

TEST_CASE("observer: the last one sees, until it goes") {
  const Variable x = leaf({1});
  Notes outer;
  {
    Notes inner;
    exp(leaf({0}));
    CHECK(inner.all.size() == 1);
    CHECK(outer.all.empty());
  }
  CHECK(Observer::current() == &outer);
  exp(x);
  CHECK(outer.all.size() == 1);
}

TEST_CASE("observer: the one that is left sees, whichever goes first") {
  auto first = std::make_unique<Notes>(), second = std::make_unique<Notes>();
  first.reset();
  CHECK(Observer::current() == second.get());
  exp(leaf({0}));
  CHECK(second->all.size() == 1);
  second.reset();
  CHECK(Observer::current() == nullptr);
}

TEST_CASE("observer: one that throws leaves no uses behind") {
  const Variable x = leaf({1});
  {
    Notes notes;
    notes.stop = "exp";
    const Tape tape;
    CHECK_ERROR(exp(scale(x, 2)), "stopped at exp");
  }
  CHECK(Observer::current() == nullptr);
  int announced = 0;
  Tape tape;
  tape.on_complete([&](Gradient& place) { announced += &place == x.place().get(); });
  tape.backward(sum(x));
  CHECK(announced == 1);
}

}  // TEST_SUITE("autograd")

}  // namespace
}  // namespace weft
