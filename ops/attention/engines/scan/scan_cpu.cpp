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
template <class S, class T = Accumulator<S>>
void find_level(ChunkOfRows<S>& at) {
  const Scan<S>& p = at.p;
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
template <class S, class T = Accumulator<S>>
void finish_maxima(const Scan<S>& p, i64 b, i64 h, T level) {
  if (!p.levels()) return;
  for (i64 i = p.queries(b); i < p.N(); ++i) {
    if (!p.query_max_given) p.query_max(b, h, i) = 0;
    if (!p.key_max_given && p.causal) p.key_max(b, h, i) = p.keys(b) > 0 ? level : T(0);
  }
}

// o [queries, M] and n of a chunk.
template <class S, class T = Accumulator<S>>
void outputs_of(ChunkOfRows<S>& at, KeySums<S>& sum, T* o, const View<T, 3>& divisors) {
  const Scan<S>& p = at.p;
  const i64 F = p.F(), M = p.M();
  tile_product<Operand<S>>(at.queries, M, operands<S>(F), at.packed_q.along_width(0), sum.matrix(),
                           {o, M}, false);
  at.levels.fade_in(at.queries, M, o);
  if (p.causal) {
    at.weigh();
    each_strip(at.queries, at.keys, [&](i64 i, i64 count, i64 seen) {
      tile_product<Operand<S>>(count, M, operands<S>(seen), at.packed_a.along_width(i),
                               at.packed_v.rows_from(0), {o + i * M, M}, true);
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

template <class S, class T = Accumulator<S>>
void forward_item(const Scan<S>& p, i64 b, i64 h, double* sums, const View<S, 4>& out,
                  const View<T, 3>& divisors) {
  const i64 queries = p.queries(b), keys = p.keys(b);
  Pieces<double> exact(KeySums<S>::scratch(p));
  Pieces<T> pieces(ChunkOfRows<S>::scratch(p) + 2 * KeySums<S>::scratch(p) + scan_chunk * p.M());
  const Scratch<Operand<S>> memory(ChunkOfRows<S>::operand_scratch(p) +
                                   KeySums<S>::operand_scratch(p));
  Operand<S>* operand = memory.data();
  ChunkOfRows<S> at(p, b, h, pieces, operand);
  KeySums<S> sum(p, false, exact, pieces, operand);
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
template <class S>
struct QueryGradients {
  using T = Accumulator<S>;

  const Scan<S>& p;
  View<const S, 4> out, dout;
  View<const T, 3> divisors;
  T *o, *dN, *dD;
  PackedRows<S> packed_dN;

  static i64 scratch(const Scan<S>& p) { return scan_chunk * (2 * p.M() + 1); }

  QueryGradients(const Scan<S>& problem, const View<const S, 4>& outputs,
                 const View<const S, 4>& cotangent, const View<const T, 3>& n, Pieces<T>& pieces,
                 Operand<S>*& operand)
      : p(problem), out(outputs), dout(cotangent), divisors(n) {
    o = pieces.take(scan_chunk * p.M());
    dN = pieces.take(scan_chunk * p.M());
    dD = pieces.take(scan_chunk);
    packed_dN = PackedRows<S>(dN, scan_chunk, p.M(), operand);
  }
  void load(i64 b, i64 h, i64 begin, i64 queries) {
    const i64 M = p.M();
    pack_rows(out, b, h, begin, queries, T(1), o);
    pack_rows(dout, b, h, begin, queries, T(1), dN);
    for (i64 i = 0; i < queries; ++i) {
      const T n = divisors(b, h, begin + i);
      for (i64 m = 0; m < M; ++m) dN[i * M + m] = dN[i * M + m] / n;
      round_computed<S>(M, dN + i * M);
      dD[i] = -p.slope(n) * simd::dot<T>(dN + i * M, o + i * M, M);
    }
    packed_dN.round(Along::both, dN, 0, queries, M);
  }
};

// da [queries, keys] of a chunk, packed, too: dN_i · v_j + dD_i, scaled by levels, and 0 if j > i.
// `turned` has room for vᵀ. Adds the rows' unscaled sums, Σ_j da_ij, to `totals`, unless null.
template <class S, class T = Accumulator<S>>
void pair_gradients(const ChunkOfRows<S>& at, const QueryGradients<S>& d, Operand<S>* turned, T* da,
                    const PackedRows<S>& packed, T* totals) {
  const i64 depth = operands<S>(at.p.M());
  transpose<Operand<S>>(at.keys, depth, {at.packed_v.by_width, depth}, {turned, scan_chunk});
  each_strip(at.queries, at.keys, [&](i64 i, i64 count, i64 seen) {
    tile_product<Operand<S>>(count, seen, depth, d.packed_dN.along_width(i), {turned, scan_chunk},
                             {da + i * scan_chunk, scan_chunk}, false);
    for (i64 row = i; row < i + count; ++row) {
      add_to_row(d.dD[row], da + row * scan_chunk, seen);
      if (totals == nullptr) continue;
      totals[row] += simd::sum<T>(da + row * scan_chunk, std::min(seen, row + 1));
    }
    at.fade(i, count, seen, da);
  });
  at.hide(da, packed);
}

// Sums over queries: G and g, and W if there are levels.
template <class S>
class QuerySums {
 public:
  using T = Accumulator<S>;

  QuerySums(const Scan<S>& p, Pieces<double>& exact, Pieces<T>& pieces, Operand<S>*& operand)
      : p_(p),
        products_(exact, pieces, operand, p.F(), p.M(), p.F(), scan::chunks_together(p)),
        gradients_(exact, pieces, operand, 0, 0, p.M()) {
    products_.clear();
    gradients_.clear();
  }

  const PackedRows<S>& G() { return products_.matrix(Along::both); }
  const T* g() const { return products_.vector(); }
  const T* W() const { return gradients_.vector(); }

  // Adds the queries of a chunk; overwrites their features. If not causal, settle() comes after
  // the last chunk.
  void add(ChunkOfRows<S>& at, const QueryGradients<S>& d) {
    products_.multiply(at.levels.carried());
    at.fade_queries();
    products_.add_products(at.queries, at.packed_q, d.packed_dN);
    products_.add_vectors(at.queries, at.q, p_.F(), d.dD);
    if (p_.levels()) gradients_.add_vectors(at.queries, d.dN, p_.M(), at.weights());
  }
  void settle() { products_.settle(); }

 private:
  const Scan<S>& p_;
  Carried<S> products_, gradients_;
};

// Shared by both passes of backward.
template <class S>
struct Backward {
  using T = Accumulator<S>;
  using O = Operand<S>;

  const Scan<S>& p;
  Pieces<double> exact;
  Pieces<T> pieces;
  Scratch<O> memory;
  O* operand = memory.data();
  ChunkOfRows<S> at;
  QueryGradients<S> d;
  KeySums<S> sum;
  QuerySums<S> back;
  T *da, *dvalues, *dfeatures, *dx, *totals;
  PackedRows<S> packed_da;
  O *G_turned, *turned;

  Backward(const Scan<S>& problem, i64 b, i64 h, const View<const S, 4>& out,
           const View<const S, 4>& dout, const View<const T, 3>& divisors)
      : p(problem),
        exact(2 * KeySums<S>::scratch(p)),
        pieces(ChunkOfRows<S>::scratch(p) + QueryGradients<S>::scratch(p) +
               4 * KeySums<S>::scratch(p) + scan_chunk * (scan_chunk + p.M() + p.F() + p.E() + 1)),
        memory(ChunkOfRows<S>::operand_scratch(p) + 2 * KeySums<S>::operand_scratch(p) +
               PackedRows<S>::size_of_computed(scan_chunk, p.M()) +
               PackedRows<S>::size_of_computed(scan_chunk, scan_chunk) +
               operands<S>(p.M()) * (p.F() + scan_chunk)),
        at(p, b, h, pieces, operand),
        d(p, out, dout, divisors, pieces, operand),
        sum(p, true, exact, pieces, operand),
        back(p, exact, pieces, operand) {
    da = pieces.take(scan_chunk * scan_chunk);
    dvalues = pieces.take(scan_chunk * p.M());
    dfeatures = pieces.take(scan_chunk * p.F());
    dx = pieces.take(scan_chunk * p.E());
    totals = pieces.take(scan_chunk);
    packed_da = PackedRows<S>(da, scan_chunk, scan_chunk, operand);
    G_turned = std::exchange(operand, operand + operands<S>(p.M()) * p.F());
    turned = operand;
  }

  // dφq of a chunk.
  void query_features() {
    const i64 F = p.F(), M = p.M();
    tile_product<O>(at.queries, F, operands<S>(M), d.packed_dN.along_width(0), sum.matrix(),
                    {dfeatures, F}, false);
    for (i64 i = 0; i < at.queries; ++i) {
      simd::add_scaled<T>(d.dD[i], sum.z(), dfeatures + i * F, F);
    }
    at.levels.fade_in(at.queries, F, dfeatures);
    for (i64 i = 0; p.levels() && i < at.queries; ++i) {
      totals[i] = simd::dot<T>(d.dN + i * M, sum.V(), M) + d.dD[i] * sum.seen();
    }
    if (p.causal) {
      pair_gradients<S, T>(at, d, turned, da, packed_da, p.levels() ? totals : nullptr);
      each_strip(at.queries, at.keys, [&](i64 i, i64 count, i64 seen) {
        tile_product<O>(count, F, operands<S>(seen), packed_da.along_width(i),
                        at.packed_k.rows_from(0), {dfeatures + i * F, F}, true);
      });
    }
    if (p.feature != Feature::random_exponential) return;
    for (i64 i = 0; i < at.queries; ++i) {
      add_to_row(p.constant * totals[i], dfeatures + i * F, F);
    }
  }

  // After G has changed.
  void turn_G() {
    const i64 depth = operands<S>(p.M());
    transpose<O>(p.F(), depth, {back.G().by_width, depth}, {G_turned, p.F()});
  }

  // dφk and dv of a chunk.
  void key_features_and_values() {
    const i64 F = p.F(), M = p.M();
    tile_product<O>(at.keys, F, operands<S>(M), at.packed_v.along_width(0), {G_turned, F},
                    {dfeatures, F}, false);
    tile_product<O>(at.keys, M, operands<S>(F), at.packed_k.along_width(0), back.G().rows_from(0),
                    {dvalues, M}, false);
    for (i64 j = 0; j < at.keys; ++j) simd::add_scaled<T>(T(1), back.g(), dfeatures + j * F, F);
    at.levels.fade_out(at.keys, F, dfeatures);
    at.levels.fade_out(at.keys, M, dvalues);
    for (i64 j = 0; p.levels() && j < at.keys; ++j) {
      simd::add_scaled<T>(T(1), back.W(), dvalues + j * M, M);
    }
    if (!p.causal) return;
    at.weigh();
    pair_gradients<S, T>(at, d, turned, da, packed_da, nullptr);
    each_strip_of_keys(at.queries, at.keys, [&](i64 j, i64 count, i64 i) {
      const i64 depth = operands<S>(at.queries - i);
      const auto turned_from = [&](const PackedRows<S>& pairs) {
        return Strided<O>{pairs.along_rows(i).data + j, 1, scan_chunk};
      };
      tile_product<O>(count, M, depth, turned_from(at.packed_a), d.packed_dN.rows_from(i),
                      {dvalues + j * M, M}, true);
      tile_product<O>(count, F, depth, turned_from(packed_da), at.packed_q.rows_from(i),
                      {dfeatures + j * F, F}, true);
    });
  }
};

template <class S, class T = Accumulator<S>>
void backward_item(const Scan<S>& p, i64 b, i64 h, const double* sums, const View<const S, 4>& out,
                   const View<const T, 3>& divisors, const View<const S, 4>& dout,
                   const View<S, 4>& dq, const View<S, 4>& dk, const View<S, 4>& dv) {
  const i64 queries = p.queries(b), keys = p.keys(b);
  Backward<S> of(p, b, h, out, dout, divisors);
  ChunkOfRows<S>& at = of.at;
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

template <class Device, class S>
void ScanKernels<Device, S>::forward(const Device&, const Scan<S>& p, View<double, 3> sums,
                                     View<S, 4> out, View<T, 3> divisors) {
  const i64 work = (p.N() + p.S()) * p.F() * p.M();
  parallel_for(p.B() * p.H(), work, [&](i64 piece) {
    const i64 b = piece / p.H(), h = piece % p.H();
    forward_item<S>(p, b, h, sums.data == nullptr ? nullptr : &sums(b, h, 0), out, divisors);
  });
}

template <class Device, class S>
void ScanKernels<Device, S>::backward(const Device&, const Scan<S>& p, View<const double, 3> sums,
                                      View<const S, 4> out, View<const T, 3> divisors,
                                      View<const S, 4> dout, View<S, 4> dq, View<S, 4> dk,
                                      View<S, 4> dv) {
  const i64 work = 3 * (p.N() + p.S()) * p.F() * p.M();
  parallel_for(p.B() * p.H(), work, [&](i64 piece) {
    const i64 b = piece / p.H(), h = piece % p.H();
    backward_item<S>(p, b, h, sums.data == nullptr ? nullptr : &sums(b, h, 0), out, divisors, dout,
                     dq, dk, dv);
  });
}

template struct ScanKernels<Cpu, float>;
template struct ScanKernels<Cpu, double>;
template struct ScanKernels<Cpu, bf16>;

}  // namespace weft
