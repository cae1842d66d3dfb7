// CUDA kernel of attention by distance, forward: a block owns 8 R queries of one head and streams
// over the keys of its reach. The equations are in distances.h.
#include "ops/attention/engines/pairs/distances_tile.cuh"

namespace weft {
namespace {

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
inline constexpr int forward_blocks = R == 1           ? 0
                                      : sizeof(T) == 4 ? 3
                                                       : 2;

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

template struct DistancesKernels<Cuda, float>;
template struct DistancesKernels<Cuda, double>;

}  // namespace weft
