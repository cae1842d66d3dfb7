// CPU kernels of the engine for scans; the equations stand in scan.h.
//
// A piece of parallel work is one batch item and head. Its rows are packed a chunk at a time, and
// everything a chunk needs stays in the second level of cache: products are tile_product's.
#include "ops/attention/engines/scan/features.h"
#include "ops/attention/engines/scan/scan.h"
#include "ops/attention/rows.h"
#include "runtime/parallel.h"
#include "runtime/scratch.h"
#include "runtime/tile.h"
#include "runtime/transpose.h"

namespace weft {
namespace {

using scan::FeatureRows;

// Of the pairs of a chunk, half of which nobody sees, rows go in strips of these.
constexpr i64 strip = 32;

// A sum of outer products [rows, columns] and of vectors [vector], carried in f64; products read the
// rounded copy.
template <class T>
class Carried {
 public:
  Carried(Pieces<double>& exact, Pieces<T>& pieces, i64 rows, i64 columns, i64 vector)
      : rows_(rows),
        columns_(columns),
        count_(rows * columns + vector),
        exact_(exact.take(count_)),
        rounded_(pieces.take(count_)),
        change_(pieces.take(count_)) {}

  static i64 scratch(i64 rows, i64 columns, i64 vector) { return rows * columns + vector; }

  const T* matrix() const { return rounded_; }
  const T* vector() const { return rounded_ + rows_ * columns_; }

  void clear() {
    std::fill(exact_, exact_ + count_, 0.0);
    std::fill(rounded_, rounded_ + count_, T(0));
  }
  void load(const double* from) {
    for (i64 i = 0; i < count_; ++i) exact_[i] = from[i], rounded_[i] = static_cast<T>(from[i]);
  }
  void store(double* to) const { std::copy(exact_, exact_ + count_, to); }

  // += Σ_i a_i b_iᵀ over `count` rows of a [rows] and b [columns].
  void add_products(i64 count, const T* a, const T* b) {
    if (count == 0) return;
    tile_product<T>(rows_, columns_, count, {a, 1, rows_}, {b, columns_}, {change_, columns_}, false);
    add(0, rows_ * columns_);
  }
  // += Σ_i weights_i x_i over rows of x [width]; without weights they are 1.
  void add_vectors(i64 count, const T* x, i64 width, const T* weights) {
    if (count == 0) return;
    T* const to = change_ + rows_ * columns_;
    std::fill(to, to + width, T(0));
    for (i64 i = 0; i < count; ++i) {
      simd::add_scaled<T>(weights == nullptr ? T(1) : weights[i], x + i * width, to, width);
    }
    add(rows_ * columns_, width);
  }

 private:
  void add(i64 begin, i64 count) {
    for (i64 i = begin; i < begin + count; ++i) {
      exact_[i] += double(change_[i]);
      rounded_[i] = static_cast<T>(exact_[i]);
    }
  }

  i64 rows_, columns_, count_;
  double* exact_;
  T *rounded_, *change_;
};

// x_i += factor for the lanes of a row.
template <class T>
void add_to_row(T factor, T* x, i64 count) {
  for (i64 i = 0; i < count; ++i) x[i] += factor;
}

// The pairs of a chunk in strips: f(first query, queries, keys), the keys being those up to the
// strip's last query.
template <class F>
void each_strip(i64 queries, i64 keys, const F& f) {
  for (i64 i = 0; i < queries; i += strip) {
    const i64 count = std::min(strip, queries - i), seen = std::min(keys, i + count);
    if (seen > 0) f(i, count, seen);
  }
}
// The same from the keys' side: f(first key, keys, first query), all queries from there on.
template <class F>
void each_strip_of_keys(i64 queries, i64 keys, const F& f) {
  for (i64 j = 0; j < keys && j < queries; j += strip) f(j, std::min(strip, keys - j), j);
}

// Rows of one chunk: what forward and both passes of backward have in common.
template <class T>
struct ChunkOfRows {
  const Scan<T>& p;
  i64 b, h;
  FeatureRows<T> map;
  i64 begin = 0, queries = 0, keys = 0;
  T *x_q, *x_k, *q, *k, *v;     // rows as they came, features, values
  T *turned, *a;                // φkᵀ [F, 64], weights [64, 64]

  static i64 scratch(const Scan<T>& p) {
    return scan_chunk * (2 * p.E() + 3 * p.F() + p.M() + scan_chunk) + FeatureRows<T>::scratch();
  }
  ChunkOfRows(const Scan<T>& problem, i64 item, i64 head, Pieces<T>& pieces)
      : p(problem), b(item), h(head), map(problem, item, pieces) {
    x_q = pieces.take(scan_chunk * p.E());
    x_k = pieces.take(scan_chunk * p.E());
    q = pieces.take(scan_chunk * p.F());
    k = pieces.take(scan_chunk * p.F());
    v = pieces.take(scan_chunk * p.M());
    turned = pieces.take(scan_chunk * p.F());
    a = pieces.take(scan_chunk * scan_chunk);
  }

  void start(i64 first) {
    begin = first;
    queries = std::clamp<i64>(p.queries(b) - begin, 0, scan_chunk);
    keys = std::clamp<i64>(p.keys(b) - begin, 0, scan_chunk);
    map.start(begin);
  }
  void load_queries() {
    pack_rows(p.q, b, h, begin, queries, T(1), x_q);
    map.of_queries(queries, x_q, q);
  }
  void load_keys() {
    pack_rows(p.k, b, h, begin, keys, T(1), x_k);
    map.of_keys(keys, x_k, k);
    pack_rows(p.v, b, h, begin, keys, T(1), v);
  }
  // a [queries, keys]: φq φkᵀ, 0 where j > i.
  void weigh() {
    transpose<T>(keys, p.F(), {k, p.F()}, {turned, scan_chunk});
    each_strip(queries, keys, [&](i64 i, i64 count, i64 seen) {
      tile_product<T>(count, seen, p.F(), {q + i * p.F(), p.F(), 1}, {turned, scan_chunk},
                      {a + i * scan_chunk, scan_chunk}, false);
    });
    hide(a);
  }
  void hide(T* pairs) const {
    each_strip(queries, keys, [&](i64 first, i64 count, i64 seen) {
      for (i64 i = first; i < first + count; ++i) {
        T* const row = pairs + i * scan_chunk;
        for (i64 j = i + 1; j < seen; ++j) row[j] = 0;
      }
    });
  }
};

template <class T>
void forward_item(const Scan<T>& p, i64 b, i64 h, double* sums, const View<T, 4>& out,
                  const View<T, 3>& divisors) {
  const i64 F = p.F(), M = p.M(), queries = p.queries(b), keys = p.keys(b);
  Pieces<double> exact(Carried<T>::scratch(F, M, F));
  Pieces<T> pieces(ChunkOfRows<T>::scratch(p) + 2 * Carried<T>::scratch(F, M, F) + scan_chunk * M);
  ChunkOfRows<T> at(p, b, h, pieces);
  Carried<T> sum(exact, pieces, F, M, F);
  T* const o = pieces.take(scan_chunk * M);
  sum.clear();
  if (!p.causal) {
    for (i64 begin = 0; begin < keys; begin += scan_chunk) {
      at.start(begin);
      at.load_keys();
      sum.add_products(at.keys, at.k, at.v);
      sum.add_vectors(at.keys, at.k, F, nullptr);
    }
    sum.store(sums);
  } else if (sums != nullptr) {
    sum.load(sums);
  }
  for (i64 begin = 0; begin < queries; begin += scan_chunk) {
    at.start(begin);
    at.load_queries();
    tile_product<T>(at.queries, M, F, {at.q, F, 1}, {sum.matrix(), M}, {o, M}, false);
    if (p.causal) {
      at.load_keys();
      at.weigh();
      each_strip(at.queries, at.keys, [&](i64 i, i64 count, i64 seen) {
        tile_product<T>(count, M, seen, {at.a + i * scan_chunk, scan_chunk, 1}, {at.v, M},
                        {o + i * M, M}, true);
      });
    }
    for (i64 i = 0; i < at.queries; ++i) {
      T D = simd::dot<T>(at.q + i * F, sum.vector(), F);
      if (p.causal) {
        const T* const row = at.a + i * scan_chunk;
        for (i64 j = 0; j < std::min(i + 1, at.keys); ++j) D += row[j];
      }
      const T n = p.divisor(D);
      divisors(b, h, begin + i) = n;
      for (i64 m = 0; m < M; ++m) o[i * M + m] = o[i * M + m] / n;
    }
    unpack_rows(o, b, h, begin, at.queries, out);
    if (p.causal && (begin + scan_chunk < queries || sums != nullptr)) {
      sum.add_products(at.keys, at.k, at.v);
      sum.add_vectors(at.keys, at.k, F, nullptr);
    }
  }
  if (p.causal && sums != nullptr) sum.store(sums);
  clear_rows(out, b, h, queries);
  for (i64 i = queries; i < p.N(); ++i) divisors(b, h, i) = 0;
}

// What backward knows of a chunk's queries: dN and dD.
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

// da [queries, keys] of a chunk: dN_i · v_j + dD_i, 0 where j > i. `turned` has room for vᵀ.
template <class T>
void pair_gradients(const ChunkOfRows<T>& at, const QueryGradients<T>& d, T* turned, T* da) {
  const i64 M = at.p.M();
  transpose<T>(at.keys, M, {at.v, M}, {turned, scan_chunk});
  each_strip(at.queries, at.keys, [&](i64 i, i64 count, i64 seen) {
    tile_product<T>(count, seen, M, {d.dN + i * M, M, 1}, {turned, scan_chunk},
                    {da + i * scan_chunk, scan_chunk}, false);
    for (i64 row = i; row < i + count; ++row) add_to_row(d.dD[row], da + row * scan_chunk, seen);
  });
  at.hide(da);
}

template <class T>
void backward_item(const Scan<T>& p, i64 b, i64 h, const double* sums, const View<const T, 4>& out,
                   const View<const T, 3>& divisors, const View<const T, 4>& dout,
                   const View<T, 4>& dq, const View<T, 4>& dk, const View<T, 4>& dv) {
  const i64 E = p.E(), F = p.F(), M = p.M(), queries = p.queries(b), keys = p.keys(b);
  const i64 carried = Carried<T>::scratch(F, M, F), widest = std::max(F, M);
  Pieces<double> exact(2 * carried);
  Pieces<T> pieces(ChunkOfRows<T>::scratch(p) + QueryGradients<T>::scratch(p) + 4 * carried +
                   F * M + scan_chunk * (scan_chunk + 2 * widest + F + E));
  ChunkOfRows<T> at(p, b, h, pieces);
  QueryGradients<T> d(p, out, dout, divisors, pieces);
  Carried<T> sum(exact, pieces, M, F, F);   // Sᵀ and z
  Carried<T> back(exact, pieces, F, M, F);  // G and g
  T* const back_turned = pieces.take(F * M);
  T* const da = pieces.take(scan_chunk * scan_chunk);
  T* const turned = pieces.take(scan_chunk * widest);
  T* const dvalues = pieces.take(scan_chunk * widest);
  T* const dfeatures = pieces.take(scan_chunk * F);
  T* const dx = pieces.take(scan_chunk * E);

  sum.clear();
  back.clear();
  if (!p.causal) {  // S is there; Sᵀ is wanted
    const Scratch<double> turned_sums(p.sums());
    transpose<double>(F, M, {sums, M}, {turned_sums.data(), F});
    std::copy(sums + F * M, sums + p.sums(), turned_sums.data() + F * M);
    sum.load(turned_sums.data());
  }
  for (i64 begin = 0; begin < queries; begin += scan_chunk) {
    at.start(begin);
    at.load_queries();
    d.load(b, h, begin, at.queries);
    tile_product<T>(at.queries, F, M, {d.dN, M, 1}, {sum.matrix(), F}, {dfeatures, F}, false);
    for (i64 i = 0; i < at.queries; ++i) {
      simd::add_scaled<T>(d.dD[i], sum.vector(), dfeatures + i * F, F);
    }
    if (p.causal) {
      at.load_keys();
      pair_gradients(at, d, turned, da);
      each_strip(at.queries, at.keys, [&](i64 i, i64 count, i64 seen) {
        tile_product<T>(count, F, seen, {da + i * scan_chunk, scan_chunk, 1}, {at.k, F},
                        {dfeatures + i * F, F}, true);
      });
      if (begin + scan_chunk < queries) {
        sum.add_products(at.keys, at.v, at.k);
        sum.add_vectors(at.keys, at.k, F, nullptr);
      }
    } else {
      back.add_products(at.queries, at.q, d.dN);
      back.add_vectors(at.queries, at.q, F, d.dD);
    }
    at.map.gradient_of_queries(at.queries, at.x_q, at.q, dfeatures, dx);
    unpack_rows(dx, b, h, begin, at.queries, dq);
  }
  clear_rows(dq, b, h, queries);

  const i64 last = p.causal ? std::max(keys, queries) : keys;
  for (i64 chunk = (last + scan_chunk - 1) / scan_chunk - 1; chunk >= 0; --chunk) {
    at.start(chunk * scan_chunk);
    at.load_keys();
    transpose<T>(F, M, {back.matrix(), M}, {back_turned, F});
    tile_product<T>(at.keys, F, M, {at.v, M, 1}, {back_turned, F}, {dfeatures, F}, false);
    tile_product<T>(at.keys, M, F, {at.k, F, 1}, {back.matrix(), M}, {dvalues, M}, false);
    for (i64 j = 0; j < at.keys; ++j) {
      simd::add_scaled<T>(T(1), back.vector(), dfeatures + j * F, F);
    }
    if (p.causal) {
      at.load_queries();
      d.load(b, h, at.begin, at.queries);
      at.weigh();
      pair_gradients(at, d, turned, da);
      each_strip_of_keys(at.queries, at.keys, [&](i64 j, i64 count, i64 i) {
        const i64 rest = at.queries - i, from = i * scan_chunk + j;
        tile_product<T>(count, M, rest, {at.a + from, 1, scan_chunk}, {d.dN + i * M, M},
                        {dvalues + j * M, M}, true);
        tile_product<T>(count, F, rest, {da + from, 1, scan_chunk}, {at.q + i * F, F},
                        {dfeatures + j * F, F}, true);
      });
      back.add_products(at.queries, at.q, d.dN);
      back.add_vectors(at.queries, at.q, F, d.dD);
    }
    at.map.gradient_of_keys(at.keys, at.x_k, at.k, dfeatures, dx);
    unpack_rows(dx, b, h, at.begin, at.keys, dk);
    unpack_rows(dvalues, b, h, at.begin, at.keys, dv);
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
