// Backward of attention by distance on the CPU; the equations are in distances.h.
#include <vector>

#include "ops/attention/engines/pairs/distances_cpu.h"

namespace weft {
namespace {

// Backward of one batch item and head. Queries are packed block by block, both as rows and
// transposed.
template <class T>
struct HeadBackward {
  const Distances<T>& p;
  const i64 b, h, n;
  const DistanceFactors<T> factors;
  const i64 E = p.E(), M = p.M();
  const i64 block, blocks = (n + block - 1) / block, padded = blocks * block;
  Pieces<T> pieces;
  T* const q = pieces.take(padded * E);  // in units of ln 2
  T* const dout = pieces.take(padded * M);
  T* const q_turned = pieces.take(padded * E);
  T* const dout_turned = pieces.take(padded * M);
  T* const dq_turned = pieces.take(padded * E);
  T* const log_sums = pieces.take(padded);
  T* const delta = pieces.take(padded);
  T* const k = pieces.take(tile_keys * E);
  T* const v = pieces.take(tile_keys * M);
  T* const dk = pieces.take(tile_keys * E);
  T* const dv = pieces.take(tile_keys * M);
  T* const a = pieces.take(tile_keys * block);
  T* const ds_rows = pieces.take((tile_keys + 2 * strip_queries) * block);
  T* const ds = ds_rows + strip_queries * block;
  const DistanceProducts<T> positions;
  double dspan = 0;

  static i64 working(i64 rows, i64 block, i64 E, i64 M) {
    return rows * (3 * E + 2 * M + 2) + tile_keys * 2 * (E + M) +
           (2 * tile_keys + 2 * strip_queries) * block + DistanceProducts<T>::room;
  }

  HeadBackward(const Distances<T>& problem, i64 item, i64 head, i64 queries,
               const View<const T, 4>& out, const View<const T, 3>& row_log_sums,
               const View<const T, 4>& row_dout)
      : p(problem),
        b(item),
        h(head),
        n(queries),
        factors(p.ramp_of(h)),
        block(query_block<T>(n, factors.reach)),
        pieces(working(padded, block, E, M)),
        positions(p, factors.reach, pieces.take(DistanceProducts<T>::room)) {
    std::fill(q + n * E, q + padded * E, T(0));
    std::fill(dout + n * M, dout + padded * M, T(0));
    std::fill_n(dq_turned, padded * E, T(0));
    pack_rows(p.q, b, h, 0, n, log2e_v<T> * p.temperature, q);
    pack_rows(row_dout, b, h, 0, n, T(1), dout);
    for (i64 i = 0; i < blocks; ++i) {
      transpose_block(q + i * block * E, block, E, block, q_turned + i * block * E);
      transpose_block(dout + i * block * M, block, M, block, dout_turned + i * block * M);
    }
    for (i64 i = 0; i < padded; ++i) {
      log_sums[i] = i < n ? log2e_v<T> * row_log_sums(b, h, i) : infinity<T>;
      delta[i] = i < n ? simd::dot(dout + i * M, &out(b, i, h, 0), M) : T(0);
    }
  }

  void run(const View<T, 4>& dq_out, const View<T, 4>& dk_out, const View<T, 4>& dv_out, T* dtable,
           T* dbias) {
    const i64 keys = std::clamp<i64>(p.first_key(n - 1) + 1, 0, p.keys(b));
    clear_rows(dk_out, b, h, keys);
    clear_rows(dv_out, b, h, keys);
    const i64 shift = p.first_key(0);  // distance of query i and key j: i + shift − j
    for (i64 key = 0; key < keys; key += tile_keys) {
      const i64 count = std::min(tile_keys, keys - key);
      pack_rows(p.k, b, h, key, count, T(1), k);
      pack_rows(p.v, b, h, key, count, T(1), v);
      std::fill_n(dk, count * E, T(0));
      std::fill_n(dv, count * M, T(0));
      const i64 first = std::max<i64>(key - shift, 0) / block * block;
      const i64 end = std::min(n, key + count - 1 - shift + factors.reach);
      for (i64 query = first; query < end; query += block) {
        add(query, key, count, shift, dtable, dbias);
      }
      unpack_rows(dk, b, h, key, count, dk_out, ln2_v<T>);
      unpack_rows(dv, b, h, key, count, dv_out);
    }
    for (i64 i = 0; i < blocks; ++i) {
      transpose<T>(E, block, {dq_turned + i * block * E, block}, {q + i * block * E, E});
    }
    unpack_rows(q, b, h, 0, n, dq_out, p.temperature);
  }

  // A block of queries against the keys of the tile that some of its queries see.
  void add(i64 query, i64 tile, i64 count, i64 shift, T* dtable, T* dbias) {
    const i64 last = std::min(query + block, n) - 1;
    const i64 from = std::max<i64>(query + shift - factors.reach + 1 - tile, 0) / group * group;
    const i64 keys = std::min(count, last + shift - tile + 1) - from;
    if (keys <= 0) return;
    const DistanceTile t{b, h, query, block, tile + from, keys, query + shift - tile - from};
    const T *const queries = q_turned + query * E, *const own_k = k + from * E;
    tile_product<T>(keys, block, E, {own_k, E, 1}, {queries, block}, {a, block}, false);
    if (p.table.data != nullptr) positions.add_scores(t, queries, block, a);
    hide(t, factors, a);
    tile_product<T>(keys, block, M, {v + from * M, M, 1}, {dout_turned + query * M, block},
                    {ds, block}, false);
    drop(p, t, ds);
    differentiate(t);
    drop(p, t, a);
    tile_product<T>(E, block, keys, {own_k, 1, E}, {ds, block}, {dq_turned + query * E, block},
                    true);
    tile_product<T>(keys, E, block, {ds, block, 1}, {q + query * E, E}, {dk + from * E, E}, true);
    tile_product<T>(keys, M, block, {a, block, 1}, {dout + query * M, M}, {dv + from * M, M}, true);
    if (p.table.data == nullptr) return;
    std::fill_n(ds_rows, strip_queries * block, T(0));
    std::fill_n(ds + keys * block, strip_queries * block, T(0));
    positions.add_gradients(t, ds, q + query * E, dq_turned + query * E, block, dtable, dbias);
  }

  // a holds s, ds holds g: they are replaced by w and ds.
  void differentiate(const DistanceTile& t) {
    const simd::Tag<T> d;
    auto sum = hn::Zero(d);
    for (i64 i = 0; i < t.lanes; i += simd::lanes<T>) {
      const auto log_sum = hn::LoadU(d, log_sums + t.query + i);
      const auto mine = hn::LoadU(d, delta + t.query + i);
      for (i64 j = 0; j < t.keys; ++j) {
        T *const weight_at = a + j * t.lanes + i, *const gradient_at = ds + j * t.lanes + i;
        const i64 distance = t.distance_of(i, j);
        const auto m = hn::LoadU(d, factors.weight(distance));
        const auto g = hn::LoadU(d, gradient_at);
        const auto power = simd::exp2<T>(hn::Sub(hn::LoadU(d, weight_at), log_sum));
        const auto taken = hn::Mul(hn::LoadU(d, factors.share(distance)), mine);
        hn::StoreU(hn::Mul(power, m), d, weight_at);
        hn::StoreU(hn::Mul(power, hn::MulSub(m, g, taken)), d, gradient_at);
        const auto slope = hn::Mul(hn::LoadU(d, factors.slope(distance)), power);
        sum = hn::MulAdd(slope, hn::Sub(g, mine), sum);
      }
    }
    dspan += static_cast<double>(simd::sum_of_lanes<T>(sum));
  }
};

}  // namespace

template <class Device, class T>
void DistancesBackwardKernels<Device, T>::backward(const Device&, const Distances<T>& p,
                                                   View<const T, 4> out, View<const T, 3> log_sums,
                                                   View<const T, 4> dout, View<T, 4> dq,
                                                   View<T, 4> dk, View<T, 4> dv, View<T, 3> dtable,
                                                   View<T, 2> dbias, View<T, 1> dspans) {
  const i64 B = p.B(), H = p.H(), rows = p.distances(), size = rows * p.E();
  const Scratch<T> tables(dtable.data == nullptr ? 0 : B * H * size);
  const Scratch<T> biases(dbias.data == nullptr ? 0 : B * H * rows);
  std::vector<double> of_spans(static_cast<std::size_t>(B * H), 0);
  parallel_for(B * H, [&](i64 piece) {
    const i64 b = piece / H, h = piece % H, n = p.queries(b);
    T* const own = dtable.data == nullptr ? nullptr : tables.data() + piece * size;
    T* const own_bias = dbias.data == nullptr ? nullptr : biases.data() + piece * rows;
    if (own != nullptr) std::fill_n(own, size, T(0));
    if (own_bias != nullptr) std::fill_n(own_bias, rows, T(0));
    clear_rows(dq, b, h, n);
    if (n == 0) {
      clear_rows(dk, b, h, 0);
      clear_rows(dv, b, h, 0);
      return;
    }
    HeadBackward<T> head(p, b, h, n, out, log_sums, dout);
    head.run(dq, dk, dv, own, own_bias);
    of_spans[static_cast<std::size_t>(piece)] = head.dspan;
  });
  for (i64 h = 0; h < H && dspans.data != nullptr; ++h) {
    double sum = 0;
    for (i64 b = 0; b < B; ++b) sum += of_spans[static_cast<std::size_t>(b * H + h)];
    dspans(h) = static_cast<T>(sum);
  }
  // Sums over all batch items, and over the heads that share a table.
  const i64 tables_kept = dtable.data == nullptr ? 0 : dtable.size(0);
  parallel_for(tables_kept * p.most, B * H / std::max<i64>(tables_kept, 1) * p.E(), [&](i64 row) {
    const i64 table = row / p.most, d = row % p.most;
    for (i64 e = 0; e < p.E(); ++e) {
      T sum = 0;
      for (i64 piece = table; piece < B * H && d < rows; piece += tables_kept) {
        sum += tables.data()[piece * size + d * p.E() + e];
      }
      dtable(table, d, e) = ln2_v<T> * sum;
    }
  });
  for (i64 h = 0; h < H && dbias.data != nullptr; ++h) {
    for (i64 d = 0; d < p.most; ++d) {
      T sum = 0;
      for (i64 b = 0; b < B && d < rows; ++b) sum += biases.data()[(b * H + h) * rows + d];
      dbias(h, d) = p.temperature * sum;
    }
  }
}

template struct DistancesBackwardKernels<Cpu, float>;
template struct DistancesBackwardKernels<Cpu, double>;

}  // namespace weft
