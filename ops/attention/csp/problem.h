// The arguments of CSP's kernels: the order of samples, the groups, and the record of a
// permutation.
#pragma once

#include <cstdint>
#include <type_traits>

#include "ops/attention/length.h"
#include "ops/select/ordered_code.h"

namespace weft {

enum class CspOrder { reference, ascending, descending };

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

}  // namespace weft
