// Shared by the CUDA kernels of agglomerative attention: how chunks and classes are assigned to
// blocks, and the arrays of a block's classes alone. Equations: agglomerative.h.
#pragma once

#include <cmath>
#include <limits>

#include "ops/attention/agglomerative/agglomerative.h"
#include "ops/dropout/mask.h"
#include "runtime/cuda/loops.h"

namespace weft::chunked {

inline constexpr int chunk = static_cast<int>(agglomerative_chunk);
inline constexpr int most_threads = 128, most_classes = 8;
inline constexpr int tile = 8;  // rows with loads in flight together
static_assert(chunk % tile == 0);

// The assignment of classes to blocks.
struct Deal {
  int classes, threads;  // of a block
  unsigned groups;

  Deal(i64 H, i64 M) {
    i64 fit = most_threads / M;
    fit = fit > most_classes ? most_classes : fit < 1 ? 1 : fit;
    classes = static_cast<int>(fit < H ? fit : H);
    threads = classes * M <= 64 ? 64 : most_threads;
    groups = static_cast<unsigned>((H + classes - 1) / classes);
  }
};

// The work of a block. Its [rows, classes] are padded with zeros to whole tiles.
struct Piece {
  i64 b, index, chunks, begin;
  int rows, padded, queries, keys;
  i64 first;  // class
  int classes;

  template <class T>
  __device__ Piece(const Agglomerative<T>& p, i64 positions, int classes_of_block) {
    chunks = agglomerative_chunks(positions);
    b = blockIdx.x / chunks;
    index = blockIdx.x % chunks;
    begin = index * chunk;
    rows = within(positions, chunk);
    padded = (rows + tile - 1) / tile * tile;
    queries = within(p.queries(b), rows);
    keys = within(p.keys(b), rows);
    first = i64{blockIdx.y} * classes_of_block;
    classes = static_cast<int>(p.H() - first < classes_of_block ? p.H() - first : classes_of_block);
  }
  // Positions of this chunk before `end`.
  __device__ int within(i64 end, int most) const {
    const i64 left = end - begin;
    return static_cast<int>(left < 0 ? 0 : left < most ? left : most);
  }
  __device__ const double* row(const double* sums, i64 width, bool for_each_chunk) const {
    return sums + (for_each_chunk ? b * chunks + index : b) * width;
  }
};

// The softmax of one row of logits.
template <class T>
struct Classes {
  const T* z;
  double shift, inverse;

  __device__ Classes(const T* row, i64 H) : z(row), shift(0), inverse(0) {
    T most = -std::numeric_limits<T>::infinity();
    for (i64 k = 0; k < H; ++k) most = z[k] > most ? z[k] : most;
    if (most != -std::numeric_limits<T>::infinity()) shift = most;
    double total = 0;
    for (i64 k = 0; k < H; ++k) total += std::exp(z[k] - shift);
    if (total != 0) inverse = 1 / total;
  }
  __device__ double operator[](i64 k) const { return std::exp(z[k] - shift) * inverse; }
};

// c [padded, classes], zeros from row `count` on. Thread t has the rows t, t + threads, ….
template <class T>
__device__ void classify(const View<const T, 3>& z, const Piece& piece, int count, double* c) {
  for (int i = threadIdx.x; i < piece.padded; i += blockDim.x) {
    double* const to = c + i * piece.classes;
    for (int k = 0; k < piece.classes; ++k) to[k] = 0;
    if (i >= count) continue;
    const Classes<T> row(&z(piece.b, piece.begin + i, 0), z.size(2));
    for (int k = 0; k < piece.classes; ++k) to[k] = row[piece.first + k];
  }
}

// w [padded, classes] = cq / n, from the S of its rows.
template <class T>
__device__ void weigh(const Agglomerative<T>& p, const Piece& piece, const double* S, double* w) {
  classify(p.zq, piece, piece.queries, w);
  for (int i = threadIdx.x; i < piece.padded; i += blockDim.x) {  // the rows that this thread wrote
    for (int k = 0; k < piece.classes; ++k) {
      w[i * piece.classes + k] /= clipped_mass(S[i * piece.classes + k]);
    }
  }
}

// to[i] = start + Σ from[0 … i] for each class, or, if `downwards`, Σ from[i … padded − 1]; `to`
// may be `from`. A thread has a range of rows of one class: it sums them, adds the sums of the
// earlier ranges, and walks its rows again.
inline __device__ void scan_rows(const Piece& piece, bool downwards, const double* start,
                          const double* from, double* to) {
  __shared__ double totals[most_threads];
  const int classes = piece.classes, most = static_cast<int>(blockDim.x) / classes;
  const int runs = most < 16 ? most : 16, length = (piece.padded + runs - 1) / runs;
  const int run = static_cast<int>(threadIdx.x) / classes;
  const int k = static_cast<int>(threadIdx.x) % classes;
  const int begin = run * length, left = piece.padded - begin;
  const int count = run >= runs || left < 0 ? 0 : left < length ? left : length;
  const auto at = [&](int i) { return (downwards ? piece.padded - 1 - i : i) * classes + k; };
  __syncthreads();
  double total = 0;
  for (int i = begin; i < begin + count; ++i) total += from[at(i)];
  totals[threadIdx.x] = total;
  __syncthreads();
  double running = count > 0 ? start[k] : 0;
  for (int r = 0; count > 0 && r < run; ++r) running += totals[r * classes + k];
  for (int i = begin; i < begin + count; ++i) {
    running += from[at(i)];
    to[at(i)] = running;
  }
  __syncthreads();
}

// The dropout mask of a block's rows and of the current columns of its threads: a bit for each, a
// byte for a piece of 8.
struct Mask {
  static constexpr int pieces = most_threads / 8 + 1, bytes = chunk * pieces;
  const unsigned char* bits;
  i64 first;  // piece of the whole row
  double factor;

  // All threads of the block must call this, each for some bytes; for none without dropout.
  __device__ Mask(const DropoutMask& mask, i64 row, int rows, i64 column,
                  unsigned char* room)
      : bits(room), first(column / 8), factor(mask.factor) {
    if (rows == 0) return;
    __syncthreads();
    for (int e = threadIdx.x; e < rows * pieces; e += blockDim.x) {
      const unsigned kept = mask.keeps_eight(row + e / pieces, (first + e % pieces) * 8);
      room[e] = static_cast<unsigned char>(kept);
    }
    __syncthreads();
  }
  __device__ double operator()(int row, i64 column) const {
    return bits[row * pieces + column / 8 - first] >> column % 8 & 1 ? factor : 0;
  }
};

// The current column of a thread.
struct Column {
  bool there;
  int k;                      // its class among those of the block
  i64 m, of_row;     // in its class; in [H, M]

  __device__ Column(const Piece& piece, i64 M, i64 strip) {
    const i64 c = strip + threadIdx.x;
    there = c < piece.classes * M;
    k = there ? static_cast<int>(c / M) : 0;
    m = there ? c % M : 0;
    of_row = (piece.first + k) * M + m;
  }
};

// x[a] = the column's elements in rows i … i + tile − 1, zeros from `count` on.
template <class T>
__device__ void load_tile(const T* x, i64 stride, int i, int count, T* to) {
#pragma unroll
  for (int a = 0; a < tile; ++a) to[a] = i + a < count ? x[(i + a) * stride] : T(0);
}

template <class T>
__device__ const T* column_of(const View<const T, 4>& x, const Piece& piece, const Column& c) {
  return x.data + piece.b * x.stride(0) + piece.begin * x.stride(1) +
         (piece.first + c.k) * x.stride(2) + c.m * x.stride(3);
}

// dots[i + a] += Σ over the strip's columns of each class of products[a]. Thread e has a row of the
// tile and a class; rows are padded to an odd number of words.
inline __device__ void add_dots(const Piece& piece, i64 M, i64 strip, int i,
                         const double* products, double* dots) {
  const int threads = static_cast<int>(blockDim.x);
  for (int e = threadIdx.x; e < tile * piece.classes; e += threads) {
    const int a = e % tile, k = e / tile;
    const i64 from = k * M - strip, to = from + M;
    double sum = 0;
    for (int c = from < 0 ? 0 : static_cast<int>(from); c < (to < threads ? to : threads); ++c) {
      sum += products[a * (threads + 1) + c];
    }
    dots[(i + a) * piece.classes + k] += sum;
  }
}

// Launches `kernel` with a block for each chunk of `positions` and group of classes, with `arrays`
// of [rows, classes] in shared memory.
template <class T, class... P, class... A>
void start_chunks(const Cuda& device, const Agglomerative<T>& p, i64 positions, int arrays,
                  bool products, void (*kernel)(P...), const Deal& deal, const A&... arguments) {
  const i64 pieces = p.B() * agglomerative_chunks(positions);
  if (pieces == 0) return;
  const auto threads = static_cast<std::size_t>(deal.threads);
  const auto classes = static_cast<std::size_t>(deal.classes);
  const std::size_t shared =
      static_cast<std::size_t>(arrays) * SharedMemory::bytes<double>(chunk * classes) +
      (products ? SharedMemory::bytes<double>(tile * (threads + 1)) : 0) +
      SharedMemory::bytes<unsigned char>(p.dropout > 0 ? Mask::bytes : 0);
  start("agglomerative", device, dim3(static_cast<unsigned>(pieces), deal.groups), deal.threads,
        shared, kernel, arguments...);
}

}  // namespace weft::chunked
