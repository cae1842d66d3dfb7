// A chunk of 64 positions on the CPU: its rows and pairs, and the sums that are carried from chunk
// to chunk. The equations are in scan.h.
#pragma once

#include "ops/attention/engines/scan/features.h"
#include "ops/attention/engines/scan/levels.h"
#include "ops/attention/rows.h"
#include "runtime/operands.h"
#include "runtime/scratch.h"
#include "runtime/tile.h"
#include "runtime/transpose.h"

namespace weft::scan {

// Half of the pairs of a causal chunk are hidden, so rows are processed in strips of this size.
inline constexpr i64 strip = 32;

// A sum of outer products [rows, columns] and of vectors [vector], accumulated in f64; products
// read the rounded copy. The products of `together` chunks are added up in T first.
template <class S>
class Carried {
 public:
  using T = Accumulator<S>;
  using O = Operand<S>;

  Carried(Pieces<double>& exact, Pieces<T>& pieces, O*& operand, i64 rows, i64 columns, i64 vector,
          i64 together = 1)
      : rows_(rows),
        columns_(columns),
        count_(rows * columns + vector),
        together_(together),
        exact_(exact.take(count_)),
        rounded_(pieces.take(count_)),
        change_(pieces.take(count_)),
        packed_(rounded_, rows, columns, operand) {}

  static i64 scratch(i64 rows, i64 columns, i64 vector) { return rows * columns + vector; }

  // The matrix, as operands along these.
  const PackedRows<S>& matrix(Along along) {
    if (stale_) packed_.round(along, rounded_, 0, rows_, columns_);
    stale_ = false;
    return packed_;
  }
  const T* vector() const { return rounded_ + rows_ * columns_; }

  void clear() {
    std::fill(exact_, exact_ + count_, 0.0);
    std::fill(rounded_, rounded_ + count_, T(0));
    stale_ = true;
  }
  void load(const double* from) {
    for (i64 i = 0; i < count_; ++i) exact_[i] = from[i], rounded_[i] = static_cast<T>(from[i]);
    stale_ = true;
  }
  // After settle(), if chunks are added up together.
  void store(double* to) const { std::copy(exact_, exact_ + count_, to); }

  void multiply(T factor) {
    if (factor == 1) return;  // as it is where chunks are added up together
    for (i64 i = 0; i < count_; ++i) {
      exact_[i] *= double(factor);
      rounded_[i] = static_cast<T>(exact_[i]);
    }
    stale_ = true;
  }

  // += Σ_i a_i b_iᵀ over `count` rows of a [rows] and b [columns].
  void add_products(i64 count, const PackedRows<S>& a, const PackedRows<S>& b) {
    if (count == 0) return;
    tile_product<O>(rows_, columns_, operands<S>(count), a.along_rows(0), b.rows_from(0),
                    {change_, columns_}, unsettled_ > 0);
    if (++unsettled_ == together_) settle();
  }
  // Adds what was added up in T, after the last chunk.
  void settle() {
    if (unsettled_ > 0) add(0, rows_ * columns_);
    unsettled_ = 0;
  }
  // += Σ_i weights_i x_i over rows of x [width]; without weights, each is 1.
  void add_vectors(i64 count, const T* x, i64 width, const T* weights) {
    if (count == 0) return;
    const simd::Tag<T> d;
    for (i64 e = 0; e < width; e += simd::lanes<T>) {
      auto sum = hn::Zero(d);
      for (i64 i = 0; i < count; ++i) {
        const auto weight = hn::Set(d, weights == nullptr ? T(1) : weights[i]);
        sum = hn::MulAdd(weight, simd::load<T>(x + i * width + e, width - e), sum);
      }
      simd::store<T>(sum, change_ + rows_ * columns_ + e, width - e);
    }
    add(rows_ * columns_, width);
  }

 private:
  void add(i64 begin, i64 count) {
    for (i64 i = begin; i < begin + count; ++i) {
      exact_[i] += double(change_[i]);
      rounded_[i] = static_cast<T>(exact_[i]);
    }
    stale_ = true;
  }

  i64 rows_, columns_, count_, together_;
  i64 unsettled_ = 0;  // chunks whose products are in change_ alone
  double* exact_;
  T *rounded_, *change_;
  PackedRows<S> packed_;
  bool stale_ = true;  // packed_ is not of rounded_
};

// A causal scan reads its sums after every chunk. Otherwise four chunks share one pass over them.
template <class S>
i64 chunks_together(const Scan<S>& p) {
  return p.causal ? 1 : 4;
}

// x_i += factor for the lanes of a row.
template <class T>
void add_to_row(T factor, T* x, i64 count) {
  for (i64 i = 0; i < count; ++i) x[i] += factor;
}

// The pairs of a chunk in strips: f(first query, queries, keys), where the keys are those up to the
// strip's last query.
template <class F>
void each_strip(i64 queries, i64 keys, const F& f) {
  for (i64 i = 0; i < queries; i += strip) {
    const i64 count = std::min(strip, queries - i), seen = std::min(keys, i + count);
    if (seen > 0) f(i, count, seen);
  }
}
// The same by keys: f(first key, keys, first query), for all queries from there on.
template <class F>
void each_strip_of_keys(i64 queries, i64 keys, const F& f) {
  for (i64 j = 0; j < keys && j < queries; j += strip) f(j, std::min(strip, keys - j), j);
}

// Rows of one chunk: shared by forward and both passes of backward.
template <class S>
struct ChunkOfRows {
  using T = Accumulator<S>;
  using O = Operand<S>;
  using Packed = PackedRows<S>;

  const Scan<S>& p;
  i64 b, h;
  FeatureRows<S> map;
  Levels<S> levels;
  i64 begin = 0, queries = 0, keys = 0;
  T *x_q, *x_k, *q, *k, *v;                       // rows as given, features, values
  T* a;                                           // weights [64, 64]
  O* turned;                                      // φkᵀ [F, 64]
  Packed packed_q, packed_k, packed_v, packed_a;  // of features, values and weights

  static i64 scratch(const Scan<S>& p) {
    return scan_chunk * (2 * p.E() + 2 * p.F() + p.M() + scan_chunk) + FeatureRows<S>::scratch(p) +
           Levels<S>::scratch();
  }
  static i64 operand_scratch(const Scan<S>& p) {
    return 2 * Packed::size_of_computed(scan_chunk, p.F()) +
           Packed::size_of_computed(scan_chunk, p.M()) +
           Packed::size_of_computed(scan_chunk, scan_chunk) + operands<S>(p.F()) * scan_chunk;
  }
  ChunkOfRows(const Scan<S>& problem, i64 item, i64 head, Pieces<T>& pieces, O*& operand)
      : p(problem),
        b(item),
        h(head),
        map(problem, item, head, pieces),
        levels(problem, item, head, pieces) {
    x_q = pieces.take(scan_chunk * p.E());
    x_k = pieces.take(scan_chunk * p.E());
    q = pieces.take(scan_chunk * p.F());
    k = pieces.take(scan_chunk * p.F());
    v = pieces.take(scan_chunk * p.M());
    a = pieces.take(scan_chunk * scan_chunk);
    packed_q = Packed(q, scan_chunk, p.F(), operand);
    packed_k = Packed(k, scan_chunk, p.F(), operand);
    packed_v = Packed(v, scan_chunk, p.M(), operand);
    packed_a = Packed(a, scan_chunk, scan_chunk, operand);
    turned = std::exchange(operand, operand + operands<S>(p.F()) * scan_chunk);
  }

  void start(i64 first) {
    begin = first;
    queries = std::clamp<i64>(p.queries(b) - begin, 0, scan_chunk);
    keys = std::clamp<i64>(p.keys(b) - begin, 0, scan_chunk);
    map.start(begin);
    levels.start(begin);
  }
  void load_queries() {
    pack_rows(p.q, b, h, begin, queries, p.scale, x_q);
    map.of_queries(queries, x_q, q);
    packed_q.round(Along::both, q, 0, queries, p.F());
  }
  void load_keys() {
    pack_rows(p.k, b, h, begin, keys, p.scale, x_k);
    map.of_keys(keys, x_k, k, levels);
    levels.load(keys, queries);
    packed_k.round(Along::both, k, 0, keys, p.F());
    if (!in_pairs<S> || p.levels()) pack_rows(p.v, b, h, begin, keys, T(1), v);
    if (in_pairs<S> && keys > 0) {
      packed_v.pack(keys, T(1), &p.v(b, begin, h, 0), p.v.stride(1), p.v.stride(3));
    }
  }
  // Features that are scaled for the sums on the other side of the chunk.
  void fade_queries() {
    if (levels.steady()) return;
    levels.fade_in(queries, p.F(), q);
    packed_q.round(Along::rows, q, 0, queries, p.F());
  }
  void fade_keys() {
    if (levels.steady()) return;
    levels.fade_out(keys, p.F(), k);
    packed_k.round(Along::rows, k, 0, keys, p.F());
  }
  // w_i; null if queries add nothing to the weights.
  const T* weights() { return p.levels() ? map.random().weights() : nullptr; }
  // a [queries, keys], 0 where j > i.
  void weigh() {
    const i64 depth = operands<S>(p.F());
    transpose<O>(keys, depth, {packed_k.by_width, depth}, {turned, scan_chunk});
    each_strip(queries, keys, [&](i64 i, i64 count, i64 seen) {
      tile_product<O>(count, seen, depth, packed_q.along_width(i), {turned, scan_chunk},
                      {a + i * scan_chunk, scan_chunk}, false);
      fade(i, count, seen, a);
      for (i64 row = i; p.levels() && row < i + count; ++row) {
        add_to_row(weights()[row], a + row * scan_chunk, seen);
      }
    });
    hide(a, packed_a);
  }
  void fade(i64 i, i64 count, i64 seen, T* pairs) const {
    for (i64 row = i; p.levels() && row < i + count; ++row) {
      levels.fade_pairs(row, std::min(seen, row + 1), pairs + row * scan_chunk);
    }
  }
  // And packs them.
  void hide(T* pairs, const Packed& packed) const {
    each_strip(queries, keys, [&](i64 first, i64 count, i64 seen) {
      for (i64 i = first; i < first + count; ++i) {
        T* const row = pairs + i * scan_chunk;
        for (i64 j = i + 1; j < seen; ++j) row[j] = 0;
        round_computed<S>(seen, row);
      }
      packed.round(Along::both, pairs, first, count, seen);
    });
  }
};

// Sums over keys: S or Sᵀ, and z; if there are levels, also V and the number of keys.
template <class S>
class KeySums {
 public:
  using T = Accumulator<S>;
  using O = Operand<S>;

  KeySums(const Scan<S>& p, bool turned, Pieces<double>& exact, Pieces<T>& pieces, O*& operand)
      : p_(p),
        turned_(turned),
        products_(exact, pieces, operand, turned ? p.M() : p.F(), turned ? p.F() : p.M(), p.F(),
                  chunks_together(p)),
        values_(exact, pieces, operand, 0, 0, p.M()) {
    products_.clear();
    values_.clear();
  }
  static i64 scratch(const Scan<S>& p) {
    return Carried<S>::scratch(p.F(), p.M(), p.F()) + Carried<S>::scratch(0, 0, p.M());
  }
  static i64 operand_scratch(const Scan<S>& p) {
    return PackedRows<S>::size_of_computed(p.F(), p.M());
  }

  Rows<const O> matrix() { return products_.matrix(Along::rows).rows_from(0); }
  const T* z() const { return products_.vector(); }
  const T* V() const { return values_.vector(); }
  T seen() const { return static_cast<T>(seen_); }

  // In the layout that kernels return.
  void load(const double* sums) {
    const i64 F = p_.F(), M = p_.M();
    if (turned_) {
      const Scratch<double> turned(F * (M + 1));
      transpose<double>(F, M, {sums, M}, {turned.data(), F});
      std::copy(sums + F * M, sums + F * (M + 1), turned.data() + F * M);
      products_.load(turned.data());
    } else {
      products_.load(sums);
    }
    if (!p_.levels()) return;
    values_.load(sums + F * (M + 1));
    seen_ = sums[p_.sums() - 2];
  }
  void store(double* sums, double level) const {
    products_.store(sums);
    if (!p_.levels()) return;
    values_.store(sums + p_.F() * (p_.M() + 1));
    sums[p_.sums() - 2] = seen_;
    sums[p_.sums() - 1] = level;
  }
  // Adds the keys of a chunk; overwrites their features. If not causal, settle() comes after the
  // last chunk.
  void add(ChunkOfRows<S>& at) {
    products_.multiply(at.levels.carried());
    at.fade_keys();
    turned_ ? products_.add_products(at.keys, at.packed_v, at.packed_k)
            : products_.add_products(at.keys, at.packed_k, at.packed_v);
    products_.add_vectors(at.keys, at.k, p_.F(), nullptr);
    if (!p_.levels()) return;
    values_.add_vectors(at.keys, at.v, p_.M(), nullptr);
    seen_ += double(at.keys);
  }
  void settle() { products_.settle(); }

 private:
  const Scan<S>& p_;
  bool turned_;
  Carried<S> products_, values_;
  double seen_ = 0;
};

}  // namespace weft::scan
