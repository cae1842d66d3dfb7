// CPU kernels of channel-wise sample permutation; the equations are in csp.h.
//
// A task is a block of adjacent channels of one batch item, which share cache lines: they are
// transposed into contiguous columns, where a shift is two copies, permuted and transposed back.
// Pairs are compared a vector at a time, tile by tile of positions, and only the part of the
// columns that a tile needs is in memory (ring.h); groups are sorted for a vector of channels at a
// time (group_order.h).
#include "ops/attention/csp/csp.h"

#include <algorithm>
#include <cstring>

#include "ops/attention/csp/columns.h"
#include "ops/attention/csp/group_order.h"
#include "ops/attention/csp/ring.h"
#include "runtime/parallel.h"
#include "runtime/scratch.h"

namespace weft {
namespace {

namespace hn = simd::hn;

// y[n] = x[(n − J) mod N].
template <class T>
void shift(const T* x, i64 N, i64 J, T* y) {
  std::rotate_copy(x, x + N - J, x + N, y);
}

// x[(n − J) mod N] = y[n], the inverse.
template <class T>
void shift_back(const T* y, i64 N, i64 J, T* x) {
  std::rotate_copy(y, y + J, y + N, x);
}

// Vectors of pairs whose bits fill whole bytes.
template <class T>
constexpr i64 vectors = std::max<i64>(1, 8 / simd::lanes<T>);
template <class T>
constexpr i64 pair_step = vectors<T>* simd::lanes<T>;

// Sorts pairs x[2p], x[2p + 1] in place, and sets bit p if they were swapped. With a reference, a
// pair is swapped iff exactly one of x and the reference is out of order.
template <class T>
void sort_pairs(CspOrder order, const T* reference, i64 pairs, std::uint8_t* bits, T* x) {
  const simd::Tag<T> d;
  constexpr i64 n = simd::lanes<T>;
  const bool down = order == CspOrder::descending;
  const auto out_of_order = [&](auto first, auto second) {
    const auto wrong = down ? hn::Lt(first, second) : hn::Lt(second, first);
    return hn::Or(wrong, hn::AndNot(hn::IsNaN(second), hn::IsNaN(first)));  // NaN comes last
  };
  i64 p = 0;
  for (; p + pair_step<T> <= pairs; p += pair_step<T>) {
    std::uint64_t word = 0;
    for (i64 k = 0; k < vectors<T>; ++k) {
      const i64 at = 2 * (p + k * n);
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

// Swaps pairs whose bit is set. A load of a mask may read 8 bytes.
template <class T>
void swap_pairs(i64 pairs, const std::uint8_t* bits, T* x) {
  const simd::Tag<T> d;
  constexpr i64 n = simd::lanes<T>;
  i64 p = 0;
  for (; p + pair_step<T> <= pairs; p += pair_step<T>) {
    std::uint64_t word = 0;
    std::memcpy(&word, bits + p / 8, pair_step<T> / 8);
    for (i64 k = 0; k < vectors<T>; ++k) {
      const i64 at = 2 * (p + k * n);
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

// One batch item's channels c … c + count − 1.
struct Block {
  i64 b, c, count, N;  // N: its length

  Block(const CspProblem& p, i64 width, i64 piece) {
    const i64 blocks = (p.C + width - 1) / width;
    b = piece / blocks;
    c = piece % blocks * width;
    count = std::min(width, p.C - c);
    N = p.length(b);
  }
};

// Calls f(block) for the blocks of samples of `item` bytes, in parallel.
template <class F>
void each_block(const CspProblem& p, i64 item, const F& f) {
  const i64 width = csp_block(p.N, p.C, item);
  parallel_for(p.B * ((p.C + width - 1) / width), [&](i64 piece) { f(Block(p, width, piece)); });
}

// All columns of a block.
template <class T>
struct Columns {
  i64 room;  // elements of a column
  Scratch<T> samples;

  explicit Columns(const Block& block)
      : room(column_room<T>(block.N)), samples(block.count * room) {}
  T* operator()(i64 i) const { return samples.data() + i * room; }
};

// The first channel's shifted samples, or their order, which all channels use.
template <class T>
struct Reference {
  Scratch<T> samples;           // [B, N]
  Scratch<std::int32_t> ranks;  // [B, N], in their groups, of more than two
  i64 N;
  bool pairs;

  Reference(const CspProblem& p, const View<const T, 4>& v)
      : samples(there(p) ? p.B * p.N : 0),
        ranks(there(p) && p.record != CspRecord::pairs ? p.B * p.N : 0),
        N(there(p) ? p.N : 0),
        pairs(p.record == CspRecord::pairs) {
    parallel_for(there(p) ? p.B : 0, [&](i64 b) {
      T* const x = samples.data() + b * N;
      const i64 L = p.length(b), J = p.shift(b, 0);
      for (i64 n = 0; n < L; ++n) x[p.shifted(n, J, L)] = v(b, n, 0, 0);
      if (pairs || L == 0) return;
      const i64 G = p.group_of(L);
      const GroupOrder<T> sorter(G);
      const Scratch<std::int32_t> found(G);
      for (i64 n = 0; n < L; n += G) {
        const i64 size = std::min(G, L - n);
        sorter(p.order, x + n, 0, 1, size, found.data(), 0);
        std::int32_t* const rank = ranks.data() + b * N + n;
        for (i64 r = 0; r < size; ++r) rank[found.data()[r]] = std::int32_t(r);
      }
    });
  }
  static bool there(const CspProblem& p) {
    return p.order == CspOrder::reference && p.record != CspRecord::nothing && !p.decided;
  }
  const T* samples_of(i64 b) const { return N > 0 ? samples.data() + b * N : nullptr; }
  const std::int32_t* ranks_of(i64 b) const { return N > 0 ? ranks.data() + b * N : nullptr; }
};

// Pairs of the sequence that are compared. A sample without a partner stays: the last of an odd
// length, and all samples if nothing is sorted.
i64 pairs_of(const CspProblem& p, i64 size, i64 N) {
  return p.record == CspRecord::pairs && p.group_of(N) == 2 ? size / 2 : 0;
}

CspDelays delays_of(const CspProblem& p, const Block& block) {
  std::vector<i64> shifts;
  for (i64 i = 0; i < block.count; ++i) shifts.push_back(p.shift(block.b, block.c + i));
  return {std::move(shifts), block.N};
}

// Without an order inside groups, or with one of pairs, a tile of positions at a time.
template <class T>
void forward_pairs(const CspProblem& p, const Block& block, const T* reference,
                   const View<const T, 4>& v, const View<T, 4>& out) {
  const CspDelays delays = delays_of(p, block);
  const CspRing<T> ring(delays, block.count);
  const i64 step = csp_tile(block.N), room = column_room<T>(step);
  const Scratch<T> tile(block.count * room);
  const auto load = [&](i64 begin, i64 end) {
    ring.each_run(begin, end, [&](i64 position, i64 place, i64 count) {
      pack_columns(v, block.b, position, block.c, block.count, count, ring.data() + place,
                   ring.room());
    });
  };
  load(delays.whole() ? -block.N : -delays.spread, 0);
  for (i64 n = 0; n < block.N; n += step) {
    const i64 end = std::min(n + step, block.N);
    const i64 pairs = pairs_of(p, end - n, block.N);
    if (!delays.whole()) load(n, end);
    for (i64 i = 0; i < block.count; ++i) {
      T* const y = tile.data() + i * room;
      ring.read(i, p.shift(block.b, block.c + i), n, end, y);
      if (pairs == 0) continue;
      sort_pairs(p.order, reference != nullptr ? reference + n : nullptr, pairs,
                 p.row(block.b, block.c + i) + n / 16, y);
    }
    unpack_columns(tile.data(), room, block.b, n, block.c, block.count, end - n, out);
  }
}

// A time is complete when the outputs of all channels' delays have been written.
template <class T>
void backward_pairs(const CspProblem& p, const Block& block, const View<const T, 4>& dout,
                    const View<T, 4>& dv) {
  const CspDelays delays = delays_of(p, block);
  const CspRing<T> ring(delays, block.count);
  const i64 N = block.N, step = csp_tile(N), room = column_room<T>(step);
  const Scratch<T> tile(block.count * room);
  for (i64 n = 0, end = 0, done = 0; done < N; n = end) {
    const i64 from = n % N, count = std::min(step, N - from);
    const i64 pairs = pairs_of(p, count, N);
    end = n + count;
    pack_columns(dout, block.b, from, block.c, block.count, count, tile.data(), room);
    for (i64 i = 0; i < block.count; ++i) {
      T* const dy = tile.data() + i * room;
      if (pairs > 0) swap_pairs(pairs, p.row(block.b, block.c + i) + from / 16, dy);
      ring.write(i, p.shift(block.b, block.c + i), n, end, dy);
    }
    const i64 complete = delays.whole() ? end / N * N : std::min(end - delays.spread, N);
    if (complete <= done) continue;
    ring.each_run(done, complete, [&](i64 position, i64 place, i64 size) {
      unpack_columns(ring.data() + place, ring.room(), block.b, position, block.c, block.count,
                     size, dv);
    });
    done = complete;
  }
}

// Permutes the groups of the shifted columns, and records how. Index: the type of an offset.
template <class T, class Index>
void order_groups(const CspProblem& p, const Block& block, const std::int32_t* ranks,
                  const Columns<T>& columns) {
  constexpr i64 lists = GroupOrder<T>::lists;
  const i64 N = block.N, G = p.group_of(N), room = columns.room;
  const GroupOrder<T> sorter(G);
  const Scratch<T> shifted(lists * room);
  const Scratch<std::uint8_t> order(ranks != nullptr ? lists * G * i64(sizeof(Index)) : 0);
  auto* const found = reinterpret_cast<Index*>(order.data());  // [lists, G]
  for (i64 i = 0; i < block.count; i += lists) {
    const i64 count = std::min(lists, block.count - i);
    for (i64 k = 0; k < count; ++k) {
      const i64 J = p.shift(block.b, block.c + i + k);
      shift(columns(i + k), N, J, shifted.data() + k * room);
    }
    for (i64 n = 0; n < N; n += G) {
      const i64 size = std::min(G, N - n);
      const T* const x = shifted.data() + n;
      T* const y = columns(i) + n;
      Index* const kept = p.offsets<Index>(block.b, block.c + i) + n;
      if (ranks == nullptr) {
        sorter(p.order, x, room, count, size, kept, p.N);
      } else {
        sorter(p.order, x, room, count, size, found, G);
      }
      for (i64 k = 0; k < count; ++k) {
        Index* const own = kept + k * p.N;
        for (i64 r = 0; r < size; ++r) {
          const Index from = ranks == nullptr ? own[r] : found[k * G + ranks[n + r]];
          own[r] = from;
          y[k * room + r] = x[k * room + from];
        }
      }
    }
  }
}

// Given sources are one group.
template <class T, class Index>
void take_kept(const CspProblem& p, const Block& block, const Columns<T>& columns) {
  const Scratch<T> shifted(columns.room);
  for (i64 i = 0; i < block.count; ++i) {
    T* const y = columns(i);
    shift(y, block.N, p.shift(block.b, block.c + i), shifted.data());
    const Index* const kept = p.offsets<Index>(block.b, block.c + i);
    for (i64 n = 0; n < block.N; ++n) y[n] = shifted.data()[kept[n]];
  }
}

template <class T, class Index>
void return_kept(const CspProblem& p, const Block& block, const Columns<T>& columns) {
  const i64 N = block.N, G = p.group_of(N);
  const Scratch<T> shifted(columns.room);
  for (i64 i = 0; i < block.count; ++i) {
    T* const dy = columns(i);
    const Index* const kept = p.offsets<Index>(block.b, block.c + i);
    for (i64 n = 0; n < N; n += G) {
      T* const dx = shifted.data() + n;
      const i64 size = std::min(G, N - n);
      for (i64 r = 0; r < size; ++r) dx[kept[n + r]] = dy[n + r];
    }
    shift_back(shifted.data(), N, p.shift(block.b, block.c + i), dy);
  }
}

template <class T, class Index>
void forward_groups(const CspProblem& p, const Block& block, const std::int32_t* ranks,
                    const View<const T, 4>& v, const View<T, 4>& out) {
  const auto [b, c, count, N] = block;
  const Columns<T> columns(block);
  pack_columns(v, b, 0, c, count, N, columns(0), columns.room);
  p.decided ? take_kept<T, Index>(p, block, columns)
            : order_groups<T, Index>(p, block, ranks, columns);
  unpack_columns<T>(columns(0), columns.room, b, 0, c, count, N, out);
}

template <class T, class Index>
void backward_groups(const CspProblem& p, const Block& block, const View<const T, 4>& dout,
                     const View<T, 4>& dv) {
  const auto [b, c, count, N] = block;
  const Columns<T> columns(block);
  pack_columns(dout, b, 0, c, count, N, columns(0), columns.room);
  return_kept<T, Index>(p, block, columns);
  unpack_columns<T>(columns(0), columns.room, b, 0, c, count, N, dv);
}

template <class F>
void each_source(const CspProblem& p, const F& f) {
  for (i64 b = 0; b < p.B; ++b) {
    for (i64 c = 0; c < p.C; ++c) {
      for (i64 n = 0; n < p.N; ++n) f(b, n, c);
    }
  }
}

}  // namespace

template <class Device>
void CspSourceKernels<Device>::shifts(const Device&, const CspShiftTable& table, i64 rows,
                                      std::int32_t* shifts) {
  const i64 C = table.C;
  for (i64 i = 0; i < rows * C; ++i) shifts[i] = table(i / C, i % C);
}

template <class Device>
void CspSourceKernels<Device>::decide(const Device&, const CspProblem& p, View<const i64, 3> src) {
  each_source(p, [&](auto b, auto n, auto c) { p.decide(b, n, c, src(b, n, c)); });
}

template <class Device>
void CspSourceKernels<Device>::sources(const Device&, const CspProblem& p, View<i64, 3> src) {
  each_source(p, [&](auto b, auto n, auto c) { src(b, n, c) = p.source(b, n, c); });
}

template <class Device, class T>
void CspKernels<Device, T>::forward(const Device&, const CspProblem& p, View<const T, 4> v,
                                    View<T, 4> out) {
  const Reference<T> reference(p, v);
  each_block(p, sizeof(T), [&](const Block& block) {
    const i64 b = block.b;
    clear_channels(out, b, block.c, block.count, block.N);
    if (block.N == 0) return;
    switch (p.record) {
      case CspRecord::nothing:
      case CspRecord::pairs:
        return forward_pairs(p, block, reference.samples_of(b), v, out);
      case CspRecord::narrow:
        return forward_groups<T, std::uint16_t>(p, block, reference.ranks_of(b), v, out);
      case CspRecord::wide:
        return forward_groups<T, std::uint32_t>(p, block, reference.ranks_of(b), v, out);
    }
  });
}

template <class Device, class T>
void CspKernels<Device, T>::backward(const Device&, const CspProblem& p, View<const T, 4> dout,
                                     View<T, 4> dv) {
  each_block(p, sizeof(T), [&](const Block& block) {
    clear_channels(dv, block.b, block.c, block.count, block.N);
    if (block.N == 0) return;
    switch (p.record) {
      case CspRecord::nothing:
      case CspRecord::pairs:
        return backward_pairs(p, block, dout, dv);
      case CspRecord::narrow:
        return backward_groups<T, std::uint16_t>(p, block, dout, dv);
      case CspRecord::wide:
        return backward_groups<T, std::uint32_t>(p, block, dout, dv);
    }
  });
}

template struct CspSourceKernels<Cpu>;
template struct CspKernels<Cpu, float>;
template struct CspKernels<Cpu, double>;

}  // namespace weft
