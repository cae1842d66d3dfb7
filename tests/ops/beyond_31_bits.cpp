// Tensors of more than 2³¹ elements: indices that are not 64 bits wide would wrap.
#include <array>
#include <functional>
#include <string>

#include "autograd/tape.h"
#include "ops/attention/mechanism.h"
#include "ops/cast/cast.h"
#include "ops/conv1d/conv1d.h"
#include "ops/dropout/dropout.h"
#include "ops/embedding/embedding.h"
#include "ops/feed_forward/feed_forward.h"
#include "ops/layer_norm/layer_norm.h"
#include "ops/linear/linear.h"
#include "ops/pointwise/pointwise.h"
#include "ops/rotary/rotary.h"
#include "ops/views/views.h"
#include "runtime/allocator.h"
#include "runtime/host_memory.h"
#include "tests/check.h"
#include "tests/sanitized.h"

namespace weft {
namespace {

constexpr i64 width = 64, sequence = 64;
constexpr i64 rows = (i64{1} << 25) + sequence;  // 2³¹ elements and one sequence more
constexpr i64 sequences = rows / sequence;

// bf16 [rows, 64], 4 GiB, in which no two sequences near an end or a power of two are equal.
Tensor large() {
  const Tensor x = Tensor::empty({rows, width}, DType::bf16, tested_device());
  constexpr i64 part = i64{1} << 19;
  const Tensor values =
      random_normal({part + sequence, width}, DType::f32, 1).to(tested_device()).to(DType::bf16);
  for (i64 row = 0, i = 0; row < rows; row += part, ++i) {
    const i64 count = std::min(part, rows - row);
    x.slice(0, row, row + count).copy_from(values.slice(0, i % sequence, i % sequence + count));
  }
  return x;
}

// The first sequence, the one that ends with element 2³⁰, the one behind it, and the last two.
const std::vector<i64> places = {0, sequences / 2 - 1, sequences / 2, sequences - 2, sequences - 1};

// The values of these sequences, from a tensor whose rows are those of sequences.
Tensor some_of(const Tensor& x) {
  const i64 each = x.size(0) / sequences;
  std::vector<Variable> parts;
  for (const i64 place : places) parts.emplace_back(x.slice(0, place * each, (place + 1) * each));
  return concatenate(parts, 0).value();
}

using Function = std::function<Variable(const Variable&)>;

void check_values(const Tensor& x, const Function& f) {
  const Tensor some = f(Variable(some_of(x))).value();
  CHECK(same_bits(some_of(f(Variable(x)).value()), some));
}

// The gradient for a cotangent that is x itself.
void check_gradient(const Tensor& x, const Function& f) {
  const auto gradient = [&](const Tensor& in) {
    const Variable leaf = Variable::leaf(in);
    Tape tape;
    tape.backward(f(leaf), in);
    return leaf.gradient();
  };
  const Tensor some = gradient(some_of(x));
  CHECK(same_bits(some_of(gradient(x)), some));
}

Variable drawn(const Shape& shape, std::uint64_t seed, DType type = DType::f32) {
  return random_normal(shape, DType::f32, seed).to(tested_device()).to(type);
}

// Whether there is a device that holds such tensors, and time.
bool large_enough() {
  allocator(tested_device()).trim();
  const bool on_cpu = tested_device() == Device{};
  const bool there =
      on_cpu ? available_host_memory() > std::size_t{20} << 30 : !tested_is_emulated();
  if (all_wanted() && !sanitized && there) return true;
  MESSAGE("skipped: wants `./weft test --all`, and 20 GiB of memory or a GPU");
  return false;
}

TEST_SUITE("ops") {

TEST_CASE("beyond 2³¹ elements: rows are those of small tensors") {
  if (!large_enough()) return;
  const Tensor x = large();
  const Variable gain = drawn({width}, 2), bias = drawn({width}, 3);
  const Variable square = drawn({width, width}, 4);
  const Variable in = drawn({width, 32}, 5), out = drawn({32, width}, 6);
  const Variable bias_in = drawn({32}, 8);
  const Variable kernel = drawn({3, width, width}, 7);
  const auto in_sequences = [](const Variable& v) {
    return reshape(v, {v.shape()[0] / sequence, sequence, width});
  };
  const auto by_heads = [](const Variable& v) {
    return reshape(v, {v.shape()[0] / sequence, sequence, 2, width / 2});
  };
  const std::pair<std::string, Function> functions[] = {
      {"add", [](const Variable& v) { return add(v, v); }},
      {"mul by a row", [&](const Variable& v) { return mul(v, cast(gain, DType::bf16)); }},
      {"gelu", [](const Variable& v) { return gelu(v); }},
      {"layer_norm", [&](const Variable& v) { return layer_norm(v, gain, bias); }},
      {"linear", [&](const Variable& v) { return linear(v, square); }},
      {"rotary", [&](const Variable& v) { return reshape(rotary(by_heads(v)), v.shape()); }},
      {"conv1d",
       [&](const Variable& v) {
         return reshape(causal_conv1d(in_sequences(v), kernel, bias, Activation::relu), v.shape());
       }},
      {"feed_forward",
       [&](const Variable& v) {
         return feed_forward(v, in, bias_in, out, bias, Activation::gelu);
       }},
  };
  for (const auto& [name, f] : functions) {
    CAPTURE(name);
    check_values(x, f);
    check_gradient(x, f);
    allocator(tested_device()).trim();
  }
  const auto attended = [&](const std::string& mechanism) {
    return [&, spec = AttentionSpec(mechanism)](const Variable& v) {
      const Variable rows = by_heads(v);
      const std::array inputs = {rows, rows, rows};
      return reshape(attend(spec, {.causal = true}, inputs).out, v.shape());
    };
  };
  for (const char* mechanism : {"full", "local:context=16", "linear", "cosformer:max_length=64"}) {
    CAPTURE(mechanism);
    check_values(x, attended(mechanism));
    allocator(tested_device()).trim();
  }
}

TEST_CASE("beyond 2³¹ elements: copies, rows looked up, dropout") {
  if (!large_enough()) return;
  const Tensor x = large();
  {
    const Tensor turned = x.transpose(0, 1).clone();
    CHECK(same_bits(some_of(turned.transpose(0, 1)), some_of(x)));
  }
  {
    const std::array halves = {slice(x, 1, 0, 8), slice(x, 1, 8, width)};
    CHECK(same_bits(some_of(concatenate(halves, 1).value()), some_of(x)));
  }
  {
    const Tensor wide = Tensor::zeros({width, rows}, DType::bf16, tested_device());
    for (const i64 place : places) {
      wide.slice(1, place * sequence, (place + 1) * sequence)
          .copy_from(x.slice(0, place * sequence, (place + 1) * sequence).transpose(0, 1));
    }
    CHECK(same_bits(some_of(wide.transpose(0, 1)), some_of(x)));
  }
  {
    const Tensor ids = random_integers({rows}, 50, 3).to(tested_device());
    const Variable table = drawn({50, width}, 9, DType::bf16);
    CHECK(
        same_bits(some_of(embedding(table, ids).value()), embedding(table, some_of(ids)).value()));
  }
  // Element 2³¹ begins the last sequence: an index of 31 bits would give it the mask of the first.
  const Tensor dropped = some_of(dropout(x, 0.5, RandomKey{1, 1, 1}).value());
  const std::vector<float> values = dropped.to(DType::f32).to_vector<float>();
  constexpr std::size_t each = sequence * width;
  for (std::size_t place = 0; place < places.size(); ++place) {
    CAPTURE(place);
    std::size_t zeros = 0, equal = 0;
    for (std::size_t i = 0; i < each; ++i) {
      const bool none = values[place * each + i] == 0;
      zeros += none;
      equal += none == (values[i] == 0);
    }
    CHECK(double(zeros) / each == doctest::Approx(0.5).epsilon(0.1));
    if (place > 0) CHECK(double(equal) / each == doctest::Approx(0.5).epsilon(0.1));
  }
}

}  // TEST_SUITE("ops")

}  // namespace
}  // namespace weft
