// The derivatives and the kernel of every registered mechanism.
#include <algorithm>

#include "runtime/arithmetic.h"
#include "tests/attention/run_attention.h"
#include "tests/attention/sample.h"
#include "tests/threads.h"

namespace weft {
namespace {

TEST_SUITE("attention") {

TEST_CASE("every mechanism: gradients against central differences") {
  if (few_on_device()) return;  // the next case compares them with the definition's
  const ThreadsOf one(1);
  // Odd, unequal and length-1 sizes; self-attention and, where N ≠ S, cross-attention.
  const AttentionSizes all[] = {{.B = 4, .N = 5, .S = 5, .H = 3, .E = 2, .M = 5},
                                {.B = 4, .N = 3, .S = 7, .H = 2, .E = 3, .M = 1},
                                {.B = 2, .N = 6, .S = 1, .H = 1, .E = 1, .M = 3},
                                {.B = 1, .N = 1, .S = 1, .H = 1, .E = 1, .M = 1},
                                {.B = 2, .N = 1, .S = 1, .H = 5, .E = 4, .M = 9}};
  for (const AttentionSizes& sizes : all) {
    for (const Sample& sample : samples(sizes, DType::f64)) {
      CAPTURE(sample.text);
      // The same total for a block with some twenty inputs as for a mechanism with six.
      const i64 elements = 240 / std::max<i64>(6, std::ssize(sample.inputs));
      CHECK_GRADIENTS(sample.decided().attend(), sample.inputs, 3, 1e-6, elements);
    }
  }
}

TEST_CASE("every mechanism: the kernel is the definition") {
  const ThreadsOf one(1);
  const std::vector<AttentionSizes> all{{.B = 4, .N = 5, .S = 5, .H = 3, .E = 2, .M = 5},
                                        {.B = 4, .N = 130, .S = 130, .H = 3, .E = 6, .M = 35},
                                        {.B = 1, .N = 270, .S = 270, .H = 2, .E = 9, .M = 7},
                                        {.B = 2, .N = 70, .S = 135, .H = 4, .E = 5, .M = 8}};
  const std::vector<AttentionSizes> shorter{{.B = 4, .N = 5, .S = 5, .H = 2, .E = 2, .M = 5},
                                            {.B = 4, .N = 3, .S = 7, .H = 2, .E = 3, .M = 1},
                                            {.B = 4, .N = 66, .S = 66, .H = 2, .E = 6, .M = 35},
                                            {.B = 1, .N = 140, .S = 140, .H = 2, .E = 9, .M = 7},
                                            {.B = 1, .N = 70, .S = 135, .H = 2, .E = 5, .M = 8}};
  for (const AttentionSizes& sizes : few_wanted() ? shorter : all) {
    for (const Sample& sample : samples(with_few_heads(sizes), DType::f64)) {
      CAPTURE(sample.text);
      check_close(sample.run(), sample.defined());
    }
  }
}

TEST_CASE("every mechanism: what it decided, handed in, changes nothing" * not_sanitized()) {
  const ThreadsOf one(1);
  const AttentionSizes all[] = {{.B = 4, .N = 40, .S = 40, .H = 2, .E = 5, .M = 6},
                                {.B = 1, .N = 7, .S = 30, .H = 3, .E = 4, .M = 3}};
  for (const AttentionSizes& sizes : all) {
    for (const DType type : {DType::f32, DType::f64}) {
      if (few_on_device() && (type == DType::f64) != (sizes.N == sizes.S)) continue;
      for (const Sample& sample : samples(sizes, type)) {
        if (sample.mechanism().choices.empty()) continue;
        CAPTURE(sample.text);
        check_same_bits(sample.decided().run(), sample.run());
      }
    }
  }
}

// The condition of f: how many times as far its outputs move, relatively, if each element of its
// inputs moves by a relative 2⁻²⁴, up or down: a rounding to f32.
double condition(const Differentiable& f, const std::vector<Tensor>& inputs, const Run& at) {
  constexpr double rounding = 0x1p-24;
  std::vector<Tensor> moved;
  for (const Tensor& x : inputs) {
    const std::uint64_t seed = 72 + moved.size();
    moved.push_back(x.dtype() == DType::f64 ? moved_by(rounding, x, seed) : x);
  }
  return relative_error(run(f, moved).outputs[0], at.outputs[0]) / rounding;
}

TEST_CASE("every mechanism: f32 against f64" * not_sanitized()) {
  const ThreadsOf one(1);
  const std::vector<AttentionSizes> all{{.B = 4, .N = 131, .S = 131, .H = 3, .E = 8, .M = 16},
                                        {.B = 4, .N = 131, .S = 131, .H = 2, .E = 8, .M = 8},
                                        {.B = 1, .N = 300, .S = 67, .H = 2, .E = 8, .M = 8},
                                        {.B = 1, .N = 67, .S = 300, .H = 8, .E = 5, .M = 3}};
  const std::vector<AttentionSizes> shorter{{.B = 4, .N = 70, .S = 70, .H = 2, .E = 8, .M = 16},
                                            {.B = 1, .N = 140, .S = 67, .H = 2, .E = 8, .M = 8},
                                            {.B = 1, .N = 67, .S = 140, .H = 2, .E = 5, .M = 3}};
  for (const AttentionSizes& sizes : few_wanted() ? shorter : all) {
    if (fewest_on_device() && sizes.N != sizes.S) continue;
    for (const Sample& sample : samples(with_few_heads(sizes), DType::f32)) {
      CAPTURE(sample.text);
      Sample wide = sample.decided();
      for (auto& [name, choice] : wide.call.given) {
        if (choice.dtype() == DType::f32) choice = choice.to(DType::f64);
      }
      // In f64 on the CPU: the emulated device is slow, and another case covers its kernels in f64.
      const Device where = few_on_device() ? Device{} : tested_device();
      const Run got = sample.run();
      const Run wanted = run(wide.attend(), in_f64(sample.inputs), 17, where);
      CHECK(got.outputs[0].dtype() == DType::f32);
      // Exponentials amplify the roundings of sums: linformer's 300 positions are summed into
      // scores. No kernel in f32 can be more accurate than the condition of the function allows.
      double forward = tolerance::forward_f32;
      if (relative_error(got.outputs[0], wanted.outputs[0]) > forward) {
        forward *= std::max(1.0, condition(wide.attend(), in_f64(sample.inputs), wanted));
      }
      // Gradients that nearly cancel, as those of a table whose row most distances share, are as
      // inexact in plain ops.
      check_close(got, wanted, forward, tolerance::backward_f32,
                  [&] { return run(wide.reference(), sample.inputs, 17, Device{}); });
    }
  }
}

TEST_CASE("every mechanism: the definition takes inputs of any type") {
  if (few_on_device()) return;  // it runs on the CPU
  for (const Sample& sample :
       samples({.B = 4, .N = 6, .S = 6, .H = 2, .E = 4, .M = 4}, DType::f32)) {
    CAPTURE(sample.text);
    CHECK(sample.defined().outputs[0].dtype() == DType::f32);
    const Sample narrow = sample.with(sample.stored_in(DType::bf16));
    CHECK(narrow.defined().outputs[0].dtype() == DType::bf16);
  }
}

// "f32 against f64" bounds the error of f32, and rounding adds 2⁻⁸ of a number at most. Where
// kernels take bf16 as it is stored, weights and their gradients are rounded, too: independent
// errors, which in the norm are less than those 2⁻⁸, or twice that. "pairs: bf16 is f64 …" bounds
// elements. The divisors of scans may be small, and their gradients are differences of numbers of
// that size: "scan: bf16 is f64 …" bounds them.
TEST_CASE("every mechanism: bf16 is f32 of the same numbers, rounded once") {
  const ThreadsOf one(1);
  for (const Sample& sample :
       samples(with_few_heads({.B = 2, .N = 67, .S = 67, .H = 2, .E = 4, .M = 4}), DType::f32)) {
    CAPTURE(sample.text);
    const std::vector<Tensor> narrow = sample.stored_in(DType::bf16);
    std::vector<Tensor> wide = narrow;
    for (std::size_t i = 0; i < wide.size(); ++i) {
      if (wide[i].defined()) wide[i] = wide[i].to(sample.inputs[i].dtype());
    }
    const Run got = run(sample.attend(), narrow, 17, tested_device(), DType::bf16);
    const Run wanted = run(sample.attend(), wide, 17, tested_device(), DType::bf16);
    const std::string& mechanism = sample.mechanism().name;
    const bool scan = mechanism == "linear" || mechanism == "cosformer" || mechanism == "performer";
    if (sample.mechanism().takes_bf16) {
      CHECK(got.outputs[0].dtype() == DType::bf16);
      CHECK(relative_error(got.outputs[0], wanted.outputs[0]) <= tolerance::half_unit_bf16);
      for (std::size_t i = 0; i < narrow.size(); ++i) {
        REQUIRE(got.gradients[i].defined() == wanted.gradients[i].defined());
        if (!got.gradients[i].defined()) continue;
        CHECK(got.gradients[i].dtype() == narrow[i].dtype());
        if (scan) continue;
        CHECK(relative_error(got.gradients[i], wanted.gradients[i]) <=
              2 * tolerance::half_unit_bf16);
      }
      continue;
    }
    CHECK(same_bits(got.outputs[0], wanted.outputs[0].to(DType::bf16)));
    for (std::size_t i = 0; i < narrow.size(); ++i) {
      REQUIRE(got.gradients[i].defined() == wanted.gradients[i].defined());
      if (!got.gradients[i].defined()) continue;
      CHECK(same_bits(got.gradients[i], wanted.gradients[i].to(narrow[i].dtype())));
    }
  }
}

// Columns of a wider tensor, as a projection returns them: rows are contiguous, and far apart.
Tensor column_range(const Tensor& x) {
  Shape wide = x.shape();
  wide[x.rank() - 1] = 2 * wide.back() + 3;
  const Tensor whole = random_normal(wide, DType::f64, 98).to(x.dtype()).to(tested_device());
  const Tensor view = whole.slice(-1, 2, 2 + x.size(-1));
  view.copy_from(x);
  return view;
}

// [B, H, N, E] in memory.
Tensor heads_first(const Tensor& x) {
  const Tensor moved = x.to(tested_device());
  return x.rank() < 3 ? moved : moved.transpose(1, 2).clone().transpose(1, 2);
}

using Placed = Tensor (*)(const Tensor&);

// Every placement, or one of them in turn for each sample.
std::vector<Placed> placements(std::size_t turn) {
  const std::vector<Placed> all{scattered, column_range, heads_first};
  return few_on_device() ? std::vector{all[turn % all.size()]} : all;
}

TEST_CASE("every mechanism: the same for inputs that lie anywhere in memory") {
  const ThreadsOf one(1);
  std::size_t turn = 0;
  for (const AttentionSizes& sizes :
       {AttentionSizes{.B = 4, .N = 6, .S = 6, .H = 3, .E = 4, .M = 5},
        AttentionSizes{.B = 1, .N = 1, .S = 4, .H = 1, .E = 2, .M = 9}}) {
    for (const Sample& sample : samples(sizes, DType::f64)) {
      CAPTURE(sample.text);
      const Run packed = sample.run();
      for (const Placed placed : placements(turn++)) {
        std::vector<Tensor> views;
        for (const Tensor& input : sample.inputs) views.push_back(placed(input));
        check_close(sample.with(views).run(), packed);
      }
    }
  }
}

TEST_CASE("every mechanism: a gradient of the output that lies anywhere in memory") {
  const ThreadsOf one(1);
  const AttentionSizes sizes{.B = 4, .N = 6, .S = 6, .H = 3, .E = 4, .M = 8};
  std::size_t turn = 0;
  for (const Sample& sample : samples(sizes, DType::f64)) {
    CAPTURE(sample.text);
    const Tensor dout = random_normal(sample.output().shape(), DType::f64, 8);
    const auto gradients = [&](const Tensor& given) {
      return run_for(given, mechanism_of(sample.spec.text(), sample.call), sample.inputs).gradients;
    };
    const std::vector<Tensor> wanted = gradients(dout);
    for (const Placed placed : placements(turn++)) {
      const std::vector<Tensor> got = gradients(placed(dout));
      for (std::size_t i = 0; i < got.size(); ++i) {
        CHECK(relative_error(got[i], wanted[i]) <= tolerance::backward_f64);
      }
    }
  }
}

TEST_CASE("every mechanism: one variable in the place of several inputs" * not_sanitized()) {
  const ThreadsOf one(1);
  const AttentionSizes sizes{.B = 2, .N = 5, .S = 5, .H = 3, .E = 4, .M = 4};
  for (const Sample& sample : samples(sizes, DType::f64)) {
    CAPTURE(sample.text);
    // Inputs of equal shape become the first one of that shape.
    std::vector<std::size_t> origin;
    std::vector<Tensor> inputs;
    for (std::size_t i = 0; i < sample.inputs.size(); ++i) {
      std::size_t first = 0;
      while (sample.inputs[first].shape() != sample.inputs[i].shape()) ++first;
      origin.push_back(first);
      inputs.push_back(sample.inputs[first]);
    }
    const Run apart = run(sample.attend(), inputs);
    const auto shared = [&](std::span<const Variable> in) {
      std::vector<Variable> variables;
      for (const std::size_t first : origin) variables.push_back(in[first]);
      return sample.attend()(variables);
    };
    const Run together = run(shared, inputs);
    CHECK(same_bits(together.outputs[0], apart.outputs[0]));
    for (std::size_t first = 0; first < inputs.size(); ++first) {
      if (origin[first] != first) continue;
      Tensor sum = Tensor::zeros(inputs[first].shape(), DType::f64);
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        if (origin[i] == first) sum = added(sum, apart.gradients[i]);
      }
      CHECK(relative_error(together.gradients[first], sum) <= tolerance::backward_f64);
    }
  }
}

TEST_CASE("every mechanism: an input that wants no gradient changes nothing for the others") {
  const ThreadsOf one(1);
  const AttentionSizes sizes{.B = 4, .N = 6, .S = 6, .H = 2, .E = 3, .M = 4};
  for (const Sample& sample : samples(sizes, DType::f64)) {
    if (sample.inputs.size() == 1) continue;
    CAPTURE(sample.text);
    const Run all = sample.run();
    for (std::size_t constant = 0; constant < sample.inputs.size(); ++constant) {
      const auto detached = [&](std::span<const Variable> in) {
        std::vector<Variable> inputs(in.begin(), in.end());
        inputs[constant] = inputs[constant].detached();
        return sample.attend()(inputs);
      };
      const Run some = run(detached, sample.inputs);
      CHECK(same_bits(some.outputs[0], all.outputs[0]));
      for (std::size_t i = 0; i < sample.inputs.size(); ++i) {
        CHECK(some.gradients[i].defined() == (i != constant));
        if (i != constant) CHECK(same_bits(some.gradients[i], all.gradients[i]));
      }
    }
  }
}

TEST_CASE("every mechanism: two runs and any number of threads give the same bits") {
  const bool cpu = tested_device() == Device{};
  // An emulated device runs on one thread; other cases cover its orders of threads.
  if (few_on_device()) return;
  const std::vector<int> teams = !cpu         ? std::vector{1}
                                 : few_here() ? std::vector{3}
                                              : std::vector{1, 2, 3};
  const AttentionSizes all[] = {{.B = 3, .N = 300, .S = 300, .H = 2, .E = 8, .M = 8},
                                {.B = 1, .N = 260, .S = 400, .H = 3, .E = 4, .M = 5}};
  const AttentionSizes shorter[] = {{.B = 1, .N = 140, .S = 140, .H = 2, .E = 8, .M = 8},
                                    {.B = 1, .N = 70, .S = 140, .H = 1, .E = 4, .M = 5}};
  for (const AttentionSizes& sizes : few_here() ? shorter : all) {
    for (const Sample& sample : samples(sizes, DType::f32, {.every = 3})) {
      CAPTURE(sample.text);
      const ThreadsOf one(1);
      const Run first = sample.run();
      for (const int team : teams) {
        const ThreadsOf scope(team);
        check_same_bits(sample.run(), first);
      }
    }
  }
}

}  // TEST_SUITE("attention")

}  // namespace
}  // namespace weft
