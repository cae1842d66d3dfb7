// ISAB, the induced set attention block of the Set Transformer.
// J. Lee, Y. Lee, J. Kim, A. R. Kosiorek, S. Choi, Y. W. Teh, "Set Transformer: a framework for
// attention-based permutation-invariant neural networks", ICML 2019, arXiv 1810.00825, eqs. 6, 7, 9
// and 10.
//
// For sets: the order of the items has no meaning, and there may be many. A few learnt rows, the
// inducing points, attend to all items, and then the items attend to the results, so that time and
// memory are linear in the number of items. Given up are a causal form, since every point sees
// everything, and information in single items that the points do not carry.
//
// MAB_a(X, Y) attends from the rows of X to those of Y. The block has two of them, with separate
// weights, a = 0 and 1:
//
//     q = X wq_a + bq_a,   k = Y wk_a + bk_a,   v = Y wv_a + bv_a
//     O = q + drop(softmax over the rows of Y of τ q kᵀ) v              head by head
//     O ← norm_{2a}(O),   O ← O + relu(O wo_a + bo_a),   O ← norm_{2a+1}(O)
//
//     out = MAB_1(x, MAB_0(inducing, x))
//
//     x [B, N, d]       out [B, N, C]     C the option `width` (0: d)
//     inducing [m, C], m the option `points`, the same rows for every batch item
//     wq0 [C, C]   wk0, wv0 [d, C]   wo0 [C, C]   wq1 [d, C]   wk1, wv1, wo1 [C, C]
//     bq0 … bo1 [C]     norm_gain, norm_bias [4, C] with norm=1; without it there are no norms
//     drop: times a dropout mask, 0 or 1/(1 − rate), MAB_1's by the call's key, MAB_0's by another
//
// Heads are ranges of C / `heads` columns of q, k and v. The attended values are added to the
// projected query, not to x. τ is the option `temperature`; 0 means 1/√C, of the full width, as in
// the paper, and not of a head's. The norm is ops/layer_norm, ε = 10⁻⁵.
//
// Permuting the items of x permutes out; the order of the inducing points does not matter. MAB_0
// alone, with its rows as the output, is the pooling that the paper calls PMA.
//
// Masks: lengths. Items at and beyond the length give 0 and no other item sees them.
//
// Backward is that of the parts, from the last to the first: linear maps (ops/linear), relu, norms,
// and attention (ops/attention/engines/pairs/pairs.h). Three of them meet in x, whose gradient is
//
//     dx = dk₀ wk0ᵀ + dv₀ wv0ᵀ + dq₁ wq1ᵀ
//
// They are one product, of [dk₀ | dv₀ | dq₁] with the three matrices concatenated, as they are one
// product forward. The gradient of `inducing` is summed over the batch.
//
// Saved, numbers: for an item [k₀ | v₀ | q₁], out of MAB_1's attention, O before its last map and
// the relu, 6 N C, and 6 m C for the points; ℓ of both attentions, H (N + m); with norms also
// 2 (N + m) (C + 1). Once for all items the concatenated matrices, (3 d + 2 C) C, and q₀, m C.
//
// Cost, forward, for an item: operations 2 N C (3 d + C) for the maps of x and its last one, 6 m C²
// for those of the points, and 4 N m C for each attention; 2 H N m exponentials. Backward 2 times,
// attention 2.5 times, as many operations, and as many exponentials. Once for all items 2 m C² for
// q₀. With d = C = 512, m = 16 the maps of x take 97 % of the operations. Backward's workspace is
// the rows of one head of MAB_1 (pairs.h).
//
// Read next: isab.cpp, whose block is short.
#pragma once
