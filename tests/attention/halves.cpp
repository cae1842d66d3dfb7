// Draws by the place of an example in the global batch: halves of a batch draw what the whole
// draws.
#include "tests/halves.h"

#include "tests/attention/sample.h"
#include "tests/threads.h"

namespace weft {
namespace {

// The examples first … end − 1 of a sample, in training, as if they began at `place` of a batch.
Variable attended_part(const Sample& sample, std::span<const Variable> inputs, i64 first, i64 end,
                       i64 place) {
  AttentionCall call = sample.call;
  call.dropout = 0.3;
  call.training = true;
  call.random.first_example = place;
  for (Tensor* lengths : {&call.lengths, &call.query_lengths}) {
    if (lengths->defined()) *lengths = lengths->slice(0, first, end);
  }
  std::vector<Variable> own;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const bool by_example = has_batch(sample.sheets()[i]) && inputs[i].size(0) > 1;
    own.push_back(by_example ? slice(inputs[i], 0, first, end) : inputs[i]);
  }
  return attend(sample.spec, call, own).out;
}

TEST_SUITE("attention") {

TEST_CASE("every mechanism: halves of a batch draw by their place in it" * not_sanitized()) {
  const ThreadsOf one(1);
  for (const AttentionSizes& sizes :
       {AttentionSizes{.B = 4, .N = 9, .S = 9, .H = 3, .E = 4, .M = 5},
        AttentionSizes{.B = 4, .N = 70, .S = 70, .H = 2, .E = 4, .M = 8},
        AttentionSizes{.B = 4, .N = 5, .S = 8, .H = 3, .E = 2, .M = 3}}) {
    for (const Sample& sample :
         samples(with_few_heads(sizes), DType::f64, {.dropout = false, .every = 3})) {
      CAPTURE(sample.text);
      check_halves([&](std::span<const Variable> in, i64 first,
                       i64 end) { return attended_part(sample, in, first, end, first); },
                   sample.inputs, sizes.B);
    }
  }
}

TEST_CASE("every mechanism: another place draws something else, where examples draw") {
  const ThreadsOf one(1);
  const AttentionSizes sizes{.B = 4, .N = 12, .S = 12, .H = 2, .E = 4, .M = 5};
  for (const Sample& sample : samples(sizes, DType::f64, plain)) {
    CAPTURE(sample.text);
    const std::vector<Tensor> moved = on_device(sample.inputs);
    const std::vector<Variable> inputs(moved.begin(), moved.end());
    const auto at = [&](i64 place) {
      return attended_part(sample, inputs, 2, 4, place).value().to(Device{});
    };
    const auto differ = [](const Tensor& a, const Tensor& b) {
      return relative_error(a, b) > 1e-9;
    };
    const bool draws = differ(at(0), sample.output().slice(0, 2, 4));
    CHECK(differ(at(2), at(0)) == draws);
  }
}

}  // TEST_SUITE("attention")
}  // namespace
}  // namespace weft
