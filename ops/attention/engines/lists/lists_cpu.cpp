// CPU kernels of attention over lists; the equations are in lists.h.
#include <algorithm>
#include <cmath>

#include "ops/attention/engines/lists/lists.h"
#include "ops/attention/engines/lists/shares.h"
#include "ops/attention/infinity.h"
#include "ops/attention/rows.h"
#include "ops/dropout/mask_vectors.h"
#include "runtime/parallel.h"
#include "runtime/scratch.h"

namespace weft {
namespace {

namespace hn = simd::hn;

// Rows in whole vectors, padded with zeros.
template <class T>
struct PaddedRows {
  i64 width;
  Scratch<T> buffer;
  T* const first = buffer.data();

  PaddedRows(i64 rows, i64 columns)
      : width(simd::round_up_to_lanes<T>(columns)), buffer(rows * width) {}
  // x[:, h] of batch item b, scaled.
  PaddedRows(const View<const T, 4>& x, i64 b, i64 h, T scale) : PaddedRows(x.size(1), x.size(3)) {
    parallel_ranges(x.size(1), list_share, [&](i64 begin, i64 end) {
      pack(end - begin, x.size(3), scale, &x(b, begin, h, 0), x.stride(1), x.stride(3), row(begin));
    });
  }
  explicit PaddedRows(const View<const T, 2>& x) : PaddedRows(x.size(0), x.size(1)) {
    pack(x.size(0), x.size(1), T(1), x.data, x.stride(0), x.stride(1), row(0));
  }
  T* row(i64 i) const { return first + i * width; }

 private:
  void pack(i64 rows, i64 columns, T scale, const T* from, i64 step, i64 column, T* to) const {
    copy_rows(rows, columns, scale, from, step, column, to, width, i64{1});
    for (i64 i = 0; columns < width && i < rows; ++i) {
      std::fill(to + i * width + columns, to + (i + 1) * width, T(0));
    }
  }
};

// to[e] = x · rows[index(e)], the rows in whole vectors.
template <class T, class Index>
void dots(const T* x, const PaddedRows<T>& rows, i64 count, const Index& index, T* to) {
  const simd::Tag<T> d;
  const auto at = [&](i64 e) { return rows.row(index(e)); };
  i64 e = 0;
  for (; e + 4 <= count; e += 4) {
    const T *const r0 = at(e), *const r1 = at(e + 1), *const r2 = at(e + 2), *const r3 = at(e + 3);
    auto s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
    for (i64 c = 0; c < rows.width; c += simd::lanes<T>) {
      const auto own = hn::LoadU(d, x + c);
      s0 = hn::MulAdd(own, hn::LoadU(d, r0 + c), s0);
      s1 = hn::MulAdd(own, hn::LoadU(d, r1 + c), s1);
      s2 = hn::MulAdd(own, hn::LoadU(d, r2 + c), s2);
      s3 = hn::MulAdd(own, hn::LoadU(d, r3 + c), s3);
    }
    to[e] = simd::sum_of_lanes<T>(s0), to[e + 1] = simd::sum_of_lanes<T>(s1);
    to[e + 2] = simd::sum_of_lanes<T>(s2), to[e + 3] = simd::sum_of_lanes<T>(s3);
  }
  for (; e < count; ++e) {
    const T* const row = at(e);
    auto sum = hn::Zero(d);
    for (i64 c = 0; c < rows.width; c += simd::lanes<T>) {
      sum = hn::MulAdd(hn::LoadU(d, x + c), hn::LoadU(d, row + c), sum);
    }
    to[e] = simd::sum_of_lanes<T>(sum);
  }
}

// to[c] += Σ_e weights[e] rows[index(e)][c] for `vectors` vectors of columns, in registers.
template <int vectors, class T, class Index>
HWY_INLINE void add_columns(const T* weights, const T* rows, i64 width, i64 count,
                            const Index& index, T* to) {
  const simd::Tag<T> d;
  constexpr i64 n = simd::lanes<T>;
  simd::Vector<T> sum[vectors];
  for (int k = 0; k < vectors; ++k) sum[k] = hn::LoadU(d, to + k * n);
  for (i64 e = 0; e < count; ++e) {
    const auto weight = hn::Set(d, weights[e]);
    const T* const row = rows + index(e) * width;
    for (int k = 0; k < vectors; ++k)
      sum[k] = hn::MulAdd(weight, hn::LoadU(d, row + k * n), sum[k]);
  }
  for (int k = 0; k < vectors; ++k) hn::StoreU(sum[k], d, to + k * n);
}

template <class T, class Index>
void add_weighted(const T* weights, const PaddedRows<T>& rows, i64 count, const Index& index,
                  T* to) {
  constexpr i64 n = simd::lanes<T>;
  i64 c = 0;
  for (; c + 4 * n <= rows.width; c += 4 * n) {
    add_columns<4>(weights, rows.row(0) + c, rows.width, count, index, to + c);
  }
  for (; c < rows.width; c += n) {
    add_columns<1>(weights, rows.row(0) + c, rows.width, count, index, to + c);
  }
}

// The list of one query, and its scores.
template <class T>
struct Row {
  const Lists<T>& p;
  const EdgeLists& lists;
  DropoutMask mask;
  Pieces<T> pieces;
  T* const z;      // of its edges
  T* const terms;  // of its runs
  i64 i = 0, count = 0, runs = 0;
  const std::int32_t* from = nullptr;
  const TypeRun* run = nullptr;

  // With room for `others` numbers for each edge.
  Row(const Lists<T>& problem, const EdgeLists& sheet, i64 others)
      : p(problem),
        lists(sheet),
        mask(problem.mask()),
        pieces(2 * room() + others),
        z(pieces.take(room())),
        terms(pieces.take(room())) {}

  i64 room() const { return simd::round_up_to_lanes<T>(lists.longest); }
  i64 key(i64 e) const { return from[e]; }
  i64 type(i64 r) const { return run[r].type; }
  // Calls f(r, first edge, number of edges) for each run, counted along the list.
  template <class F>
  void each_run(const F& f) const {
    for (i64 r = 0; r < runs; ++r) {
      const i64 first = run[r].first - lists.starts[i];
      f(r, first, (r + 1 < runs ? run[r + 1].first - lists.starts[i] : count) - first);
    }
  }

  // z_e of query `row`; q is scaled.
  void score(i64 row, const T* q, const PaddedRows<T>& k, const PaddedRows<T>& types) {
    i = row;
    count = lists.length(i);
    from = lists.from + lists.starts[i];
    dots(
        q, k, count, [&](i64 e) { return key(e); }, z);
    if (!p.typed()) return;
    run = lists.runs + lists.run_starts[i];
    runs = lists.run_starts[i + 1] - lists.run_starts[i];
    dots(
        q, types, runs, [&](i64 r) { return type(r); }, terms);
    each_run([&](i64 r, i64 first, i64 edges) {
      for (i64 e = first; e < first + edges; ++e) z[e] += terms[r];
    });
  }
  // x ← exp(x − shift); returns the sum.
  T raise(T* x, T shift) const {
    const simd::Tag<T> d;
    const auto less = hn::Set(d, shift);
    auto sum = hn::Zero(d);
    for (i64 e = 0; e < count; e += simd::lanes<T>) {
      const i64 there = count - e;
      auto weight = simd::exp<T>(hn::Sub(simd::load(x + e, there), less));
      if (there < simd::lanes<T>) {
        weight = hn::IfThenElseZero(hn::FirstN(d, std::size_t(there)), weight);
      }
      sum = hn::Add(sum, weight);
      simd::store<T>(weight, x + e, there);
    }
    return simd::sum_of_lanes<T>(sum);
  }
  // to[e] = d_e x[e]
  void drop(i64 b, i64 h, const T* x, T* to) const {
    if (p.dropout > 0) {
      apply_dropout(mask, (b * p.H() + h) * p.N() + i, 0, count, x, to);
    } else if (to != x) {
      std::copy_n(x, count, to);
    }
  }
};

// Heads one after the other, each by all threads, or if there are many, one for each thread.
template <class F>
void each_head(i64 B, i64 H, const F& f) {
  constexpr i64 many = 16;
  const auto head = [&](i64 number) { f(number / H, number % H); };
  if (B * H >= many) return parallel_for(B * H, head);
  for (i64 number = 0; number < B * H; ++number) head(number);
}

i64 shares_of(i64 rows) { return (rows + list_share - 1) / list_share; }

}  // namespace

template <class Device, class T>
void ListsKernels<Device, T>::forward(const Device&, const Lists<T>& p, View<T, 4> out,
                                      View<T, 3> log_sums) {
  const PaddedRows<T> types(p.types);
  each_head(p.B(), p.H(), [&](i64 b, i64 h) {
    const EdgeLists lists = p.lists.sheet(b, h);
    const PaddedRows<T> k(p.k, b, h, T(1)), v(p.v, b, h, T(1));
    parallel_ranges(p.N(), list_share, [&](i64 begin, i64 end) {
      const PaddedRows<T> q(end - begin, p.E());
      std::fill_n(q.row(0), (end - begin) * q.width, T(0));
      copy_rows(end - begin, p.E(), p.temperature, &p.q(b, begin, h, 0), p.q.stride(1),
                p.q.stride(3), q.row(0), q.width, i64{1});
      Row<T> row(p, lists, v.width);
      T* const o = row.pieces.take(v.width);
      for (i64 i = begin; i < end; ++i) {
        row.score(i, q.row(i - begin), k, types);
        T most = -infinity<T>;
        for (i64 e = 0; e < row.count; ++e) most = row.z[e] < most ? most : row.z[e];
        const T sum = row.raise(row.z, most);
        row.drop(b, h, row.z, row.z);
        std::fill_n(o, v.width, T(0));
        add_weighted(
            row.z, v, row.count, [&](i64 e) { return row.key(e); }, o);
        const bool any = row.count > 0;
        log_sums(b, h, i) = any ? most + std::log(sum) : infinity<T>;
        unpack_rows(o, b, h, i, 1, out, any ? 1 / sum : T(0));
      }
    });
  });
}

namespace {

// Backward of one batch item and head.
template <class T>
struct HeadBackward {
  const Lists<T>& p;
  const PaddedRows<T>& types;
  i64 b, h;
  EdgeLists lists = p.lists.sheet(b, h);
  PaddedRows<T> q{p.q, b, h, p.temperature}, k{p.k, b, h, T(1)}, v{p.v, b, h, T(1)};
  PaddedRows<T> dout;
  Scratch<T> weights{lists.edges}, scores{lists.edges};  // d_e w_e and dz_e

  HeadBackward(const Lists<T>& problem, const PaddedRows<T>& vectors, i64 item, i64 head,
               const View<const T, 4>& row_dout)
      : p(problem), types(vectors), b(item), h(head), dout(row_dout, item, head, T(1)) {}

  // dq, d w and dz of a range of queries; da is added to `of_types` [types, width], initially zero.
  void queries(i64 begin, i64 end, const View<const T, 3>& log_sums, const View<T, 4>& dq,
               T* of_types) const {
    Row<T> row(p, lists, k.width + simd::round_up_to_lanes<T>(lists.longest));
    T* const gradient = row.pieces.take(k.width);
    T* const g = row.pieces.take(row.room());
    for (i64 i = begin; i < end; ++i) {
      row.score(i, q.row(i), k, types);
      const auto key = [&](i64 e) { return row.key(e); };
      T *const w = weights.data() + lists.starts[i], *const dz = scores.data() + lists.starts[i];
      row.raise(row.z, log_sums(b, h, i));
      row.drop(b, h, row.z, w);
      dots(dout.row(i), v, row.count, key, g);
      const T delta = simd::dot(w, g, row.count);
      for (i64 e = 0; e < row.count; ++e) dz[e] = w[e] * g[e] - row.z[e] * delta;
      std::fill_n(gradient, k.width, T(0));
      add_weighted(dz, k, row.count, key, gradient);
      row.each_run([&](i64 r, i64 first, i64 edges) {
        row.terms[r] = edges == 1 ? dz[first] : simd::sum(dz + first, edges);
        simd::add_scaled(row.terms[r], q.row(i), of_types + row.type(r) * types.width, types.width);
      });
      add_weighted(
          row.terms, types, row.runs, [&](i64 r) { return row.type(r); }, gradient);
      unpack_rows(gradient, b, h, i, 1, dq, p.temperature);
    }
  }
  // dk and dv of a range of keys.
  void keys(i64 begin, i64 end, const View<T, 4>& dk, const View<T, 4>& dv) const {
    Pieces<T> pieces(2 * lists.longest_out + k.width + v.width);
    T *const w = pieces.take(lists.longest_out), *const dz = pieces.take(lists.longest_out);
    T *const dkey = pieces.take(k.width), *const dvalue = pieces.take(v.width);
    for (i64 j = begin; j < end; ++j) {
      const OutEdge* const out = lists.out + lists.out_starts[j];
      const i64 count = lists.out_length(j);
      for (i64 e = 0; e < count; ++e) {
        w[e] = weights.data()[out[e].edge], dz[e] = scores.data()[out[e].edge];
      }
      const auto query = [&](i64 e) { return i64{out[e].to}; };
      std::fill_n(dkey, k.width, T(0));
      std::fill_n(dvalue, v.width, T(0));
      add_weighted(dz, q, count, query, dkey);
      add_weighted(w, dout, count, query, dvalue);
      unpack_rows(dkey, b, h, j, 1, dk);
      unpack_rows(dvalue, b, h, j, 1, dv);
    }
  }
};

}  // namespace

template <class Device, class T>
void ListsKernels<Device, T>::backward(const Device&, const Lists<T>& p, View<const T, 3> log_sums,
                                       View<const T, 4> dout, View<T, 4> dq, View<T, 4> dk,
                                       View<T, 4> dv, View<T, 2> da) {
  const PaddedRows<T> types(p.types);
  const i64 shares = shares_of(p.N()), vectors = p.typed() ? p.types.size(0) * types.width : 0;
  const Scratch<T> of_heads(p.B() * p.H() * vectors);
  std::fill_n(of_heads.data(), p.B() * p.H() * vectors, T(0));
  each_head(p.B(), p.H(), [&](i64 b, i64 h) {
    const HeadBackward<T> head(p, types, b, h, dout);
    const Scratch<T> of_types(shares * vectors);
    parallel_for(shares, [&](i64 share) {
      T* const own = of_types.data() + share * vectors;
      std::fill_n(own, vectors, T(0));
      head.queries(share * list_share, std::min(p.N(), (share + 1) * list_share), log_sums, dq,
                   own);
    });
    parallel_ranges(p.S(), list_share, [&](i64 begin, i64 end) { head.keys(begin, end, dk, dv); });
    T* const sum = of_heads.data() + (b * p.H() + h) * vectors;
    for (i64 share = 0; share < shares; ++share) {
      simd::add_scaled(T(1), of_types.data() + share * vectors, sum, vectors);
    }
  });
  for (i64 t = 0; t < (p.typed() ? p.types.size(0) : 0); ++t) {
    for (i64 e = 0; e < p.E(); ++e) {
      T sum = 0;
      for (i64 head = 0; head < p.B() * p.H(); ++head) {
        sum += of_heads.data()[head * vectors + t * types.width + e];
      }
      da(t, e) = sum;
    }
  }
}

template struct ListsKernels<Cpu, float>;
template struct ListsKernels<Cpu, double>;

}  // namespace weft
