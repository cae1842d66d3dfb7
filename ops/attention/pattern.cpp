#include "ops/attention/pattern.h"

#include <algorithm>
#include <array>

#include <fmt/core.h>

#include "runtime/error.h"

namespace weft {
namespace {

// 1 for elements other than 0, as [.., .., rows, columns] on the CPU.
Tensor bytes_of(const Tensor& mask) {
  const Tensor numbers = mask.to(Device{}).packed();
  Shape shape;
  for (int axis = mask.rank(); axis < 4; ++axis) shape.push_back(1);
  for (int axis = 0; axis < mask.rank(); ++axis) shape.push_back(mask.size(axis));
  if (mask.dtype() == DType::u8) return numbers.reshape(shape);
  const Tensor wide = numbers.to(DType::f64), bytes = Tensor::empty(shape, DType::u8);
  std::transform(wide.data<double>(), wide.data<double>() + wide.count(),
                 bytes.data<std::uint8_t>(), [](double x) { return std::uint8_t{x != 0}; });
  return bytes;
}

}  // namespace

AttentionPattern::AttentionPattern(const Tensor& mask, i64 queries, i64 keys, i64 block)
    : pairs_{.queries = queries, .keys = keys, .block = block} {
  require(block >= 1, "pattern: wanted blocks of at least 1 position, got {}", block);
  require(mask.defined() && mask.rank() >= 2 && mask.rank() <= 4 &&
              mask.size(-2) == pairs_.rows() && mask.size(-1) == pairs_.columns(),
          "pattern: wanted a mask [{0}, {1}], [H, {0}, {1}] or [B, H, {0}, {1}] for {2} queries "
          "and {3} keys in blocks of {4}, got {5}; give its block size, or crop it",
          pairs_.rows(), pairs_.columns(), queries, keys, block,
          mask.defined() ? mask.shape() : Shape{});
  mask_ = bytes_of(mask);
}

void AttentionPattern::check(const std::string& mechanism, const AttentionSizes& sizes) const {
  const auto fits = [](i64 axis, i64 size) { return axis == 1 || axis == size; };
  require(pairs_.queries == sizes.N && pairs_.keys == sizes.S,
          "{}: the pattern is for {} queries and {} keys, got {} and {}", mechanism, pairs_.queries,
          pairs_.keys, sizes.N, sizes.S);
  require(fits(mask_.size(0), sizes.B) && fits(mask_.size(1), sizes.H),
          "{}: the pattern's mask has {} batch items and {} heads, the inputs {} and {}; wanted as "
          "many, or 1",
          mechanism, mask_.size(0), mask_.size(1), sizes.B, sizes.H);
}

std::shared_ptr<const TileListTensors> AttentionPattern::lists(Device device, bool causal) const {
  const std::lock_guard lock(kept_mutex_);
  for (const Kept& kept : kept_) {
    if (kept.device == device && kept.causal == causal) return kept.lists;
  }
  MaskedPairs pairs = pairs_;
  pairs.causal = causal;
  kept_.push_back({device, causal,
                   std::make_shared<const TileListTensors>(tiles_of_mask(mask_, pairs, device))});
  return kept_.back().lists;
}

Tensor AttentionPattern::of(const Tensor& seen, i64 heads) const {
  const i64 B = seen.size(0), N = seen.size(2), S = seen.size(3);
  const Tensor all = seen.expand({B, heads, N, S}).clone();
  const View<double, 4> pair = all.view<double, 4>();
  const View<const std::uint8_t, 4> mask = mask_.view<const std::uint8_t, 4>();
  for (i64 row = 0; row < B * heads * N; ++row) {
    const i64 b = row / N / heads, h = row / N % heads, i = row % N;
    for (i64 j = 0; j < S; ++j) {
      if (mask(b % mask_.size(0), h % mask_.size(1), i / pairs_.block, j / pairs_.block) == 0) {
        pair(b, h, i, j) = 0;
      }
    }
  }
  return all;
}

Variable pattern_attention(const std::shared_ptr<const AttentionPattern>& pattern,
                           const Variable& q, const Variable& k, const Variable& v,
                           const PatternOptions& options) {
  AttentionCall call = options.call;
  call.pattern = pattern;
  const AttentionSpec full(fmt::format("full:temperature={}", options.temperature));
  return attend(full, call, std::array{q, k, v}).out;
}

Variable pattern_attention(const Tensor& mask, const Variable& q, const Variable& k,
                           const Variable& v, const PatternOptions& options) {
  require(q.value().rank() == 4 && k.value().rank() == 4,
          "pattern: wanted q [B, N, H, E] and k [B, S, H, E], got {} and {}", q.shape(), k.shape());
  return pattern_attention(
      std::make_shared<const AttentionPattern>(mask, q.size(1), k.size(1), options.block), q, k, v,
      options);
}

}  // namespace weft
