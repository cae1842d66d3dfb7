// The engine for lists: softmax attention of each query over a ragged list of edges, with vectors
// that are learnt for types of edges.
// As in message passing over graphs, P. Veličković et al., "Graph attention networks", ICLR 2018,
// arXiv 1710.10903, with the scores of A. Vaswani et al., arXiv 1706.03762, and the vectors of
// P. Shaw, J. Uszkoreit, A. Vaswani, "Self-attention with relative position representations",
// NAACL 2018, arXiv 1803.02155, for keys alone.
//
// An edge e goes from a key to a query and has a type: e = (i, j_e, t_e). With E(i) the list of
// query i, per batch item and head, and τ the temperature:
//
//     z_e = τ q_i · (k_j + a_t)                          j = j_e, t = t_e
//     ℓ_i = log Σ_{e ∈ E(i)} exp z_e,   w_e = exp(z_e − ℓ_i)
//     o_i = Σ_{e ∈ E(i)} d_e w_e v_j
//
//     q [B, N, H, E]   k [B, S, H, E]   v [B, S, H, M]   out [B, N, H, M]   a [types, E]
//
// a is shared by batch and heads; without it edges have no types and z_e = τ q_i · k_j. d is the
// dropout mask, 0 or 1/(1 − rate): edge e has the row (b H + h) N + i of the mask and the column
// that is its rank in E(i), of as many columns as the longest list may have edges. A query with an
// empty list gives 0. The same key may be in a list more than once: each edge counts.
//
// Backward. Let do_i be the gradient of o_i. The derivative of the softmax,
// ∂w_e/∂z_f = w_e (1{e = f} − w_f) for e, f ∈ E(i), gives
//
//     g_e  = d_e do_i · v_j                                   the gradient of w_e
//     δ_i  = Σ_{e ∈ E(i)} w_e g_e
//     dz_e = w_e (g_e − δ_i)
//
// A query's gradient is a sum over its list, a key's one over the edges that come from it,
// E'(j) = {e : j_e = j}, and that of a type over the edges that have it:
//
//     dq_i = τ Σ_{e ∈ E(i)} dz_e (k_j + a_t)
//     dk_j = τ Σ_{e ∈ E'(j)} dz_e q_i        dv_j = Σ_{e ∈ E'(j)} d_e w_e do_i
//     da_t = τ Σ_{b, h} Σ_{e : t_e = t} dz_e q_i
//
// So there are two passes. The first is by queries: it recomputes z_e, w_e and g_e, writes two
// numbers an edge, d_e w_e and dz_e, and computes dq. The second is by keys over the transposed
// lists, E', and computes dk and dv from these numbers. Each sum has one owner and one order, so
// that the bits are the same for any number of threads. Neither k_j + a_t nor any other array of
// edges × E is stored: consecutive edges of one type are a run ρ, of which
//
//     q_i · a_t is computed once, and Σ_{e ∈ ρ} dz_e once for dq_i and da_t.
//
// Saved: q, k, v and a as handles, ℓ [B, H, N], and the lists (edge_lists.h). With P edges and R
// runs in all heads, time is 2 P (E + M) + 2 R E forward and P (6 E + 4 M) + 6 R E backward. The
// workspace is two numbers an edge, on the CPU for one head at a time, and there also packed rows
// of that head.
//
// Files, in the order of reading: edge_lists.h; lists_cpu.cpp; edge_list_tensors.h and list_rule.h
// (where lists come from); attention.h, .cpp (the op); lane_groups.cuh and lists.cu.
#pragma once

#include "ops/attention/engines/lists/edge_lists.h"
#include "ops/dropout/mask.h"
#include "runtime/device.h"
#include "runtime/view.h"

namespace weft {

template <class T>
struct Lists {
  View<const T, 4> q, k, v;
  View<const T, 2> types = {};  // a; without data, types are ignored
  EdgeLists lists;
  T temperature = 1;
  double dropout = 0;
  RandomKey random = {};

  constexpr i64 B() const { return q.size(0); }
  constexpr i64 N() const { return q.size(1); }
  constexpr i64 S() const { return k.size(1); }
  constexpr i64 H() const { return q.size(2); }
  constexpr i64 E() const { return q.size(3); }
  constexpr i64 M() const { return v.size(3); }
  constexpr bool typed() const { return types.data != nullptr; }
  DropoutMask mask() const { return DropoutMask(random, dropout, lists.longest, H() * N()); }
};

template <class Device, class T>
struct ListsKernels {
  // Writes all of out and log_sums [B, H, N]; log_sums is +∞ for an empty list.
  static void forward(const Device&, const Lists<T>&, View<T, 4> out, View<T, 3> log_sums);
  // Writes all of dq, dk, dv and, if there are types, da.
  static void backward(const Device&, const Lists<T>&, View<const T, 3> log_sums,
                       View<const T, 4> dout, View<T, 4> dq, View<T, 4> dk, View<T, 4> dv,
                       View<T, 2> da);
};

}  // namespace weft
