// CPU kernels of channel-wise sample permutation; the equations stand in csp.h.
//
// A piece of work is a block of neighbouring channels of one batch item, which share lines of cache:
// they are transposed into contiguous columns, where a shift is two copies, pairs are compared a
// vector at a time and groups are sorted in place, and transposed back.
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

// y[n] = x[(n − J) mod N].
template <class T>
void shift_column(const T* x, std::int64_t N, std::int64_t J, T* y) {
  std::copy(x, x + N - J, y + J);
  std::copy(x + N - J, x + N, y);
}

// Vectors of pairs whose bits fill whole bytes.
template <class T>
constexpr std::int64_t vectors = std::max<std::int64_t>(1, 8 / simd::lanes<T>);
template <class T>
constexpr std::int64_t pair_step = vectors<T>* simd::lanes<T>;

// Sorts pairs x[2p], x[2p + 1] into y, and sets bit p where they changed places. Where there is a
// reference, a pair changes places iff exactly one of x and the reference would have to.
template <class T>
void sort_pairs(CspOrder order, const T* x, const T* reference, std::int64_t pairs,
                std::uint8_t* bits, T* y) {
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
                            hn::IfThenElse(changed, first, second), d, y + at);
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
    const T first = x[2 * p], second = x[2 * p + 1];
    y[2 * p] = changed ? second : first;
    y[2 * p + 1] = changed ? first : second;
  }
}

// Pairs change places where their bit is set. A load of a mask may read 8 bytes.
template <class T>
void swap_pairs(const T* x, std::int64_t pairs, const std::uint8_t* bits, T* y) {
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
                            hn::IfThenElse(changed, first, second), d, y + at);
    }
  }
  for (; p < pairs; ++p) {
    const bool changed = bits[p / 8] >> p % 8 & 1;
    const T first = x[2 * p], second = x[2 * p + 1];
    y[2 * p] = changed ? second : first;
    y[2 * p + 1] = changed ? first : second;
  }
}

// One batch item's channels c … c + count − 1 as columns, and a column more for what is shifted.
template <class T>
struct Block {
  std::int64_t b, c, count, N, room;  // N: its length; room: elements of a column
  Scratch<T> buffer;
  T *columns, *turned, *reference;

  Block(const CspProblem& p, std::int64_t piece)
      : room(column_room<T>(p.N)),
        buffer((csp_block(p.N, p.C, sizeof(T)) + 2) * room) {
    const std::int64_t width = csp_block(p.N, p.C, sizeof(T)), blocks = (p.C + width - 1) / width;
    b = piece / blocks;
    c = piece % blocks * width;
    count = std::min(width, p.C - c);
    N = p.length(b);
    columns = buffer.data();
    turned = columns + width * room;
    reference = turned + room;
  }
  static std::int64_t pieces(const CspProblem& p) {
    const std::int64_t width = csp_block(p.N, p.C, sizeof(T));
    return p.B * ((p.C + width - 1) / width);
  }
  T* column(std::int64_t i) const { return columns + i * room; }
};

// Permutes the groups of the shifted columns, and keeps how. Index: what an offset is kept in.
template <class T, class Index>
void order_groups(const CspProblem& p, const Block<T>& block) {
  const std::int64_t N = block.N, G = p.group_of(N);
  const bool aligned = p.order == CspOrder::reference;
  GroupOrder<T> sorter(G);
  // What stands at each rank of the reference's groups, and of the channel's.
  const Scratch<std::uint8_t> ranks(2 * N * std::int64_t(sizeof(Index)));
  auto* const places = reinterpret_cast<Index*>(ranks.data());
  Index* const found = places + N;
  for (std::int64_t n = 0; aligned && n < N; n += G) {
    sorter(p.order, block.reference + n, std::min(G, N - n), places + n);
  }
  for (std::int64_t i = 0; i < block.count; ++i) {
    const T* const x = block.turned;
    T* const y = block.column(i);
    shift_column(y, N, p.shift(block.b, block.c + i), block.turned);
    auto* const kept = reinterpret_cast<Index*>(p.row(block.b, block.c + i));
    for (std::int64_t n = 0; n < N; n += G) {
      const std::int64_t size = std::min(G, N - n);
      sorter(p.order, x + n, size, aligned ? found : kept + n);
      for (std::int64_t r = 0; aligned && r < size; ++r) kept[n + places[n + r]] = found[r];
      for (std::int64_t r = 0; r < size; ++r) y[n + r] = x[n + kept[n + r]];
    }
  }
}

template <class T, class Index>
void take_kept(const CspProblem& p, const Block<T>& block) {
  const std::int64_t N = block.N, G = p.group_of(N);
  for (std::int64_t i = 0; i < block.count; ++i) {
    T* const y = block.column(i);
    shift_column(y, N, p.shift(block.b, block.c + i), block.turned);
    const auto* const kept = reinterpret_cast<const Index*>(p.row(block.b, block.c + i));
    for (std::int64_t n = 0; n < N; ++n) y[n] = block.turned[n - n % G + kept[n]];
  }
}

template <class T, class Index>
void return_kept(const CspProblem& p, const Block<T>& block, std::int64_t i) {
  const std::int64_t N = block.N, G = p.group_of(N);
  const T* const dy = block.column(i);
  const auto* const kept = reinterpret_cast<const Index*>(p.row(block.b, block.c + i));
  for (std::int64_t n = 0; n < N; n += G) {
    const std::int64_t size = std::min(G, N - n);
    for (std::int64_t r = 0; r < size; ++r) block.turned[n + kept[n + r]] = dy[n + r];
  }
}

// The same without an order inside groups, or with one of pairs.
template <class T>
void order_pairs(const CspProblem& p, const Block<T>& block) {
  const bool aligned = p.order == CspOrder::reference;
  for (std::int64_t i = 0; i < block.count; ++i) {
    T* const y = block.column(i);
    const std::int64_t J = p.shift(block.b, block.c + i);
    if (J == 0 && p.record == CspRecord::nothing) continue;
    shift_column(y, block.N, J, block.turned);
    // Of an odd length, and where nothing is sorted, what has no partner stays.
    const bool sorted = p.record == CspRecord::pairs && p.group_of(block.N) == 2;
    const std::int64_t pairs = sorted ? block.N / 2 : 0;
    if (sorted) {
      sort_pairs(p.order, block.turned, aligned ? block.reference : nullptr, pairs,
                 p.row(block.b, block.c + i), y);
    }
    std::copy(block.turned + 2 * pairs, block.turned + block.N, y + 2 * pairs);
  }
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
  parallel_for(Block<T>::pieces(p), [&](std::int64_t piece) {
    const Block<T> block(p, piece);
    clear_channels(out, block.b, block.c, block.count, block.N);
    if (block.N == 0) return;
    if (p.order == CspOrder::reference && p.record != CspRecord::nothing && !p.decided) {
      pack_columns(v, block.b, 0, 1, block.N, block.turned, block.room);
      shift_column(block.turned, block.N, p.shift(block.b, 0), block.reference);
    }
    pack_columns(v, block.b, block.c, block.count, block.N, block.columns, block.room);
    switch (p.record) {
      case CspRecord::nothing:
      case CspRecord::pairs: order_pairs(p, block); break;
      case CspRecord::narrow:
        p.decided ? take_kept<T, std::uint16_t>(p, block)
                  : order_groups<T, std::uint16_t>(p, block);
        break;
      case CspRecord::wide:
        p.decided ? take_kept<T, std::uint32_t>(p, block)
                  : order_groups<T, std::uint32_t>(p, block);
        break;
    }
    unpack_columns(block.columns, block.room, block.b, block.c, block.count, block.N, out);
  });
}

template <class T>
void csp_backward(const Cpu&, const CspProblem& p, View<const T, 4> dout, View<T, 4> dv) {
  parallel_for(Block<T>::pieces(p), [&](std::int64_t piece) {
    const Block<T> block(p, piece);
    clear_channels(dv, block.b, block.c, block.count, block.N);
    if (block.N == 0) return;
    pack_columns(dout, block.b, block.c, block.count, block.N, block.columns, block.room);
    for (std::int64_t i = 0; i < block.count; ++i) {
      T* const y = block.column(i);
      const std::int64_t J = p.shift(block.b, block.c + i);
      std::int64_t pairs = 0;
      switch (p.record) {
        case CspRecord::pairs:
          pairs = p.group_of(block.N) == 2 ? block.N / 2 : 0;
          swap_pairs(y, pairs, p.row(block.b, block.c + i), block.turned);
          [[fallthrough]];
        case CspRecord::nothing:
          std::copy(y + 2 * pairs, y + block.N, block.turned + 2 * pairs);
          break;
        case CspRecord::narrow: return_kept<T, std::uint16_t>(p, block, i); break;
        case CspRecord::wide: return_kept<T, std::uint32_t>(p, block, i); break;
      }
      shift_column(block.turned, block.N, (block.N - J) % block.N, y);
    }
    unpack_columns(block.columns, block.room, block.b, block.c, block.count, block.N, dv);
  });
}

template void csp_forward(const Cpu&, const CspProblem&, View<const float, 4>, View<float, 4>);
template void csp_forward(const Cpu&, const CspProblem&, View<const double, 4>, View<double, 4>);
template void csp_backward(const Cpu&, const CspProblem&, View<const float, 4>, View<float, 4>);
template void csp_backward(const Cpu&, const CspProblem&, View<const double, 4>, View<double, 4>);

}  // namespace weft
