// Full softmax attention whose keys are the queries.
// A. Vyas, A. Katharopoulos, F. Fleuret, "Fast transformers with clustered attention", NeurIPS
// 2020, arXiv 2007.04825, section 4.1 ("shared-full"); N. Kitaev, Ł. Kaiser, A. Levskaya,
// "Reformer", ICLR 2020, arXiv 2001.04451, section 2 (shared-QK, keys of length 1).
//
// For comparison with attention by hashes (ops/attention/lsh/lsh.h), which needs queries and keys
// of one space: here each query attends to all of them, and nothing is lost to hashing. Given up
// are keys with a projection of their own, and with it cross-attention; time is quadratic in the
// length, as that of full attention.
//
// Per batch item and head (the equations of ops/attention/full/full.h with these keys):
//
//     k_j = q_j, or, with normalize_keys, k_j = q_j / n_j,  n_j = ‖q_j‖₂      0 where q_j = 0
//     o   = full attention of q, k, v
//
//     q [B, N, H, E]   v [B, N, H, M]   out [B, N, H, M]
//
// Masks: causal (j <= i) and lengths, which apply to keys and queries.
//
// Backward. Full attention gives dq, dk, dv. Without normalize_keys ∂k_j / ∂q_j = I; with it the
// derivative is ∂k_j / ∂q_j = (I − k_j k_jᵀ) / n_j, and so
//
//     dq_j += dk_j,  or, with normalize_keys,  dq_j += (dk_j − k_j (k_j · dk_j)) / n_j
//                                                      the added term is 0 where q_j = 0
//
// Saved: q and v as handles, out, and ℓ [B, H, N]. Normalised keys are recomputed in backward. Time
// is that of full attention.
//
// Read next: ops/attention/full/full.h; shared_full.cpp.
#pragma once

#include "runtime/device.h"
#include "runtime/view.h"

namespace weft {

template <class Device, class T>
struct SharedFullKernels {
  // k [B, N, H, E] = the rows of q, normalised.
  static void normalize_rows(const Device&, View<const T, 4> q, View<T, 4> k);

  // dq += the gradient through k = q, or through k = q / ‖q‖ if `normalized`.
  static void keys_backward(const Device&, bool normalized, View<const T, 4> q, View<const T, 4> dk,
                            View<T, 4> dq);
};

}  // namespace weft
