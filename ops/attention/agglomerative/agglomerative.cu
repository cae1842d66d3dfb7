// CUDA kernels of agglomerative attention; the equations are in agglomerative.h.
//
// A block has a chunk of positions of one batch item and up to 8 classes, about 128 columns of [H,
// M]. It first computes the arrays of its classes alone (softmax, S, w, dn) into shared memory,
// [rows, classes] in f64; then each thread has one column at a time, whose running sum (U or G)
// stays in a register from the chunk's first row to its last; accesses are coalesced. Dot products
// over a class's columns go through shared memory, 8 rows at a time.
//
// Bytes for each of the B·N·H·M values in f32, by count: forward reads them twice and writes once
// (12), backward reads y and dout twice and writes dy (20), and the chunks' sums cost a quarter of
// a byte. Operations are in f64, about 6 and 16 a value with the conversions, beside 2 exponentials
// for each class and row: bound by memory bandwidth wherever f64 runs at half the rate of f32
// (unmeasured).
#include "ops/attention/agglomerative/chunk.cuh"
#include "ops/attention/agglomerative/chunk_sums.cuh"
#include "runtime/cuda/workspace.h"

namespace weft {
namespace {

using namespace chunked;

template <class T>
__global__ void sum_references_kernel(Agglomerative<T> p, int classes, double* sums) {
  const Piece piece(p, p.S(), classes);
  const i64 H = p.H(), M = p.M();
  // No chunk is after the last one: it initialises the rows.
  const bool last = p.causal && piece.index + 1 == piece.chunks;
  const i64 row = p.causal ? (piece.index + 1) % piece.chunks : piece.index;
  double* const to = sums + (piece.b * piece.chunks + row) * p.width();
  const int keys = last ? 0 : piece.keys;
  SharedMemory shared;
  double* const ck = shared.take<double>(chunk * classes);
  if (keys > 0) classify(p.zk, piece, keys, ck);
  __syncthreads();
  for (i64 strip = 0; strip < piece.classes * M; strip += blockDim.x) {
    const Column c(piece, M, strip);
    if (!c.there) continue;
    const T* const y = column_of(p.y, piece, c);
    double S = 0, U = 0;
    for (int i = 0; i < keys; i += tile) {
      T values[tile];
      load_tile(y, p.y.stride(1), i, keys, values);
#pragma unroll
      for (int a = 0; a < tile; ++a) {
        const double weight = ck[(i + a) * piece.classes + c.k];
        S += weight;
        U += weight * values[a];
      }
    }
    to[H + c.of_row] = U;
    if (c.m == 0) to[piece.first + c.k] = S;
  }
}

template <class T>
__global__ void outputs_kernel(Agglomerative<T> p, DropoutMask dropout, int classes,
                               const double* sums, View<T, 4> out, double* after) {
  const Piece piece(p, p.N(), classes);
  const i64 H = p.H(), M = p.M();
  const int keys = p.causal ? piece.keys : 0;
  const double* const before = piece.row(sums, p.width(), p.causal);
  SharedMemory shared;
  double* const ck = shared.take<double>(chunk * classes);
  double* const S = shared.take<double>(chunk * classes);
  double* const w = shared.take<double>(chunk * classes);
  auto* const room = shared.take<unsigned char>(p.dropout > 0 ? Mask::bytes : 0);
  classify(p.zk, piece, keys, ck);
  scan_rows(piece, false, before + piece.first, ck, S);
  if (after != nullptr && static_cast<int>(threadIdx.x) < piece.classes) {
    after[piece.b * p.width() + piece.first + threadIdx.x] =
        S[(piece.padded - 1) * piece.classes + threadIdx.x];
  }
  weigh(p, piece, S, w);
  __syncthreads();
  for (i64 strip = 0; strip < piece.classes * M; strip += blockDim.x) {
    const Column c(piece, M, strip);
    const Mask kept(dropout, piece.b * p.N() + piece.begin, p.dropout > 0 ? piece.rows : 0,
                    piece.first * M + strip, room);
    if (!c.there) continue;
    const T* const y = column_of(p.y, piece, c);
    T* const to = &out(piece.b, piece.begin, piece.first + c.k, c.m);
    double U = before[H + c.of_row];
    for (int i = 0; i < piece.rows; i += tile) {
      T values[tile];
      load_tile(y, p.y.stride(1), i, keys, values);
#pragma unroll
      for (int a = 0; a < tile; ++a) {
        const int at = (i + a) * piece.classes + c.k;
        U += ck[at] * values[a];
        double value = w[at] * U;
        if (i + a >= piece.queries) {
          value = 0;
        } else if (p.dropout > 0) {
          value *= kept(i + a, c.of_row);
        }
        if (i + a < piece.rows) to[(i + a) * out.stride(1)] = static_cast<T>(value);
      }
    }
    if (after != nullptr) after[piece.b * p.width() + H + c.of_row] = U;
  }
}

template <class T>
__global__ void queries_kernel(Agglomerative<T> p, DropoutMask dropout, int classes,
                               const double* sums, View<const T, 4> dout, View<T, 3> dzq,
                               View<T, 3> dzk, double* totals) {
  const Piece piece(p, p.N(), classes);
  const i64 H = p.H(), M = p.M();
  const int keys = p.causal ? piece.keys : 0;
  const double* const before = piece.row(sums, p.width(), p.causal);
  // No chunk is before the first one: it initialises the last row.
  const i64 row =
      p.causal ? (piece.index + piece.chunks - 1) % piece.chunks : piece.index;
  double* const total = totals + (piece.b * piece.chunks + row) * p.width();
  const bool counts = !p.causal || piece.index > 0;
  SharedMemory shared;
  double* const ck = shared.take<double>(chunk * classes);
  double* const S = shared.take<double>(chunk * classes);
  double* const w = shared.take<double>(chunk * classes);
  double* const dots = shared.take<double>(chunk * classes);
  double* const products = shared.take<double>(tile * (blockDim.x + 1));
  auto* const room = shared.take<unsigned char>(p.dropout > 0 ? Mask::bytes : 0);
  classify(p.zk, piece, keys, ck);
  scan_rows(piece, false, before + piece.first, ck, S);
  weigh(p, piece, S, w);
  for (int e = threadIdx.x; e < piece.padded * piece.classes; e += blockDim.x) dots[e] = 0;
  __syncthreads();
  for (i64 strip = 0; strip < piece.classes * M; strip += blockDim.x) {
    const Column c(piece, M, strip);
    const Mask kept(dropout, piece.b * p.N() + piece.begin, p.dropout > 0 ? piece.rows : 0,
                    piece.first * M + strip, room);
    const T* const y = column_of(p.y, piece, c);
    const T* const dp = column_of(dout, piece, c);
    double U = c.there ? before[H + c.of_row] : 0, G = 0;
    for (int i = 0; i < piece.queries; i += tile) {
      T values[tile], gradients[tile];
      load_tile(y, p.y.stride(1), i, c.there ? keys : 0, values);
      load_tile(dp, dout.stride(1), i, c.there ? piece.queries : 0, gradients);
#pragma unroll
      for (int a = 0; a < tile; ++a) {
        const int at = (i + a) * piece.classes + c.k;
        double x = gradients[a];
        if (p.dropout > 0 && i + a < piece.queries) x *= kept(i + a, c.of_row);
        U += ck[at] * values[a];
        products[a * (blockDim.x + 1) + threadIdx.x] = x * U;
        G += w[at] * x;
      }
      __syncthreads();
      add_dots(piece, M, strip, i, products, dots);
      __syncthreads();
    }
    if (c.there) total[H + c.of_row] = counts ? G : 0;
  }
  for (int e = threadIdx.x; e < piece.queries * piece.classes; e += blockDim.x) {
    const i64 i = piece.begin + e / piece.classes, k = piece.first + e % piece.classes;
    const double dcq = dots[e] / clipped_mass(S[e]);
    dots[e] = -w[e] * dcq * clipped_mass_slope(S[e]);  // dn
    dzq(piece.b, i, k) = static_cast<T>(dcq);
    if (p.causal) dzk(piece.b, i, k) = static_cast<T>(dots[e]);
  }
  __syncthreads();
  for (int k = threadIdx.x; k < piece.classes; k += blockDim.x) {
    double g = 0;
    for (int i = 0; counts && i < piece.queries; ++i) g += dots[i * piece.classes + k];
    total[piece.first + k] = g;
  }
}

template <class T>
__global__ void references_kernel(Agglomerative<T> p, DropoutMask dropout, int classes,
                                  const double* sums, const double* totals,
                                  View<const T, 4> dout, View<T, 3> dzk, View<T, 4> dy) {
  const Piece piece(p, p.S(), classes);
  const i64 H = p.H(), M = p.M();
  const int queries = p.causal ? piece.queries : 0;
  const double* const behind = piece.row(totals, p.width(), p.causal);
  SharedMemory shared;
  double* const ck = shared.take<double>(chunk * classes);
  double* const dck = shared.take<double>(chunk * classes);
  double* const w = shared.take<double>(chunk * classes);
  double* const products = shared.take<double>(tile * (blockDim.x + 1));
  auto* const room = shared.take<unsigned char>(p.dropout > 0 ? Mask::bytes : 0);
  classify(p.zk, piece, piece.keys, ck);
  if (p.causal) {
    scan_rows(piece, false, piece.row(sums, p.width(), true) + piece.first, ck, dck);  // S
    weigh(p, piece, dck, w);
  }
  __syncthreads();
  for (int e = threadIdx.x; e < piece.padded * piece.classes; e += blockDim.x) {
    const i64 i = e / piece.classes, k = piece.first + e % piece.classes;
    dck[e] = i < queries ? static_cast<double>(dzk(piece.b, piece.begin + i, k)) : 0;  // dn
    if (!p.causal) w[e] = 0;
  }
  scan_rows(piece, true, behind + piece.first, dck, dck);  // g
  for (i64 strip = 0; strip < piece.classes * M; strip += blockDim.x) {
    const Column c(piece, M, strip);
    const Mask kept(dropout, piece.b * p.N() + piece.begin,
                    p.causal && p.dropout > 0 ? piece.rows : 0, piece.first * M + strip, room);
    const T* const y = column_of(p.y, piece, c);
    const T* const dp = column_of(dout, piece, c);
    T* const to = &dy(piece.b, piece.begin, piece.first + c.k, c.m);
    double G = c.there ? behind[H + c.of_row] : 0;
    for (int i = piece.padded - tile; i >= 0; i -= tile) {
      T values[tile], gradients[tile];
      load_tile(y, p.y.stride(1), i, c.there ? piece.keys : 0, values);
      load_tile(dp, dout.stride(1), i, c.there ? queries : 0, gradients);
#pragma unroll
      for (int a = tile - 1; a >= 0; --a) {
        const int at = (i + a) * piece.classes + c.k;
        double x = gradients[a];
        if (p.dropout > 0 && i + a < queries) x *= kept(i + a, c.of_row);
        G += w[at] * x;
        products[a * (blockDim.x + 1) + threadIdx.x] = values[a] * G;
        const double value = i + a < piece.keys ? ck[at] * G : 0;
        if (c.there && i + a < piece.rows) to[(i + a) * dy.stride(1)] = static_cast<T>(value);
      }
      __syncthreads();
      add_dots(piece, M, strip, i, products, dck);
      __syncthreads();
    }
  }
  for (int e = threadIdx.x; e < piece.keys * piece.classes; e += blockDim.x) {
    const i64 i = piece.begin + e / piece.classes, k = piece.first + e % piece.classes;
    dzk(piece.b, i, k) = static_cast<T>(dck[e]);
  }
}

// dz = c (dc − Σ c dc) for one row, in place of dc.
template <class T>
__device__ void softmax_gradient(const T* z, i64 H, bool exists, T* dz) {
  if (!exists) {
    for (i64 k = 0; k < H; ++k) dz[k] = 0;
    return;
  }
  const Classes<T> c(z, H);
  double inner = 0;
  for (i64 k = 0; k < H; ++k) inner += c[k] * dz[k];
  for (i64 k = 0; k < H; ++k) dz[k] = static_cast<T>(c[k] * (dz[k] - inner));
}

// A thread has a row: those of the queries, then those of the references.
template <class T>
struct FinishRow {
  Agglomerative<T> p;
  View<T, 3> dzq, dzk;

  __device__ void operator()(i64 row) const {
    const i64 queries = p.B() * p.N();
    if (row < queries) {
      const i64 b = row / p.N(), i = row % p.N();
      softmax_gradient(&p.zq(b, i, 0), p.H(), i < p.queries(b), &dzq(b, i, 0));
    } else {
      const i64 b = (row - queries) / p.S(), i = (row - queries) % p.S();
      softmax_gradient(&p.zk(b, i, 0), p.H(), i < p.keys(b), &dzk(b, i, 0));
    }
  }
};

// (S, U) of each chunk of references. Causal: in the row of the next chunk, and zeros in row 0.
template <class T>
void sum_references(const Cuda& device, const Agglomerative<T>& p, double* sums) {
  const Deal deal(p.H(), p.M());
  start_chunks(device, p, p.S(), 1, false, sum_references_kernel<T>, deal, p, deal.classes, sums);
}

// out, from sums as they are saved. If `after` is not null, the sums after the only chunk are
// written there; it may be `sums` itself.
template <class T>
void write_outputs(const Cuda& device, const Agglomerative<T>& p, const double* sums,
                   View<T, 4> out, double* after) {
  const Deal deal(p.H(), p.M());
  start_chunks(device, p, p.N(), 3, false, outputs_kernel<T>, deal, p, p.mask(), deal.classes,
               sums, out, after);
}

// dcq in place of dzq; (g, G) of each chunk of queries in `totals`. Causal: dn in place of dzk, and
// the row of totals is that of the chunk before, with zeros in the last one.
template <class T>
void sweep_queries(const Cuda& device, const Agglomerative<T>& p, const double* sums,
                   View<const T, 4> dout, View<T, 3> dzq, View<T, 3> dzk, double* totals) {
  const Deal deal(p.H(), p.M());
  start_chunks(device, p, p.N(), 4, true, queries_kernel<T>, deal, p, p.mask(), deal.classes,
               sums, dout, dzq, dzk, totals);
}

// dy, and dck in place of dzk. `totals`: (g, G) after each chunk, or of all queries.
template <class T>
void sweep_references(const Cuda& device, const Agglomerative<T>& p, const double* sums,
                      const double* totals, View<const T, 4> dout, View<T, 3> dzk, View<T, 4> dy) {
  const Deal deal(p.H(), p.M());
  start_chunks(device, p, p.S(), 3, true, references_kernel<T>, deal, p, p.mask(), deal.classes,
               sums, totals, dout, dzk, dy);
}

// dzq and dzk, in place of dcq and dck.
template <class T>
void finish_logits(const Cuda& device, const Agglomerative<T>& p, View<T, 3> dzq,
                   View<T, 3> dzk) {
  for_elements("agglomerative", device, p.B() * (p.N() + p.S()), FinishRow<T>{p, dzq, dzk});
}

// [B, chunks, width], the sums of chunks.
template <class T>
Workspace<double> chunk_rows(const Cuda& device, const Agglomerative<T>& p,
                             i64 positions) {
  return {device, p.B() * agglomerative_chunks(positions) * p.width()};
}

}  // namespace

template <class Device, class T>
void AgglomerativeKernels<Device, T>::forward(const Device& device, const Agglomerative<T>& p,
                                              View<double, 3> sums, View<T, 4> out) {
  const i64 chunks = agglomerative_chunks(p.S());
  if (p.causal) {
    sum_references(device, p, sums.data);
    combine_chunks(device, ChunkSums::upwards, p.B(), chunks, p.width(), sums.data, sums.data);
  } else {
    const Workspace<double> rows = chunk_rows(device, p, p.S());
    sum_references(device, p, rows.data());
    combine_chunks(device, ChunkSums::total, p.B(), chunks, p.width(), rows.data(), sums.data);
  }
  write_outputs<T>(device, p, sums.data, out, nullptr);
}

template <class Device, class T>
void AgglomerativeKernels<Device, T>::advance(const Device& device, const Agglomerative<T>& p,
                                              View<double, 2> sums, View<T, 4> out) {
  write_outputs<T>(device, p, sums.data, out, sums.data);
}

template <class Device, class T>
void AgglomerativeKernels<Device, T>::backward(const Device& device, const Agglomerative<T>& p,
                                               View<const double, 3> sums, View<const T, 4> dout,
                                               View<T, 3> dzq, View<T, 3> dzk, View<T, 4> dy) {
  const i64 chunks = agglomerative_chunks(p.N());
  const Workspace<double> rows = chunk_rows(device, p, p.N());
  double* totals = rows.data();
  sweep_queries<T>(device, p, sums.data, dout, dzq, dzk, totals);
  Workspace<double> all;
  if (p.causal) {
    combine_chunks(device, ChunkSums::downwards, p.B(), chunks, p.width(), totals, totals);
  } else {
    all = {device, p.B() * p.width()};
    combine_chunks(device, ChunkSums::total, p.B(), chunks, p.width(), totals, all.data());
    totals = all.data();
  }
  sweep_references<T>(device, p, sums.data, totals, dout, dzk, dy);
  finish_logits<T>(device, p, dzq, dzk);
}

template struct AgglomerativeKernels<Cuda, float>;
template struct AgglomerativeKernels<Cuda, double>;

}  // namespace weft
