// CUDA kernel that finds the k largest keys of every query; the rules are in topk.h, the tiles of
// scores in score_tile.cuh.
//
// A block owns 8 R queries of one head and streams over tiles of 64 keys. A warp owns 2 R of these
// queries: it computes their scores, and keeps the candidates of each (ops/select/largest.cuh).
//
// By count, for k = 32 of 4096 keys of width 64 in f32 (unmeasured): a row takes 8192 warp
// instructions for its products and 800 to compare its scores, some 200 of which become candidates,
// for which 6 reductions of 64 candidates take 2000. Bound by arithmetic.
#include "ops/attention/score_tile.cuh"
#include "ops/attention/topk/topk.h"
#include "ops/select/largest.cuh"

namespace weft {
namespace {

constexpr int most_width = 64;  // columns of queries and keys in shared memory together

template <class T, int R>
struct SelectLayout {
  static constexpr int rows = 8 * R;

  static std::size_t bytes(i64 E) {
    const auto stride = static_cast<std::size_t>(row_stride<T>(padded_width<T>(E, most_width)));
    return SharedMemory::bytes<T>(rows * stride) + SharedMemory::bytes<T>(tile_columns * stride) +
           SharedMemory::bytes<T>(rows * weight_stride<T>);
  }
};

template <class T, int R>
__global__ void __launch_bounds__(tile_threads, 2)
    select_tiles(TopkAttention<T> p, View<std::int32_t, 4> topk, int room,
                 unsigned char* elsewhere) {
  constexpr int rows_in_all = 8 * R;
  const int padded = padded_width<T>(p.E(), most_width), stride = row_stride<T>(padded);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  SharedMemory shared;
  T* const q = shared.take<T>(rows_in_all * stride);
  T* const k = shared.take<T>(tile_columns * stride);
  T* const scores = shared.take<T>(rows_in_all * weight_stride<T>);
  const LargestOfRows<T> largest(shared, rows_in_all, topk.size(3), room, elsewhere);

  const i64 tiles = (p.N() + rows_in_all - 1) / rows_in_all;
  for (i64 piece = blockIdx.x; piece < p.B() * p.H() * tiles; piece += gridDim.x) {
    const i64 b = piece / tiles / p.H(), h = piece / tiles % p.H();
    const i64 tile = p.causal ? tiles - 1 - piece % tiles : piece % tiles;
    const i64 first = tile * rows_in_all;
    const int rows = rows_within(first, std::min(p.queries(b), p.N()), rows_in_all);
    const i64 seen = rows == 0 ? 0 : p.seen(b, first + rows - 1);
    for (int row = 2 * warp + lane % 2 + lane / 2 * 8; row < rows_in_all; row += 128) {
      largest.start(row);
    }
    __syncwarp();
    for (i64 key = 0; key < seen; key += tile_columns) {
      const TileRows own{b, h, key, rows_within(key, seen, tile_columns)};
      T z[R][4] = {};
      for (i64 e = 0; e < p.E(); e += padded) {
        __syncthreads();  // before shared memory is overwritten
        if (key == 0 || p.E() > padded) {
          load_tile(p.q, {b, h, first, rows}, rows_in_all, e, padded, T(1), q, stride);
        }
        load_tile(p.k, own, tile_columns, e, padded, T(1), k, stride);
        __syncthreads();
        add_products<R>(q, k, stride, padded, z);
      }
      store_weights<R>(z, scores);
      __syncwarp();
      for (int r = 0; r < 2 * R; ++r) {
        const int row = r / 2 * 8 + 2 * warp + r % 2;
        const i64 visible = row < rows ? p.seen(b, first + row) - key : 0;
        largest.add(row, scores + row * weight_stride<T>, key,
                    visible < tile_columns ? visible : tile_columns);
      }
      __syncwarp();
    }
    for (int r = 0; r < 2 * R; ++r) {
      const int row = r / 2 * 8 + 2 * warp + r % 2;
      if (first + row >= p.N()) continue;
      largest.finish(row, [&](int t, std::int32_t found) { topk(b, h, first + row, t) = found; });
    }
    __syncwarp();
  }
}

template <class T, int R>
void start_select(const Cuda& device, const TopkAttention<T>& p,
                  const View<std::int32_t, 4>& topk) {
  constexpr int rows = 8 * R;
  const i64 pieces = p.B() * p.H() * ((p.N() + rows - 1) / rows);
  const LargestRooms<T> rooms(device, rows, topk.size(3), SelectLayout<T, R>::bytes(p.E()), pieces);
  start_tiles("topk", device, static_cast<unsigned>(rooms.blocks), rooms.shared, select_tiles<T, R>,
              p, topk, rooms.room, rooms.elsewhere.data());
}

}  // namespace

template <class Device, class T>
void TopkSelectKernels<Device, T>::select(const Device& device, const TopkAttention<T>& p,
                                          View<std::int32_t, 4> topk) {
  constexpr int R = long_rows<T>, rows = 8 * R;
  if (p.B() * p.H() * p.N() == 0) return;
  const bool fits = LargestRooms<T>::fit(device, rows, topk.size(3), SelectLayout<T, R>::bytes(p.E()));
  if (fits && p.N() > few_rows) return start_select<T, R>(device, p, topk);
  start_select<T, 1>(device, p, topk);  // candidates in global memory only for thousands of keys
}

template struct TopkSelectKernels<Cuda, float>;
template struct TopkSelectKernels<Cuda, double>;

}  // namespace weft
