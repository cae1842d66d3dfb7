// A chunk of positions of agglomerative attention, and the arrays of its classes alone: [rows, H]
// in f64. Equations: agglomerative.h.
#pragma once

#include <algorithm>
#include <limits>

#include "ops/attention/agglomerative/agglomerative.h"
#include "ops/attention/agglomerative/strip.h"
#include "ops/softmax/rows.h"
#include "runtime/pack.h"

namespace weft::strips {

using Number = Pack<double>;

// Positions begin … begin + rows − 1 of batch item b; the first `queries` of them are valid
// queries, the first `keys` valid references.
struct Chunk {
  i64 b, index, begin, rows, queries, keys;
  bool last;  // of its batch item

  template <class T>
  Chunk(const Agglomerative<T>& p, i64 piece, i64 positions)
      : b(piece / agglomerative_chunks(positions)),
        index(piece % agglomerative_chunks(positions)),
        begin(index * agglomerative_chunk),
        rows(std::min(positions - begin, agglomerative_chunk)),
        queries(std::clamp<i64>(p.queries(b) - begin, 0, rows)),
        keys(std::clamp<i64>(p.keys(b) - begin, 0, rows)),
        last(begin + rows == positions) {}
};

// Rows [H, M] of a chunk, with classes `step` apart.
template <class T>
struct Rows {
  T* data;
  i64 row, step;

  Rows(T* first, i64 row_stride, i64 class_stride)
      : data(first), row(row_stride), step(class_stride) {}
  Rows(const View<T, 4>& x, const Chunk& c)
      : Rows(&x(c.b, c.begin, 0, 0), x.stride(1), x.stride(2)) {}
  T* operator[](i64 i) const { return data + i * row; }
};

// c [rows, H] = the softmax over classes of the first rows of a chunk.
template <class T>
void classify(const View<const T, 3>& z, const Chunk& chunk, i64 rows, double* c) {
  const i64 H = z.size(2);
  for (i64 i = 0; i < rows; ++i) {
    const T* const from = &z(chunk.b, chunk.begin + i, 0);
    T most = -std::numeric_limits<T>::infinity();
    for (i64 k = 0; k < H; ++k) most = from[k] > most ? from[k] : most;
    const Number shift(most == -std::numeric_limits<T>::infinity() ? 0 : most);
    for (i64 k = 0; k < H; k += lanes) {
      (Number(load(from + k, H - k)) - shift).store(c + i * H + k, H - k);
    }
  }
  map<double>(
      rows * H, c, [](Number x) { return exp(x); }, c);
  for (i64 i = 0; i < rows; ++i) {
    Number total(0.0);
    for (i64 k = 0; k < H; k += lanes) total = total + Number::load(c + i * H + k, H - k);
    const double sum = simd::sum_of_lanes<double>(total.vector());
    const Number inverse(sum == 0 ? 0 : 1 / sum);
    map<double>(
        H, c + i * H, [&](Number x) { return x * inverse; }, c + i * H);
  }
}

// 1/n [rows, H] of a chunk's queries, given S before the chunk when causal (then S after it on
// return) or over all references. If `slope` is not null, writes dn/dS to it.
inline void invert_mass(bool causal, const Chunk& c, i64 H, const double* ck, double* S,
                        double* inverse, double* slope) {
  for (i64 k = 0; k < H; k += lanes) {
    Number mass = Number::load(S + k, H - k);
    for (i64 i = 0; i < c.rows; ++i) {
      if (causal && i < c.keys) mass = mass + Number::load(ck + i * H + k, H - k);
      mass.store(inverse + i * H + k, H - k);
    }
    mass.store(S + k, H - k);
  }
  if (slope != nullptr) {
    for (i64 i = 0; i < c.rows * H; ++i) slope[i] = clipped_mass_slope(inverse[i]);
  }
  for (i64 i = 0; i < c.rows * H; ++i) inverse[i] = 1 / clipped_mass(inverse[i]);
}

// sums += Σ of rows.
inline void add_rows(i64 rows, i64 width, const double* from, double* sums) {
  for (i64 i = 0; i < rows; ++i) {
    for (i64 j = 0; j < width; ++j) sums[j] += from[i * width + j];
  }
}

}  // namespace weft::strips
