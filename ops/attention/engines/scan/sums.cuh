// Sums of the chunks of a sequence on CUDA devices, and the sums before or after each. For .cu
// files.
#pragma once

#include "ops/attention/engines/scan/random_features.cuh"
#include "ops/attention/score_tile.cuh"

namespace weft::scan {

inline constexpr int side = tile_columns;
static_assert(side == scan_chunk);

// The state (S, z, V and the number of keys, or G, g and W) of a chunk of one batch item and head.
template <class T>
struct States {
  T* data;
  i64 chunks, size;  // of a sequence, and of one state

  __device__ T* at(i64 sequence, i64 chunk) const {
    return data + (sequence * chunks + chunk) * size;
  }
};

// The weights of a sum over rows; 1 without data.
template <class T>
struct RowWeights {
  View<const T, 3> vector = {};  // in z or g
  View<const T, 3> beside = {};  // in V or W
  Levels<T> levels = {};         // factors of x, towards the side that the sum is for

  __device__ static T of(const View<const T, 3>& weights, i64 b, i64 h, i64 i) {
    return weights.data == nullptr ? T(1) : weights(b, h, i);
  }
};

// Each chunk's own Σ_i x_i y_iᵀ [F, M] and Σ_i x_i [F], weighted, and with levels Σ_i y_i [M].
template <class T, int R>
__global__ void __launch_bounds__(tile_threads, 2)
    sums_of_chunks(View<const T, 4> x, View<const T, 4> y, Scan<T> p, bool of_queries,
                   RowWeights<T> weights, States<T> states) {
  constexpr int rows = 8 * R;
  const i64 sequence = blockIdx.x / states.chunks, chunk = blockIdx.x % states.chunks;
  const i64 b = sequence / p.H(), h = sequence % p.H(), first = chunk * side;
  const i64 f = i64{blockIdx.y} * rows, m = i64{blockIdx.z} * side, F = x.size(3), M = y.size(3);
  const TileRows at{b, h, first, rows_within(first, of_queries ? p.queries(b) : p.keys(b), side)};
  SharedMemory shared;
  T* const left = shared.take<T>(rows * weight_stride<T>);
  T* const right = shared.take<T>(side * side);
  load_turned(rows, left, weight_stride<T>, [&](int i, int row) {
    if (i >= at.count || f + row >= F) return T(0);
    const T value = x(b, first + i, h, f + row);
    if (!weights.levels.rise()) return value;
    return value *
           (of_queries ? weights.levels.in(b, h, first + i) : weights.levels.out(b, h, first + i));
  });
  load_tile(y, at, side, m, side, T(1), right, side);
  __syncthreads();
  T o[R][4] = {};
  add_weighted<R, 4>(left, right, side, at.count, o);
  T* const to = states.at(sequence, chunk);
#pragma unroll
  for (int r = 0; r < R; ++r) {
    const int row = 8 * r + tile_y();
    if (f + row < F) store_owned(o[r], ElementRow<T>{to + (f + row) * M, 1, M}, m);
    if (blockIdx.z > 0) continue;
    T sum = 0;
    for (int i = tile_x(); i < at.count; i += 16) {
      sum += weights.of(weights.vector, b, h, first + i) * left[row * weight_stride<T> + i];
    }
    sum = over_row<Added>(sum);
    if (f + row < F && tile_x() == 0) to[F * M + f + row] = sum;
  }
  if (!p.levels() || blockIdx.y > 0) return;
  T* const beside = to + F * (M + 1);
  for (i64 c = threadIdx.x; c < side && m + c < M; c += tile_threads) {
    T sum = 0;
    for (int i = 0; i < at.count; ++i) {
      sum += weights.of(weights.beside, b, h, first + i) * right[i * side + c];
    }
    beside[m + c] = sum;
  }
  if (m == 0 && threadIdx.x == 0) beside[M] = static_cast<T>(at.count), beside[M + 1] = 0;
}

// Replaces the sum of each chunk by the sum of those before it, or, if `later`, after it; one
// element of the state for each call. `carried` [sequences, size], unless null, is the sum before
// the first chunk, and is replaced by that after the last. If not `running`, all chunks are added,
// as the state of chunk 0.
template <class T>
struct RunningSums {
  States<T> states;
  bool running, later;
  double* carried;
  Levels<T> levels = {};
  i64 faded = 0, heads = 1;  // the first elements of a state are scaled by levels

  __device__ void operator()(i64 i) const {
    const i64 sequence = i / states.size, element = i % states.size;
    const i64 b = sequence / heads, h = sequence % heads;
    if (levels.rise() && element == states.size - 1) {
      if (carried != nullptr) carried[i] = levels.before(b, h, states.chunks);
      return;
    }
    double sum = running && carried != nullptr ? carried[i] : 0;
    for (i64 k = 0; k < states.chunks; ++k) {
      const i64 chunk = later ? states.chunks - 1 - k : k;
      T* const at = states.at(sequence, chunk) + element;
      const T own = *at;
      if (running) *at = static_cast<T>(sum);
      if (element < faded) sum *= static_cast<double>(levels.across(b, h, chunk));
      sum += static_cast<double>(own);
    }
    if (!running) states.at(sequence, 0)[element] = static_cast<T>(sum);
    if (carried != nullptr) carried[i] = sum;
  }
};

// The states that forward left, of sequences without chunks.
template <class T>
struct RoundedSums {
  const double* sums;
  States<T> states;
  __device__ void operator()(i64 i) const {
    states.at(i / states.size, 0)[i % states.size] = static_cast<T>(sums[i]);
  }
};

// --- the rows of the chunks

// The unscaled sums beside the scaled ones, V and the number of keys, or W.
enum class Beside {
  nothing,
  outputs,  // w_i V_i and w_i |J(i)|, w_i in the pairs
  totals,   // instead of divisors, dw_i
  values,   // W_j, w_i in the pairs
};

// See the head of scan.cu. The state is [F, M] and [F]; W is its transpose, or, if `turned`,
// itself, and then w is added: once, or own_added times.
template <class S>
struct Rows {
  using T = Accumulator<S>;

  View<const S, 4> x, y = {}, u = {};
  bool own_queries;  // x are rows of queries, which use the state before; or keys
  States<T> states;
  bool turned = false;
  View<const T, 3> own_added = {}, other_added = {};  // to the pairs of row i, of row j
  Levels<T> levels = {};
  Beside beside = Beside::nothing;
  View<const T, 3> weights = {};  // w
  i64 columns = 0;                // of W alone, without w and pairs; 0: the state's are M

  // The factor of the sum before or after its chunk for a row, and of a pair of own and other row.
  __device__ T fade(i64 b, i64 h, i64 row) const {
    return own_queries ? levels.in(b, h, row) : levels.out(b, h, row);
  }
  __device__ T fade(i64 b, i64 h, i64 own, i64 other) const {
    return own_queries ? levels.pair(b, h, own, other) : levels.pair(b, h, other, own);
  }
};

}  // namespace weft::scan
