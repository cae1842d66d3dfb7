// Sparse attention: the patterns, the definition, decoding and the fact sheet. Equations: sparse.h.
#include "ops/attention/sparse/sparse.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "ops/attention/definitions.h"
#include "ops/attention/engines/pairs/attention.h"
#include "ops/attention/key_value_cache.h"
#include "ops/attention/scores.h"
#include "ops/views/views.h"

namespace weft {
namespace {

// Which keys a head sees.
enum class Set { both, one, two };

struct Pattern {
  bool strided, merged;
  i64 l, c;

  explicit Pattern(const AttentionSpec& spec)
      : strided(spec.word("pattern") == "strided"),
        merged(spec.word("combine") == "merged"),
        l(spec.integer("stride")),
        c(spec.integer("summary") > 0 ? spec.integer("summary") : std::min<i64>(32, l)) {
    require(c <= l,
            "sparse: summary={} is more than the {} positions of a block; at most stride={}", c, l,
            l);
  }

  bool one(i64 i, i64 j) const { return j <= i && (strided ? i - l < j : j / l == i / l); }
  bool two(i64 i, i64 j) const { return j <= i && (strided ? (i - j) % l == 0 : j % l >= l - c); }
  Set set_of(i64 head) const { return merged ? Set::both : head % 2 == 0 ? Set::one : Set::two; }

  // The summary keys of N positions, which are the second source of fixed patterns.
  i64 summary_keys(i64 N) const { return strided ? 0 : N / l * c; }
  // The pairs of a set among N positions.
  std::vector<PairsPart> parts(Set set, i64 N) const {
    const Staircase before{.slope = 1}, own{.slope = 1, .offset = 1};
    std::vector<PairsPart> list;
    if (set != Set::two) {
      const Staircase block{.slope = l, .step = l};
      list.push_back({.band = strided ? Band::window(l - 1, 0) : Band{.first = block, .end = own}});
    }
    if (set == Set::one) return list;
    if (strided) {  // keys at less than l away are in the window
      list.push_back({.band = {.end = set == Set::both ? before : own}, .classes = l});
      return list;
    }
    if (set == Set::two) {
      list.push_back({.band = {.first = {.slope = l, .step = l, .offset = l - c}, .end = own}});
    }
    if (N >= l) list.push_back({.band = {.end = {.slope = c, .step = l}}, .source = 1});
    return list;
  }

  // J(i), ascending.
  std::vector<i64> keys(i64 head, i64 i) const {
    const Set set = set_of(head);
    const i64 near = strided ? std::max<i64>(i - l + 1, 0) : i / l * l;  // begin of one(i)
    const i64 end = set == Set::two ? i + 1 : near;                      // end of what two(i) adds
    std::vector<i64> list;
    if (set != Set::one && strided) {
      for (i64 j = i % l; j < end; j += l) list.push_back(j);
    } else if (set != Set::one) {
      for (i64 block = 0; block < end; block += l) {
        for (i64 j = block + l - c; j < std::min(block + l, end); ++j) list.push_back(j);
      }
    }
    for (i64 j = near; set != Set::two && j <= i; ++j) list.push_back(j);
    return list;
  }
};

// The last c of every whole block of l positions: [B, ⌊N/l⌋ c, H, ..].
Variable summaries(const Pattern& pattern, const Variable& x) {
  const i64 blocks = x.size(1) / pattern.l, l = pattern.l;
  Shape shape = x.shape(), cut{shape[0], blocks, l, shape[2], shape[3]};
  shape[1] = pattern.summary_keys(x.size(1));
  const Variable whole = blocks * l == x.size(1) ? x : slice(x, 1, 0, blocks * l);
  return reshape(slice(reshape(whole, cut), 2, l - pattern.c, l), shape);
}

// Attention of all heads to the keys of one set, with the masks, dropout and draws of `call`.
using AttendSet = Variable (*)(const Pattern&, Set, double temperature, const AttentionCall& call,
                               const Variable& q, const Variable& k, const Variable& v);

Variable attend_set(const Pattern& pattern, Set set, double temperature, const AttentionCall& call,
                    const Variable& q, const Variable& k, const Variable& v) {
  const PairsCall pairs{"sparse", temperature, call.lengths, call.dropout, call.random};
  const std::vector<PairsPart> parts = pattern.parts(set, q.size(1));
  std::vector<PairsSource> sources{{k, v, call.lengths}};
  if (parts.back().source == 1) {
    sources.push_back({summaries(pattern, k), summaries(pattern, v)});
  }
  return pairs_attention(pairs, q, sources, parts);
}

MaskColumns mask_columns(const Pattern& pattern, Set set, i64 N) {
  const i64 l = pattern.l, c = pattern.c, classes = (N + l - 1) / l;
  const i64 second = next_mask_columns(N);
  if (set == Set::one || (!pattern.strided && N < l)) return {};  // one part
  if (pattern.strided && set == Set::two) return {classes, [=](i64, i64 j) { return j / l; }};
  if (pattern.strided) {
    return {second + classes, [=](i64 i, i64 j) { return i - j < l ? j : second + j / l; }};
  }
  return {second + N / l * c, [=](i64 i, i64 j) {
            if (j >= i / l * l || j % l < l - c) return j;  // in the block, or not seen
            return second + j / l * c + j % l - (l - c);
          }};
}

Variable reference_set(const Pattern& pattern, Set set, double temperature,
                       const AttentionCall& call, const Variable& q, const Variable& k,
                       const Variable& v) {
  const i64 N = q.size(1);
  const Tensor seen = self_visibility(call, q.size(0), 1, N, [&](i64, i64, i64 i, i64 j) {
    return (set != Set::two && pattern.one(i, j)) || (set != Set::one && pattern.two(i, j));
  });
  return attention_over(seen, temperature, call, q, k, v, {}, mask_columns(pattern, set, N));
}

// The heads 0, 2, … and the heads 1, 3, … of x [B, N, H, ..], H > 1; views if H is even.
struct Halves {
  Variable even, odd;

  explicit Halves(const Variable& x) {
    const i64 H = x.size(2), pairs = H / 2;
    const Variable paired = H % 2 == 0 ? x : slice(x, 2, 0, 2 * pairs);
    const Shape half{x.size(0), x.size(1), pairs, x.size(3)};
    const auto sides = split(reshape(paired, {half[0], half[1], pairs, 2, half[3]}), 3, {1, 1});
    even = reshape(sides[0], half), odd = reshape(sides[1], half);
    if (H % 2 == 0) return;
    const Variable parts[] = {even, slice(x, 2, H - 1, H)};
    even = concatenate(parts, 2);
  }
};

// The inverse.
Variable interleaved(const Variable& even, const Variable& odd) {
  const i64 pairs = odd.size(2);
  const Shape side{odd.size(0), odd.size(1), pairs, 1, odd.size(3)};
  const bool one_more = even.size(2) > pairs;
  const Variable sides[] = {reshape(one_more ? slice(even, 2, 0, pairs) : even, side),
                            reshape(odd, side)};
  const Variable paired =
      reshape(concatenate(sides, 3), {side[0], side[1], 2 * pairs, odd.size(3)});
  if (!one_more) return paired;
  const Variable parts[] = {paired, slice(even, 2, pairs, pairs + 1)};
  return concatenate(parts, 2);
}

// All heads together, or the even ones and the odd ones.
Variable by_heads(AttendSet attend_one, const AttentionSpec& spec, const AttentionCall& call,
                  std::span<const Variable> inputs) {
  const Pattern pattern(spec);
  const Variable &q = inputs[0], &k = inputs[1], &v = inputs[2];
  const double temperature = temperature_of(spec, q.size(3));
  if (pattern.merged || q.size(2) == 1) {
    return attend_one(pattern, pattern.set_of(0), temperature, call, q, k, v);
  }
  const Halves queries(q), keys(k), values(v);
  AttentionCall odd_call = call;  // with a second dropout mask
  odd_call.random = call.random.further(DrawPurpose::bottom_dropout);
  return interleaved(
      attend_one(pattern, Set::one, temperature, call, queries.even, keys.even, values.even),
      attend_one(pattern, Set::two, temperature, odd_call, queries.odd, keys.odd, values.odd));
}

Attended attend_sparse(const AttentionSpec& spec, const AttentionCall& call,
                       std::span<const Variable> inputs) {
  return by_heads(attend_set, spec, call, inputs);
}

Attended reference_sparse(const AttentionSpec& spec, const AttentionCall& call,
                          std::span<const Variable> inputs) {
  return by_heads(reference_set, spec, call, inputs);
}

AttentionCost cost_sparse(const AttentionSpec& spec, const AttentionSizes& s, bool, DType type) {
  const Pattern pattern(spec);
  const i64 rows = pattern.summary_keys(s.N), odd = s.H / 2;
  const auto pairs = [&](Set set) {
    double sum = 0;
    for (const PairsPart& part : pattern.parts(set, s.N)) {
      sum += pairs_of(part, s.N, part.source == 1 ? rows : s.N);
    }
    return sum;
  };
  const double seen = pattern.merged
                          ? double(s.H) * pairs(Set::both)
                          : double(s.H - odd) * pairs(Set::one) + double(odd) * pairs(Set::two);
  AttentionCost cost = pairs_cost(s, double(s.B) * seen, type);
  const auto bytes = [&](i64 length, i64 heads, i64 width) {
    return double(s.B * length * heads * width) * double(size_of(type));
  };
  const double gathered = bytes(rows, pattern.merged ? s.H : odd, s.E + s.M);
  if (pattern.c < pattern.l) cost.saved_bytes += gathered;  // else they are views
  if (pattern.merged) {
    cost.working_bytes += gathered;  // their gradients, and on CUDA that of v, filled from them
    cost.cuda_working_bytes += gathered + (rows > 0 ? bytes(s.N, s.H, s.M) : 0);
  } else if (s.H > 1) {  // out of the even and of the odd heads; q, k, v are views of an even H
    cost.saved_bytes += bytes(s.N, s.H, s.M);
    if (s.H % 2 == 1) cost.saved_bytes += bytes(s.N, s.H - odd, 2 * s.E + s.M);
    cost.cuda_working_bytes = 0;  // the peak is where the halves of out are put together
  }
  return cost;
}

std::unique_ptr<DecodingState> decode_sparse(const AttentionSpec& spec, const AttentionSizes& sizes,
                                             DType type, i64 capacity) {
  return decode_by_keys(spec, sizes, type, capacity,
                        [pattern = Pattern(spec)](i64 h, i64 i) { return pattern.keys(h, i); });
}

const Registration registered_sparse{Mechanism{
    .name = "sparse",
    .title = "softmax attention over a block or window and every l-th or summary position before",
    .paper = "R. Child, S. Gray, A. Radford, I. Sutskever, Generating long sequences with sparse "
             "transformers, 2019, arXiv 1904.10509",
    .equations = "section 4",
    .inputs = query_key_value,
    .options = {{.name = "pattern",
                 .initial = "fixed",
                 .help = "blocks and the last positions of each; or a window and every l-th "
                         "position",
                 .choices = {"fixed", "strided"},
                 .tried = {"strided"}},
                {.name = "stride",
                 .initial = "128",
                 .help = "l: positions of a block or a window",
                 .least = 1,
                 .most = 1 << 24,
                 .tried = {"1", "5"}},
                {.name = "summary",
                 .initial = "0",
                 .help =
                     "c: positions at the end of a block that all later ones see; 0: min(32, l)",
                 .least = 0,
                 .most = 1 << 24,
                 .with = "pattern=fixed",
                 .tried = {"7"}},
                {.name = "combine",
                 .initial = "merged",
                 .help = "both sets in every head; or one in even heads and one in odd heads",
                 .choices = {"merged", "heads"},
                 .tried = {"heads"}},
                temperature_option()},
    .masks = {.causal = true, .lengths = true},
    .causal_only = true,
    .strictly_causal = true,
    .linear_in_values = true,
    .scaling = "N l + c N²/l",
    .attend = attend_sparse,
    .reference = reference_sparse,
    .cost = cost_sparse,
    .decode = decode_sparse}};

}  // namespace
}  // namespace weft
