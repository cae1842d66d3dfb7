#include "nn/gradient_sum.h"

#include <atomic>
#include <chrono>
#include <cmath>

#include "ops/linear/linear.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "runtime/allocator.h"
#include "tests/nn/checks.h"
#include "tests/thread_ranks.h"

using namespace weft;

namespace {

constexpr i64 examples = 12, in = 7, hidden = 33, out = 5;

// Two maps and a parameter that nothing uses.
struct Maps {
  Parameter first, idle, second;

  explicit Maps(DType dtype)
      : first({in, hidden}, {}, dtype), idle({3}, {}, dtype), second({hidden, out}, {}, dtype) {
    randomise(*this, 3);
  }
  void each(const auto& visit) {
    visit("first", first), visit("idle", idle), visit("second", second);
  }

  // The mean loss over these rows; `between` stands between the maps.
  Variable loss(const Tensor& x, const std::function<Variable(const Variable&)>& between) const {
    const Variable y = linear(between(tanh(linear(x, first))), second);
    return mean(mul(y, y));
  }
  Variable loss(const Tensor& x) const {
    return loss(x, [](const Variable& h) { return h; });
  }
};

// Rows of very different size: their sum shows its order.
Tensor batch_of(DType dtype) {
  const Tensor x = random_normal({examples, in}, DType::f64, 8);
  for (i64 i = 0; i < x.count(); ++i) x.data<double>()[i] *= std::pow(10, i / in % 4 - 2);
  return x.to(dtype).to(tested_device());
}

// The gradients and the sum of the shards' losses, with buckets of a few parameters each.
std::vector<Tensor> summed(DType dtype, i64 shards, Communicator& ranks) {
  Maps maps(dtype);
  const Tensor batch = batch_of(dtype);
  const GradientSum::BucketBytes bytes{.first = 300, .others = 1200};
  GradientSum sum(parameters(maps), shards, 1, ranks, bytes);
  const i64 rows = examples / shards;
  for (i64 i = 0; i < sum.count(); ++i) {
    const i64 shard = sum.first() + i;
    Tape tape;
    const Variable loss = maps.loss(batch.slice(0, shard * rows, (shard + 1) * rows));
    sum.add(tape, loss, loss.value().reshape({1}).to(DType::f64));
  }
  const Tensor losses = sum.finish().clone();
  return {maps.first.variable.gradient().clone(), maps.second.variable.gradient().clone(), losses,
          maps.idle.variable.gradient()};
}

std::vector<Tensor> on_one(DType dtype, i64 shards) {
  std::vector<Tensor> found;
  on_ranks(1, [&](ThreadRank& rank) { found = summed(dtype, shards, rank); });
  return found;
}

// Whether ranks that are threads can sum on the tested device: NCCL wants processes.
bool ranks_exchange() { return tested_device() == Device{} || tested_is_emulated(); }

TEST_SUITE("nn") {

TEST_CASE("gradient sum: shards have the gradient of the whole batch") {
  Maps maps(DType::f64);
  Tape tape;
  const Variable loss = maps.loss(batch_of(DType::f64));
  tape.backward(loss);
  for (const i64 shards : {1, 2, 3, 4, 6, 12}) {
    const std::vector<Tensor> found = on_one(DType::f64, shards);
    CHECK(relative_error(found[0], maps.first.variable.gradient()) < 1e-13);
    CHECK(relative_error(found[1], maps.second.variable.gradient()) < 1e-13);
    CHECK(found[2].item() / static_cast<double>(shards) ==
          doctest::Approx(loss.value().item()).epsilon(1e-13));
    CHECK(!found[3].defined());
  }
}

TEST_CASE("gradient sum: the same bits on any number of ranks that divides the shards") {
  if (!ranks_exchange()) return;
  for (const DType dtype : {DType::f32, DType::f64}) {
    for (const i64 shards : {2, 3, 4, 6, 12}) {
      const std::vector<Tensor> one = on_one(dtype, shards);
      for (int size = 2; size <= shards; ++size) {
        if (shards % size != 0) continue;
        CAPTURE(shards);
        CAPTURE(size);
        std::vector<std::vector<Tensor>> found(static_cast<std::size_t>(size));
        on_ranks(size, [&](ThreadRank& rank) {
          found[static_cast<std::size_t>(rank.rank())] = summed(dtype, shards, rank);
        });
        for (const std::vector<Tensor>& of_rank : found) {
          for (std::size_t i = 0; i < 3; ++i) CHECK(same_bits(of_rank[i], one[i]));
          CHECK(!of_rank[3].defined());
        }
      }
    }
  }
}

TEST_CASE("gradient sum: alone, nothing of a step is kept beside the gradients") {
  Maps maps(DType::f32);
  const Tensor batch = batch_of(DType::f32);
  GradientSum sum(parameters(maps), 2, 0, ranks());
  const auto live = [] { return allocator(tested_device()).counts().live; };
  const std::size_t before = live();
  for (i64 i = 0; i < 2; ++i) {
    Tape tape;
    sum.add(tape, maps.loss(batch.slice(0, 6 * i, 6 * i + 6)), {});
  }
  sum.finish();
  CHECK(live() >= before + sizeof(float) * (in + out) * hidden);
  zero_gradients(maps);
  CHECK(live() == before);
}

TEST_CASE("gradient sum: the tree is that of its page") {
  struct Term {
    std::string text;
  };
  const auto add = [](Term& a, const Term& b) { a.text = "(" + a.text + "+" + b.text + ")"; };
  const auto tree = [&](i64 shards) {
    std::vector<TreeNode<Term>> nodes;
    for (i64 s = 0; s < shards; ++s) add_node(nodes, {s, 1, {std::to_string(s)}}, add);
    add_rest(nodes, add);
    return nodes.front().sum.text;
  };
  CHECK(tree(1) == "0");
  CHECK(tree(4) == "((0+1)+(2+3))");
  CHECK(tree(6) == "(((0+1)+(2+3))+(4+5))");
  CHECK(tree(7) == "(((0+1)+(2+3))+((4+5)+6))");
}

struct Waits {
  static constexpr const char* name = "waits";
  std::function<void()> wait;
  struct Saved {};
  Tensor forward(Saved&, const Tensor& x) const { return x.clone(); }
  std::vector<Tensor> backward(const Saved&, const Tensor& dy) const {
    wait();
    return {dy};
  }
};

TEST_CASE("gradient sum: a bucket is exchanged while backward goes on") {
  if (!ranks_exchange()) return;
  std::atomic<int> exchanges = 0, waited = 0;
  on_ranks(2, [&](ThreadRank& rank) {
    rank.exchanging = [&] { ++exchanges; };
    Maps maps(DType::f32);
    GradientSum sum(parameters(maps), 2, 0, rank, {.first = 1, .others = 1});
    Tape tape;
    // Between the gradient of the second map, whose bucket is complete, and that of the first.
    const auto between = [&](const Variable& h) {
      return apply(Waits{[&] {
                     const auto begin = std::chrono::steady_clock::now();
                     while (exchanges < 4 &&  // two of each rank: parts, and sums
                            std::chrono::steady_clock::now() - begin < std::chrono::seconds(20)) {
                       std::this_thread::yield();
                     }
                     waited += exchanges >= 4;
                   }},
                   h);
    };
    sum.add(tape, maps.loss(batch_of(DType::f32), between), {});
    sum.finish();
  });
  CHECK(waited == 2);
  // Three parameters and the numbers; on a device the ranks then say which have a gradient.
  CHECK(exchanges == 2 * 2 * (tested_device() == Device{} ? 4 : 5));
}

TEST_CASE("gradient sum: the numbers are exchanged with those of the last shard") {
  if (!ranks_exchange()) return;
  on_ranks(2, [&](ThreadRank& rank) {
    Maps maps(DType::f32);
    std::vector<NamedParameter> used = parameters(maps);
    used.erase(used.begin() + 1);  // else a bucket waits for the end of backward
    GradientSum sum(used, 4, 1, rank);
    for (i64 i = 0; i < sum.count(); ++i) {
      Tape tape;
      // The last op of backward: by then the exchange of all gradients has begun.
      const auto pause = [] { std::this_thread::sleep_for(std::chrono::milliseconds(50)); };
      const Variable x = apply(Waits{pause}, Variable::leaf(batch_of(DType::f32)));
      const Variable y = linear(tanh(linear(x, maps.first)), maps.second);
      sum.add(tape, mean(y), Tensor::full({1}, 1, DType::f64, tested_device()));
    }
    CHECK(sum.finish().item() == 4);
  });
}

TEST_CASE("gradient sum: an exchange that fails ends the step") {
  if (!ranks_exchange()) return;
  on_ranks(2, [&](ThreadRank& rank) {
    rank.exchanging = [] { fail("rank 7 does not answer"); };
    Maps maps(DType::f32);
    GradientSum sum(parameters(maps), 2, 0, rank);
    Tape tape;
    sum.add(tape, maps.loss(batch_of(DType::f32)), {});
    CHECK_THROWS_WITH_AS(sum.finish(), "rank 7 does not answer", Error);
  });
}

TEST_CASE("gradient sum: refuses shards that the ranks do not divide") {
  if (tested_device() != Device{}) return;
  on_ranks(2, [&](ThreadRank& rank) {
    Maps maps(DType::f32);
    CHECK_THROWS_WITH_AS(GradientSum(parameters(maps), 3, 0, rank),
                         "gradient sum: 2 ranks do not divide 3 shards", Error);
  });
}

TEST_CASE("gradient sum: names what is not finite in the own part") {
  if (!ranks_exchange()) return;
  on_ranks(2, [&](ThreadRank& rank) {
    Maps maps(DType::f32);
    GradientSum sum(parameters(maps), 2, 1, rank);
    Tape tape;
    const Tensor batch = batch_of(DType::f32);
    const double factor = rank.rank() == 1 ? std::numeric_limits<double>::infinity() : 1;
    const auto between = [&](const Variable& h) { return scale(h, factor); };
    const Variable loss = maps.loss(batch, between);
    sum.add(tape, loss, loss.value().reshape({1}).to(DType::f64));
    sum.finish();
    CHECK(sum.not_finite().empty() == (rank.rank() == 0));
    CHECK(sum.finite_number(0) == (rank.rank() == 0));
  });
}

TEST_CASE("gradient sum: on devices a gradient that comes and goes is refused") {
  if (!ranks_exchange() || tested_device() == Device{}) return;
  on_ranks(2, [&](ThreadRank& rank) {
    Maps maps(DType::f32);
    GradientSum sum(parameters(maps), 2, 0, rank);
    const auto step = [&](bool with_idle) {
      for (const NamedParameter& p : parameters(maps)) p.variable.place()->clear();
      Tape tape;
      const Variable loss = maps.loss(batch_of(DType::f32));
      sum.add(tape, with_idle ? add(loss, mean(maps.idle)) : loss, {});
      sum.finish();
      return maps.idle.variable.gradient().defined();
    };
    // That of rank 1 alone stands on both.
    for (int i = 0; i < 2; ++i) CHECK(step(rank.rank() == 1));
    CHECK_THROWS_WITH_AS(step(rank.rank() == 0),
                         "gradient sum: idle has a gradient in some steps only; several ranks with "
                         "a device each want it in all steps or in none",
                         Error);
  });
}

}  // TEST_SUITE("nn")
}  // namespace
