// BigBird attention: the random blocks, the definition and the fact sheet. Equations: bigbird.h.
#include "ops/attention/bigbird/bigbird.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "ops/attention/bigbird/blocks.h"
#include "ops/attention/definitions.h"
#include "ops/attention/engines/pairs/attention.h"
#include "ops/attention/scores.h"
#include "runtime/dispatch.h"

namespace weft {
namespace {

RandomBlocks rule_of(const AttentionSpec& spec, const AttentionCall& call) {
  return {call.seed, static_cast<std::uint32_t>(call.layer), spec.integer("random")};
}

// [H, n−2, r], or [B, H, n−2, r]; undefined if none are given.
Tensor given_blocks(const AttentionSpec& spec, const AttentionCall& call, i64 B, i64 H,
                    i64 blocks) {
  const auto found = call.given.find("random_blocks");
  if (found == call.given.end()) return {};
  const i64 inside = std::max<i64>(blocks - 2, 0), r = spec.integer("random");
  const Shape shape = found->second.rank() == 4 ? Shape{B, H, inside, r} : Shape{H, inside, r};
  return given_choice(spec.mechanism(), call, "random_blocks", shape);
}

// The most tiles that a head lists.
i64 most_tiles(i64 size, i64 random, i64 tiles) {
  const bool whole = size % tile_side == 0;
  const auto met_by = [&](i64 positions) {
    return whole ? positions / tile_side : (positions + 2 * tile_side - 2) / tile_side;
  };
  const i64 blocks = whole ? 1 : tile_side / size + 2;  // that a tile of queries overlaps
  const i64 row = (2 + blocks * random) * met_by(size) + met_by((blocks + 2) * size);
  const i64 rows_of_all = std::min(tiles, 2 * met_by(size));
  return rows_of_all * tiles + (tiles - rows_of_all) * std::min(tiles, row);
}

BlockPattern pattern_of(const AttentionSpec& spec, i64 items, i64 H, i64 N) {
  BlockPattern pattern{.items = items, .heads = H, .size = spec.integer("block"), .positions = N};
  pattern.blocks = (N + pattern.size - 1) / pattern.size;
  pattern.width = BigBirdBlocks::runs_of(spec.integer("random"));
  pattern.most = most_tiles(pattern.size, spec.integer("random"), pattern.tiles());
  return pattern;
}

std::shared_ptr<const TileListTensors> lists_of(const AttentionSpec& spec,
                                                const AttentionCall& call, const Tensor& q) {
  const i64 B = q.size(0), N = q.size(1), H = q.size(2), r = spec.integer("random");
  const i64 items = call.lengths.defined() ? B : 1;
  BlockPattern pattern = pattern_of(spec, items, H, N);
  const i64 inside = std::max<i64>(pattern.blocks - 2, 0);
  Tensor random = given_blocks(spec, call, B, H, pattern.blocks);
  const bool given = random.defined();
  if (!given) random = Tensor::empty({items, H, inside, r}, DType::i64, q.device());
  const bool by_item = random.rank() == 4 && random.size(0) > 1;
  if (given && by_item) pattern.items = B;
  const Tensor runs =
      Tensor::empty({pattern.sheets() * pattern.blocks * pattern.width, 2}, DType::i32, q.device());
  const BigBirdBlocks blocks{.rule = rule_of(spec, call),
                             .lengths = numbers_of(call.lengths),
                             .items = pattern.items,
                             .heads = H,
                             .positions = N,
                             .size = pattern.size,
                             .blocks_drawn = given ? nullptr : random.data<i64>(),
                             .blocks_given = given ? random.data<i64>() : nullptr,
                             .items_given = by_item ? B : 1,
                             .runs = reinterpret_cast<BlockRun*>(runs.bytes())};
  dispatch_device(q.device(),
                  [&](auto device) { BigBirdKernels<decltype(device)>::fill(device, blocks); });
  const bool one = random.rank() == 4 && random.size(0) == 1;
  report_choice(call, "random_blocks", one ? random.reshape({H, inside, r}) : random);
  pattern.runs = blocks.runs;
  return std::make_shared<const TileListTensors>(tiles_of_blocks(pattern, q.device()));
}

Attended attend_bigbird(const AttentionSpec& spec, const AttentionCall& call,
                        std::span<const Variable> inputs) {
  const PairsCall pairs{"bigbird", temperature_of(spec, inputs[0].size(3)), call.lengths,
                        call.dropout, call.random};
  return pairs_attention(pairs, inputs[0], {inputs[1], inputs[2], call.lengths},
                         {.lists = lists_of(spec, call, inputs[0].value())});
}

Attended reference_bigbird(const AttentionSpec& spec, const AttentionCall& call,
                           std::span<const Variable> inputs) {
  const Variable& q = inputs[0];
  const i64 B = q.size(0), N = q.size(1), H = q.size(2);
  const i64 size = spec.integer("block"), r = spec.integer("random"), all = (N + size - 1) / size;
  const Tensor given = given_blocks(spec, call, B, H, all);
  std::vector<i64> drawn(static_cast<std::size_t>(r));
  const Tensor named = Tensor::zeros({B, H, all, all}, DType::u8);
  const View<std::uint8_t, 4> names = named.view<std::uint8_t, 4>();
  for (i64 row = 0; row < B * H * all; ++row) {
    const i64 t = row % all, h = row / all % H, b = row / all / H;
    const i64 n = (length_of(call.lengths, b, N) + size - 1) / size;
    if (t == 0 || t >= n - 1) continue;
    rule_of(spec, call).draw(h, t, n, drawn.data());
    const i64 sheet = given.defined() && given.rank() == 4 ? b * H + h : h;
    for (i64 k = 0; k < r; ++k) {
      const i64 u =
          given.defined() ? given.data<i64>()[(sheet * (all - 2) + t - 1) * r + k] : drawn[k];
      if (0 <= u && u < n) names(b, h, t, u) = 1;
    }
  }
  const Tensor seen = self_visibility(call, B, H, N, [&](i64 b, i64 h, i64 i, i64 j) {
    const i64 t = i / size, u = j / size, last = (length_of(call.lengths, b, N) - 1) / size;
    return t == 0 || t == last || u == 0 || u == last || std::abs(t - u) <= 1 ||
           names(b, h, t, u) == 1;
  });
  return attention_over(seen, temperature_of(spec, q.size(3)), call, q, inputs[1], inputs[2]);
}

AttentionCost cost_bigbird(const AttentionSpec& spec, const AttentionSizes& s, bool, DType type) {
  const i64 b = spec.integer("block"), r = spec.integer("random"), n = (s.N + b - 1) / b;
  double pairs = double(s.N) * double(std::min(s.N, 2 * b));
  for (i64 t = 1; t < n - 1; ++t) {
    const i64 seen_anyway = 3 + (t > 1) + (t < n - 2);
    pairs += double(b) * double(std::min((seen_anyway + r) * b, s.N));
  }
  AttentionCost cost = pairs_cost(s, double(s.B * s.H) * pairs, type);
  cost.saved_bytes += bytes_of_block_lists(pattern_of(spec, 1, s.H, s.N));
  return cost;
}

const Registration registered_bigbird{Mechanism{
    .name = "bigbird",
    .title = "softmax attention over the blocks nearby, the first, the last and some at random",
    .paper = "M. Zaheer et al., Big Bird: Transformers for longer sequences, NeurIPS 2020, "
             "arXiv 2007.14062",
    .equations = "sections 2 and 3, appendix D",
    .inputs = query_key_value,
    .choices = {{.name = "random_blocks", .shape = "H n-2 random", .by_length = true}},
    .options = {{.name = "block",
                 .initial = "64",
                 .help = "b: positions of a block",
                 .least = 1,
                 .most = 1 << 24,
                 .tried = {"4", "40"}},
                {.name = "random",
                 .initial = "3",
                 .help = "blocks at random that a block sees besides",
                 .least = 0,
                 .most = 1 << 10,
                 .tried = {"0"}},
                temperature_option()},
    .masks = {.lengths = true},
    .linear_in_values = true,
    .row_sums = RowSums::one,
    .takes_bf16 = true,
    .scaling = "N b (5 + r)",
    .attend = attend_bigbird,
    .reference = reference_bigbird,
    .cost = cost_bigbird}};

}  // namespace
}  // namespace weft
