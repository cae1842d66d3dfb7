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
// Read next: csp.cpp; columns.h (channels as columns), network.h (the sort), group_order.h;
// csp_cpu.cpp.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "ops/attention/length.h"
#include "ops/select/ordered_code.h"
#include "runtime/device.h"
#include "runtime/view.h"

namespace weft {

enum class CspShift { none, linear, power, head, custom };
enum class CspOrder { reference, ascending, descending };

struct CspShiftRule {
  CspShift shift = CspShift::linear;
  bool code = false;                // the released code's variant of the paper's rule
  i64 layer = 0, layers = 1;
  static constexpr i64 head_step = 8;

  // J of channel c, from 0, of head h among C channels, for a sequence of N > 0 positions. It is a
  // constexpr template so that device code can call it.
  template <class Integer>
  constexpr Integer operator()(Integer c, Integer h, Integer C, Integer N) const {
    // If N^x is an integer, rounding must not decide: devices differ in the last bits of the
    // result.
    constexpr double whole = 1 - 0x1p-44;
    const double place = double(layer * C + c), all = double(layers * C);
    switch (shift) {
      case CspShift::linear:
        return (code ? 2 * (c > 1 ? c - 1 : 0) : c * ((N + C - 1) / C)) % N;
      case CspShift::power:
        if (code) return Integer(std::ceil(std::pow(double(N), place / all) * whole)) % N;
        return (std::llround(std::pow(double(N), all > 1 ? place / (all - 1) : 0)) - 1) % N;
      case CspShift::head: return head_step * h % N;
      case CspShift::none:
      case CspShift::custom: break;
    }
    return 0;
  }
};

// Whether a is strictly before b.
template <class T>
constexpr bool csp_precedes(CspOrder order, T a, T b) {
  if (a != a || b != b) return a == a;  // NaN comes last
  return order == CspOrder::descending ? b < a : a < b;
}

// An integer whose unsigned order is that of the samples; NaN comes last either way.
template <class T>
constexpr Bits<T> csp_key(bool descending, T x) {
  const Bits<T> up = ordered_code(x);
  return descending && x == x ? ~up : up;
}

// J of every channel, for sequences of N positions or of `lengths`, given or by the rule.
struct CspShiftTable {
  CspShiftRule rule;
  i64 N = 0, heads = 1, C = 0;
  const i64* given = nullptr;    // [C], or null
  const i64* lengths = nullptr;  // as many as the table has rows, or null for one row

  template <class Integer>
  constexpr std::int32_t operator()(Integer row, Integer c) const {
    const Integer length = length_of(lengths, row, N);
    if (length == 0) return 0;
    if (given == nullptr) return static_cast<std::int32_t>(rule(c, c * heads / C, C, length));
    return static_cast<std::int32_t>((given[c] % length + length) % length);
  }
};

// The record of the permutation inside the groups.
enum class CspRecord {
  nothing,  // there is none
  pairs,    // a bit for each pair
  narrow,   // 16 bits for each output
  wide,     // 32 bits for each output
};

// The record for an order inside groups of G samples.
constexpr CspRecord csp_record(i64 G) {
  return G == 1       ? CspRecord::nothing
         : G == 2     ? CspRecord::pairs
         : G <= 65536 ? CspRecord::narrow
                      : CspRecord::wide;
}

// The arguments of kernels besides their tensors. `lengths` holds B numbers or is null, `shifts` C
// numbers below N, or C for each batch item, each below its length.
struct CspProblem {
  i64 B = 0, N = 0, C = 0;
  const i64* lengths = nullptr;
  const std::int32_t* shifts = nullptr;
  i64 shifts_row = 0;
  i64 group = 2, groups = 0;  // samples in a group, or, if not 0, the number of groups
  CspOrder order = CspOrder::reference;
  CspRecord record = CspRecord::pairs;
  std::uint8_t* kept = nullptr;  // [B, C, row_bytes()], and 8 bytes more
  bool decided = false;          // `kept` is an input

  constexpr i64 length(i64 b) const { return length_of(lengths, b, N); }
  constexpr i64 shift(i64 b, i64 c) const { return shifts[b * shifts_row + c]; }
  // Samples in a group of a sequence of `length` > 0.
  constexpr i64 group_of(i64 length) const { return group_of(length, group, groups); }
  static constexpr i64 group_of(i64 length, i64 group, i64 groups) {
    const i64 G = groups > 0 ? (length + groups - 1) / groups : group;
    return G < length ? G : length;
  }
  static constexpr i64 row_bytes(CspRecord record, i64 N) {
    switch (record) {
      case CspRecord::pairs: return (N / 2 + 7) / 8;
      case CspRecord::narrow: return 2 * N;
      case CspRecord::wide: return 4 * N;
      case CspRecord::nothing: break;
    }
    return 0;
  }
  constexpr std::uint8_t* row(i64 b, i64 c) const {
    return kept + (b * C + c) * row_bytes(record, N);
  }
  // The same row, by the type of the offsets.
  template <class Index>
  constexpr Index* offsets(i64 b, i64 c) const {
    return static_cast<Index*>(static_cast<void*>(row(b, c)));
  }
  template <class F>
  constexpr decltype(auto) with_offsets(i64 b, i64 c, const F& f) const {
    return record == CspRecord::wide ? f(offsets<std::uint32_t>(b, c))
                                     : f(offsets<std::uint16_t>(b, c));
  }

  // The position before the shift of position u < length after it, and the inverse.
  static constexpr i64 unshifted(i64 u, i64 J, i64 length) {
    return u < J ? u - J + length : u - J;
  }
  static constexpr i64 shifted(i64 n, i64 J, i64 length) {
    return n + J < length ? n + J : n + J - length;
  }
  // Whether position n < length is in a swapped pair.
  constexpr bool swapped(i64 b, i64 c, i64 n, i64 length) const {
    return group_of(length) == 2 && (n | 1) < length && swapped(row(b, c)[n / 16], n);
  }
  // By the byte of its pair.
  static constexpr bool swapped(std::uint8_t bits, i64 n) { return (bits >> n / 2 % 8 & 1) != 0; }
  // src_c(n) from the record; n itself from the length on.
  constexpr i64 source(i64 b, i64 n, i64 c) const {
    const i64 L = length(b);
    if (n >= L) return n;
    i64 u = n;
    if (record == CspRecord::pairs) {
      u = swapped(b, c, n, L) ? n ^ 1 : n;
    } else if (record != CspRecord::nothing) {
      const auto offset = [n](const auto* at) { return i64{at[n]}; };
      u = n - n % group_of(L) + with_offsets(b, c, offset);
    }
    return unshifted(u, shift(b, c), L);
  }
  // Records `from` as the source of n, if one group is the whole sequence. Clamped to the length.
  constexpr void decide(i64 b, i64 n, i64 c, i64 from) const {
    const i64 L = length(b);
    if (n >= L) return;
    const i64 inside = from < 0 ? 0 : from < L ? from : L - 1;
    with_offsets(b, c, [=](auto* at) { at[n] = static_cast<std::decay_t<decltype(*at)>>(inside); });
  }
};

// Channels that a kernel processes together, of elements of `item` bytes: two cache lines, more if
// the columns still fit the caches.
constexpr i64 csp_block(i64 N, i64 C, i64 item) {
  i64 block = 2 * 64 / item;
  while (block < 64 && 2 * block * N * item <= 1024 * 1024) block *= 2;
  return block < C ? block : C;
}

template <class Device>
struct CspSourceKernels {
  // J of `rows` times H·M channels.
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
