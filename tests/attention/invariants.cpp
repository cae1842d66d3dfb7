// The invariants that every registered mechanism must satisfy, by its masks and its facts.
#include <cmath>
#include <limits>
#include <numeric>

#include "autograd/tape.h"
#include "runtime/arithmetic.h"
#include "tests/attention/run_attention.h"
#include "tests/attention/sample.h"
#include "tests/threads.h"

namespace weft {
namespace {

// The last position that a row of batch item b covers.
i64 last_of(const Sample& sample, i64 b, i64 row) {
  const AttentionRows& rows = sample.mechanism().rows;
  return rows.last == nullptr ? row : rows.last(sample.positions(b), row);
}

// x [B, rows, …] restricted to rows that cover `begin` or later positions, or else to the other
// rows; the remaining rows are left out, or zeros. Rows that an item does not have count as later
// ones.
Tensor only(bool later, const Sample& sample, const Tensor& x, i64 begin) {
  if (sample.mechanism().rows.last == nullptr) {
    return later ? x.slice(1, begin, x.size(1)) : x.slice(1, 0, begin);
  }
  const Tensor part = x.clone();
  for (i64 b = 0; b < x.size(0); ++b) {
    for (i64 row = 0; row < x.size(1); ++row) {
      const bool is_later = row >= sample.keys(b) || last_of(sample, b, row) >= begin;
      if (is_later != later) part.slice(0, b, b + 1).slice(1, row, row + 1).fill(0);
    }
  }
  return part;
}

// Finite numbers of random sign and size up to `size`, at positions `begin` and on of all
// sequences.
std::vector<Tensor> disturbed_after(const Sample& sample, i64 begin, double size) {
  std::vector<Tensor> inputs;
  for (std::size_t i = 0; i < sample.inputs.size(); ++i) {
    const Tensor& input = sample.inputs[i];
    Tensor changed = input.clone();
    const Tensor noise = random_uniform(input.shape(), DType::f64, 77 + i, -size, size);
    for (const char symbol : {'N', 'S'}) {
      const int axis = position_axis(sample.sheets()[i], symbol);
      if (axis < 0) continue;
      const i64 end = input.size(axis);
      if (sample.mechanism().rows.last == nullptr) {
        changed.slice(axis, begin, end).copy_from(noise.slice(axis, begin, end));
      } else {
        changed = added(only(false, sample, input, begin),
                        only(true, sample, noise.to(input.dtype()), begin));
      }
    }
    inputs.push_back(changed);
  }
  return inputs;
}

bool all_zero(const Tensor& x) {
  for (const double value : x.to(DType::f64).to_vector<double>()) {
    if (value != 0) return false;
  }
  return true;
}

// More positions than two tiles of 64, on an emulated device than one.
i64 longer_than_a_tile() { return few_wanted() ? 70 : 140; }

TEST_SUITE("attention") {

TEST_CASE("every mechanism: nothing of the future reaches an output" * not_sanitized()) {
  const ThreadsOf one(1);
  for (const DType type : {DType::f32, DType::f64}) {
    const Variety variety{.options = false, .extras = type == DType::f32};
    // Heads of eight numbers have kernels of their own in f32.
    const AttentionSizes sizes =
        type == DType::f32 ? AttentionSizes{.B = 4, .N = 140, .S = 140, .H = 2, .E = 8, .M = 8}
                           : AttentionSizes{.B = 4, .N = 140, .S = 140, .H = 2, .E = 4, .M = 5};
    for (const Sample& sample : samples(sizes, type, variety)) {
      if (!sample.call.causal || !sample.mechanism().strictly_causal) continue;
      CAPTURE(sample.text);
      const Tensor out = sample.output();
      for (const i64 begin : {1, 63, 64, 127, 128, 139}) {
        for (const double size : {1e4, 1e18}) {
          CAPTURE(begin);
          const Tensor changed = sample.with(disturbed_after(sample, begin, size)).output();
          CHECK(same_bits(only(false, sample, changed, begin), only(false, sample, out, begin)));
          CHECK_FALSE(same_bits(changed, out));
        }
      }
    }
  }
}

TEST_CASE("every mechanism: no output sends a gradient into its future" * not_sanitized()) {
  const ThreadsOf one(1);
  const AttentionSizes sizes{.B = 2, .N = 135, .S = 135, .H = 2, .E = 3, .M = 4};
  for (const Sample& sample : samples(sizes, DType::f64, {.options = false, .extras = false})) {
    if (!sample.call.causal || !sample.mechanism().strictly_causal) continue;
    CAPTURE(sample.text);
    const Run whole = sample.run();
    for (const i64 begin : {1, 64, 130}) {
      std::vector<Variable> leaves;
      for (const Tensor& input : on_device(sample.inputs)) leaves.push_back(Variable::leaf(input));
      Tape tape;
      const Variable out = attend(sample.spec, sample.call, leaves).out;
      const Tensor dout = random_normal(out.shape(), DType::f64, 4);
      const Tensor past = only(false, sample, dout, begin).clone();
      dout.fill(0);
      dout.slice(1, 0, past.size(1)).copy_from(past);
      tape.backward(out, dout.to(tested_device()));
      for (std::size_t i = 0; i < leaves.size(); ++i) {
        if (!has_batch(sample.sheets()[i])) continue;  // summed over all positions
        const Tensor gradient = leaves[i].gradient();
        CHECK(all_zero(only(true, sample, gradient, begin)));
        // A query that sees one key has constant weights, like the first position.
        if (begin > 1 && !all_zero(whole.gradients[i])) {
          CHECK_FALSE(all_zero(only(false, sample, gradient, begin)));
        }
      }
    }
  }
}

TEST_CASE("every mechanism: a batch item does not know the others" * not_sanitized()) {
  const ThreadsOf one(1);
  const i64 N = longer_than_a_tile();
  const AttentionSizes sizes{.B = 4, .N = N, .S = N, .H = 3, .E = 4, .M = 5};
  const Variety variety{.dropout = false, .options = false};
  for (const Sample& sample : samples(with_few_heads(sizes), DType::f32, variety)) {
    CAPTURE(sample.text);
    const Run all = sample.run();
    for (const i64 b : {0, 3}) {
      std::vector<Tensor> others;
      for (std::size_t i = 0; i < sample.inputs.size(); ++i) {
        const Tensor& input = sample.inputs[i];
        const Tensor changed = random_normal(input.shape(), DType::f32, 12);
        const bool repeated = input.size(0) == 1 || !has_batch(sample.sheets()[i]);
        const Tensor own = repeated ? changed : changed.slice(0, b, b + 1);
        own.copy_from(repeated ? input : input.slice(0, b, b + 1));
        others.push_back(changed);
      }
      const Run changed = sample.with(others).run();
      CHECK(same_bits(changed.outputs[0].slice(0, b, b + 1), all.outputs[0].slice(0, b, b + 1)));
      CHECK_FALSE(same_bits(changed.outputs[0], all.outputs[0]));
      for (std::size_t i = 0; i < others.size(); ++i) {
        if (others[i].size(0) == 1 || !has_batch(sample.sheets()[i])) continue;
        CHECK(same_bits(changed.gradients[i].slice(0, b, b + 1),
                        all.gradients[i].slice(0, b, b + 1)));
      }
    }
  }
}

TEST_CASE("every mechanism: a head's values reach no other head" * not_sanitized()) {
  const ThreadsOf one(1);
  const AttentionSizes sizes{.B = 2, .N = 9, .S = 9, .H = 5, .E = 4, .M = 6};
  for (const Sample& sample : samples(sizes, DType::f32, {.options = false})) {
    if (!sample.mechanism().linear_in_values) continue;
    CAPTURE(sample.text);
    const std::size_t values = values_input(sample);
    const Tensor out = sample.output();
    for (const i64 h : {0, 2, 4}) {
      std::vector<Tensor> inputs = sample.inputs;
      inputs[values] = random_normal(inputs[values].shape(), DType::f32, 5);
      inputs[values].slice(2, h, h + 1).copy_from(sample.inputs[values].slice(2, h, h + 1));
      const Tensor changed = sample.with(inputs).output();
      CHECK(same_bits(changed.slice(2, h, h + 1), out.slice(2, h, h + 1)));
      CHECK_FALSE(same_bits(changed, out));
    }
  }
}

TEST_CASE("every mechanism: what stands beyond the lengths is never read") {
  const ThreadsOf one(1);
  const i64 N = longer_than_a_tile();
  const AttentionSizes sizes{.B = 4, .N = N, .S = N, .H = 2, .E = 3, .M = 4};
  for (const Sample& sample : samples(sizes, DType::f32, {.options = false})) {
    if (!sample.call.lengths.defined() && !sample.call.query_lengths.defined()) continue;
    CAPTURE(sample.text);
    std::vector<Tensor> inputs;
    for (std::size_t i = 0; i < sample.inputs.size(); ++i) {
      const AttentionInput sheet = sample.sheets()[i];
      Tensor garbled = sample.inputs[i];
      for (i64 b = 0; b < sizes.B && garbled.size(0) == sizes.B; ++b) {
        const int keys = position_axis(sheet, 'S'), queries = position_axis(sheet, 'N');
        const AttentionSizes& s = sample.sizes;
        if (keys >= 0) garbled = filled(garbled, keys, sample.keys(b), s.S, not_a_number, b);
        if (queries >= 0)
          garbled = filled(garbled, queries, sample.queries(b), s.N, not_a_number, b);
      }
      inputs.push_back(garbled);
    }
    check_same_bits(sample.with(inputs).run(), sample.run());
  }
}

TEST_CASE("every mechanism: outputs and gradients beyond the lengths are zeros") {
  const ThreadsOf one(1);
  const i64 N = longer_than_a_tile();
  const AttentionSizes sizes{.B = 4, .N = N, .S = N, .H = 2, .E = 3, .M = 4};
  for (const Sample& sample : samples(sizes, DType::f64, {.options = false})) {
    CAPTURE(sample.text);
    const Run run = sample.run();
    for (i64 b = 0; b < sizes.B; ++b) {
      const auto item = [&](const Tensor& x) { return x.slice(0, b, b + 1); };
      const i64 keys = sample.keys(b), queries = sample.queries(b);
      CHECK(all_zero(item(run.outputs[0]).slice(1, keys == 0 ? 0 : queries, sample.sizes.N)));
      CHECK(all_zero(item(run.outputs[0])) == (keys == 0 || queries == 0));
      for (std::size_t i = 0; i < sample.inputs.size(); ++i) {
        const AttentionInput sheet = sample.sheets()[i];
        if (sample.inputs[i].size(0) == 1) continue;
        const bool none = keys == 0 || queries == 0;
        for (const auto& [symbol, length] : {std::pair{'S', keys}, std::pair{'N', queries}}) {
          const int axis = position_axis(sheet, symbol);
          if (axis < 0) continue;
          const Tensor gradient = item(run.gradients[i]);
          CHECK(all_zero(gradient.slice(axis, none ? 0 : length, gradient.size(axis))));
          CHECK((all_zero(gradient) == none || vanishes(run, i)));
        }
      }
    }
  }
}

TEST_CASE("every mechanism: padding changes no result" * not_sanitized()) {
  const ThreadsOf one(1);
  const AttentionSizes sizes{.B = 1, .N = 150, .S = 150, .H = 2, .E = 4, .M = 5};
  const Variety plain{.lengths = false, .query_lengths = false, .dropout = false};
  for (const Sample& sample : samples(sizes, DType::f64, plain)) {
    const Masks& masks = sample.mechanism().masks;
    if (!masks.lengths || (sample.mechanism().cross && !masks.query_lengths)) continue;
    CAPTURE(sample.text);
    constexpr i64 length = 77;
    std::vector<Tensor> inputs;
    for (std::size_t i = 0; i < sample.inputs.size(); ++i) {
      Tensor cut = sample.inputs[i];
      for (const char symbol : {'N', 'S'}) {
        const int axis = position_axis(sample.sheets()[i], symbol);
        if (axis >= 0) cut = cut.slice(axis, 0, rows_of(sample.mechanism(), length));
      }
      inputs.push_back(cut);
    }
    Sample padded = sample;
    padded.call.lengths = Tensor::from(std::vector{length}, {1});
    if (masks.query_lengths) padded.call.query_lengths = padded.call.lengths;
    const i64 rows = rows_of(sample.mechanism(), length);
    CHECK(relative_error(padded.output().slice(1, 0, rows), sample.with(inputs).output()) <=
          tolerance::forward_f64);
  }
}

Tensor permuted(const Tensor& x, int axis, const std::vector<i64>& order) {
  const Tensor result = Tensor::empty(x.shape(), x.dtype());
  for (std::size_t i = 0; i < order.size(); ++i) {
    const auto to = static_cast<i64>(i);
    result.slice(axis, to, to + 1).copy_from(x.slice(axis, order[i], order[i] + 1));
  }
  return result;
}

std::vector<i64> shuffled(i64 count) {
  std::vector<i64> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), i64{0});
  for (std::size_t i = order.size(); i > 1; --i) {
    const std::uint32_t word = RandomKey{9, 0, 0}.words(i).word[0];
    std::swap(order[i - 1], order[below(word, static_cast<std::uint32_t>(i))]);
  }
  return order;
}

TEST_CASE("every mechanism: the order of the references does not matter where it should not" *
          not_sanitized()) {
  const ThreadsOf one(1);
  const AttentionSizes sizes{.B = 2, .N = 60, .S = 133, .H = 3, .E = 4, .M = 5};
  const Variety unmasked{.causal = false, .lengths = false, .dropout = false};
  const std::vector<i64> order = shuffled(sizes.S);
  for (const Sample& sample : samples(sizes, DType::f64, unmasked)) {
    if (!sample.mechanism().unordered_keys) continue;
    CAPTURE(sample.text);
    std::vector<Tensor> inputs = sample.inputs;
    std::vector<int> axes;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      axes.push_back(position_axis(sample.sheets()[i], 'S'));
      if (axes.back() >= 0) inputs[i] = permuted(inputs[i], axes.back(), order);
    }
    const Run before = sample.run(), after = sample.with(inputs).run();
    CHECK(relative_error(after.outputs[0], before.outputs[0]) <= tolerance::forward_f64);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      Tensor wanted = before.gradients[i];
      if (axes[i] >= 0) wanted = permuted(wanted, axes[i], order);
      CHECK(relative_error(after.gradients[i], wanted) <= tolerance::backward_f64);
    }
  }
}

TEST_CASE("every mechanism: dropout has an effect where the fact sheet says so" * not_sanitized()) {
  const ThreadsOf one(1);
  const AttentionSizes sizes{.B = 2, .N = 24, .S = 24, .H = 2, .E = 4, .M = 5};
  for (const Sample& sample : samples(sizes, DType::f64, {})) {
    if (sample.call.dropout == 0) continue;
    CAPTURE(sample.text);
    Sample whole = sample;
    whole.call.dropout = 0;
    CHECK(same_bits(sample.output(), whole.output()) != sample.mechanism().drops_weights);
  }
}

// The weights [B, N, H, S] of the values.
Tensor weights(const Sample& sample) {
  std::vector<Tensor> inputs = sample.inputs;
  const AttentionSizes& s = sample.sizes;
  inputs[values_input(sample)] = unit_values(s.B, s.S, s.H);
  return sample.with(inputs).output();
}

TEST_CASE("every mechanism: the weights on the values" * not_sanitized()) {
  const ThreadsOf one(1);
  for (const AttentionSizes& sizes :
       {AttentionSizes{.B = 4, .N = 20, .S = 20, .H = 3, .E = 4, .M = 7},
        AttentionSizes{.B = 4, .N = 3, .S = 9, .H = 2, .E = 3, .M = 2}}) {
    for (const Sample& sample : samples(sizes, DType::f64, {.dropout = false})) {
      const Mechanism& mechanism = sample.mechanism();
      if (!mechanism.linear_in_values) continue;
      CAPTURE(sample.text);
      const Tensor map = weights(sample), out = sample.output();
      const Tensor& v = sample.inputs[values_input(sample)];
      Tensor product = Tensor::zeros(out.shape(), DType::f64);
      for (i64 b = 0; b < sizes.B; ++b) {
        for (i64 i = 0; i < sample.sizes.N; ++i) {
          double over_heads = 0;
          const bool sees = i < sample.queries(b) && sample.keys(b) > 0;
          for (i64 h = 0; h < sizes.H; ++h) {
            double row = 0;
            for (i64 j = 0; j < sample.sizes.S; ++j) {
              const double weight = map.view<double, 4>()(b, i, h, j);
              row += weight;
              const bool there = j < sample.keys(b) && sees;
              const i64 before = sizes.S - sizes.N;  // keys before the first query
              const bool later = there && last_of(sample, b, j) > last_of(sample, b, i) + before;
              const bool hidden = !there || (sample.call.causal && later);
              if (hidden || !sees) CHECK(weight == 0);
              if (mechanism.name != "linformer") CHECK(weight >= 0);  // it maps the keys linearly
              for (i64 m = 0; m < sizes.M; ++m) {
                product.view<double, 4>()(b, i, h, m) += weight * v.view<double, 4>()(b, j, h, m);
              }
            }
            over_heads += row;
            if (mechanism.row_sums == RowSums::one && sees)
              CHECK(row == doctest::Approx(1).epsilon(tolerance::forward_f64));
          }
          if (mechanism.row_sums == RowSums::one_over_heads && sees) {
            CHECK(over_heads == doctest::Approx(1).epsilon(tolerance::forward_f64));
          }
        }
      }
      CHECK(relative_error(out, product) <= tolerance::forward_f64);
    }
  }
}

}  // TEST_SUITE("attention")

}  // namespace
}  // namespace weft
