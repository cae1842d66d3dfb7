// Block-local attention: the two attentions, the definition and the fact sheet. Equations:
// block_local.h.
#include "ops/attention/block_local/block_local.h"

#include <algorithm>
#include <vector>

#include "ops/attention/definitions.h"
#include "ops/attention/engines/pairs/attention.h"
#include "ops/attention/scores.h"
#include "ops/blocks/blocks.h"
#include "ops/gather/gather.h"
#include "ops/matmul/matmul.h"
#include "ops/pointwise/pointwise.h"
#include "ops/views/views.h"

namespace weft {
namespace {

// Positions of a block, at most as many as there are.
i64 block_of(const AttentionSpec& spec, i64 N) {
  return std::min(spec.integer("block"), std::max<i64>(N, 1));
}

bool takes_mean(const AttentionSpec& spec) { return spec.word("pool") == "mean"; }

// The dropout mask between blocks is a second one.
RandomKey between_blocks(const AttentionCall& call) {
  return call.random.further(DrawPurpose::bottom_dropout);
}

Attended attend_block_local(const AttentionSpec& spec, const AttentionCall& call,
                            std::span<const Variable> inputs) {
  const i64 block = block_of(spec, inputs[0].size(1));
  const double temperature = temperature_of(spec, inputs[0].size(3));
  const auto pooled = [&](const Variable& x) {
    return takes_mean(spec) ? block_mean(x, block, call.lengths)
                            : block_maximum(x, block, call.lengths);
  };
  const Tensor blocks = blocks_within(call.lengths, block);
  const PairsCall between{"block-local", temperature, blocks, call.dropout, between_blocks(call)};
  const Variable rows = pairs_attention(
      between, pooled(inputs[0]), {pooled(inputs[1]), pooled(inputs[2]), blocks}, PairsPart{});
  const PairsCall inside{"block-local", temperature, call.lengths, call.dropout, call.random};
  const Variable own = pairs_attention(inside, inputs[0], {inputs[1], inputs[2], call.lengths},
                                       {.band = Band::blocks(block)});
  return add_to_blocks(own, rows, block, call.lengths);
}

// The blocks of a call as matrices.
struct DenseBlocks {
  i64 block, B, N, n;
  std::vector<i64> lengths;

  DenseBlocks(const AttentionSpec& spec, const AttentionCall& call, const Variable& q)
      : block(block_of(spec, q.size(1))),
        B(q.size(0)),
        N(q.size(1)),
        n((N + block - 1) / block),
        lengths(call.lengths.defined() ? call.lengths.to_vector<i64>() : std::vector<i64>(B, N)) {}

  // 1 if position i of item b is in block t: [B, 1, N, n]. With `mean`, divided by the block's
  // count.
  Tensor membership(bool mean) const {
    const Tensor matrix = Tensor::zeros({B, 1, N, n}, DType::f64);
    for (i64 b = 0; b < B; ++b) {
      for (i64 i = 0; i < lengths[b]; ++i) {
        const i64 count = std::min(lengths[b] - i / block * block, block);
        matrix.view<double, 4>()(b, 0, i, i / block) = mean ? 1.0 / double(count) : 1;
      }
    }
    return matrix;
  }

  // A matrix over positions, [B, 1, m, n], times x [B, n, H, E].
  static Variable product(const Tensor& matrix, const Variable& x) {
    const Shape heads{x.size(0), x.size(2), matrix.size(2), matrix.size(3)};
    const Variable all(matrix.to(x.value().dtype()).expand(heads).clone());
    return transpose(matmul(all, transpose(x, 1, 2)), 1, 2);
  }

  // Visits the positions of the blocks in order, and keeps the running maximum.
  Variable maximum(const Variable& x) const {
    Variable largest;
    for (i64 place = 0; place < block; ++place) {
      std::vector<i64> rows;
      const Tensor there = Tensor::zeros({B, n, 1, 1}, DType::f64);
      for (i64 t = 0; t < n; ++t) {
        const i64 i = t * block + place;
        rows.push_back(std::min(i, N - 1));
        // The first missing position of a block stands for all missing ones, and is hidden.
        for (i64 b = 0; b < B; ++b)
          there.view<double, 4>()(b, t, 0, 0) = place == 0 || i < lengths[b];
      }
      const Variable own = masked(gather(x, 1, Tensor::from(rows, {1, n, 1, 1})), there);
      largest = place == 0 ? own : weft::maximum(largest, own);
    }
    return largest;
  }
};

Attended reference_block_local(const AttentionSpec& spec, const AttentionCall& call,
                               std::span<const Variable> inputs) {
  const DenseBlocks dense(spec, call, inputs[0]);
  const double temperature = temperature_of(spec, inputs[0].size(3));
  const auto pooled = [&](const Variable& x) {
    if (!takes_mean(spec)) return dense.maximum(x);
    return DenseBlocks::product(dense.membership(true).transpose(2, 3), x);
  };
  AttentionCall between = call;
  between.random = between_blocks(call);
  between.lengths = between.query_lengths = blocks_within(call.lengths, dense.block);
  const Variable rows =
      attention_over(visibility(between, dense.B, dense.n, dense.n), temperature, between,
                     pooled(inputs[0]), pooled(inputs[1]), pooled(inputs[2]));
  const Tensor seen = self_visibility(call, dense.B, 1, dense.N, [&](i64, i64, i64 i, i64 j) {
    return i / dense.block == j / dense.block;
  });
  const Variable own = attention_over(seen, temperature, call, inputs[0], inputs[1], inputs[2]);
  return add(own, DenseBlocks::product(dense.membership(false), rows));
}

// Backward runs attention inside blocks, whose output is freed then, then attention between them,
// then one pool after the other.
AttentionCost cost_block_local(const AttentionSpec& spec, const AttentionSizes& s, bool,
                               DType type) {
  const i64 block = block_of(spec, s.N), n = (s.N + block - 1) / block;
  const double heads = double(s.B * s.H), item = double(size_of(type));
  AttentionSizes blocks = s;
  blocks.N = blocks.S = n;
  AttentionCost cost = pairs_cost(s, heads * double(s.N * block + n * n), type);
  const AttentionCost between = pairs_cost(blocks, heads * double(n * n), type);
  const double inner = item * heads * double(s.N * s.M), rows = item * heads * double(n * s.M);
  const double pooled = item * heads * double(n * (2 * s.E + s.M));
  cost.saved_bytes += between.saved_bytes + inner + rows + pooled;
  if (!takes_mean(spec)) cost.saved_bytes += pooled / item * double(sizeof(i64));
  const double gradient = item * heads * double(s.N * std::max(s.E, s.M));
  const auto largest = [&](double inside, double outside) {
    return std::max({inside + rows, outside + rows + pooled - inner, gradient + pooled - inner});
  };
  cost.working_bytes = largest(cost.working_bytes, between.working_bytes);
  cost.cuda_working_bytes = largest(cost.cuda_working_bytes, between.cuda_working_bytes);
  return cost;
}

const Registration registered_block_local{Mechanism{
    .name = "block-local",
    .title = "softmax attention inside blocks, plus that between the blocks' pooled rows",
    .paper = "T. Shen, T. Zhou, G. Long, J. Jiang, C. Zhang, Bi-directional block self-attention "
             "for fast and memory-efficient sequence modeling, ICLR 2018, arXiv 1804.00857",
    .equations = "section 3, with dot products",
    .inputs = query_key_value,
    .options = {{.name = "block",
                 .initial = "64",
                 .help = "b: positions of a block",
                 .least = 1,
                 .most = 1 << 24,
                 .tried = {"1", "7", "200"}},
                {.name = "pool",
                 .initial = "mean",
                 .help = "how rows of a block are pooled for attention between blocks",
                 .choices = {"mean", "max"}},
                temperature_option()},
    .masks = {.lengths = true},
    .scaling = "N b + (N/b)²",
    .attend = attend_block_local,
    .reference = reference_block_local,
    .cost = cost_block_local}};

}  // namespace
}  // namespace weft
