// CPU kernels of channel-wise sample permutation; the equations stand in csp.h.
//
// A piece of work is a block of neighbouring channels of one batch item, which share lines of
// cache: they are transposed into contiguous columns, where a shift is two copies, put in order and
// transposed back. Pairs are compared a vector of them at a time, tile by tile of positions; groups
// are sorted for a vector of channels at a time (group_order.h).
#include "ops/attention/csp/csp.h"

#include <algorithm>
#include <cstring>

#include "ops/attention/csp/columns.h"
#include "ops/attention/csp/group_order.h"
#include "runtime/parallel.h"
#include "runtime/scratch.h"

namespace weft {
namespace {

namespace hn = simd::hn;

// y[n − begin] = x[(n − J) mod N], begin ≤ n < end.
template <class T>
void shift(const T* x, std::int64_t N, std::int64_t J, std::int64_t begin, std::int64_t end, T* y) {
  const std::int64_t middle = std::clamp(J, begin, end);
  std::copy(x + begin - J + N, x + middle - J + N, y);
  std::copy(x + middle - J, x + end - J, y + middle - begin);
}

// x[(n − J) mod N] = y[n − begin], the same back.
template <class T>
void shift_back(const T* y, std::int64_t N, std::int64_t J, std::int64_t begin, std::int64_t end,
                T* x) {
  const std::int64_t middle = std::clamp(J, begin, end);
  std::copy(y, y + middle - begin, x + begin - J + N);
  std::copy(y + middle - begin, y + end - begin, x + middle - J);
}

// Vectors of pairs whose bits fill whole bytes.
template <class T>
constexpr std::int64_t vectors = std::max<std::int64_t>(1, 8 / simd::lanes<T>);
template <class T>
constexpr std::int64_t pair_step = vectors<T>* simd::lanes<T>;

// Sorts pairs x[2p], x[2p + 1] in place, and sets bit p where they changed places. Where there is a
// reference, a pair changes places iff exactly one of x and the reference would have to.
template <class T>
void sort_pairs(CspOrder order, const T* reference, std::int64_t pairs, std::uint8_t* bits, T* x) {
  const simd::Tag<T> d;
  constexpr std::int64_t n = simd::lanes<T>;
  const bool down = order == CspOrder::descending;
  const auto out_of_order = [&](auto first, auto second) {
    const auto wrong = down ? hn::Lt(first, second) : hn::Lt(second, first);
    return hn::Or(wrong, hn::AndNot(hn::IsNaN(second), hn::IsNaN(first)));  // NaN goes last
  };
  std::int64_t p = 0;
  for (; p + pair_step<T> <= pairs; p += pair_step<T>) {
    std::uint64_t word = 0;
    for (std::int64_t k = 0; k < vectors<T>; ++k) {
      const std::int64_t at = 2 * (p + k * n);
      simd::Vector<T> first, second;
      hn::LoadInterleaved2(d, x + at, first, second);
      auto changed = out_of_order(first, second);
      if (reference != nullptr) {
        simd::Vector<T> a, b;
        hn::LoadInterleaved2(d, reference + at, a, b);
        changed = hn::Xor(changed, out_of_order(a, b));
      }
      hn::StoreInterleaved2(hn::IfThenElse(changed, second, first),
                            hn::IfThenElse(changed, first, second), d, x + at);
      std::uint8_t stored[8] = {};
      hn::StoreMaskBits(d, changed, stored);
      std::uint64_t part;
      std::memcpy(&part, stored, 8);
      word |= part << (k * n);
    }
    std::memcpy(bits + p / 8, &word, pair_step<T> / 8);
  }
  for (; p < pairs; ++p) {
    const auto wrong = [&](const T* pair) { return csp_precedes(order, pair[1], pair[0]); };
    const bool changed = wrong(x + 2 * p) != (reference != nullptr && wrong(reference + 2 * p));
    if (p % 8 == 0) bits[p / 8] = 0;
    bits[p / 8] = static_cast<std::uint8_t>(bits[p / 8] | int(changed) << p % 8);
    if (changed) std::swap(x[2 * p], x[2 * p + 1]);
  }
}

// Pairs change places where their bit is set. A load of a mask may read 8 bytes.
template <class T>
void swap_pairs(std::int64_t pairs, const std::uint8_t* bits, T* x) {
  const simd::Tag<T> d;
  constexpr std::int64_t n = simd::lanes<T>;
  std::int64_t p = 0;
  for (; p + pair_step<T> <= pairs; p += pair_step<T>) {
    std::uint64_t word = 0;
    std::memcpy(&word, bits + p / 8, pair_step<T> / 8);
    for (std::int64_t k = 0; k < vectors<T>; ++k) {
      const std::int64_t at = 2 * (p + k * n);
      std::uint8_t part[8];
      const std::uint64_t shifted = word >> (k * n);
      std::memcpy(part, &shifted, 8);
      const auto changed = hn::LoadMaskBits(d, part);
      simd::Vector<T> first, second;
      hn::LoadInterleaved2(d, x + at, first, second);
      hn::StoreInterleaved2(hn::IfThenElse(changed, second, first),
                            hn::IfThenElse(changed, first, second), d, x + at);
    }
  }
  for (; p < pairs; ++p) {
    const bool changed = bits[p / 8] >> p % 8 & 1;
    if (changed) std::swap(x[2 * p], x[2 * p + 1]);
  }
}

// One batch item's channels c … c + count − 1, as columns.
template <class T>
struct Block {
  std::int64_t b, c, count, N, room;  // N: its length; room: elements of a column
  Scratch<T> columns;

  Block(const CspProblem& p, std::int64_t piece)
      : room(column_room<T>(p.N)), columns(width(p) * room) {
    const std::int64_t blocks = (p.C + width(p) - 1) / width(p);
    b = piece / blocks;
    c = piece % blocks * width(p);
    count = std::min(width(p), p.C - c);
    N = p.length(b);
  }
  static std::int64_t width(const CspProblem& p) { return csp_block(p.N, p.C, sizeof(T)); }
  static std::int64_t pieces(const CspProblem& p) {
    return p.B * ((p.C + width(p) - 1) / width(p));
  }
  T* column(std::int64_t i) const { return columns.data() + i * room; }
};

// What the first channel's samples, shifted, or their order decide for all channels.
template <class T>
struct Reference {
  Scratch<T> samples;           // [B, N]
  Scratch<std::int32_t> ranks;  // [B, N], in their groups, of more than two
  std::int64_t N;
  bool pairs;

  Reference(const CspProblem& p, const View<const T, 4>& v)
      : samples(there(p) ? p.B * p.N : 0),
        ranks(there(p) && p.record != CspRecord::pairs ? p.B * p.N : 0),
        N(there(p) ? p.N : 0),
        pairs(p.record == CspRecord::pairs) {
    parallel_for(there(p) ? p.B : 0, [&](std::int64_t b) {
      T* const x = samples.data() + b * N;
      const std::int64_t L = p.length(b), J = p.shift(b, 0);
      for (std::int64_t n = 0; n < L; ++n) x[p.shifted(n, J, L)] = v(b, n, 0, 0);
      if (pairs || L == 0) return;
      const std::int64_t G = p.group_of(L);
      const GroupOrder<T> sorter(G);
      const Scratch<std::int32_t> found(G);
      for (std::int64_t n = 0; n < L; n += G) {
        const std::int64_t size = std::min(G, L - n);
        sorter(p.order, x + n, 0, 1, size, found.data(), 0);
        std::int32_t* const rank = ranks.data() + b * N + n;
        for (std::int64_t r = 0; r < size; ++r) rank[found.data()[r]] = std::int32_t(r);
      }
    });
  }
  static bool there(const CspProblem& p) {
    return p.order == CspOrder::reference && p.record != CspRecord::nothing && !p.decided;
  }
  const T* samples_of(std::int64_t b) const { return N > 0 ? samples.data() + b * N : nullptr; }
  const std::int32_t* ranks_of(std::int64_t b) const {
    return N > 0 ? ranks.data() + b * N : nullptr;
  }
};

// Pairs of the sequence that have an order. Of an odd length, and where nothing is sorted, what has
// no partner stays.
std::int64_t pairs_of(const CspProblem& p, std::int64_t size, std::int64_t N) {
  return p.record == CspRecord::pairs && p.group_of(N) == 2 ? size / 2 : 0;
}

// Without an order inside groups, or with one of pairs, a tile of positions at a time.
template <class T>
void forward_pairs(const CspProblem& p, const Block<T>& block, const T* reference,
                   const View<T, 4>& out) {
  const std::int64_t room = column_room<T>(csp_tile(p.N));
  const Scratch<T> tile(block.count * room);
  for (std::int64_t n = 0; n < block.N; n += csp_tile(p.N)) {
    const std::int64_t end = std::min(n + csp_tile(p.N), block.N);
    const std::int64_t pairs = pairs_of(p, end - n, block.N);
    for (std::int64_t i = 0; i < block.count; ++i) {
      T* const y = tile.data() + i * room;
      shift(block.column(i), block.N, p.shift(block.b, block.c + i), n, end, y);
      if (pairs == 0) continue;
      sort_pairs(p.order, reference != nullptr ? reference + n : nullptr, pairs,
                 p.row(block.b, block.c + i) + n / 16, y);
    }
    unpack_columns(tile.data(), room, block.b, n, block.c, block.count, end - n, out);
  }
}

template <class T>
void backward_pairs(const CspProblem& p, const Block<T>& block, const View<const T, 4>& dout) {
  const std::int64_t room = column_room<T>(csp_tile(p.N));
  const Scratch<T> tile(block.count * room);
  for (std::int64_t n = 0; n < block.N; n += csp_tile(p.N)) {
    const std::int64_t end = std::min(n + csp_tile(p.N), block.N);
    const std::int64_t pairs = pairs_of(p, end - n, block.N);
    pack_columns(dout, block.b, n, block.c, block.count, end - n, tile.data(), room);
    for (std::int64_t i = 0; i < block.count; ++i) {
      T* const dy = tile.data() + i * room;
      if (pairs > 0) swap_pairs(pairs, p.row(block.b, block.c + i) + n / 16, dy);
      shift_back(dy, block.N, p.shift(block.b, block.c + i), n, end, block.column(i));
    }
  }
}

// Permutes the groups of the shifted columns, and keeps how. Index: what an offset is kept in.
template <class T, class Index>
void order_groups(const CspProblem& p, const Block<T>& block, const std::int32_t* ranks) {
  constexpr std::int64_t lists = GroupOrder<T>::lists;
  const std::int64_t N = block.N, G = p.group_of(N), room = block.room;
  const GroupOrder<T> sorter(G);
  const Scratch<T> shifted(lists * room);
  const Scratch<std::uint8_t> order(ranks != nullptr ? lists * G * std::int64_t(sizeof(Index)) : 0);
  auto* const found = reinterpret_cast<Index*>(order.data());  // [lists, G]
  for (std::int64_t i = 0; i < block.count; i += lists) {
    const std::int64_t count = std::min(lists, block.count - i);
    for (std::int64_t k = 0; k < count; ++k) {
      const std::int64_t J = p.shift(block.b, block.c + i + k);
      shift(block.column(i + k), N, J, 0, N, shifted.data() + k * room);
    }
    for (std::int64_t n = 0; n < N; n += G) {
      const std::int64_t size = std::min(G, N - n);
      const T* const x = shifted.data() + n;
      T* const y = block.column(i) + n;
      Index* const kept = p.offsets<Index>(block.b, block.c + i) + n;
      if (ranks == nullptr) {
        sorter(p.order, x, room, count, size, kept, p.N);
      } else {
        sorter(p.order, x, room, count, size, found, G);
      }
      for (std::int64_t k = 0; k < count; ++k) {
        Index* const own = kept + k * p.N;
        for (std::int64_t r = 0; r < size; ++r) {
          const Index from = ranks == nullptr ? own[r] : found[k * G + ranks[n + r]];
          own[r] = from;
          y[k * room + r] = x[k * room + from];
        }
      }
    }
  }
}

// What was handed in is one group.
template <class T, class Index>
void take_kept(const CspProblem& p, const Block<T>& block) {
  const Scratch<T> shifted(block.room);
  for (std::int64_t i = 0; i < block.count; ++i) {
    T* const y = block.column(i);
    shift(y, block.N, p.shift(block.b, block.c + i), 0, block.N, shifted.data());
    const Index* const kept = p.offsets<Index>(block.b, block.c + i);
    for (std::int64_t n = 0; n < block.N; ++n) y[n] = shifted.data()[kept[n]];
  }
}

template <class T, class Index>
void return_kept(const CspProblem& p, const Block<T>& block) {
  const std::int64_t N = block.N, G = p.group_of(N);
  const Scratch<T> shifted(block.room);
  for (std::int64_t i = 0; i < block.count; ++i) {
    T* const dy = block.column(i);
    const Index* const kept = p.offsets<Index>(block.b, block.c + i);
    for (std::int64_t n = 0; n < N; n += G) {
      T* const dx = shifted.data() + n;
      const std::int64_t size = std::min(G, N - n);
      for (std::int64_t r = 0; r < size; ++r) dx[kept[n + r]] = dy[n + r];
    }
    shift_back(shifted.data(), N, p.shift(block.b, block.c + i), 0, N, dy);
  }
}

template <class T, class Index>
void forward_groups(const CspProblem& p, const Block<T>& block, const std::int32_t* ranks,
                    const View<T, 4>& out) {
  p.decided ? take_kept<T, Index>(p, block) : order_groups<T, Index>(p, block, ranks);
  unpack_columns(block.columns.data(), block.room, block.b, 0, block.c, block.count, block.N, out);
}

template <class T, class Index>
void backward_groups(const CspProblem& p, const Block<T>& block, const View<const T, 4>& dout) {
  pack_columns(dout, block.b, 0, block.c, block.count, block.N, block.columns.data(), block.room);
  return_kept<T, Index>(p, block);
}

template <class F>
void each_source(const CspProblem& p, const F& f) {
  for (std::int64_t b = 0; b < p.B; ++b) {
    for (std::int64_t c = 0; c < p.C; ++c) {
      for (std::int64_t n = 0; n < p.N; ++n) f(b, n, c);
    }
  }
}

}  // namespace

void csp_shifts(const Cpu&, const CspShiftTable& table, std::int64_t rows, std::int32_t* shifts) {
  const std::int64_t C = table.H * table.M;
  for (std::int64_t i = 0; i < rows * C; ++i) shifts[i] = table(i / C, i % C);
}

void csp_decide(const Cpu&, const CspProblem& p, View<const std::int64_t, 3> src) {
  each_source(p, [&](auto b, auto n, auto c) { p.decide(b, n, c, src(b, n, c)); });
}

void csp_sources(const Cpu&, const CspProblem& p, View<std::int64_t, 3> src) {
  each_source(p, [&](auto b, auto n, auto c) { src(b, n, c) = p.source(b, n, c); });
}

template <class T>
void csp_forward(const Cpu&, const CspProblem& p, View<const T, 4> v, View<T, 4> out) {
  const Reference<T> reference(p, v);
  parallel_for(Block<T>::pieces(p), [&](std::int64_t piece) {
    const Block<T> block(p, piece);
    const std::int64_t b = block.b;
    clear_channels(out, b, block.c, block.count, block.N);
    if (block.N == 0) return;
    pack_columns(v, b, 0, block.c, block.count, block.N, block.columns.data(), block.room);
    switch (p.record) {
      case CspRecord::nothing:
      case CspRecord::pairs:
        return forward_pairs(p, block, reference.samples_of(b), out);
      case CspRecord::narrow:
        return forward_groups<T, std::uint16_t>(p, block, reference.ranks_of(b), out);
      case CspRecord::wide:
        return forward_groups<T, std::uint32_t>(p, block, reference.ranks_of(b), out);
    }
  });
}

template <class T>
void csp_backward(const Cpu&, const CspProblem& p, View<const T, 4> dout, View<T, 4> dv) {
  parallel_for(Block<T>::pieces(p), [&](std::int64_t piece) {
    const Block<T> block(p, piece);
    clear_channels(dv, block.b, block.c, block.count, block.N);
    if (block.N == 0) return;
    switch (p.record) {
      case CspRecord::nothing:
      case CspRecord::pairs:
        backward_pairs(p, block, dout);
        break;
      case CspRecord::narrow:
        backward_groups<T, std::uint16_t>(p, block, dout);
        break;
      case CspRecord::wide:
        backward_groups<T, std::uint32_t>(p, block, dout);
        break;
    }
    unpack_columns(block.columns.data(), block.room, block.b, 0, block.c, block.count, block.N, dv);
  });
}

template void csp_forward(const Cpu&, const CspProblem&, View<const float, 4>, View<float, 4>);
template void csp_forward(const Cpu&, const CspProblem&, View<const double, 4>, View<double, 4>);
template void csp_backward(const Cpu&, const CspProblem&, View<const float, 4>, View<float, 4>);
template void csp_backward(const Cpu&, const CspProblem&, View<const double, 4>, View<double, 4>);

}  // namespace weft
