// CSP: channel-wise sample permutation.
// S. Yuan, H. Xu, "Towards better multi-head attention via channel-wise sample permutation", 2024,
// arXiv 2410.10914, eq. 3 and 4, Theorems 1 and 2, Table 1 (shift=head).
//
// One input, v, seen as [B, N, C] with C = H·M channels (channel c = h·M + m). Of every channel the
// samples are shifted along the sequence, cut into groups of G neighbours, and each group is
// permuted. Nothing is weighted and nothing is added up.
//
//     u_c[n] = v_c[(n − J_c) mod N]                                         shift, S_J
//     ascending    out_c = u_c, each group sorted up                        the released code
//     descending   out_c = u_c, each group sorted down
//     reference    out_c[n] = (group of u_c sorted up)[rank of u_1[n] in its group]     the paper
//
// so that with the reference order each group of a channel is brought into the order that the first
// channel has there (it maximises ⟨u_1, out_c⟩ over permutations of the group), and out_1 = u_1.
// The order is that of (value, position): ties are stable, −0 = +0, and NaN comes last, in either
// direction; NaNs are equal. The last group may be short. G = N sorts completely; then the shift
// does not matter to what comes out, ties apart.
//
//     v [B, N, H, M]   out [B, N, H, M]   lengths [B]: N is the length of each sequence, in shifts
//     too; outputs from there on are 0.
//
// Shifts J_c of channel c = 1 … C, taken modulo N (L layers, l the layer from 0, g = l C + c − 1):
//
//                paper                            code
//     none       0
//     linear     (c − 1) ⌈N/C⌉                    2 max(c − 2, 0)
//     power      round(N^(g / (L C − 1))) − 1     ⌈N^(g / (L C))⌉
//     head       8 (h − 1), the same for all channels of head h
//     custom     handed in
//
// (The paper prints c ⌈N/C⌉, which contradicts J_1 = 0, and ⌊N^(1/(L C − 1))⌋^(c−1) − 1, whose base
// is 1 at every real size.) The released operator is csp:preset=released. With the option
// `sinkhorn` doubly stochastic maps take the place of the permutations: transport.h. No form is
// causal: a triangular doubly stochastic matrix is the identity.
//
// Both steps are one permutation for each channel, out_c[n] = v_c[src_c(n)], constant between ties:
//
//     dv_c[src_c(n)] = dout_c[n]
//
// and the first channel takes no gradient for the order that it gives to the others.
//
// Saved: nothing of v. For a shift alone nothing; for pairs (G = 2) one bit, 1 where a pair changed
// places; otherwise, for each output, the offset in its group of the sample that it came from, in
// 16 bits, or 32 where the group is longer than 65,536. And the shifts, 4 C bytes for each length.
//
// Kernels of the CPU pack some channels at a time into contiguous columns, where a shift is two
// copies, and sort a vector of them at once by a network (network.h); those of CUDA devices fold
// the shift into the address.
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

  // J of channel c, from 0, of head h among C channels, for a sequence of N > 0 positions. A
  // constexpr template is what code of CUDA devices may call.
  template <class Integer>
  constexpr Integer operator()(Integer c, Integer h, Integer C, Integer N) const {
    // Where N^x is a whole number, the last bits of the result, in which devices differ, do not
    // decide.
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

// Whether a stands strictly before b.
template <class T>
constexpr bool csp_precedes(CspOrder order, T a, T b) {
  if (a != a || b != b) return a == a;  // NaN goes last
  return order == CspOrder::descending ? b < a : a < b;
}

// An integer whose order as an unsigned number is that of the samples; NaN goes last either way.
template <class T>
constexpr Bits<T> csp_key(bool descending, T x) {
  const Bits<T> up = ordered_code(x);
  return descending && x == x ? ~up : up;
}

// J of every channel, for sequences of N positions or of `lengths`, handed in or by the rule.
struct CspShiftTable {
  CspShiftRule rule;
  i64 N = 0, H = 0, M = 0;
  const i64* given = nullptr;    // [H M], or null
  const i64* lengths = nullptr;  // as many as the table has rows, or null for one row

  template <class Integer>
  constexpr std::int32_t operator()(Integer row, Integer c) const {
    const Integer length = length_of(lengths, row, N);
    if (length == 0) return 0;
    if (given == nullptr) return static_cast<std::int32_t>(rule(c, c / M, H * M, length));
    return static_cast<std::int32_t>((given[c] % length + length) % length);
  }
};

// How the permutation inside the groups is kept.
enum class CspRecord {
  nothing,  // there is none
  pairs,    // a bit for each pair
  narrow,   // 16 bits for each output
  wide,     // 32 bits for each output
};

// What keeps an order inside groups of G samples.
constexpr CspRecord csp_record(i64 G) {
  return G == 1       ? CspRecord::nothing
         : G == 2     ? CspRecord::pairs
         : G <= 65536 ? CspRecord::narrow
                      : CspRecord::wide;
}

// What the kernels see besides their tensors. `lengths` holds B numbers or is null, `shifts` C
// numbers below N, or C for each batch item, each below its length.
struct CspProblem {
  i64 B = 0, N = 0, C = 0;
  const i64* lengths = nullptr;
  const std::int32_t* shifts = nullptr;
  i64 shifts_row = 0;
  i64 group = 2, groups = 0;  // samples in a group, or, where not 0, how many groups
  CspOrder order = CspOrder::reference;
  CspRecord record = CspRecord::pairs;
  std::uint8_t* kept = nullptr;  // [B, C, row_bytes()], and 8 bytes more
  bool decided = false;          // `kept` holds what is to be done

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
  // The same row, by what an offset is kept in.
  template <class Index>
  constexpr Index* offsets(i64 b, i64 c) const {
    return static_cast<Index*>(static_cast<void*>(row(b, c)));
  }
  template <class F>
  constexpr decltype(auto) with_offsets(i64 b, i64 c, const F& f) const {
    return record == CspRecord::wide ? f(offsets<std::uint32_t>(b, c))
                                     : f(offsets<std::uint16_t>(b, c));
  }

  // The position before the shift of position u < length behind it, and the other way.
  static constexpr i64 unshifted(i64 u, i64 J, i64 length) {
    return u < J ? u - J + length : u - J;
  }
  static constexpr i64 shifted(i64 n, i64 J, i64 length) {
    return n + J < length ? n + J : n + J - length;
  }
  // Whether position n < length stands in a pair that changed places.
  constexpr bool swapped(i64 b, i64 c, i64 n, i64 length) const {
    return group_of(length) == 2 && (n | 1) < length && swapped(row(b, c)[n / 16], n);
  }
  // By the byte of its pair.
  static constexpr bool swapped(std::uint8_t bits, i64 n) { return (bits >> n / 2 % 8 & 1) != 0; }
  // src_c(n) by what is kept; n itself from the length on.
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
  // Keeps `from` as the source of n, where one group is the whole sequence. Kept within the length.
  constexpr void decide(i64 b, i64 n, i64 c, i64 from) const {
    const i64 L = length(b);
    if (n >= L) return;
    const i64 inside = from < 0 ? 0 : from < L ? from : L - 1;
    with_offsets(b, c, [=](auto* at) { at[n] = static_cast<std::decay_t<decltype(*at)>>(inside); });
  }
};

// Channels that a kernel takes at a time, of elements of `item` bytes: two lines of cache, more
// where the columns still fit the caches.
constexpr i64 csp_block(i64 N, i64 C, i64 item) {
  i64 block = 2 * 64 / item;
  while (block < 64 && 2 * block * N * item <= 1024 * 1024) block *= 2;
  return block < C ? block : C;
}

template <class Device>
struct CspSourceKernels {
  // J of `rows` times H·M channels.
  static void shifts(const Device&, const CspShiftTable&, i64 rows, std::int32_t* shifts);

  // Keeps the sources src [B, N, C] that were handed in; writes those that are kept.
  static void decide(const Device&, const CspProblem&, View<const i64, 3> src);
  static void sources(const Device&, const CspProblem&, View<i64, 3> src);
};

template <class Device, class T>
struct CspKernels {
  // out is written whole, and, unless decided, what is kept.
  static void forward(const Device&, const CspProblem&, View<const T, 4> v, View<T, 4> out);

  // dv is written whole.
  static void backward(const Device&, const CspProblem&, View<const T, 4> dout, View<T, 4> dv);
};

}  // namespace weft
