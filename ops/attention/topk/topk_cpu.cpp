// CPU kernels of attention to the k largest keys; the equations are in topk.h.
#include "ops/attention/topk/topk.h"

#include <algorithm>
#include <cmath>

#include "ops/attention/infinity.h"
#include "ops/attention/rows.h"
#include "ops/dropout/mask_vectors.h"
#include "ops/select/largest.h"
#include "runtime/parallel.h"
#include "runtime/scratch.h"
#include "runtime/tile.h"

namespace weft {
namespace {

namespace hn = simd::hn;

constexpr i64 key_tile = 128;
constexpr i64 query_block = 24;
// Queries of one task; the keys are packed once for them.
constexpr i64 share = 512;

// Rows of one batch item and head, copied side by side.
template <class T>
struct CopiedRows {
  Scratch<T> buffer;
  CopiedRows(const View<const T, 4>& x, i64 b, i64 h, i64 rows) : buffer(rows * x.size(3)) {
    pack_rows(x, b, h, 0, rows, T(1), buffer.data());
  }
  const T* row(i64 i, i64 width) const { return buffer.data() + i * width; }
};

// One query with its selection: keys, weights and their dropout.
template <class T>
struct Row {
  const TopkAttention<T>& p;
  DropoutMask mask;
  Scratch<std::int32_t> key_buffer;
  Scratch<T> buffer;
  std::int32_t* keys;
  T *score, *factor;  // factor: 0 or 1/(1 − rate)
  i64 count = 0;

  Row(const TopkAttention<T>& problem, i64 k)
      : p(problem),
        mask(problem.mask(k)),
        key_buffer(k),
        buffer(2 * k),
        keys(key_buffer.data()),
        score(buffer.data()),
        factor(score + k) {}

  // Reads T_i and sets score to τ z.
  void load(const View<const std::int32_t, 4>& topk, i64 b, i64 h, i64 i, const T* q,
            const T* packed_keys) {
    const i64 k = topk.size(3), E = p.E();
    count = 0;
    while (count < k && topk(b, h, i, count) >= 0) {
      keys[count] = topk(b, h, i, count);
      ++count;
    }
    for (i64 t = 0; t < count; ++t) {
      score[t] = p.temperature * simd::dot(q, packed_keys + keys[t] * E, E);
      factor[t] = 1;
    }
    if (p.dropout > 0) {
      apply_dropout(mask, (b * p.H() + h) * p.N() + i, 0, count, factor, factor);
    }
  }
};

}  // namespace

template <class Device, class T>
void TopkSelectKernels<Device, T>::select(const Device&, const TopkAttention<T>& p,
                                          View<std::int32_t, 4> topk) {
  static_assert(sizeof(Candidate<T>) == 2 * sizeof(T));
  const i64 E = p.E(), k = topk.size(3), shares = (p.N() + share - 1) / share;
  const i64 room = 2 * k;
  parallel_for(p.B() * p.H() * shares, [&](i64 piece) {
    const i64 b = piece / shares / p.H(), h = piece / shares % p.H();
    const i64 begin = piece % shares * share, end = std::min(p.N(), begin + share);
    const i64 keys = p.seen(b, std::min(end, p.queries(b)) - 1);
    const i64 tiles = (keys + key_tile - 1) / key_tile;
    // Tiles of keys, each transposed: [tiles, E, key_tile].
    const Scratch<T> turned(tiles * key_tile * E), tile(key_tile * E);
    for (i64 j = 0; j < tiles; ++j) {
      const i64 rows = std::min(key_tile, keys - j * key_tile);
      pack_rows(p.k, b, h, j * key_tile, rows, T(1), tile.data());
      transpose_block(tile.data(), rows, E, key_tile, turned.data() + j * key_tile * E);
    }
    const Scratch<T> q(query_block * E), z(query_block * key_tile), rooms(query_block * room * 2);
    LargestOfRow<T> largest[query_block];
    for (i64 i = begin; i < end; i += query_block) {
      const i64 rows = std::min(query_block, end - i);
      const i64 counted = std::clamp<i64>(p.queries(b) - i, 0, rows);
      pack_rows(p.q, b, h, i, counted, T(1), q.data());
      for (i64 r = 0; r < rows; ++r) {
        largest[r].start(reinterpret_cast<Candidate<T>*>(rooms.data()) + r * room, k);
      }
      const i64 seen = counted > 0 ? p.seen(b, i + counted - 1) : 0;
      for (i64 j = 0; j < seen; j += key_tile) {
        tile_product<T>(counted, key_tile, E, {q.data(), E, 1}, {turned.data() + j * E, key_tile},
                        {z.data(), key_tile}, false);
        for (i64 r = 0; r < counted; ++r) {
          const i64 visible = std::min(key_tile, p.seen(b, i + r) - j);
          if (visible > 0) largest[r].add(z.data() + r * key_tile, j, visible);
        }
      }
      for (i64 r = 0; r < rows; ++r) {
        largest[r].finish(&topk(b, h, i + r, 0), topk.stride(3));
      }
    }
  });
}

template <class Device, class T>
void TopkKernels<Device, T>::forward(const Device&, const TopkAttention<T>& p,
                                     View<const std::int32_t, 4> topk, View<T, 4> out,
                                     View<T, 3> log_sums) {
  const i64 E = p.E(), M = p.M(), shares = (p.N() + share - 1) / share;
  parallel_for(p.B() * p.H() * shares, [&](i64 piece) {
    const i64 b = piece / shares / p.H(), h = piece / shares % p.H();
    const i64 begin = piece % shares * share, end = std::min(p.N(), begin + share);
    const i64 counted = std::clamp(p.queries(b), begin, end);
    const i64 keys = p.seen(b, counted - 1);
    const CopiedRows<T> k(p.k, b, h, keys), v(p.v, b, h, keys);
    Row<T> row(p, topk.size(3));
    const Scratch<T> q(E), o(M);
    for (i64 i = begin; i < end; ++i) {
      if (i < counted) pack_rows(p.q, b, h, i, 1, T(1), q.data());
      row.count = 0;
      if (i < counted) row.load(topk, b, h, i, q.data(), k.row(0, E));
      T maximum = -infinity<T>, sum = 0;
      for (i64 t = 0; t < row.count; ++t) {
        maximum = row.score[t] < maximum ? maximum : row.score[t];  // NaN is propagated
      }
      std::fill_n(o.data(), M, T(0));
      for (i64 t = 0; t < row.count; ++t) {
        const T weight = std::exp(row.score[t] - maximum);
        sum += weight;
        simd::add_scaled(weight * row.factor[t], v.row(row.keys[t], M), o.data(), M);
      }
      log_sums(b, h, i) = row.count == 0 ? infinity<T> : maximum + std::log(sum);
      for (i64 m = 0; m < M; ++m) out(b, i, h, m) = row.count == 0 ? 0 : o.data()[m] / sum;
    }
  });
}

template <class Device, class T>
void TopkKernels<Device, T>::backward(const Device&, const TopkAttention<T>& p,
                                      View<const std::int32_t, 4> topk, View<const T, 3> log_sums,
                                      View<const T, 4> dout, View<T, 4> dq, View<T, 4> dk,
                                      View<T, 4> dv) {
  const i64 E = p.E(), M = p.M();
  parallel_for(p.B() * p.H(), [&](i64 piece) {
    const i64 b = piece / p.H(), h = piece % p.H();
    const i64 counted = std::min(p.queries(b), p.N()), keys = p.seen(b, counted - 1);
    const CopiedRows<T> k(p.k, b, h, keys), v(p.v, b, h, keys);
    const Scratch<T> key_gradients(keys * E), value_gradients(keys * M);
    std::fill_n(key_gradients.data(), keys * E, T(0));
    std::fill_n(value_gradients.data(), keys * M, T(0));
    Row<T> row(p, topk.size(3));
    const Scratch<T> q(E), query_gradient(E), od(M), weights(2 * topk.size(3));
    T *const a = weights.data(), *const da = a + topk.size(3);
    for (i64 i = 0; i < counted; ++i) {
      pack_rows(p.q, b, h, i, 1, T(1), q.data());
      pack_rows(dout, b, h, i, 1, T(1), od.data());
      row.load(topk, b, h, i, q.data(), k.row(0, E));
      T delta = 0;
      for (i64 t = 0; t < row.count; ++t) {
        const i64 j = row.keys[t];
        a[t] = std::exp(row.score[t] - log_sums(b, h, i));
        da[t] = row.factor[t] * simd::dot(od.data(), v.row(j, M), M);
        delta += a[t] * da[t];
        simd::add_scaled(a[t] * row.factor[t], od.data(), value_gradients.data() + j * M, M);
      }
      std::fill_n(query_gradient.data(), E, T(0));
      for (i64 t = 0; t < row.count; ++t) {
        const i64 j = row.keys[t];
        const T dz = p.temperature * a[t] * (da[t] - delta);
        simd::add_scaled(dz, k.row(j, E), query_gradient.data(), E);
        simd::add_scaled(dz, q.data(), key_gradients.data() + j * E, E);
      }
      unpack_rows(query_gradient.data(), b, h, i, 1, dq);
    }
    unpack_rows(key_gradients.data(), b, h, 0, keys, dk);
    unpack_rows(value_gradients.data(), b, h, 0, keys, dv);
    clear_rows(dq, b, h, counted);
    clear_rows(dk, b, h, keys);
    clear_rows(dv, b, h, keys);
  });
}

template struct TopkSelectKernels<Cpu, float>;
template struct TopkSelectKernels<Cpu, double>;
template struct TopkKernels<Cpu, float>;
template struct TopkKernels<Cpu, double>;

}  // namespace weft
