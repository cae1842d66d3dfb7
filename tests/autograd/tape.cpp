#include "autograd/tape.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <map>
#include <memory>
#include <thread>

#include "autograd/apply.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "ops/views/views.h"
#include "runtime/allocator.h"
#include "runtime/prepared.h"
#include "tests/bytes.h"
#include "tests/check.h"

namespace weft {
namespace {

using Values = std::vector<double>;

Values gradient(const Variable& x) { return x.gradient().to_vector<double>(); }

struct Watch {  // records which inputs want a gradient
  static constexpr const char* name = "watch";
  bool* wanted;
  struct Saved {};
  Tensor forward(Saved&, const Tensor& a, const Tensor&) const { return a; }
  std::array<Tensor, 2> backward(const Saved&, Wants wants, const Tensor& dout) const {
    wanted[0] = wants[0];
    wanted[1] = wants[1];
    return {dout, dout};
  }
};

struct Greedy {  // asks for more memory than there is, forward or backward
  static constexpr const char* name = "greedy";
  bool forward_too;
  struct Saved {};
  static Tensor all() { return Tensor::empty({i64{1} << 57}, DType::f64); }
  Tensor forward(Saved&, const Tensor& a, const Tensor&) const { return forward_too ? all() : a; }
  std::array<Tensor, 2> backward(const Saved&, const Tensor&) const { return {all(), all()}; }
};

struct Misshapen {  // gives the gradient of its first element alone
  static constexpr const char* name = "misshapen";
  struct Saved {};
  Tensor forward(Saved&, const Tensor& a) const { return a; }
  Tensor backward(const Saved&, const Tensor& dout) const { return dout.slice(0, 0, 1); }
};

TEST_SUITE("autograd") {

TEST_CASE("a parameter is converted once while a tape is alive") {
  const Tensor weight = Tensor::from(Values{1, 2, 3, 4}, {2, 2}).to(DType::f32).to(tested_device());
  const auto bytes = [](const Tensor& x) { return x.bytes(); };
  CHECK(bytes(compute_copy(weight, DType::f32)) == bytes(weight));
  const Tensor alone = compute_copy(weight, DType::bf16);
  CHECK(bytes(compute_copy(weight, DType::bf16)) != bytes(alone));
  {
    const Tape tape;
    const Tensor copy = compute_copy(weight, DType::bf16);
    CHECK(same_bits(copy, alone));
    CHECK(bytes(compute_copy(weight, DType::bf16)) == bytes(copy));
    CHECK(bytes(compute_copy(weight.clone(), DType::bf16)) != bytes(copy));
    const Tensor turned = compute_copy(weight.transpose(0, 1), DType::bf16);
    CHECK(same_bits(turned, alone.transpose(0, 1).packed()));
    const Tape inner;
    CHECK(bytes(compute_copy(weight, DType::bf16)) == bytes(copy));
    const Tape::Pause pause;
    CHECK(bytes(compute_copy(weight, DType::bf16)) != bytes(copy));
  }
  weight.fill(5);
  const Tape tape;
  CHECK(compute_copy(weight, DType::bf16).to(DType::f32).to_vector<float>() ==
        std::vector<float>(4, 5.0f));
}

TEST_CASE("when a tape has been walked, parameters may change while it is alive") {
  const Tensor weight = Tensor::full({2}, 1, DType::f32, tested_device());
  const auto copied = [&] {
    return compute_copy(weight, DType::bf16).to(DType::f64).to_vector<double>();
  };
  const Variable x = leaf({1});
  Tape first;
  CHECK(copied() == Values{1, 1});
  weight.fill(2);
  CHECK(copied() == Values{1, 1});
  first.backward(exp(x));
  CHECK(copied() == Values{2, 2});
  const Tape second;
  CHECK(copied() == Values{2, 2});
  weight.fill(3);
  CHECK(copied() == Values{2, 2});
  {
    const Tape inner;
    CHECK(copied() == Values{2, 2});
  }
}

TEST_CASE("compute copies are freed when the tape has been walked, or could not be") {
  const Tensor weight = random_normal({1 << 12}, DType::f32, 1);
  const Variable x = leaf({1}), y = leaf({2});
  for (const bool fails : {false, true}) {
    Tape tape;
    const Variable z = fails ? sum(apply(Greedy{false}, x, y)) : exp(x);
    const std::size_t before = allocator().counts().live;
    compute_copy(weight, DType::bf16);
    CHECK(allocator().counts().live > before);
    if (fails) {
      CHECK_ERROR(tape.backward(z), "in use in");
    } else {
      tape.backward(z);
    }
    CHECK(allocator().counts().live < before + (1 << 12));
  }
}

TEST_CASE("what a product prepares of a parameter used twice is kept until the tape ends") {
  const Tensor weight = random_normal({96, 96}, DType::f32, 1);
  const std::size_t before = allocator().counts().live;
  {
    const Tape tape;
    const Tensor copy = compute_copy(weight, DType::bf16), turned = copy.transpose(0, 1);
    const std::size_t layout = bytes_taken([&] { prepared(copy); });  // 0: as the copy lies
    CHECK((layout == 0 || layout >= copy.byte_count()));
    for (const Tensor& once : {copy, turned}) {
      CHECK(bytes_taken([&] { prepared(once); }) == layout);
    }
    CHECK(allocator().counts().live < before + copy.byte_count() * 3 / 2);
    const Tape inner;
    CHECK(compute_copy(weight, DType::bf16).bytes() == copy.bytes());
    for (const Tensor& twice : {copy, turned}) {
      CHECK(bytes_taken([&] { prepared(twice); }) == layout);
      CHECK(bytes_taken([&] { prepared(twice); }) == 0);
    }
    CHECK(bytes_taken([&] { prepared(copy.slice(1, 0, 64)); }) <= layout);
    const Tensor clone = copy.clone();
    CHECK(bytes_taken([&] { prepared(clone); }) == layout);
  }
  CHECK(allocator().counts().live == before);
}

TEST_CASE("gradients of several uses add up") {
  const Variable x = leaf({1, -2, 3});
  Tape tape;
  tape.backward(sum(add(mul(x, x), scale(x, 5))));  // Σ x² + 5x
  CHECK(gradient(x) == Values{7, 1, 11});
}

TEST_CASE("one variable as both inputs") {
  const Variable x = leaf({2, -3});
  {
    Tape tape;
    tape.backward(sum(add(x, x)));
  }
  CHECK(gradient(x) == Values{2, 2});
  x.place()->clear();
  Tape tape;
  tape.backward(sum(mul(x, x)));
  CHECK(gradient(x) == Values{4, -6});
}

TEST_CASE("gradients gather over tapes until they are cleared") {
  const Variable x = leaf({1, 2});
  for (int step = 1; step <= 3; ++step) {
    Tape tape;
    tape.backward(sum(scale(x, 2)));
    CHECK(gradient(x) == Values{2.0 * step, 2.0 * step});
  }
  CHECK(x.place()->take().defined());
  CHECK_FALSE(x.gradient().defined());
}

TEST_CASE("what gathers in one place never changes another") {
  const Variable x = leaf({1, 2}), y = leaf({3, 4});
  const Tensor start = Tensor::from(Values{1, 10}, {2});
  Tape tape;
  const Variable z = add(x, y);  // returns one tensor for both inputs
  tape.backward(std::vector{add(z, x)}, std::vector{start});
  CHECK(gradient(x) == Values{2, 20});
  CHECK(gradient(y) == Values{1, 10});
  CHECK(start.to_vector<double>() == Values{1, 10});
}

TEST_CASE("without a tape, or in a pause, nothing is recorded") {
  const Variable x = leaf({1, 2});
  CHECK(Tape::current() == nullptr);
  CHECK_FALSE(exp(x).wants_gradient());
  Tape tape;
  CHECK(Tape::current() == &tape);
  {
    const Tape::Pause pause;
    CHECK(Tape::current() == nullptr);
    CHECK_FALSE(exp(x).wants_gradient());
  }
  CHECK(tape.size() == 0);
  const Variable constant(x.value());
  CHECK_FALSE(exp(constant).wants_gradient());
  CHECK_FALSE(exp(x.detached()).wants_gradient());
  CHECK(tape.size() == 0);
  CHECK(exp(x).wants_gradient());
  CHECK(tape.size() == 1);
}

TEST_CASE("tapes nest") {
  const Variable x = leaf({3});
  Tape outer;
  const Variable y = scale(x, 2);
  {
    const Variable inside = Variable::leaf(y.value());
    Tape inner;
    inner.backward(mul(inside, inside));
    CHECK(gradient(inside) == Values{12});
  }
  CHECK(Tape::current() == &outer);
  outer.backward(y);
  CHECK(gradient(x) == Values{2});
}

TEST_CASE("tapes and pauses end in any order") {
  const Variable x = leaf({1, 2});
  auto tape = std::make_unique<Tape>();
  for (int step = 0; step < 3; ++step) {  // each tape begins before the one before it ends
    x.place()->clear();
    tape = std::make_unique<Tape>();
    CHECK(Tape::current() == tape.get());
    tape->backward(sum(mul(x, x)));
    CHECK(gradient(x) == Values{2, 4});
  }
  auto pause = std::make_unique<Tape::Pause>();
  auto inner = std::make_unique<Tape>();
  pause.reset();
  CHECK(Tape::current() == inner.get());
  inner.reset();
  CHECK(Tape::current() == tape.get());
  pause = std::make_unique<Tape::Pause>();
  tape.reset();
  CHECK(Tape::current() == nullptr);
  pause.reset();
  CHECK(Tape::current() == nullptr);
}

TEST_CASE("a loss of another tape is refused, and changes nothing") {
  const Variable x = leaf({1, 2});
  Variable dead;
  {
    const Tape tape;
    dead = sum(mul(x, x));
  }
  Tape outer;
  const Variable loss = sum(mul(x, x));
  {
    Tape inner;
    CHECK_ERROR(inner.backward(loss), "for a value [] that another tape recorded");
    Tape other;
    CHECK_ERROR(other.backward(dead), "that another tape recorded");
  }
  CHECK_FALSE(loss.gradient().defined());
  outer.backward(loss);
  CHECK(gradient(x) == Values{2, 4});
}

TEST_CASE("a gradient that does not fit its value is refused, with the op") {
  const Variable x = leaf({1, 2});
  {
    Tape tape;
    const Variable y = apply(Misshapen{}, x);
    CHECK_ERROR(tape.backward(sum(y)),
                "misshapen: a gradient is [1] of f64 on cpu, but its value [2] of f64 on cpu");
  }
  CHECK_FALSE(x.gradient().defined());
  CHECK_ERROR(x.place()->accumulate(Tensor::zeros({2}, DType::f32)), "gradient: a gradient is [2]");
}

TEST_CASE("a constant beside a variable gets no gradient and costs none") {
  bool wanted[2] = {false, true};
  const Variable x = leaf({1}), constant(Tensor::full({1}, 2, DType::f64));
  Tape tape;
  tape.backward(apply(Watch{wanted}, x, constant));
  CHECK(wanted[0]);
  CHECK_FALSE(wanted[1]);
  CHECK_FALSE(constant.gradient().defined());
}

TEST_CASE("a second backward, and an op after backward, say what to do") {
  const Variable x = leaf({1});
  Tape tape;
  const Variable y = exp(x);
  tape.backward(y);
  CHECK_ERROR(tape.backward(y), "called a second time");
  CHECK_ERROR(tape.backward(y), "record the step again on a new Tape");
  CHECK_ERROR(exp(x), "exp was applied after backward");
}

TEST_CASE("tape: it is walked and ends on its own thread") {
  auto tape = std::make_unique<Tape>();
  const Variable x = leaf({2});
  const Variable y = mul(x, x);
  std::thread([&] {
    CHECK_ERROR(tape->backward(y), "on another thread than the tape began on");
  }).join();
  tape->backward(y);
  CHECK(gradient(x) == Values{4});
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGABRT, SIG_DFL);
    close(STDERR_FILENO);
    std::thread([&] { tape.reset(); }).join();
    _exit(0);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGABRT);
}

TEST_CASE("a loss that cannot be walked from says why") {
  const Variable x = leaf({1, 2});
  {
    Tape tape;
    CHECK_ERROR(tape.backward(exp(x)), "the loss is [2], not one number");
  }
  {
    Tape tape;
    CHECK_ERROR(tape.backward(sum(exp(x.detached()))),
                "depends on nothing that requires a gradient");
  }
  Tape tape;
  CHECK_ERROR(tape.backward(exp(x), Tensor::full({3}, 1, DType::f64)),
              "tape: a gradient is [3] of f64 on cpu, but its value [2] of f64 on cpu");
  const std::vector<Variable> values{x};
  const auto walked = [&](const std::vector<Tensor>& gradients) {
    Tape other;
    other.backward(values, gradients);
  };
  CHECK_ERROR(walked({}), "0 gradients were given for 1 values");
  CHECK_ERROR(walked({Tensor::full({2}, 1, DType::f32)}),
              "is [2] of f32 on cpu, but its value [2] of f64");
  CHECK_ERROR(walked({Tensor()}), "no gradient was given for the value [2]");
}

TEST_CASE("what a device cannot do is said with the op and its shapes") {
  const Variable x = leaf({1, 2}), y = leaf({1, 2, 3});
  CHECK_ERROR(apply(Greedy{true}, x, y), "in use in");
  CHECK_ERROR(apply(Greedy{true}, x, y), "; in greedy: [2], [3]");
  Tape tape;
  const Variable z = sum(apply(Greedy{false}, x, y));
  CHECK_ERROR(tape.backward(z), "; in backward of greedy: [2]");
}

TEST_CASE("an output that nobody uses counts as zero") {
  const Variable x = leaf({1, 2, 3, 4, 5});
  Tape tape;
  const std::vector<Variable> parts = split(x, 0, {2, 2, 1});
  tape.backward(sum(mul(parts[1], parts[1])));
  CHECK(gradient(x) == Values{0, 0, 6, 8, 0});
}

TEST_CASE("an op off the path to the loss is passed over") {
  const Variable x = leaf({1, 2}), unused = leaf({3});
  Tape tape;
  const Variable aside = exp(unused);
  tape.backward(sum(x));
  CHECK(gradient(x) == Values{1, 1});
  CHECK_FALSE(unused.gradient().defined());
}

TEST_CASE("backward from several values at once") {
  const Variable x = leaf({1, 2});
  Tape tape;
  const Variable y = scale(x, 3), z = mul(x, x);
  tape.backward(std::vector{y, z}, std::vector{Tensor::from(Values{1, 10}, {2}),
                                               Tensor::from(Values{100, 1000}, {2})});
  CHECK(gradient(x) == Values{3 + 200, 30 + 4000});
}

TEST_CASE("each place is announced once, when its gradient is complete") {
  const Variable x = leaf({1, 2}), y = leaf({3, 4}), idle = leaf({5, 6});
  std::map<Gradient*, int> announced;
  std::map<Gradient*, Values> seen;
  const auto watch = [&](Gradient& place) {
    ++announced[&place];
    if (place.sum().defined()) seen[&place] = place.sum().to_vector<double>();
  };
  for (int step = 0; step < 2; ++step) {  // the counts restart with each tape
    announced.clear();
    for (const Variable& v : {x, y, idle}) v.place()->clear();
    Tape tape;
    tape.on_complete(watch);
    const Variable twice = mul(x, x);
    const Variable aside = exp(idle);
    const Variable loss = sum(add(add(twice, mul(x, y)), scale(x, 7)));
    tape.backward(loss);
    for (const Variable& v : {x, y, idle}) CHECK(announced[v.place().get()] == 1);
    CHECK(seen[x.place().get()] == gradient(x));
    CHECK(gradient(x) == Values{2 + 3 + 7, 4 + 4 + 7});
    CHECK(seen[y.place().get()] == Values{1, 2});
    CHECK(seen.count(idle.place().get()) == 0);
  }
}

TEST_CASE("a tape that is dropped leaves no uses behind") {
  const Variable x = leaf({1, 2});
  {
    const Tape dropped;
    const Variable y = exp(mul(x, x));
  }
  int announced = 0;
  Tape tape;
  tape.on_complete([&](Gradient& place) { announced += &place == x.place().get(); });
  tape.backward(sum(x));
  CHECK(announced == 1);
}

// A backward that fails.
struct Failing {
  static constexpr const char* name = "failing";
  struct Saved {};
  Tensor forward(Saved&, const Tensor& x) const { return x.clone(); }
  Tensor backward(const Saved&, const Tensor&) const { fail("failing: as it should"); }
};

TEST_CASE("a backward that throws leaves no uses behind") {
  const Variable x = leaf({1, 2});
  {
    Tape tape;
    const Variable loss = sum(apply(Failing{}, mul(x, x)));
    CHECK_THROWS_AS(tape.backward(loss), Error);
  }
  x.place()->clear();
  int announced = 0;
  Tape tape;
  tape.on_complete([&](Gradient& place) { announced += &place == x.place().get(); });
  tape.backward(sum(x));
  CHECK(announced == 1);
}

TEST_CASE("backward frees what it has used") {
  const std::size_t before = allocator().counts().live;
  {
    const Variable x = Variable::leaf(random_normal({1000}, DType::f64, 1));
    const std::size_t leaf_only = allocator().counts().live;
    Tape tape;
    Variable y = x;
    for (int i = 0; i < 10; ++i) y = silu(y);
    const Variable loss = sum(y);
    y = {};
    CHECK(allocator().counts().live >= leaf_only + 9 * 8000);
    tape.backward(loss);
    CHECK(tape.size() == 0);
    CHECK(allocator().counts().live <= leaf_only + 2 * 8000);  // the gradient of x, and the loss
  }
  CHECK(allocator().counts().live == before);
}

// Nothing but the tape's own work.
struct Same {
  static constexpr const char* name = "same";
  struct Saved {};
  Tensor forward(Saved&, const Tensor& x) const { return x; }
  Tensor backward(const Saved&, const Tensor& dout) const { return dout; }
};

Variable long_chain(const Variable& x) {
  Variable y = x;
  for (int i = 0; i < 1000000; ++i) y = apply(Same{}, y);
  return y;
}

TEST_CASE("a tape of a million nodes is walked") {
  const Variable x = leaf({3});
  Tape tape;
  const Variable y = long_chain(x);
  CHECK(tape.size() == 1000000);
  tape.backward(scale(y, 2));
  CHECK(gradient(x) == Values{2});
}

TEST_CASE("a tape of a million nodes dies without a walk") {
  const Variable x = leaf({3});
  Variable y;
  {
    const Tape tape;
    y = long_chain(x);
    CHECK(tape.size() == 1000000);
  }
  CHECK(y.wants_gradient());
  CHECK_FALSE(x.gradient().defined());
}

}  // TEST_SUITE("autograd")
}  // namespace
}  // namespace weft
