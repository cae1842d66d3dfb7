// A chunk of positions of agglomerative attention, and what concerns its classes alone: [rows, H] in
// f64. Equations: agglomerative.h.
#pragma once

#include <algorithm>
#include <limits>

#include "ops/attention/agglomerative/agglomerative.h"
#include "ops/attention/agglomerative/strip.h"
#include "ops/softmax/rows.h"
#include "runtime/pack.h"

namespace weft::strips {

using Number = Pack<double>;

// Positions begin … begin + rows − 1 of batch item b; the first `queries` of them are queries that
// count, the first `keys` references that exist.
struct Chunk {
  std::int64_t b, index, begin, rows, queries, keys;
  bool last;  // of its batch item

  template <class T>
  Chunk(const Agglomerative<T>& p, std::int64_t piece, std::int64_t positions)
      : b(piece / agglomerative_chunks(positions)),
        index(piece % agglomerative_chunks(positions)),
        begin(index * agglomerative_chunk),
        rows(std::min(positions - begin, agglomerative_chunk)),
        queries(std::clamp<std::int64_t>(p.queries(b) - begin, 0, rows)),
        keys(std::clamp<std::int64_t>(p.keys(b) - begin, 0, rows)),
        last(begin + rows == positions) {}
};

// Rows [H, M] of a chunk, with classes `step` apart.
template <class T>
struct Rows {
  T* data;
  std::int64_t row, step;

  Rows(T* first, std::int64_t row_stride, std::int64_t class_stride)
      : data(first), row(row_stride), step(class_stride) {}
  Rows(const View<T, 4>& x, const Chunk& c)
      : Rows(&x(c.b, c.begin, 0, 0), x.stride(1), x.stride(2)) {}
  T* operator[](std::int64_t i) const { return data + i * row; }
};

// c [rows, H] = the softmax over classes of the first rows of a chunk.
template <class T>
void classify(const View<const T, 3>& z, const Chunk& chunk, std::int64_t rows, double* c) {
  const std::int64_t H = z.size(2);
  for (std::int64_t i = 0; i < rows; ++i) {
    const T* const from = &z(chunk.b, chunk.begin + i, 0);
    T most = -std::numeric_limits<T>::infinity();
    for (std::int64_t k = 0; k < H; ++k) most = from[k] > most ? from[k] : most;
    const Number shift(most == -std::numeric_limits<T>::infinity() ? 0 : most);
    for (std::int64_t k = 0; k < H; k += lanes) {
      (Number(load(from + k, H - k)) - shift).store(c + i * H + k, H - k);
    }
  }
  map<double>(
      rows * H, c, [](Number x) { return exp(x); }, c);
  for (std::int64_t i = 0; i < rows; ++i) {
    Number total(0.0);
    for (std::int64_t k = 0; k < H; k += lanes) total = total + Number::load(c + i * H + k, H - k);
    const double sum = simd::sum_of_lanes<double>(total.vector());
    const Number inverse(sum == 0 ? 0 : 1 / sum);
    map<double>(
        H, c + i * H, [&](Number x) { return x * inverse; }, c + i * H);
  }
}

// 1/n [rows, H] of a chunk's queries, given S before the chunk when causal (then S after it on
// return) or over all references. Where `slope` is not null, it becomes dn/dS.
inline void invert_mass(bool causal, const Chunk& c, std::int64_t H, const double* ck, double* S,
                 double* inverse, double* slope) {
  for (std::int64_t k = 0; k < H; k += lanes) {
    Number mass = Number::load(S + k, H - k);
    for (std::int64_t i = 0; i < c.rows; ++i) {
      if (causal && i < c.keys) mass = mass + Number::load(ck + i * H + k, H - k);
      mass.store(inverse + i * H + k, H - k);
    }
    mass.store(S + k, H - k);
  }
  if (slope != nullptr) {
    for (std::int64_t i = 0; i < c.rows * H; ++i) slope[i] = clipped_mass_slope(inverse[i]);
  }
  for (std::int64_t i = 0; i < c.rows * H; ++i) inverse[i] = 1 / clipped_mass(inverse[i]);
}

// sums += Σ of rows.
inline void add_rows(std::int64_t rows, std::int64_t width, const double* from, double* sums) {
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < width; ++j) sums[j] += from[i * width + j];
  }
}

}  // namespace weft::strips
