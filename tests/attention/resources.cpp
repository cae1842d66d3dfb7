// Memory of every registered mechanism, and step-by-step decoding.
#include "autograd/tape.h"
#include "runtime/allocator.h"
#include "tests/attention/sample.h"
#include "tests/threads.h"

namespace weft {
namespace {

double bytes_of(const Tensor& x) { return double(x.count()) * double(size_of(x.dtype())); }

double live() { return double(allocator(tested_device()).counts().live); }

// The inputs of a decoding step for the positions begin … end - 1, as views. Drawn inputs are those
// that the call draws.
std::vector<Tensor> decoded_inputs(const Sample& sample, i64 begin, i64 end) {
  const Sample decided = sample.decided();
  const AttentionInputs sheets = sample.sheets();
  std::vector<Tensor> inputs;
  for (std::size_t i = 0; i < sheets.size(); ++i) {
    if (sheets[i].role == Role::drawn) {
      inputs.push_back(decided.call.given.at(sheets[i].name).to(tested_device()));
    } else if (i >= sample.inputs.size()) {
      inputs.emplace_back();
    } else {
      const Tensor moved = sample.inputs[i].to(tested_device());
      inputs.push_back(has_batch(sheets[i]) ? moved.slice(1, begin, end) : moved);
    }
  }
  return inputs;
}

// The allocator rounds each block up by at most an eighth, and by 64 bytes.
double rounded(double bytes) { return bytes * 9 / 8 + 4096; }

TEST_SUITE("attention") {

TEST_CASE("every mechanism: bytes saved and bytes at work are what the fact sheet says") {
  if (fewest_on_device()) return;  // bytes are counted, and sanitizers do not change them
  const ThreadsOf one(1);
  const bool few = few_on_device();
  const i64 many = few ? 512 : 2048, heads = few ? 1 : 4;
  for (const AttentionSizes& sizes :
       {AttentionSizes{.B = 2, .N = 256, .S = 256, .H = heads, .E = 16, .M = 16},
        AttentionSizes{.B = 1, .N = many, .S = many, .H = 1, .E = 8, .M = 32},
        AttentionSizes{.B = 4, .N = 64, .S = 512, .H = heads, .E = 8, .M = 8}}) {
    const Variety plain{
        .lengths = false, .query_lengths = false, .dropout = false, .extras = false};
    for (const Sample& sample : samples(sizes, DType::f32, plain)) {
      if (sample.mechanism().cost == nullptr) continue;  // it claims nothing
      CAPTURE(sample.text);
      const AttentionCost cost =
          sample.mechanism().cost(sample.spec, sample.sizes, sample.call.causal, DType::f32);
      std::vector<Variable> leaves;
      double gradients = 0;
      for (const Tensor& input : on_device(sample.inputs)) {
        leaves.push_back(Variable::leaf(input));
        gradients += bytes_of(input);
      }
      const Tensor dout =
          random_normal(sample.output().shape(), DType::f32, 3).to(tested_device());
      const double before = live();
      allocator(tested_device()).reset_peak();
      Tape tape;
      const Variable out = attend(sample.spec, sample.call, leaves).out;
      const double saved = live() - before - bytes_of(out.value());
      CHECK(saved >= cost.saved_bytes);
      CHECK(saved <= rounded(cost.saved_bytes));
      tape.backward(out, dout);
      const double results = bytes_of(out.value()) + gradients;
      CHECK(live() - before <= rounded(results));
      const double working =
          double(allocator(tested_device()).counts().peak) - before - results - saved;
      const double claimed =
          tested_device() == Device{} ? cost.working_bytes : cost.cuda_working_bytes;
      // Below 0 the peak is part of what is saved and of the results.
      CHECK(std::max(working, 0.0) >= 0.5 * claimed);
      CHECK(working <= rounded(claimed) + results / 8);
    }
  }
}

TEST_CASE("every mechanism: without a tape nothing but the output stays") {
  const ThreadsOf one(1);
  const bool few = few_on_device();
  const i64 N = few ? 128 : 256;
  const AttentionSizes sizes{.B = 2, .N = N, .S = N, .H = 4, .E = 16, .M = 16};
  for (const Sample& sample : samples(with_few_heads(sizes), DType::f32, {.every = 3})) {
    CAPTURE(sample.text);
    const std::vector<Tensor> moved = on_device(sample.inputs);
    const std::vector<Variable> inputs(moved.begin(), moved.end());
    const double before = live();
    const Tensor out = attend(sample.spec, sample.call, inputs).out.value();
    const double after = live();
    const Tensor alike = Tensor::empty_like(out);  // the allocator rounds both up
    CHECK(after - before == live() - after);
    CHECK(after - before <= rounded(bytes_of(out)));
  }
}

TEST_CASE("every mechanism: decoding gives what the whole sequence gives") {
  const ThreadsOf one(1);
  for (const DType type : {DType::f32, DType::f64}) {
    const bool few = few_on_device();
    const i64 N = few ? 70 : 137;  // more than a tile
    const AttentionSizes sizes{.B = 3, .N = N, .S = N, .H = 3, .E = 4, .M = 5};
    const Variety causal{
        .lengths = false, .query_lengths = false, .dropout = false, .extras = false};
    for (const Sample& sample : samples(sizes, type, causal)) {
      const Mechanism& mechanism = sample.mechanism();
      if (!sample.call.causal || !can_decode(sample.spec)) continue;
      CAPTURE(sample.text);
      const Tensor wanted = sample.output();
      // One position at a time; a prompt, then one at a time; a prompt, another one, the rest.
      for (const std::vector<i64>& ends : {std::vector<i64>{}, {90}, {1, N / 2, N - 12, N}}) {
        if (few && (ends.empty() ? type == DType::f64 : ends.size() == 1)) continue;
        const auto state = mechanism.decode(sample.spec, sample.sizes, type, sizes.N);
        const Tensor got = Tensor::empty(wanted.shape(), type);
        std::size_t part = 0;
        for (i64 begin = 0; begin < sizes.N;) {
          const i64 end = part < ends.size() ? ends[part++] : begin + 1;
          const Tensor out = state->step(decoded_inputs(sample, begin, end));
          REQUIRE(out.shape() == wanted.slice(1, begin, end).shape());
          got.slice(1, begin, end).copy_from(out);
          begin = end;
        }
        CHECK(relative_error(got, wanted) <=
              (type == DType::f32 ? tolerance::forward_f32 : tolerance::forward_f64));
        CHECK(state->bytes() > 0);
      }
    }
  }
}

TEST_CASE("every mechanism: decoding asks the system for nothing once it is warm") {
  const ThreadsOf one(1);
  const WithCache cache;
  const AttentionSizes sizes{.B = 1, .N = 40, .S = 40, .H = 2, .E = 4, .M = 8};
  const Variety causal{.lengths = false,
                       .query_lengths = false,
                       .dropout = false,
                       .options = false,
                       .extras = false};
  for (const Sample& sample : samples(sizes, DType::f32, causal)) {
    const Mechanism& mechanism = sample.mechanism();
    if (!sample.call.causal || !can_decode(sample.spec)) continue;
    CAPTURE(sample.text);
    if (mechanism.cost == nullptr) continue;  // no claim about its state's memory either
    const auto decode = [&] {
      const auto state = mechanism.decode(sample.spec, sample.sizes, DType::f32, sizes.N);
      for (i64 i = 0; i < sizes.N; ++i) state->step(decoded_inputs(sample, i, i + 1));
    };
    decode();
    const std::uint64_t asked = allocator(tested_device()).counts().system_allocations;
    decode();
    CHECK(allocator(tested_device()).counts().system_allocations == asked);
  }
}

}  // TEST_SUITE("attention")

}  // namespace
}  // namespace weft
