// CUDA kernels of attention by distance; the equations are in distances.h, the tiles in
// score_tile.cuh and gradient_tile.cuh.
//
//     forward_tiles   a block owns 8 R queries of one head and streams over the keys of its reach
//     gradients       a block owns queries: dq and its part of dz; keys: dk, dv; or distances: dr
//
// A tile has three operands: its rows, its columns, and rows for the differences of the two. For
// queries and keys these are the rows of distances, for queries and distances the keys. A thread
// has few differences, 8 r − 16 c apart, and reads a row of them once for all of its pairs. Each
// kernel recomputes the scores, so that every sum has one writer and one order.
//
// The span of a head is read on the device: the grid has a block for every possible key, and a
// block stops at the head's reach.
//
// By count, for heads of 64 in f32 (unmeasured): four elements of the 32 pairs of a thread are 256
// multiply-adds for 26 reads of 16 bytes; without distances 128 for 12. The gradients of the
// weights that dr needs are differences alone: 128 for 18.
#include <cmath>

#include "ops/attention/engines/pairs/distances.h"
#include "ops/attention/engines/pairs/gradient_tile.cuh"
#include "ops/attention/infinity.h"
#include "runtime/cuda/workspace.h"

namespace weft {
namespace {

enum class Owner { queries, keys, distances };

// Rows 0 … end − 1 of one head, from which tiles are loaded; without data: zeros.
template <class T>
struct HeadRows {
  const T* data;
  i64 step, column_step, width, end;

  static __device__ HeadRows of(const View<const T, 4>& x, i64 b, i64 h, i64 end) {
    return {x.data + b * x.stride(0) + h * x.stride(2), x.stride(1), x.stride(3), x.size(3), end};
  }
  static __device__ HeadRows of_table(const Distances<T>& p, i64 h, i64 end) {
    const View<const T, 3>& x = p.table;
    return {x.data + p.table_of(h) * x.stride(0), x.stride(1), x.stride(2), x.size(2), end};
  }
};

// `all` rows of `padded` columns, from row `first`, which may be negative, and column `begin` on,
// times `factor`; zeros out of range.
template <class T>
__device__ void load_rows(const HeadRows<T>& x, i64 first, int all, i64 begin, int padded, T factor,
                          T* to, int stride) {
  for (int e = static_cast<int>(threadIdx.x); e < all * padded; e += tile_threads) {
    const int row = e / padded, column = e % padded;
    const i64 i = first + row, at = begin + column;
    const bool inside = i >= 0 && i < x.end && at < x.width;
    to[row * stride + column] = inside ? factor * x.data[i * x.step + at * x.column_step] : T(0);
  }
}

// z[r][c] += Σ_e a[row][e] b[column][e] + a[row][e] d[row − column + 63][e] for row 8 r + ty and
// column 16 c + tx; if `of_columns`, b[column][e] d[column − row + 8 R − 1][e] is added instead.
// The row that a product and a difference share is read once.
template <int R, bool of_columns, class T>
__device__ void add_products_and_differences(const T* a, const T* b, const T* d, int stride,
                                             int padded, T (&z)[R][4]) {
  constexpr int W = word<T>;
  const T* const left = a + tile_y() * stride;
  const T* const right = b + tile_x() * stride;
  const T* const between =
      d + (of_columns ? tile_x() - tile_y() + 8 * R - 1 : tile_y() - tile_x() + tile_columns - 1) *
              stride;
  for (int e = 0; e < padded; e += W) {
    Lanes<T, W> y[4];
#pragma unroll
    for (int c = 0; c < 4; ++c) y[c] = lanes_at<W>(right + 16 * c * stride + e);
#pragma unroll
    for (int r = 0; r < R; ++r) {
      const Lanes<T, W> x = lanes_at<W>(left + 8 * r * stride + e);
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const int apart = of_columns ? 16 * c - 8 * r : 8 * r - 16 * c;
        const Lanes<T, W> difference = lanes_at<W>(between + apart * stride + e);
        const Lanes<T, W>& own = of_columns ? y[c] : x;
#pragma unroll
        for (int w = 0; w < W; ++w) {
          z[r][c] += own.at[w] * difference.at[w];
          z[r][c] += x.at[w] * y[c].at[w];
        }
      }
    }
  }
}

// z[r][c] += Σ_e x[column][e] d[column − row + 8 R − 1][e]
template <int R, class T>
__device__ void add_differences(const T* x, const T* d, int stride, int padded, T (&z)[R][4]) {
  constexpr int W = word<T>;
  const T* const left = x + tile_x() * stride;
  const T* const right = d + (tile_x() - tile_y() + 8 * R - 1) * stride;
  for (int e = 0; e < padded; e += W) {
#pragma unroll
    for (int r = 0; r < R; ++r) {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const Lanes<T, W> a = lanes_at<W>(left + 16 * c * stride + e);
        const Lanes<T, W> b = lanes_at<W>(right + (16 * c - 8 * r) * stride + e);
#pragma unroll
        for (int w = 0; w < W; ++w) z[r][c] += a.at[w] * b.at[w];
      }
    }
  }
}

// o[r][c] += Σ_j weights[8 r + ty][j] d[8 r + ty − j + 63][owned_column(c)] over the first
// `columns` j.
template <int R, int C, class T>
__device__ void add_weighted_differences(const T* weights, const T* d, int stride, int columns,
                                         T (&o)[R][C]) {
  constexpr int W = std::min(C, word<T>);
  for (int j = 0; j < columns; ++j) {
#pragma unroll
    for (int r = 0; r < R; ++r) {
      const int row = 8 * r + tile_y();
      const T weight = weights[row * weight_stride<T> + j];
      const T* const from = d + (row - j + tile_columns - 1) * stride;
#pragma unroll
      for (int c = 0; c < C; c += W) {
        const Lanes<T, W> x = lanes_at<W>(from + owned_column<T, C>(c));
#pragma unroll
        for (int w = 0; w < W; ++w) o[r][c + w] += weight * x.at[w];
      }
    }
  }
}

// τ c_d
template <class T>
__device__ T bias_of(const Distances<T>& p, i64 h, i64 d) {
  return p.bias.data == nullptr ? T(0) : p.temperature * p.bias(h, d);
}

// The rows of a block: `rows` adjacent ones of one head.
struct OwnRows {
  i64 b, h, first;
  i64 tile, tiles;
};
__device__ inline OwnRows own_rows_of(i64 length, int rows, i64 H) {
  const i64 tiles = (length + rows - 1) / rows, head = blockIdx.x / tiles,
            tile = blockIdx.x % tiles;
  return {head / H, head % H, tile * rows, tile, tiles};
}
inline dim3 grid_of(i64 heads, i64 length, int rows, i64 width, int columns) {
  return {static_cast<unsigned>(heads * ((length + rows - 1) / rows)),
          static_cast<unsigned>(std::max<i64>((width + columns - 1) / columns, 1))};
}

// Columns of queries, keys and distances that are in shared memory together; in f64 half as many,
// which fit 99 KB.
template <class T>
inline constexpr int held = 128 / sizeof(T);

template <class T, int R, int C>
struct ForwardLayout {
  static constexpr int rows = 8 * R, columns = 16 * C;
  static constexpr int stride = row_stride<T>(held<T>), value_stride = row_stride<T>(columns);

  static std::size_t bytes() {
    return SharedMemory::bytes<T>(rows * stride) + SharedMemory::bytes<T>(tile_columns * stride) +
           SharedMemory::bytes<T>((rows + tile_columns) * stride) +
           SharedMemory::bytes<T>(tile_columns * value_stride) +
           SharedMemory::bytes<T>(rows * weight_stride<T>) +
           SharedMemory::bytes<std::uint64_t>(rows);
  }
};

// Blocks of a multiprocessor that tiles of long sequences leave registers for: as many as shared
// memory has room for if heads are wide. 0: the compiler's choice, for few rows.
template <class T, int R>
inline constexpr int forward_blocks = R == 1 ? 0 : sizeof(T) == 4 ? 3 : 2;

template <class T, int R, int C>
__global__ void __launch_bounds__(tile_threads, forward_blocks<T, R>)
    forward_tiles(Distances<T> p, DropoutMask mask, View<T, 4> out, View<T, 3> log_sums) {
  using Layout = ForwardLayout<T, R, C>;
  constexpr T none = -infinity<T>;
  SharedMemory shared;
  T* const q = shared.take<T>(Layout::rows * Layout::stride);
  T* const k = shared.take<T>(tile_columns * Layout::stride);
  T* const d = shared.take<T>((Layout::rows + tile_columns) * Layout::stride);
  T* const v = shared.take<T>(tile_columns * Layout::value_stride);
  T* const weights = shared.take<T>(Layout::rows * weight_stride<T>);
  std::uint64_t* const kept = shared.take<std::uint64_t>(Layout::rows);

  const OwnRows own = own_rows_of(p.N(), Layout::rows, p.H());
  const i64 b = own.b, h = own.h, n = p.queries(b), shift = p.first_key(0);
  const Ramp<T> ramp = p.ramp_of(h);
  const i64 last = std::min(own.first + Layout::rows, n) - 1;
  const int column = static_cast<int>(blockIdx.y) * Layout::columns;
  const i64 begin = std::max<i64>(own.first + shift - ramp.reach + 1, 0) / 8 * 8;
  const i64 end = last < own.first || ramp.reach == 0 ? 0 : std::min(p.keys(b), last + shift + 1);
  const auto queries = HeadRows<T>::of(p.q, b, h, n), keys = HeadRows<T>::of(p.k, b, h, end);
  const auto values = HeadRows<T>::of(p.v, b, h, end),
             table = HeadRows<T>::of_table(p, h, ramp.reach);

  T o[R][C] = {}, most[R], sum[R] = {};
#pragma unroll
  for (int r = 0; r < R; ++r) most[r] = none;
  for (i64 key = begin; key < end; key += tile_columns) {
    T z[R][4] = {};
    for (i64 e = 0; e < p.E(); e += held<T>) {
      __syncthreads();  // before shared memory is overwritten
      load_rows(queries, own.first, Layout::rows, e, held<T>, p.temperature, q, Layout::stride);
      load_rows(keys, key, tile_columns, e, held<T>, T(1), k, Layout::stride);
      if (p.table.data != nullptr) {
        load_rows(table, own.first + shift - key - (tile_columns - 1),
                  Layout::rows + tile_columns - 1, e, held<T>, T(1), d, Layout::stride);
      }
      if (e == 0) {
        load_rows(values, key, tile_columns, column, Layout::columns, T(1), v,
                  Layout::value_stride);
        if (p.dropout > 0) {
          draw_kept(mask, p.mask_row(b, h) + own.first, 1, Layout::rows, key, kept);
        }
      }
      __syncthreads();
      if (p.table.data != nullptr) {
        add_products_and_differences<R, false>(q, k, d, Layout::stride, held<T>, z);
      } else {
        add_products<R>(q, k, Layout::stride, held<T>, z);
      }
    }
    const i64 apart = own.first + shift - key + tile_y() - tile_x();  // of the first pair
#pragma unroll
    for (int r = 0; r < R; ++r) {
      const int row = 8 * r + tile_y();
      T largest = most[r];
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const i64 j = key + 16 * c + tile_x(), distance = apart + 8 * r - 16 * c;
        const bool seen = j < end && ramp.sees(distance);
        z[r][c] = seen ? z[r][c] + bias_of(p, h, distance) : none;
        largest = Largest::of(largest, z[r][c]);
      }
      largest = over_row<Largest>(largest);
      const T above = largest == none ? T(0) : largest, correction = std::exp(most[r] - above);
      most[r] = largest;
      sum[r] *= correction;
#pragma unroll
      for (int c = 0; c < C; ++c) o[r][c] *= correction;
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const int j = 16 * c + tile_x();
        const i64 distance = apart + 8 * r - 16 * c;
        const bool seen = z[r][c] != none;
        const T power = seen ? std::exp(z[r][c] - above) : T(0);
        const T factor = seen ? ramp.factor(distance) : T(0);
        sum[r] += power * (factor + ramp.epsilon());
        z[r][c] = power * factor;
        if (p.dropout > 0)
          z[r][c] *= (kept[row] >> j & 1) != 0 ? static_cast<T>(mask.factor) : T(0);
      }
    }
    store_weights<R>(z, weights);
    __syncwarp();
    add_weighted<R, C>(weights, v, Layout::value_stride, tile_columns, o);
  }

#pragma unroll
  for (int r = 0; r < R; ++r) {
    const i64 i = own.first + 8 * r + tile_y();
    const T total = over_row<Added>(sum[r]);
    if (i >= p.N()) continue;
    const bool empty = total == 0 || i >= n;  // a sum of NaN is not 0, so NaN is propagated
#pragma unroll
    for (int c = 0; c < C; ++c) o[r][c] = empty ? T(0) : o[r][c] / total;
    store_owned(o[r], row_of(out, b, i, h), column);
    if (blockIdx.y == 0 && tile_x() == 0)
      log_sums(b, h, i) = empty ? -none : most[r] + std::log(total);
  }
}

// The query side besides q, and the outputs of the gradients.
template <class T>
struct GradientCall {
  View<const T, 3> log_sums, deltas;
  View<const T, 4> dout;
  View<T, 4> first = {}, second = {};  // dq; dk and dv; dr of each item and head [B, most, H, E]
  View<T, 3> bias = {};                // dc of each item and head [B, most, H]
  View<T, 2> spans = {};               // of each head [B H, tiles]: the parts of dz
};

template <class T>
struct GradientLayout {
  static constexpr int R = long_rows<T>, C = held<T> / 16, rows = 8 * R,
                       differences = rows + tile_columns;
  using Tile = Operands<T, R, C>;

  static std::size_t bytes(Owner owner) {
    return Tile::bytes() +
           (owner == Owner::distances ? 2 : 1) *
               SharedMemory::bytes<T>(differences * Tile::stride) +
           SharedMemory::bytes<T>(rows * weight_stride<T>) +
           SharedMemory::bytes<std::uint64_t>(tile_columns) +
           2 * SharedMemory::bytes<T>(tile_columns);
  }
};

template <class T, Owner owner>
__global__ void __launch_bounds__(tile_threads)
    gradients(Distances<T> p, DropoutMask mask, GradientCall<T> call) {
  using Layout = GradientLayout<T>;
  constexpr int R = Layout::R, C = Layout::C, stride = Layout::Tile::stride, rows = Layout::rows;
  constexpr bool of_queries = owner == Owner::queries, of_keys = owner == Owner::keys;
  SharedMemory shared;
  const typename Layout::Tile tile(shared);
  T* const d = shared.take<T>(Layout::differences * stride);
  T* const d_values =
      owner == Owner::distances ? shared.take<T>(Layout::differences * stride) : nullptr;
  T* const weights = shared.take<T>(rows * weight_stride<T>);
  std::uint64_t* const kept = shared.take<std::uint64_t>(tile_columns);
  T* const log_sum = shared.take<T>(tile_columns);
  T* const delta = shared.take<T>(tile_columns);

  const i64 length = of_queries ? p.N() : of_keys ? p.S() : p.distances();
  const OwnRows own = own_rows_of(length, rows, p.H());
  const i64 b = own.b, h = own.h, n = p.queries(b), keys = p.keys(b), shift = p.first_key(0);
  const Ramp<T> ramp = p.ramp_of(h);
  const i64 there = std::min(own.first + rows, of_queries ? n
                                               : of_keys  ? keys
                                                          : ramp.reach);  // owned rows
  i64 begin = std::max<i64>(own.first - shift, 0), end = 0;              // streamed ones
  if (of_queries) begin = std::max<i64>(own.first + shift - ramp.reach + 1, 0) / 8 * 8;
  if (own.first < there) {
    end = of_queries ? std::min(keys, there + shift)
          : of_keys  ? std::min(n, there - 1 - shift + ramp.reach)
                     : n;
  }
  const auto of_q = HeadRows<T>::of(p.q, b, h, n), of_dout = HeadRows<T>::of(call.dout, b, h, n);
  const auto of_k = HeadRows<T>::of(p.k, b, h, keys), of_v = HeadRows<T>::of(p.v, b, h, keys);
  const auto table = HeadRows<T>::of_table(p, h, ramp.reach);
  const int chunks = chunks_of(p.E(), p.M(), held<T>), mine = static_cast<int>(blockIdx.y);
  const bool by_distance = p.table.data != nullptr;

  T gradient[R][C] = {}, value_gradient[R][C] = {}, dbias[R] = {}, dspan = 0;
  for (i64 first = begin; first < end; first += tile_columns) {
    // The smallest difference.
    const i64 lowest = of_queries ? own.first + shift - first - (tile_columns - 1)
                                  : first + shift - own.first - (rows - 1);
    T z[R][4] = {}, da[R][4] = {};
    for (int turn = 0; turn < chunks; ++turn) {
      const i64 e = (mine + 1 + turn) % chunks * held<T>;
      __syncthreads();  // before shared memory is overwritten
      if (chunks > 1 || first == begin) {
        load_rows(of_queries ? of_q
                  : of_keys  ? of_k
                             : table,
                  own.first, rows, e, held<T>, of_queries ? p.temperature : T(1), tile.a, stride);
        if (owner != Owner::distances) {
          load_rows(of_queries ? of_dout : of_v, own.first, rows, e, held<T>, T(1), tile.x, stride);
        }
      }
      load_rows(of_queries ? of_k : of_q, first, tile_columns, e, held<T>,
                of_queries ? T(1) : p.temperature, tile.b, stride);
      load_rows(of_queries ? of_v : of_dout, first, tile_columns, e, held<T>, T(1), tile.y, stride);
      if (by_distance) {
        load_rows(owner == Owner::distances ? of_k : table, lowest, Layout::differences - 1, e,
                  held<T>, T(1), d, stride);
      }
      if (owner == Owner::distances) {
        load_rows(of_v, lowest, Layout::differences - 1, e, held<T>, T(1), d_values, stride);
      }
      if (turn == 0) {
        const i64 query = of_queries ? own.first : first;
        if (const int t = static_cast<int>(threadIdx.x); t < (of_queries ? rows : tile_columns)) {
          const bool inside = query + t < n;
          log_sum[t] = inside ? call.log_sums(b, h, query + t) : infinity<T>;
          delta[t] = inside ? call.deltas(b, h, query + t) : T(0);
        }
        if (p.dropout > 0 && owner != Owner::distances) {
          draw_kept(mask, p.mask_row(b, h) + query, 1, of_queries ? rows : tile_columns,
                    of_queries ? first : own.first, kept);
        }
      }
      __syncthreads();
      if (by_distance) {
        add_products_and_differences<R, !of_queries>(tile.a, tile.b, d, stride, held<T>, z);
      } else {
        add_products<R>(tile.a, tile.b, stride, held<T>, z);
      }
      if (owner == Owner::distances) {
        add_differences<R>(tile.y, d_values, stride, held<T>, da);
      } else {
        add_products<R>(tile.x, tile.y, stride, held<T>, da);
      }
    }
#pragma unroll
    for (int r = 0; r < R; ++r) {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const int row = 8 * r + tile_y(), column = 16 * c + tile_x(),
                  query = of_queries ? row : column;
        const i64 i = (of_queries ? own.first : first) + query;
        const i64 difference =
            lowest + (of_queries ? row - column + tile_columns - 1 : column - row + rows - 1);
        const i64 distance = owner == Owner::distances ? own.first + row : difference;
        const i64 j = owner == Owner::distances ? difference
                      : of_queries              ? first + column
                                                : own.first + row;
        if (i >= n || j < 0 || j >= keys || !ramp.sees(distance)) {
          z[r][c] = da[r][c] = 0;
          continue;
        }
        T left = 1;  // dropout's factor
        if (p.dropout > 0) {
          const bool keeps = owner == Owner::distances
                                 ? mask.keeps(p.mask_row(b, h) + i, j)
                                 : (kept[query] >> (of_queries ? column : row) & 1) != 0;
          left = keeps ? static_cast<T>(mask.factor) : T(0);
        }
        const T score = z[r][c] + bias_of(p, h, distance);
        const T power = std::exp(score - log_sum[query]), m = ramp.factor(distance);
        const T g = left * da[r][c];
        da[r][c] = power * (m * g - (m + ramp.epsilon()) * delta[query]);
        z[r][c] = left * m * power;
        if (owner == Owner::distances) dbias[r] += da[r][c];
        if (of_queries) dspan += ramp.slope(distance) * power * (g - delta[query]);
      }
    }
    if (of_keys) {
      store_weights<R>(z, weights);
      __syncwarp();
      add_weighted<R, C>(weights, tile.y, stride, tile_columns, value_gradient);
      __syncwarp();
    }
    store_weights<R>(da, weights);
    __syncwarp();
    add_weighted<R, C>(weights, tile.b, stride, tile_columns, gradient);
    if (of_queries && by_distance) {
      add_weighted_differences<R, C>(weights, d, stride, tile_columns, gradient);
    }
  }
  const TileRows to{b, h, own.first, static_cast<int>(std::max<i64>(there - own.first, 0))};
  store_gradient<R, C>(gradient, of_queries ? p.temperature : T(1), to, mine * held<T>, false,
                       call.first);
  if (of_keys) store_gradient<R, C>(value_gradient, T(1), to, mine * held<T>, false, call.second);
  if (owner == Owner::distances && mine == 0 && call.bias.data != nullptr) {
#pragma unroll
    for (int r = 0; r < R; ++r) {
      const i64 distance = own.first + 8 * r + tile_y();
      const T sum = over_row<Added>(dbias[r]);
      if (tile_x() == 0 && distance < length) call.bias(b, distance, h) = p.temperature * sum;
    }
  }
  if (of_queries && mine == 0) {
    const T sum = BlockTeam<tile_threads>{}.sum(dspan);
    if (threadIdx.x == 0) call.spans(b * p.H() + h, own.tile) = sum;
  }
}

// dz of a head: the partial sums of its blocks of queries, item by item.
template <class T>
struct AddSpans {
  View<T, 2> parts;  // [B H, tiles]
  View<T, 1> to;     // [H]

  __device__ void operator()(i64 h) const {
    const i64 H = to.size(0);
    T sum = 0;
    for (i64 head = h; head < parts.size(0); head += H) {
      for (i64 tile = 0; tile < parts.size(1); ++tile) sum += parts(head, tile);
    }
    to(h) = sum;
  }
};

// dr, summed over all items, and over the heads that share a table.
template <class T>
struct AddTables {
  View<T, 4> parts;  // [B, distances, H, E]
  View<T, 3> to;     // [tables, most, E]

  __device__ void operator()(i64 element) const {
    const i64 E = to.size(2), row = element / E, e = element % E;
    const i64 table = row / to.size(1), d = row % to.size(1);
    T sum = 0;
    for (i64 b = 0; b < parts.size(0) && d < parts.size(1); ++b) {
      for (i64 h = table; h < parts.size(2); h += to.size(0)) sum += parts(b, d, h, e);
    }
    to(table, d, e) = sum;
  }
};

// dc, summed over all items.
template <class T>
struct AddBiases {
  View<T, 3> parts;  // [B, distances, H]
  View<T, 2> to;     // [H, most]

  __device__ void operator()(i64 element) const {
    const i64 h = element / to.size(1), d = element % to.size(1);
    T sum = 0;
    for (i64 b = 0; b < parts.size(0) && d < parts.size(1); ++b) sum += parts(b, d, h);
    to(h, d) = sum;
  }
};

template <class T, int R>
void start_forward(const Cuda& device, const Distances<T>& p, const View<T, 4>& out,
                   const View<T, 3>& log_sums) {
  const auto run = [&](auto layout, auto kernel) {
    using Layout = decltype(layout);
    const dim3 grid = grid_of(p.B() * p.H(), p.N(), Layout::rows, p.M(), Layout::columns);
    start_tiles("distances", device, grid, Layout::bytes(), kernel, p, p.mask(), out, log_sums);
  };
  if (p.M() <= 32) return run(ForwardLayout<T, R, 2>{}, forward_tiles<T, R, 2>);
  run(ForwardLayout<T, R, 4>{}, forward_tiles<T, R, 4>);
}

}  // namespace

template <class Device, class T>
void DistancesKernels<Device, T>::forward(const Device& device, const Distances<T>& p,
                                          View<T, 4> out, View<T, 3> log_sums) {
  if (p.B() * p.H() * p.N() == 0) return;
  p.N() <= few_rows ? start_forward<T, 1>(device, p, out, log_sums)
                    : start_forward<T, long_rows<T>>(device, p, out, log_sums);
}

template <class Device, class T>
void DistancesKernels<Device, T>::backward(const Device& device, const Distances<T>& p,
                                           View<const T, 4> out, View<const T, 3> log_sums,
                                           View<const T, 4> dout, View<T, 4> dq, View<T, 4> dk,
                                           View<T, 4> dv, View<T, 3> dtable, View<T, 2> dbias,
                                           View<T, 1> dspans) {
  using Layout = GradientLayout<T>;
  const i64 B = p.B(), H = p.H(), N = p.N(), E = p.E(), heads = B * H;
  const i64 tiles = (N + Layout::rows - 1) / Layout::rows;
  const Workspace<T> work(device, heads * N), spans(device, heads * tiles);
  const View<T, 3> deltas = work.view(B, H, N);
  const View<T, 2> parts = spans.view(heads, tiles);
  const auto run = [&](auto kernel, Owner owner, i64 length, i64 width, const View<T, 4>& first,
                       const View<T, 4>& second, const View<T, 3>& bias = {}) {
    if (heads * length == 0) return;
    start_tiles("distances", device, grid_of(heads, length, Layout::rows, width, held<T>),
                Layout::bytes(owner), kernel, p, p.mask(),
                GradientCall<T>{log_sums, deltas, dout, first, second, bias, parts});
  };
  for_rows("distances", device, heads * N, p.M(), RowProducts<T>{dout, out, deltas});
  run(gradients<T, Owner::queries>, Owner::queries, N, E, dq, {});
  run(gradients<T, Owner::keys>, Owner::keys, p.S(), std::max(E, p.M()), dk, dv);
  if (dspans.data != nullptr) for_elements("distances", device, H, AddSpans<T>{parts, dspans});
  const bool biased = dbias.data != nullptr;
  if (dtable.data == nullptr && !biased) return;
  const Workspace<T> tables(device, heads * p.distances() * E);
  const Workspace<T> biases(device, biased ? heads * p.distances() : 0);
  const View<T, 4> own = tables.view(B, p.distances(), H, E);
  const View<T, 3> own_bias = biased ? biases.view(B, p.distances(), H) : View<T, 3>{};
  run(gradients<T, Owner::distances>, Owner::distances, p.distances(), E, own, {}, own_bias);
  if (dtable.data != nullptr) {
    for_elements("distances", device, dtable.size(0) * p.most * E, AddTables<T>{own, dtable});
  }
  if (biased) for_elements("distances", device, H * p.most, AddBiases<T>{own_bias, dbias});
}

template struct DistancesKernels<Cuda, float>;
template struct DistancesKernels<Cuda, double>;

}  // namespace weft
