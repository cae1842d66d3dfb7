// Equations: attention.h.
#include "ops/attention/engines/elementwise/attention.h"

#include <algorithm>
#include <limits>

#include "autograd/recompute.h"
#include "ops/attention/scores.h"
#include "ops/blocks/blocks.h"
#include "ops/cumulative_sum/cumulative_sum.h"
#include "ops/dropout/dropout.h"
#include "ops/matmul/matmul.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "ops/views/views.h"

namespace weft {
namespace {

constexpr double laplace_mean = 0.707107, laplace_deviation = 0.282095;
constexpr i64 side = 64;  // queries of a tile

Variable full(const Variable& like, const Shape& shape, double x) {
  return Tensor::full(shape, x, like.value().dtype(), like.value().device());
}

// Queries begin … end − 1 of each of `chunks` chunks of `length` positions, the first at position
// `first`.
struct Tile {
  i64 first, chunks, length, begin, end, number;

  // [B, N, width] as [B, chunks, positions, width].
  Variable of(const Variable& x, i64 positions) const {
    return reshape(slice(x, 1, first, first + chunks * positions),
                   {x.size(0), chunks, positions, x.size(2)});
  }
};

// The tiles of N queries, those of whole chunks first.
std::vector<Tile> tiles_of(i64 N, i64 chunk) {
  std::vector<Tile> tiles;
  const auto add = [&](i64 first, i64 chunks, i64 length) {
    for (i64 i = 0; chunks > 0 && i < length; i += side) {
      tiles.push_back({first, chunks, length, i, std::min(i + side, length), std::ssize(tiles)});
    }
  };
  add(0, N / chunk, chunk);
  add(N / chunk * chunk, 1, N % chunk);
  return tiles;
}

// The matrix [rows, keys] of table[rows − 1 + j − i]; the table has rows + keys numbers.
Variable by_distance(const Variable& table, i64 rows, i64 keys) {
  const i64 width = rows + keys;
  const Variable copies =
      reshape(expand(reshape(table, {1, width}), {rows, width}), {rows * width});
  const Variable cut = slice(copies, 0, rows - 1, rows - 1 + rows * (width - 1));
  return slice(reshape(cut, {rows, width - 1}), 1, 0, keys);
}

// n_i of the queries of the tile's chunks, after `before` others, and at least 1; it broadcasts to
// [B, chunks, length, z].
Variable keys_seen(const ElementwiseCall& call, const Tile& t, i64 before, const Variable& q) {
  if (call.causal) {
    return add(cumulative_sum(full(q, {t.length, 1}, 1), 0), full(q, {}, double(before)));
  }
  if (!call.lengths.defined()) return full(q, {}, double(t.length));
  const Variable there = within_lengths(full(q, {q.size(0), q.size(1), 1}, 1), call.lengths);
  return reshape(maximum(sum(t.of(there, t.length), 2), full(q, {}, 1)),
                 {q.size(0), t.chunks, 1, 1});
}

}  // namespace

i64 middle_of(const char* name, const Variable& table, i64 positions) {
  const i64 D = table.size(0);
  require(
      D % 2 == 1 && (D + 1) / 2 >= positions,
      "{}: wanted a bias [2·max−1] with max >= {}, the positions that attend to each other; got "
      "[{}]",
      name, positions, D);
  return (D - 1) / 2;
}

Variable elementwise_weights(bool laplace, const Variable& scores) {
  if (laplace)
    return normal_cdf(scale(sub(scores, full(scores, {}, laplace_mean)), 1 / laplace_deviation));
  const Variable positive = relu(scores);
  return mul(positive, positive);
}

Variable elementwise_attention(const ElementwiseCall& call, const Variable& q, const Variable& k,
                               const Variable& values, const Variable& table) {
  const i64 B = q.size(0), N = q.size(1), S = k.size(1), before = S - N;
  const i64 middle = middle_of(call.name, table, call.chunk);
  const Variable v = within_lengths(values, call.lengths);
  Variable bias = table;
  if (call.laplace) bias = scale(sub(bias, full(q, {}, laplace_mean)), 1 / laplace_deviation);
  // The bias beyond the last distance that is seen: −∞ for the future, otherwise any number.
  constexpr double hidden = -std::numeric_limits<double>::infinity();
  const Variable known = call.causal ? slice(bias, 0, 0, middle + 1) : bias;
  const Variable behind = call.causal ? full(q, {side}, hidden) : full(q, {1}, 0);
  bias = concatenate(std::vector{known, behind}, 0);
  std::vector<Variable> chunks, parts;
  Variable queries;
  for (const Tile& t : tiles_of(N, before > 0 ? N : call.chunk)) {
    if (t.begin == 0) {
      const Variable own = div(t.of(q, t.length), keys_seen(call, t, before, q));
      queries = call.laplace ? scale(own, 1 / laplace_deviation) : own;
    }
    const i64 rows = t.end - t.begin, i = before + t.begin, all = before + t.length;
    const i64 keys = call.causal ? i + rows : all;
    const auto f = [=, laplace = call.laplace, rate = call.dropout,
                    key = attention_key(call.random, t.number)](std::span<const Variable> in) {
      const Variable scores =
          add(matmul(in[0], transpose(in[1], 2, 3)), by_distance(in[3], rows, keys));
      const Variable weights = laplace ? normal_cdf(scores) : elementwise_weights(false, scores);
      return std::vector{matmul(dropout(weights, rate, key), in[2])};
    };
    parts.push_back(
        recompute(f, std::vector{slice(queries, 2, t.begin, t.end), slice(t.of(k, all), 2, 0, keys),
                                 slice(t.of(v, all), 2, 0, keys),
                                 slice(bias, 0, middle - i - rows + 1, middle - i + keys + 1)})[0]);
    if (t.end < t.length) continue;
    const Variable rows_of_chunks = parts.size() == 1 ? parts[0] : concatenate(parts, 2);
    chunks.push_back(reshape(rows_of_chunks, {B, t.chunks * t.length, v.size(2)}));
    parts.clear();
  }
  return chunks.size() == 1 ? chunks[0] : concatenate(chunks, 1);
}

// The bytes are those of a tile's weights, of the gradients of its part of k and v, and, if the
// last chunk is short, of those of q, k and v of the others.
AttentionCost elementwise_cost(const AttentionSizes& s, double pairs, i64 chunk, DType type) {
  const double item = double(size_of(type)), width = double(s.E + s.M);
  const double positions = double(s.B * s.N), rows = double(std::min(chunk, side));
  const double parts = s.N % chunk == 0 ? 0 : width + double(s.E);
  const double working = item * positions * (width + rows + parts);
  return {.forward_operations = 2 * pairs * width,
          .backward_operations = 6 * pairs * width,
          .exponentials = 3 * pairs,
          .working_bytes = working,
          .cuda_working_bytes = working};
}

Tensor elementwise_dropout(const ElementwiseCall& call, i64 B, i64 N, DType type) {
  const Tensor factors = Tensor::full({B, 1, N, N}, 1, type);
  for (const Tile& t : tiles_of(N, call.chunk)) {
    const i64 keys = call.causal ? t.end : t.length;
    const Variable ones = Tensor::full({B, t.chunks, t.end - t.begin, keys}, 1, type);
    const Tensor drawn = dropout(ones, call.dropout, attention_key(call.random, t.number)).value();
    for (i64 chunk = 0; chunk < t.chunks; ++chunk) {
      const i64 first = t.first + chunk * t.length;
      factors.slice(2, first + t.begin, first + t.end)
          .slice(3, first, first + keys)
          .copy_from(drawn.slice(1, chunk, chunk + 1));
    }
  }
  return factors;
}

}  // namespace weft
