// CSP: channel-wise sample permutation.
// S. Yuan, H. Xu, "Towards better multi-head attention via channel-wise sample permutation", 2024,
// arXiv 2410.10914, eq. 3 and 4, Theorems 1 and 2, Table 1 (shift=head).
//
// For mixing a sequence without weights: the samples of every channel are shifted along the
// sequence, and then permuted inside groups, by sorting. Time is N log G a channel, linear in the
// length; the layer that owns it needs no query and no key. Given up are weights that depend on
// content, beyond its order, and a causal form: a triangular doubly stochastic matrix is the
// identity.
//
// One input, v, viewed as [B, N, C] with C = H·M channels c = (h − 1) M + m, h = 1 … H, m = 1 … M.
// Groups are G consecutive samples. In layer l of L, from 0, with g = l C + c − 1:
//
//     J_c = (c − 1) ⌈N/C⌉, or round(N^(g / (L C − 1))) − 1                  linear, or power
//     u_c[n] = v_c[(n − J_c) mod N]                                         shift, S_J
//     out_c[n] = (group of u_c sorted up)[rank of u_1[n] in its group]      permutation
//
// so that each group of a channel is brought into the order that the first channel has there (it
// maximises ⟨u_1, out_c⟩ over permutations of the group), and out_1 = u_1. G = N sorts completely;
// then the shifts of the other channels do not change the result, except for ties. (The paper
// prints c ⌈N/C⌉, which contradicts J_1 = 0, and ⌊N^(1/(L C − 1))⌋^(c−1) − 1, whose base is 1 at
// every realistic size.)
//
// Dropout multiplies out by its mask d [N, C]. Backward then begins with d ⊙ dout.
//
//     v [B, N, H, M]   out [B, N, H, M]
//
// The order is that of (value, position): ties are stable, −0 = +0, and NaN comes last; NaNs are
// equal. The last group may be short.
//
// Masks: lengths. N is then the length of each sequence, in shifts too; outputs from there on are
// 0.
//
// Backward. Shift and sort are one permutation for each channel, out_c[n] = v_c[src_c(n)], constant
// between ties, and the derivative of a permutation is its inverse:
//
//     dv_c[src_c(n)] = dout_c[n]
//
// The first channel gets no gradient for the order that it gives to the others.
//
// Options. J_c is taken modulo N; `rule` and `shift` choose
//
//                paper                            code
//     none       0
//     linear     (c − 1) ⌈N/C⌉                    2 max(c − 2, 0)
//     power      round(N^(g / (L C − 1))) − 1     ⌈N^(g / (L C))⌉
//     head       8 (h − 1), the same for all channels of head h; one head is read as eight
//     custom     given
//
// and `order`, besides `reference`, the form above, that of the released code, in which no channel
// decides the order of another:
//
//     ascending    out_c = u_c, each group sorted up
//     descending   out_c = u_c, each group sorted down; NaN comes last here, too
//
// The released operator is csp:preset=released. With the option `sinkhorn` doubly stochastic maps
// replace the permutations: transport.h.
//
// G is the option `group`, or ⌈N/K⌉ with `groups` = K; both by the length of the item. With sort=0,
// and in csp-shift, there is no permutation, out_c = u_c. In csp-sort every J_c is 0.
//
// Saved: nothing of v. For each output the offset of its source in the group, in 16 bits, or in 32
// where a group is longer than 65,536; for G = 2 a bit for each pair, 1 if it was swapped; for a
// shift alone nothing. And the shifts, 4 C bytes for each length.
//
// Time of a sample is 1 + log₂ G / 2 operations forward, for the copy and the sort, and 2 backward.
// CPU kernels pack some channels at a time into contiguous columns, where a shift is two copies,
// and sort a vector of them at once; CUDA kernels fold the shift into the address.
//
// Read next: shifts.h, problem.h (the record); csp.cpp; columns.h (channels as columns), network.h
// (the sort), group_order.h; csp_cpu.cpp.
#pragma once

#include <cstdint>

#include "ops/attention/csp/problem.h"
#include "ops/attention/csp/shifts.h"
#include "runtime/device.h"
#include "runtime/view.h"

namespace weft {

template <class Device>
struct CspSourceKernels {
  // J of `rows` times C channels.
  static void shifts(const Device&, const CspShiftTable&, i64 rows, std::int32_t* shifts);

  // Records the given sources src [B, N, C]; writes the recorded ones.
  static void decide(const Device&, const CspProblem&, View<const i64, 3> src);
  static void sources(const Device&, const CspProblem&, View<i64, 3> src);
};

template <class Device, class T>
struct CspKernels {
  // Writes all of out, and, unless decided, the record.
  static void forward(const Device&, const CspProblem&, View<const T, 4> v, View<T, 4> out);

  // Writes all of dv.
  static void backward(const Device&, const CspProblem&, View<const T, 4> dout, View<T, 4> dv);
};

}  // namespace weft
