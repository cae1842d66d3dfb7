// Attention whose scores and weights depend on the distance between query and key: passes of the
// engine for pairs with a learnt row for every distance, and a ramp of factors that limits the
// distances. The ramp is that of S. Sukhbaatar et al., "Adaptive attention span in transformers",
// ACL 2019, arXiv 1905.07799; nothing of size N × S is stored, as in pairs.h.
//
// The queries are the last N of S positions. Query i sees key j at the distance d, counted from
// `nearest`, the nearest one that is seen (0: its own position, 1: the one before):
//
//     d = (S − N + i) − j − nearest,   0 <= d < most
//
// Per batch item and head, with the temperature τ, rows r of a table, biases c, and z_h the head's
// span in [0, 1]:
//
//     s_ij = τ (q_i · k_j + q_i · r_d + c_d)
//     m_d  = clamp((z_h most − d) / ramp + 1, 0, 1)          pairs with m_d = 0 are not seen
//     o_i  = Σ_j d_ij w_ij v_j,   w_ij = m_d e^s_ij / (Σ_j m_d e^s_ij + ε Σ_j e^s_ij)
//
//     q [B, N, H, E]   k [B, S, H, E]   v [B, S, H, M]   out [B, N, H, M]   spans [H]
//     table [H or 1, most, E]: 1, shared by heads      bias [H, most]
//     d_ij: the dropout mask, 0 or 1/(1 − rate)        ε = 10⁻⁸
//
// Without a table, which is required for a bias, the scores are τ q · k. Without spans every m is 1
// and ε is 0: causal attention, or a window of `most` keys.
//
// That is a softmax, then the factors, then a division by their weighted sum plus ε. The two sums
// of the divisor are one, which streams over tiles of keys as that of any softmax:
//
//     ℓ_i = log Σ_j (m_d + ε) e^s_ij,   p_ij = exp(s_ij − ℓ_i),   w_ij = m_d p_ij
//
// Σ_j w_ij is at least 1 − ε / m, with m the least factor m_d of the keys that query i sees.
//
// Backward. Let g_ij = d_ij do_i · v_j be the gradient of w_ij, and
// δ_i = Σ_j w_ij g_ij = do_i · o_i. From ∂ℓ_i/∂s_ij = (m_d + ε) p_ij and ∂ℓ_i/∂m_d = p_ij, summed
// over the pairs of that distance,
//
//     ds_ij = p_ij (m_d g_ij − (m_d + ε) δ_i)
//     dm_d  = Σ_ij p_ij (g_ij − δ_i)                         no division by m
//     dz_h  = most / ramp Σ_{d: 0 < m_d < 1} dm_d
//     dv_j  = Σ_i d_ij w_ij do_i
//     dq_i  = τ Σ_j ds_ij (k_j + r_d),   dk_j = τ Σ_i ds_ij q_i
//     dr_d  = τ Σ_ij ds_ij q_i,          dc_d = τ Σ_ij ds_ij
//
// where each Σ_ij is over batch items and the pairs at the distance d, in dm_d those of the head;
// for a shared table it is over heads, too. p is recomputed from ℓ.
//
// Tiles. Keys stop at the head's own reach, min(most, ⌈z_h most + ramp⌉), so that time depends on
// the learnt span. A tile of queries and keys has the distances of its diagonals. The products q ·
// r of some queries with all distances of the tile are read along the diagonals, on the CPU; a CUDA
// thread takes the rows of the differences of its queries and keys. Either way a score costs one
// more product, and no array by distance leaves the tile. dr and dc have owners of their own: each
// batch item and head sums its own [most, E] in a fixed order, and these are added in a fixed
// order.
//
// Lengths, of which S = N, hide keys and queries; a query without any key, and one at or beyond its
// length, gives 0 and gets no gradient. A span that is NaN sees `most` keys and gives NaN.
//
// Saved: q, k, v, table, spans and out as handles, and ℓ [B, H, N].
//
// Files, in the order of reading: this; distances_cpu.h, distances_cpu.cpp and
// distances_backward_cpu.cpp; distance_attention.h, .cpp (the op); distances_tile.cuh, distances.cu
// and distances_backward.cu.
#pragma once

#include <algorithm>

#include "ops/attention/length.h"
#include "ops/dropout/mask.h"
#include "runtime/device.h"
#include "runtime/view.h"

namespace weft {

// m of one head.
template <class T>
struct Ramp {
  bool flat = true;  // every factor is 1, and ε is 0
  i64 reach = 0;     // distances d < reach are seen
  T end = 0, length = 1;
  T slope_inside = 0;

  constexpr bool sees(i64 d) const { return d >= 0 && d < reach; }
  // For a distance that is seen.
  constexpr T factor(i64 d) const {
    const T left = end - static_cast<T>(d);
    return flat || left >= length ? T(1) : left / length;
  }
  // ∂m_d/∂z
  constexpr T slope(i64 d) const {
    return flat || end - static_cast<T>(d) >= length ? T(0) : slope_inside;
  }
  constexpr T epsilon() const { return flat ? T(0) : static_cast<T>(1e-8); }
};

template <class T>
struct Distances {
  View<const T, 4> q, k, v;
  View<const T, 3> table;  // no data: none
  View<const T, 2> bias;   // no data: none
  View<const T, 1> spans;  // no data: none
  const i64* lengths = nullptr;
  T temperature = 1;
  i64 nearest = 0, most = 0, ramp = 1;
  double dropout = 0;
  RandomKey random = {};

  constexpr i64 B() const { return q.size(0); }
  constexpr i64 N() const { return q.size(1); }
  constexpr i64 S() const { return k.size(1); }
  constexpr i64 H() const { return q.size(2); }
  constexpr i64 E() const { return q.size(3); }
  constexpr i64 M() const { return v.size(3); }
  constexpr i64 keys(i64 b) const { return length_of(lengths, b, S()); }
  constexpr i64 queries(i64 b) const { return length_of(lengths, b, N()); }
  // The key that query i sees at d = 0; larger distances are earlier keys.
  constexpr i64 first_key(i64 i) const { return S() - N() + i - nearest; }
  constexpr i64 mask_row(i64 b, i64 h) const { return (b * H() + h) * N(); }
  DropoutMask mask() const { return DropoutMask(random, dropout, S(), H() * N()); }

  // The index of a head's table.
  constexpr i64 table_of(i64 h) const { return table.size(0) == 1 ? 0 : h; }

  // The number of distances that occur.
  constexpr i64 distances() const { return std::clamp<i64>(S() - nearest, 0, most); }

  constexpr Ramp<T> ramp_of(i64 h) const {
    i64 reach = distances();
    if (spans.data == nullptr) return {.reach = reach};
    const T end = spans(h) * static_cast<T>(most) + static_cast<T>(ramp);
    if (end < static_cast<T>(reach)) {
      reach = end > 0 ? static_cast<i64>(end) : 0;  // one more for a fraction
      reach += static_cast<T>(reach) < end ? 1 : 0;
    }
    return {false, reach, end, static_cast<T>(ramp), static_cast<T>(most) / static_cast<T>(ramp)};
  }
};

template <class Device, class T>
struct DistancesKernels {
  // Writes all of out and log_sums [B, H, N]; log_sums is +∞ for a query without keys.
  static void forward(const Device&, const Distances<T>&, View<T, 4> out, View<T, 3> log_sums);
};
template <class Device, class T>
struct DistancesBackwardKernels {
  // Writes all gradients; those of the table, the bias or the spans are not wanted if they have no
  // data.
  static void backward(const Device&, const Distances<T>&, View<const T, 4> out,
                       View<const T, 3> log_sums, View<const T, 4> dout, View<T, 4> dq,
                       View<T, 4> dk, View<T, 4> dv, View<T, 3> dtable, View<T, 2> dbias,
                       View<T, 1> dspans);
};

}  // namespace weft
