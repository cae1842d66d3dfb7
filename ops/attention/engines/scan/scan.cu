// CUDA kernels of the engine for scans; the equations stand in scan.h, the tile of scores in
// score_tile.cuh.
//
// Features are computed once a call, into workspace. Then every chunk is a piece of work of its own:
// the sums of outer products of each chunk, these added up along the sequence, element by element
// and in order, and what each chunk's rows give together with the sum before it. That last kernel
// serves out, dφq, dφk and dv, which are all of one form: with x the rows of one side, y those of
// the other side, W and w a state,
//
//     o_i = W x_i (+ w) + Σ_{j in the chunk} (x_i · y_j) u_j
//
// A block owns 8 R rows of a chunk and 64 columns; products go through shared memory in tiles of 64.
//
// Workspace: features and their gradients, and for the causal form F (M + 1) numbers a chunk of 64
// positions. Unmeasured on a device.
#include <limits>

#include "ops/attention/engines/scan/scan.h"
#include "ops/attention/score_tile.cuh"
#include "runtime/cuda/workspace.h"

namespace weft {
namespace {

constexpr int side = tile_columns;
static_assert(side == scan_chunk);

// --- features, a row of [rows, H] at a time

// Row (b L + i) H + h of a tensor [B, L, H, ..].
struct RowPlace {
  i64 b, i, h;
  __device__ RowPlace(i64 row, i64 L, i64 H) : b(row / H / L), i(row / H % L), h(row % H) {}
};

template <class T>
__device__ T positive(T x) {
  return x <= 0 ? T(0) : x;
}

template <class T>
struct Features {
  Scan<T> p;
  View<const T, 4> x;
  bool of_queries;
  View<T, 4> phi;

  template <class Team>
  __device__ void operator()(const Team& team, i64 row) const {
    const RowPlace at(row, x.size(1), p.H());
    const i64 E = p.E();
    const T* const from = &x(at.b, at.i, at.h, 0);
    T* const to = &phi(at.b, at.i, at.h, 0);
    T most = 0;
    if (p.feature == Feature::exponential && of_queries) {
      most = -std::numeric_limits<T>::infinity();
      for (i64 e = team.rank(); e < E; e += Team::threads) {
        most = Largest::of(most, from[e * x.stride(3)]);
      }
      most = team.max(most);
    }
    const double theta = p.angle(at.b) * static_cast<double>(p.offset + at.i);
    for (i64 e = team.rank(); e < E; e += Team::threads) {
      const T value = from[e * x.stride(3)];
      switch (p.feature) {
        case Feature::elu: to[e] = value > 0 ? value + 1 : std::exp(value); break;
        case Feature::relu: to[e] = positive(value); break;
        case Feature::exponential: to[e] = std::exp(value - most); break;
        case Feature::cosine:
          to[e] = static_cast<T>(std::sin(theta)) * positive(value);
          to[E + e] = static_cast<T>(std::cos(theta)) * positive(value);
      }
    }
  }
};

// dx of dφ; 0 in rows from the item's own end on.
template <class T>
struct FeatureGradients {
  Scan<T> p;
  View<const T, 4> x, phi, dphi;
  bool of_queries;
  View<T, 4> dx;

  template <class Team>
  __device__ void operator()(const Team& team, i64 row) const {
    const RowPlace at(row, x.size(1), p.H());
    const i64 E = p.E();
    const bool counts = at.i < (of_queries ? p.queries(at.b) : p.keys(at.b));
    const T* const slope = &dphi(at.b, at.i, at.h, 0);
    const T* const value = &phi(at.b, at.i, at.h, 0);
    // The first of the largest, which was subtracted from all.
    i64 largest = -1;
    T sum = 0;
    if (p.feature == Feature::exponential && of_queries) {
      T most = -std::numeric_limits<T>::infinity();
      for (i64 e = team.rank(); e < E; e += Team::threads) {
        most = Largest::of(most, x(at.b, at.i, at.h, e));
        sum += value[e] * slope[e];
      }
      most = team.max(most);
      sum = team.sum(sum);
      int before = -static_cast<int>(E);
      for (i64 e = team.rank(); e < E; e += Team::threads) {
        if (x(at.b, at.i, at.h, e) == most) before = Largest::of(before, -static_cast<int>(e));
      }
      largest = -team.max(before);
    }
    const double theta = p.angle(at.b) * static_cast<double>(p.offset + at.i);
    for (i64 e = team.rank(); e < E; e += Team::threads) {
      T gradient = 0;
      switch (p.feature) {
        case Feature::elu: gradient = value[e] > 1 ? slope[e] : value[e] * slope[e]; break;
        case Feature::relu: gradient = value[e] > 0 ? slope[e] : T(0); break;
        case Feature::exponential:
          gradient = value[e] * slope[e] - (e == largest ? sum : T(0));
          break;
        case Feature::cosine:
          if (x(at.b, at.i, at.h, e) > 0) {
            gradient = static_cast<T>(std::sin(theta)) * slope[e] +
                       static_cast<T>(std::cos(theta)) * slope[E + e];
          }
      }
      dx(at.b, at.i, at.h, e) = counts ? gradient : T(0);
    }
  }
};

// dN and dD of every query.
template <class T>
struct QueryGradients {
  Scan<T> p;
  View<const T, 4> out, dout;
  View<const T, 3> divisors;
  View<T, 4> dN;
  View<T, 3> dD;

  template <class Team>
  __device__ void operator()(const Team& team, i64 row) const {
    const RowPlace at(row, p.N(), p.H());
    const T n = divisors(at.b, at.h, at.i);
    const bool counts = at.i < p.queries(at.b);
    T sum = 0;
    for (i64 m = team.rank(); m < p.M(); m += Team::threads) {
      const T share = counts ? dout(at.b, at.i, at.h, m) / n : T(0);
      dN(at.b, at.i, at.h, m) = share;
      if (counts) sum += share * out(at.b, at.i, at.h, m);
    }
    sum = team.sum(sum);
    if (team.rank() == 0) dD(at.b, at.h, at.i) = counts ? -p.slope(n) * sum : T(0);
  }
};

// --- sums

// Where S and z (or G and g) of a chunk of one batch item and head stand.
template <class T>
struct States {
  T* data;
  i64 chunks, size;  // of a sequence, and of one state

  __device__ T* at(i64 sequence, i64 chunk) const { return data + (sequence * chunks + chunk) * size; }
};

// Each chunk's own Σ_i x_i y_iᵀ [F, M] and Σ_i weights_i x_i [F]; without weights they are 1.
template <class T, int R>
__global__ void __launch_bounds__(tile_threads, 2)
    sums_of_chunks(View<const T, 4> x, View<const T, 4> y, Scan<T> p, bool of_queries,
                   View<const T, 3> weights, States<T> states) {
  constexpr int rows = 8 * R;
  const i64 sequence = blockIdx.x / states.chunks, chunk = blockIdx.x % states.chunks;
  const i64 b = sequence / p.H(), h = sequence % p.H(), first = chunk * side;
  const i64 f = i64{blockIdx.y} * rows, m = i64{blockIdx.z} * side, F = x.size(3), M = y.size(3);
  const TileRows at{b, h, first, rows_within(first, of_queries ? p.queries(b) : p.keys(b), side)};
  SharedMemory shared;
  T* const left = shared.take<T>(rows * weight_stride<T>);
  T* const right = shared.take<T>(side * side);
  for (int k = static_cast<int>(threadIdx.x); k < rows * side; k += tile_threads) {
    const int row = k % rows, i = k / rows;
    left[row * weight_stride<T> + i] =
        i < at.count && f + row < F ? x(b, first + i, h, f + row) : T(0);
  }
  load_tile(y, at, side, m, side, T(1), right, side);
  __syncthreads();
  T o[R][4] = {};
  add_weighted<R, 4>(left, right, side, at.count, o);
  T* const to = states.at(sequence, chunk);
#pragma unroll
  for (int r = 0; r < R; ++r) {
    const int row = 8 * r + tile_y();
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const i64 column = m + owned_column<T, 4>(c);
      if (f + row < F && column < M) to[(f + row) * M + column] = o[r][c];
    }
    if (blockIdx.z > 0) continue;
    T sum = 0;
    for (int i = tile_x(); i < at.count; i += 16) {
      const T weight = weights.data == nullptr ? T(1) : weights(b, h, first + i);
      sum += weight * left[row * weight_stride<T> + i];
    }
    sum = over_row<Added>(sum);
    if (f + row < F && tile_x() == 0) to[F * M + f + row] = sum;
  }
}

// Turns what chunks sum up to into what stands before each of them, or behind, `later`; one element
// of the state a call. `carried` [sequences, size], unless null, is what stands before the first of
// them, and then after the last. Where not `running`, all chunks together, as the state of chunk 0.
template <class T>
struct RunningSums {
  States<T> states;
  bool running, later;
  double* carried;

  __device__ void operator()(i64 i) const {
    const i64 sequence = i / states.size, element = i % states.size;
    double sum = running && carried != nullptr ? carried[i] : 0;
    for (i64 k = 0; k < states.chunks; ++k) {
      T* const at = states.at(sequence, later ? states.chunks - 1 - k : k) + element;
      const T own = *at;
      if (running) *at = static_cast<T>(sum);
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

// --- rows

// See the head of this file. The state is [F, M] and [F]; W is its transpose, or, `turned`, itself,
// and then w counts: once, or own_added times.
template <class T>
struct Rows {
  View<const T, 4> x, y, u;
  bool own_queries;  // whether x are rows of queries, who see what stands before; or keys
  States<T> states;
  bool turned = false;
  View<const T, 3> own_added = {}, other_added = {};  // to the pairs of row i, of row j
};

template <class T, int R>
__global__ void __launch_bounds__(tile_threads, 2)
    rows_of_chunks(Scan<T> p, Rows<T> of, View<T, 4> out, View<T, 3> divisors) {
  constexpr int rows = 8 * R;
  const i64 depth = of.x.size(3), width = out.size(3), M = p.M();
  const i64 tiles = (out.size(1) + rows - 1) / rows, sequence = blockIdx.x / tiles;
  const i64 b = sequence / p.H(), h = sequence % p.H(), first = blockIdx.x % tiles * rows;
  const i64 chunk = first / side, column = i64{blockIdx.y} * side;
  const i64 queries = p.queries(b), keys = p.keys(b);
  const TileRows own{b, h, first, rows_within(first, of.own_queries ? queries : keys, rows)};
  const TileRows others{b, h, chunk * side,
                        rows_within(chunk * side, of.own_queries ? keys : queries, side)};
  const int padded = padded_width<T>(depth, side), stride = row_stride<T>(padded);
  const T* const state = of.states.at(sequence, p.causal ? chunk : 0);
  const T* const vector = state + p.F() * M;

  SharedMemory shared;
  T* const weights = shared.take<T>(rows * weight_stride<T>);
  T* const left = shared.take<T>(rows * row_stride<T>(side));
  T* const right = shared.take<T>(side * row_stride<T>(side));
  T o[R][4] = {}, D[R] = {};
  for (i64 d = 0; d < depth; d += side) {
    const int count = rows_within(d, depth, side);
    __syncthreads();  // all are done with what is written over
    load_tile(of.x, own, rows, d, side, T(1), weights, weight_stride<T>);
    for (int k = static_cast<int>(threadIdx.x); k < side * side; k += tile_threads) {
      // Neighbours read neighbours.
      const int i = of.turned ? k % side : k / side, c = of.turned ? k / side : k % side;
      const bool inside = i < count && column + c < width;
      const i64 place = of.turned ? (column + c) * M + d + i : (d + i) * M + column + c;
      right[i * side + c] = inside ? state[place] : T(0);
    }
    __syncthreads();
    add_weighted<R, 4>(weights, right, side, count, o);
    if (divisors.data == nullptr) continue;
#pragma unroll
    for (int r = 0; r < R; ++r) {
      for (int i = tile_x(); i < count; i += 16) {
        D[r] += weights[(8 * r + tile_y()) * weight_stride<T> + i] * vector[d + i];
      }
    }
  }
  if (of.turned) {
#pragma unroll
    for (int r = 0; r < R; ++r) {
      const int row = 8 * r + tile_y();
      if (row >= own.count) continue;
      const T factor = of.own_added.data == nullptr ? T(1) : of.own_added(b, h, first + row);
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const i64 f = column + owned_column<T, 4>(c);
        if (f < width) o[r][c] += factor * vector[f];
      }
    }
  }
  if (p.causal && own.count > 0 && others.count > 0) {
    T z[R][4] = {};
    for (i64 d = 0; d < depth; d += padded) {
      __syncthreads();
      load_tile(of.x, own, rows, d, padded, T(1), left, stride);
      load_tile(of.y, others, side, d, padded, T(1), right, stride);
      __syncthreads();
      add_products<R>(left, right, stride, padded, z);
    }
#pragma unroll
    for (int r = 0; r < R; ++r) {
      const int row = 8 * r + tile_y();
      const i64 i = first + row;
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const int place = 16 * c + tile_x();
        const i64 j = others.first + place;
        const bool seen = row < own.count && place < others.count &&
                          (of.own_queries ? j <= i : i <= j);
        if (!seen) {
          z[r][c] = 0;
          continue;
        }
        if (of.own_added.data != nullptr) z[r][c] += of.own_added(b, h, i);
        if (of.other_added.data != nullptr) z[r][c] += of.other_added(b, h, j);
        D[r] += z[r][c];
      }
    }
    __syncthreads();
    store_weights<R>(z, weights);
    load_tile(of.u, others, side, column, side, T(1), right, side);
    __syncthreads();
    add_weighted<R, 4>(weights, right, side, others.count, o);
  }
#pragma unroll
  for (int r = 0; r < R; ++r) {
    const int row = 8 * r + tile_y();
    const bool there = row < own.count;
    T n = 1;
    if (divisors.data != nullptr) {
      const T sum = over_row<Added>(D[r]);
      if (there) n = p.divisor(sum);
      if (first + row < out.size(1) && blockIdx.y == 0 && tile_x() == 0) {
        divisors(b, h, first + row) = there ? n : T(0);
      }
    }
    if (first + row >= out.size(1)) continue;
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const i64 m = column + owned_column<T, 4>(c);
      if (m < width) out(b, first + row, h, m) = there ? o[r][c] / n : T(0);
    }
  }
}

// --- starting them

unsigned cut(i64 count, i64 by) { return static_cast<unsigned>((count + by - 1) / by); }

// What one call has in workspace.
template <class T>
class Call {
 public:
  Call(const Cuda& device, const Scan<T>& p)
      : device_(device),
        p_(p),
        chunks_(std::max<i64>((std::max(p.N(), p.S()) + side - 1) / side, 1)),
        q_(device, p.B() * p.N() * p.H() * p.F()),
        k_(device, p.B() * p.S() * p.H() * p.F()),
        states_(device, p.B() * p.H() * chunks_ * p.sums()) {
    for_rows("scan", device, p.B() * p.N() * p.H(), p.E(), Features<T>{p, p.q, true, writable_q()});
    for_rows("scan", device, p.B() * p.S() * p.H(), p.E(), Features<T>{p, p.k, false, writable_k()});
  }

  View<const T, 4> q() const { return writable_q(); }
  View<const T, 4> k() const { return writable_k(); }
  States<T> states() const { return {states_.data(), chunks_, p_.sums()}; }

  void sum(const View<const T, 4>& x, const View<const T, 4>& y, bool of_queries,
           const View<const T, 3>& weights, double* carried) const {
    constexpr int R = long_rows<T>;
    const dim3 grid(static_cast<unsigned>(p_.B() * p_.H() * chunks_), cut(p_.F(), 8 * R),
                    cut(p_.M(), side));
    const std::size_t shared = SharedMemory::bytes<T>(8 * R * weight_stride<T>) +
                               SharedMemory::bytes<T>(side * side);
    start_tiles("scan", device_, grid, shared, sums_of_chunks<T, R>, x, y, p_, of_queries, weights,
                states());
    for_elements("scan", device_, p_.B() * p_.H() * p_.sums(),
                 RunningSums<T>{states(), p_.causal, of_queries, carried});
  }

  void rows(const Rows<T>& of, const View<T, 4>& out, const View<T, 3>& divisors) const {
    constexpr int R = long_rows<T>;
    if (out.size(1) == 0) return;
    const dim3 grid(static_cast<unsigned>(p_.B() * p_.H()) * cut(out.size(1), 8 * R),
                    cut(out.size(3), side));
    const std::size_t shared = SharedMemory::bytes<T>(8 * R * weight_stride<T>) +
                               SharedMemory::bytes<T>(8 * R * row_stride<T>(side)) +
                               SharedMemory::bytes<T>(side * row_stride<T>(side));
    start_tiles("scan", device_, grid, shared, rows_of_chunks<T, R>, p_, of, out, divisors);
  }

 private:
  View<T, 4> writable_q() const { return q_.view(p_.B(), p_.N(), p_.H(), p_.F()); }
  View<T, 4> writable_k() const { return k_.view(p_.B(), p_.S(), p_.H(), p_.F()); }

  const Cuda& device_;
  const Scan<T>& p_;
  i64 chunks_;
  Workspace<T> q_, k_, states_;
};

}  // namespace

template <class Device, class T>
void ScanKernels<Device, T>::forward(const Device& device, const Scan<T>& p, View<double, 3> sums,
                                     View<T, 4> out, View<T, 3> divisors) {
  if (p.B() * p.H() * p.N() == 0) return;
  const Call<T> call(device, p);
  call.sum(call.k(), p.v, false, {}, sums.data);
  call.rows({.x = call.q(), .y = call.k(), .u = p.v, .own_queries = true, .states = call.states()},
            out, divisors);
}

template <class Device, class T>
void ScanKernels<Device, T>::backward(const Device& device, const Scan<T>& p,
                                      View<const double, 3> sums, View<const T, 4> out,
                                      View<const T, 3> divisors, View<const T, 4> dout,
                                      View<T, 4> dq, View<T, 4> dk, View<T, 4> dv) {
  const i64 B = p.B(), N = p.N(), S = p.S(), H = p.H(), F = p.F();
  if (B * H * std::max(N, S) == 0) return;
  const Call<T> call(device, p);
  const Workspace<T> for_dN(device, B * N * H * p.M()), for_dD(device, B * H * N);
  const Workspace<T> for_features(device, B * std::max(N, S) * H * F);
  const View<T, 4> dN = for_dN.view(B, N, H, p.M());
  const View<T, 3> dD = for_dD.view(B, H, N);
  for_rows("scan", device, B * N * H, p.M(), QueryGradients<T>{p, out, dout, divisors, dN, dD});

  if (p.causal) {
    call.sum(call.k(), p.v, false, {}, nullptr);
  } else {
    for_elements("scan", device, B * H * p.sums(), RoundedSums<T>{sums.data, call.states()});
  }
  const View<T, 4> dphi_q = for_features.view(B, N, H, F), dphi_k = for_features.view(B, S, H, F);
  call.rows({.x = dN, .y = p.v, .u = call.k(), .own_queries = true, .states = call.states(),
             .turned = true, .own_added = dD},
            dphi_q, {});
  for_rows("scan", device, B * N * H, p.E(),
           FeatureGradients<T>{p, p.q, call.q(), dphi_q, true, dq});

  call.sum(call.q(), dN, true, dD, nullptr);
  call.rows({.x = p.v, .y = dN, .u = call.q(), .own_queries = false, .states = call.states(),
             .turned = true, .other_added = dD},
            dphi_k, {});
  for_rows("scan", device, B * S * H, p.E(),
           FeatureGradients<T>{p, p.k, call.k(), dphi_k, false, dk});
  call.rows({.x = call.k(), .y = call.q(), .u = dN, .own_queries = false, .states = call.states()},
            dv, {});
}

template struct ScanKernels<Cuda, float>;
template struct ScanKernels<Cuda, double>;

}  // namespace weft
