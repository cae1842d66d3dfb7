// Local attention: the window, the definition, decoding and the fact sheet. Equations: local.h.
#include "ops/attention/local/local.h"

#include "ops/attention/definitions.h"
#include "ops/attention/engines/pairs/attention.h"
#include "ops/attention/key_value_cache.h"
#include "ops/attention/scores.h"

namespace weft {
namespace {

// Keys before and after the query.
struct Reach {
  i64 before, behind;

  Reach(const AttentionSpec& spec, bool causal)
      : before(spec.integer("context") / 2),
        behind(causal ? 0 : (spec.integer("context") + 1) / 2 - 1) {}
};

Attended attend_local(const AttentionSpec& spec, const AttentionCall& call,
                      std::span<const Variable> inputs) {
  const Reach reach(spec, call.causal);
  const PairsCall pairs{"local", temperature_of(spec, inputs[0].size(3)), call.lengths,
                        call.dropout, call.random};
  return pairs_attention(pairs, inputs[0], {inputs[1], inputs[2], call.lengths},
                         {.band = Band::window(reach.before, reach.behind)});
}

Attended reference_local(const AttentionSpec& spec, const AttentionCall& call,
                         std::span<const Variable> inputs) {
  const Reach reach(spec, call.causal);
  const Variable& q = inputs[0];
  const Tensor seen = self_visibility(call, q.size(0), 1, q.size(1), [&](i64, i64, i64 i, i64 j) {
    return i - reach.before <= j && j <= i + reach.behind;
  });
  return attention_over(seen, temperature_of(spec, q.size(3)), call, q, inputs[1], inputs[2]);
}

AttentionCost cost_local(const AttentionSpec& spec, const AttentionSizes& s, bool causal,
                         DType type) {
  const Reach reach(spec, causal);
  const PairsPart window{.band = Band::window(reach.before, reach.behind)};
  return pairs_cost(s, double(s.B * s.H) * pairs_of(window, s.N, s.S), type);
}

// Keys outside of the window are dropped.
std::unique_ptr<DecodingState> decode_local(const AttentionSpec& spec, const AttentionSizes& sizes,
                                            DType type, i64 capacity) {
  const AttentionSpec full("full:temperature=" + spec.word("temperature"));
  return decode_by_cache(full, sizes, type, std::min(capacity, Reach(spec, true).before + 1));
}

const Registration registered_local{Mechanism{
    .name = "local",
    .title = "softmax attention over the keys near the query",
    .paper =
        "fast-transformers (Idiap), LocalAttention; M.-T. Luong, H. Pham, C. Manning, Effective "
        "approaches to attention-based neural machine translation, EMNLP 2015, arXiv 1508.04025",
    .equations = "section 3.2, with one window width for all queries",
    .inputs = query_key_value,
    .options = {{.name = "context",
                 .initial = "64",
                 .help = "keys that a query sees: half of them before it",
                 .least = 1,
                 .most = 1 << 24,
                 .tried = {"2", "9", "150"}},
                temperature_option()},
    .masks = {.causal = true, .lengths = true},
    .strictly_causal = true,
    .linear_in_values = true,
    .row_sums = RowSums::one,
    .takes_bf16 = true,
    .scaling = "N c",
    .attend = attend_local,
    .reference = reference_local,
    .cost = cost_local,
    .decode = decode_local}};

}  // namespace
}  // namespace weft
