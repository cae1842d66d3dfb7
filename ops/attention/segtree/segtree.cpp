// SegTree attention: the lists of its tree, the definition and the fact sheet. Equations:
// segtree.h.
#include "ops/attention/segtree/segtree.h"

#include <algorithm>

#include "ops/attention/definitions.h"
#include "ops/attention/engines/lists/attention.h"
#include "ops/attention/scores.h"
#include "ops/attention/segtree/tree.h"
#include "ops/dropout/dropout.h"
#include "ops/gather/gather.h"
#include "ops/matmul/matmul.h"
#include "ops/pointwise/pointwise.h"
#include "ops/softmax/softmax.h"
#include "ops/views/views.h"
#include "runtime/dispatch.h"

namespace weft {
namespace {

i64 types_of(i64 positions) { return 3 * Tree{positions}.levels(); }

// For n leaves; a tree of fewer leaves is not larger in any size.
EdgeListSizes tree_sizes(i64 items, i64 n, bool causal) {
  const Tree tree{n, causal};
  EdgeListSizes sizes{.items = items,
                      .rows = tree.rows(),
                      .keys = tree.rows(),
                      .longest = 1 + n,
                      .longest_out = tree.levels() + n};
  for (i64 leaf = 0; leaf < n; ++leaf) sizes.edges += tree.edges(leaf);
  sizes.runs = sizes.edges + 2 * (sizes.rows - n);
  sizes.edges += n * tree.top() + sizes.rows - n;
  return sizes;
}

std::shared_ptr<const EdgeListTensors> lists_of(const AttentionCall& call, i64 items, i64 positions,
                                                Device device) {
  const auto tensors = std::make_shared<const EdgeListTensors>(
      tree_sizes(call.lengths.defined() ? items : 1, positions, call.causal), device);
  const auto lists = tensors->by_rule(Trees{numbers_of(call.lengths), positions, call.causal});
  dispatch_device(device, [&](auto place) { TreeKernels<decltype(place)>::fill(place, lists); });
  return tensors;
}

Attended attend_segtree(const AttentionSpec& spec, const AttentionCall& call,
                        std::span<const Variable> inputs) {
  const Variable& q = inputs[0];
  const ListsCall lists{"segtree", temperature_of(spec, q.size(3)), call.dropout, call.random};
  const i64 positions = positions_of(spec.mechanism(), q.size(1));
  return lists_attention(lists, lists_of(call, q.size(0), positions, q.value().device()), q,
                         inputs[1], inputs[2], inputs[3]);
}

Attended reference_segtree(const AttentionSpec& spec, const AttentionCall& call,
                           std::span<const Variable> inputs) {
  const Variable q = transpose(inputs[0], 1, 2), k = transpose(inputs[1], 1, 2);
  const i64 B = q.size(0), H = q.size(1), T = q.size(2);
  const i64 positions = positions_of(spec.mechanism(), T);
  const Tensor seen = Tensor::zeros({B, 1, T, T}, DType::f64);
  const Tensor types = Tensor::zeros({B, 1, T, T}, DType::i64);
  const Tensor ranks = Tensor::zeros({B, 1, T, T}, DType::i64);  // in the list
  for (i64 b = 0; b < B; ++b) {
    const Tree tree{length_of(call.lengths, b, positions), call.causal};
    for (i64 i = 0; i < tree.rows(); ++i) {
      tree.each_edge(i, [&](i64 rank, i64 j, i64 type) {
        seen.view<double, 4>()(b, 0, i, j) = 1;
        types.view<i64, 4>()(b, 0, i, j) = type;
        ranks.view<i64, 4>()(b, 0, i, j) = rank;
      });
    }
  }
  const Variable of_types = matmul(q, transpose(inputs[3], 0, 1));  // [B, H, T, types]
  const Variable products = add(matmul(q, transpose(k, 2, 3)), gather(of_types, 3, types));
  const Variable a = softmax(masked(scale(products, temperature_of(spec, q.size(3))), seen));
  const i64 longest = tree_sizes(1, positions, call.causal).longest;
  const Tensor ones = Tensor::full({B, H, T, longest}, 1, q.value().dtype());
  const Variable left = gather(dropout(ones, call.dropout, call.random), 3, ranks);
  return transpose(matmul(mul(a, left), transpose(inputs[2], 1, 2)), 1, 2);
}

AttentionCost cost_segtree(const AttentionSpec& spec, const AttentionSizes& s, bool causal,
                           DType type) {
  const i64 positions = positions_of(spec.mechanism(), s.N);
  return lists_cost(s, tree_sizes(1, positions, causal), types_of(std::max(positions, s.N_max)),
                    type);
}

const Registration registered_segtree{Mechanism{
    .name = "segtree",
    .title = "softmax attention along the edges of a binary tree over the positions",
    .paper = "Z. Ye et al., SegTree transformer: iterative refinement of hierarchical features, "
             "ICLR 2019 workshop on representation learning on graphs and manifolds",
    .equations = "its code, github.com/yzh119/segtree-transformer-v0",
    .inputs =
        [](const AttentionSpec& spec, const AttentionSizes& sizes) {
          AttentionInputs inputs = query_key_value(spec, sizes);
          inputs.push_back({.name = "relative",
                            .role = Role::parameter,
                            .axes = "3·levels(N_max) E",
                            .shape = {types_of(sizes.N_max), sizes.E},
                            .weight = {Initializer::normal, 1}});
          return inputs;
        },
    .options = {temperature_option()},
    .masks = {.causal = true, .lengths = true},
    .strictly_causal = true,
    .rows = {.count = [](i64 positions) { return Tree{positions}.rows(); },
             .last =
                 [](i64 positions, i64 row) {
                   const Tree tree{positions};
                   return tree.end_of_leaves(tree.node(row)) - 1;
                 }},
    .linear_in_values = true,
    .row_sums = RowSums::one,
    .scaling = "N log N",
    .memory = "N log N",
    .attend = attend_segtree,
    .reference = reference_segtree,
    .cost = cost_segtree}};

}  // namespace
}  // namespace weft
