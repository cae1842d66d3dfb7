// CPU kernels of the engine for scans; the equations are in scan.h.
//
// A task is one batch item and head. Its rows are packed a chunk at a time, and the working set of
// a chunk stays in the L2 cache: products are tile_product's.
#include "ops/attention/engines/scan/chunk.h"
#include "runtime/parallel.h"

namespace weft {
namespace {

using scan::add_to_row, scan::Carried, scan::ChunkOfRows, scan::each_strip;
using scan::each_strip_of_keys, scan::KeySums;

// If one level holds for all keys.
template <class T>
void find_level(ChunkOfRows<T>& at) {
  const Scan<T>& p = at.p;
  if (!p.levels() || p.causal || p.key_max_given) return;
  const i64 keys = p.keys(at.b);
  T most = keys > 0 ? -std::numeric_limits<T>::infinity() : T(0);
  for (i64 begin = 0; begin < keys; begin += scan_chunk) {
    const i64 rows = std::min(keys - begin, scan_chunk);
    pack_rows(p.k, at.b, at.h, begin, rows, p.scale, at.x_k);
    most = std::max(most, at.map.random().level_of(rows, at.x_k, at.k));
  }
  p.key_max(at.b, at.h, 0) = most;
}

// Zeros beyond the last query or key.
template <class T>
void finish_maxima(const Scan<T>& p, i64 b, i64 h, T level) {
  if (!p.levels()) return;
  for (i64 i = p.queries(b); i < p.N(); ++i) {
    if (!p.query_max_given) p.query_max(b, h, i) = 0;
    if (!p.key_max_given && p.causal) p.key_max(b, h, i) = p.keys(b) > 0 ? level : T(0);
  }
}

// o [queries, M] and n of a chunk.
template <class T>
void outputs_of(ChunkOfRows<T>& at, const KeySums<T>& sum, T* o, const View<T, 3>& divisors) {
  const Scan<T>& p = at.p;
  const i64 F = p.F(), M = p.M();
  tile_product<T>(at.queries, M, F, {at.q, F, 1}, {sum.S(), M}, {o, M}, false);
  at.levels.fade_in(at.queries, M, o);
  if (p.causal) {
    at.weigh();
    each_strip(at.queries, at.keys, [&](i64 i, i64 count, i64 seen) {
      tile_product<T>(count, M, seen, {at.a + i * scan_chunk, scan_chunk, 1}, {at.v, M},
                      {o + i * M, M}, true);
    });
  }
  for (i64 i = 0; i < at.queries; ++i) {
    T D = at.levels.in(i) * simd::dot<T>(at.q + i * F, sum.z(), F);
    if (p.levels()) {
      D += at.weights()[i] * sum.seen();
      simd::add_scaled<T>(at.weights()[i], sum.V(), o + i * M, M);
    }
    if (p.causal) D += simd::sum<T>(at.a + i * scan_chunk, std::min(i + 1, at.keys));
    const T n = p.divisor(D);
    divisors(at.b, at.h, at.begin + i) = n;
    for (i64 m = 0; m < M; ++m) o[i * M + m] = o[i * M + m] / n;
  }
}

template <class T>
void forward_item(const Scan<T>& p, i64 b, i64 h, double* sums, const View<T, 4>& out,
                  const View<T, 3>& divisors) {
  const i64 queries = p.queries(b), keys = p.keys(b);
  Pieces<double> exact(KeySums<T>::scratch(p));
  Pieces<T> pieces(ChunkOfRows<T>::scratch(p) + 2 * KeySums<T>::scratch(p) + scan_chunk * p.M());
  ChunkOfRows<T> at(p, b, h, pieces);
  KeySums<T> sum(p, false, exact, pieces);
  T* const o = pieces.take(scan_chunk * p.M());
  find_level(at);
  if (!p.causal) {
    for (i64 begin = 0; begin < keys; begin += scan_chunk) {
      at.start(begin);
      at.load_keys();
      sum.add(at);
    }
    sum.settle();
    sum.store(sums, 0);
  } else if (sums != nullptr) {
    sum.load(sums);
    at.levels.start_at(static_cast<T>(sums[p.sums() - 1]));
  }
  for (i64 begin = 0; begin < queries; begin += scan_chunk) {
    at.start(begin);
    at.load_queries();
    if (p.causal) at.load_keys();
    outputs_of(at, sum, o, divisors);
    unpack_rows(o, b, h, begin, at.queries, out);
    if (p.causal && (begin + scan_chunk < queries || sums != nullptr)) sum.add(at);
  }
  if (p.causal && sums != nullptr) sum.store(sums, double(at.levels.after()));
  finish_maxima(p, b, h, at.levels.after());
  clear_rows(out, b, h, queries);
  for (i64 i = queries; i < p.N(); ++i) divisors(b, h, i) = 0;
}

// Backward's data of a chunk's queries: dN and dD.
template <class T>
struct QueryGradients {
  const Scan<T>& p;
  View<const T, 4> out, dout;
  View<const T, 3> divisors;
  T *o, *dN, *dD;

  static i64 scratch(const Scan<T>& p) { return scan_chunk * (2 * p.M() + 1); }

  QueryGradients(const Scan<T>& problem, const View<const T, 4>& outputs,
                 const View<const T, 4>& cotangent, const View<const T, 3>& n, Pieces<T>& pieces)
      : p(problem), out(outputs), dout(cotangent), divisors(n) {
    o = pieces.take(scan_chunk * p.M());
    dN = pieces.take(scan_chunk * p.M());
    dD = pieces.take(scan_chunk);
  }
  void load(i64 b, i64 h, i64 begin, i64 queries) {
    const i64 M = p.M();
    pack_rows(out, b, h, begin, queries, T(1), o);
    pack_rows(dout, b, h, begin, queries, T(1), dN);
    for (i64 i = 0; i < queries; ++i) {
      const T n = divisors(b, h, begin + i);
      for (i64 m = 0; m < M; ++m) dN[i * M + m] = dN[i * M + m] / n;
      dD[i] = -p.slope(n) * simd::dot<T>(dN + i * M, o + i * M, M);
    }
  }
};

// da [queries, keys] of a chunk: dN_i · v_j + dD_i, scaled by levels, and 0 if j > i. `turned` has
// room for vᵀ. Adds the rows' unscaled sums, Σ_j da_ij, to `totals`, unless null.
template <class T>
void pair_gradients(const ChunkOfRows<T>& at, const QueryGradients<T>& d, T* turned, T* da,
                    T* totals) {
  const i64 M = at.p.M();
  transpose<T>(at.keys, M, {at.v, M}, {turned, scan_chunk});
  each_strip(at.queries, at.keys, [&](i64 i, i64 count, i64 seen) {
    tile_product<T>(count, seen, M, {d.dN + i * M, M, 1}, {turned, scan_chunk},
                    {da + i * scan_chunk, scan_chunk}, false);
    for (i64 row = i; row < i + count; ++row) {
      add_to_row(d.dD[row], da + row * scan_chunk, seen);
      if (totals == nullptr) continue;
      totals[row] += simd::sum<T>(da + row * scan_chunk, std::min(seen, row + 1));
    }
    at.fade(i, count, seen, da);
  });
  at.hide(da);
}

// Sums over queries: G and g, and W if there are levels.
template <class T>
class QuerySums {
 public:
  QuerySums(const Scan<T>& p, Pieces<double>& exact, Pieces<T>& pieces)
      : p_(p),
        products_(exact, pieces, p.F(), p.M(), p.F(), scan::chunks_together(p)),
        gradients_(exact, pieces, 0, 0, p.M()) {
    products_.clear();
    gradients_.clear();
  }

  const T* G() const { return products_.matrix(); }
  const T* g() const { return products_.vector(); }
  const T* W() const { return gradients_.vector(); }

  // Adds the queries of a chunk; overwrites their features. If not causal, settle() comes after
  // the last chunk.
  void add(ChunkOfRows<T>& at, const QueryGradients<T>& d) {
    products_.multiply(at.levels.carried());
    at.levels.fade_in(at.queries, p_.F(), at.q);
    products_.add_products(at.queries, at.q, d.dN);
    products_.add_vectors(at.queries, at.q, p_.F(), d.dD);
    if (p_.levels()) gradients_.add_vectors(at.queries, d.dN, p_.M(), at.weights());
  }
  void settle() { products_.settle(); }

 private:
  const Scan<T>& p_;
  Carried<T> products_, gradients_;
};

// Shared by both passes of backward.
template <class T>
struct Backward {
  const Scan<T>& p;
  Pieces<double> exact;
  Pieces<T> pieces;
  ChunkOfRows<T> at;
  QueryGradients<T> d;
  KeySums<T> sum;
  QuerySums<T> back;
  T *G_turned, *da, *turned, *dvalues, *dfeatures, *dx, *totals;

  Backward(const Scan<T>& problem, i64 b, i64 h, const View<const T, 4>& out,
           const View<const T, 4>& dout, const View<const T, 3>& divisors)
      : p(problem),
        exact(2 * KeySums<T>::scratch(p)),
        pieces(ChunkOfRows<T>::scratch(p) + QueryGradients<T>::scratch(p) +
               4 * KeySums<T>::scratch(p) + p.F() * p.M() +
               scan_chunk * (scan_chunk + 2 * std::max(p.F(), p.M()) + p.F() + p.E() + 1)),
        at(p, b, h, pieces),
        d(p, out, dout, divisors, pieces),
        sum(p, true, exact, pieces),
        back(p, exact, pieces) {
    G_turned = pieces.take(p.F() * p.M());
    da = pieces.take(scan_chunk * scan_chunk);
    turned = pieces.take(scan_chunk * std::max(p.F(), p.M()));
    dvalues = pieces.take(scan_chunk * std::max(p.F(), p.M()));
    dfeatures = pieces.take(scan_chunk * p.F());
    dx = pieces.take(scan_chunk * p.E());
    totals = pieces.take(scan_chunk);
  }

  // dφq of a chunk.
  void query_features() {
    const i64 F = p.F(), M = p.M();
    tile_product<T>(at.queries, F, M, {d.dN, M, 1}, {sum.S(), F}, {dfeatures, F}, false);
    for (i64 i = 0; i < at.queries; ++i) {
      simd::add_scaled<T>(d.dD[i], sum.z(), dfeatures + i * F, F);
    }
    at.levels.fade_in(at.queries, F, dfeatures);
    for (i64 i = 0; p.levels() && i < at.queries; ++i) {
      totals[i] = simd::dot<T>(d.dN + i * M, sum.V(), M) + d.dD[i] * sum.seen();
    }
    if (p.causal) {
      pair_gradients(at, d, turned, da, p.levels() ? totals : nullptr);
      each_strip(at.queries, at.keys, [&](i64 i, i64 count, i64 seen) {
        tile_product<T>(count, F, seen, {da + i * scan_chunk, scan_chunk, 1}, {at.k, F},
                        {dfeatures + i * F, F}, true);
      });
    }
    if (p.feature != Feature::random_exponential) return;
    for (i64 i = 0; i < at.queries; ++i) {
      add_to_row(p.constant * totals[i], dfeatures + i * F, F);
    }
  }

  // After G has changed.
  void turn_G() { transpose<T>(p.F(), p.M(), {back.G(), p.M()}, {G_turned, p.F()}); }

  // dφk and dv of a chunk.
  void key_features_and_values() {
    const i64 F = p.F(), M = p.M();
    tile_product<T>(at.keys, F, M, {at.v, M, 1}, {G_turned, F}, {dfeatures, F}, false);
    tile_product<T>(at.keys, M, F, {at.k, F, 1}, {back.G(), M}, {dvalues, M}, false);
    for (i64 j = 0; j < at.keys; ++j) simd::add_scaled<T>(T(1), back.g(), dfeatures + j * F, F);
    at.levels.fade_out(at.keys, F, dfeatures);
    at.levels.fade_out(at.keys, M, dvalues);
    for (i64 j = 0; p.levels() && j < at.keys; ++j) {
      simd::add_scaled<T>(T(1), back.W(), dvalues + j * M, M);
    }
    if (!p.causal) return;
    at.weigh();
    pair_gradients<T>(at, d, turned, da, nullptr);
    each_strip_of_keys(at.queries, at.keys, [&](i64 j, i64 count, i64 i) {
      const i64 rest = at.queries - i, from = i * scan_chunk + j;
      tile_product<T>(count, M, rest, {at.a + from, 1, scan_chunk}, {d.dN + i * M, M},
                      {dvalues + j * M, M}, true);
      tile_product<T>(count, F, rest, {da + from, 1, scan_chunk}, {at.q + i * F, F},
                      {dfeatures + j * F, F}, true);
    });
  }
};

template <class T>
void backward_item(const Scan<T>& p, i64 b, i64 h, const double* sums, const View<const T, 4>& out,
                   const View<const T, 3>& divisors, const View<const T, 4>& dout,
                   const View<T, 4>& dq, const View<T, 4>& dk, const View<T, 4>& dv) {
  const i64 queries = p.queries(b), keys = p.keys(b);
  Backward<T> of(p, b, h, out, dout, divisors);
  ChunkOfRows<T>& at = of.at;
  if (!p.causal) of.sum.load(sums);
  for (i64 begin = 0; begin < queries; begin += scan_chunk) {
    at.start(begin);
    at.load_queries();
    of.d.load(b, h, begin, at.queries);
    if (p.causal) at.load_keys();
    of.query_features();
    at.map.gradient_of_queries(at.queries, at.x_q, at.q, of.dfeatures, of.dx);
    unpack_rows(of.dx, b, h, begin, at.queries, dq, p.scale);
    if (!p.causal) {
      of.back.add(at, of.d);
    } else if (begin + scan_chunk < queries) {
      of.sum.add(at);
    }
  }
  clear_rows(dq, b, h, queries);

  if (!p.causal) {
    of.back.settle();
    of.turn_G();
  }
  const i64 last = p.causal ? std::max(keys, queries) : keys;
  const i64 chunks = (last + scan_chunk - 1) / scan_chunk;
  for (i64 i = 0; i < chunks; ++i) {
    at.start((p.causal ? chunks - 1 - i : i) * scan_chunk);
    at.load_keys();
    if (p.causal) {
      of.turn_G();
      at.load_queries();
      of.d.load(b, h, at.begin, at.queries);
    }
    of.key_features_and_values();
    if (p.causal) of.back.add(at, of.d);
    at.map.gradient_of_keys(at.keys, at.x_k, at.k, of.dfeatures, of.dx);
    unpack_rows(of.dx, b, h, at.begin, at.keys, dk, p.scale);
    unpack_rows(of.dvalues, b, h, at.begin, at.keys, dv);
  }
  clear_rows(dk, b, h, keys);
  clear_rows(dv, b, h, keys);
}

}  // namespace

template <class Device, class T>
void ScanKernels<Device, T>::forward(const Device&, const Scan<T>& p, View<double, 3> sums,
                                     View<T, 4> out, View<T, 3> divisors) {
  const i64 work = (p.N() + p.S()) * p.F() * p.M();
  parallel_for(p.B() * p.H(), work, [&](i64 piece) {
    const i64 b = piece / p.H(), h = piece % p.H();
    forward_item(p, b, h, sums.data == nullptr ? nullptr : &sums(b, h, 0), out, divisors);
  });
}

template <class Device, class T>
void ScanKernels<Device, T>::backward(const Device&, const Scan<T>& p, View<const double, 3> sums,
                                      View<const T, 4> out, View<const T, 3> divisors,
                                      View<const T, 4> dout, View<T, 4> dq, View<T, 4> dk,
                                      View<T, 4> dv) {
  const i64 work = 3 * (p.N() + p.S()) * p.F() * p.M();
  parallel_for(p.B() * p.H(), work, [&](i64 piece) {
    const i64 b = piece / p.H(), h = piece % p.H();
    backward_item(p, b, h, sums.data == nullptr ? nullptr : &sums(b, h, 0), out, divisors, dout, dq,
                  dk, dv);
  });
}

template struct ScanKernels<Cpu, float>;
template struct ScanKernels<Cpu, double>;

}  // namespace weft
