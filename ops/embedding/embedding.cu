// CUDA kernels of the embedding; the equations are in embedding.h.
//
// Forward moves 8 bytes an element in f32. Backward reads dy once, 4 bytes an element; the four
// passes of the sort move some 80 bytes a position (5 MB for 65,536 positions). Bound by memory
// bandwidth; for few positions, by the launches (estimated).
#include <limits>

#include "ops/embedding/kernels.h"
#include "ops/select/sort_rows.cuh"

namespace weft {
namespace {

constexpr unsigned threads = 128;

// The positions sorted by id, stable; ids outside of the table come last.
struct SortedIds {
  i64 count, V;
  const i64* ids;
  const std::int32_t* first;   // [V + 1]: the first of each id in `sorted`
  const std::int32_t* sorted;  // [count]: the positions
};

constexpr i64 id_tile = 64;  // sorted positions that are summed at a time

template <class T>
struct GatherRow {
  i64 V, d;
  const T* table;
  const i64* ids;
  T* y;

  template <class Team>
  __device__ void operator()(const Team& team, i64 p) const {
    const i64 id = ids[p];
    const bool there = 0 <= id && id < V;
    const T nan = convert<T>(std::numeric_limits<Accumulator<T>>::quiet_NaN());
    for (i64 j = team.rank(); j < d; j += Team::threads) {
      y[p * d + j] = there ? table[id * d + j] : nan;
    }
  }
};

struct IdAt {
  const i64* ids;
  __device__ i64 operator()(i64, i64 position) const { return ids[position]; }
};

// A block processes a tile of sorted positions and a strip of columns, a thread one column: it adds
// positions until the id changes.
template <class T>
__global__ void __launch_bounds__(threads)
    sum_tiles(SortedIds s, i64 d, const T* dy, double* heads, double* tails, T* dtable) {
  __shared__ i64 position[id_tile], id[id_tile + 1];
  constexpr int abreast = 8;  // loads in flight
  const i64 strips = (d + blockDim.x - 1) / blockDim.x;
  const i64 known = s.first[s.V], tiles = (known + id_tile - 1) / id_tile;
  for (i64 work = blockIdx.x; work < tiles * strips; work += gridDim.x) {
    const i64 tile = work / strips, j = work % strips * blockDim.x + threadIdx.x;
    const i64 begin = tile * id_tile, left = known - begin;
    const i64 count = left < id_tile ? left : id_tile;
    for (i64 t = threadIdx.x; t < count; t += blockDim.x) {
      position[t] = s.sorted[begin + t];
      id[t] = s.ids[position[t]];
    }
    if (threadIdx.x == 0) id[count] = -1;
    __syncthreads();
    double sum = 0;
    for (i64 t0 = 0; j < d && t0 < count; t0 += abreast) {
      T value[abreast];
#pragma unroll
      for (int k = 0; k < abreast; ++k) {
        value[k] = t0 + k < count ? dy[position[t0 + k] * d + j] : T(0);
      }
#pragma unroll
      for (int k = 0; k < abreast; ++k) {
        if (t0 + k >= count) break;
        const i64 row = id[t0 + k];
        sum += convert<double>(value[k]);
        if (id[t0 + k + 1] == row) continue;
        if (s.first[row] < begin) {
          heads[tile * d + j] = sum;
        } else if (s.first[row + 1] > begin + id_tile) {
          tails[tile * d + j] = sum;
        } else {
          dtable[row * d + j] = convert<T>(sum);
        }
        sum = 0;
      }
    }
    __syncthreads();  // before the next tile is read
  }
}

// A block adds the row that begins in a tile and continues after it, if there is one; a thread, one
// column of it.
template <class T>
__global__ void __launch_bounds__(threads)
    join_tiles(SortedIds s, i64 d, const double* heads, const double* tails, T* dtable) {
  const i64 strips = (d + blockDim.x - 1) / blockDim.x;
  const i64 known = s.first[s.V], tiles = (known + id_tile - 1) / id_tile;
  for (i64 work = blockIdx.x; work < (tiles - 1) * strips; work += gridDim.x) {
    const i64 tile = work / strips, j = work % strips * blockDim.x + threadIdx.x;
    const i64 next = (tile + 1) * id_tile;
    const i64 row = s.ids[s.sorted[next - 1]], end = s.first[row + 1];
    if (j >= d || s.first[row] < next - id_tile || end <= next) continue;
    double sum = tails[tile * d + j];
#pragma unroll 8
    for (i64 t = tile + 1; t * id_tile < end; ++t) sum += heads[t * d + j];
    dtable[row * d + j] = convert<T>(sum);
  }
}

// dtable from the sorted positions: sums over tiles of them, then, for rows that span several
// tiles, the sums of those. heads and tails [tiles, d] hold a tile's sum of a row that began before
// it, and of one that continues after it.
template <class T>
void sum_sorted_rows(const Cuda& device, const SortedIds& s, i64 d, const T* dy, double* heads,
                     double* tails, T* dtable) {
  if (s.V * d == 0) return;
  check_cuda(cudaMemsetAsync(dtable, 0, static_cast<std::size_t>(s.V * d) * sizeof(T),
                             stream_of(device)),
             "embedding");
  if (s.count == 0) return;
  const auto block = static_cast<unsigned>(std::min<i64>(threads, (d + 31) / 32 * 32));
  const i64 tiles = (s.count + id_tile - 1) / id_tile, strips = (d + block - 1) / block;
  const unsigned blocks = blocks_for(device, tiles * strips * block, block);
  start("embedding", device, blocks, block, 0, sum_tiles<T>, s, d, dy, heads, tails, dtable);
  start("embedding", device, blocks, block, 0, join_tiles<T>, s, d, heads, tails, dtable);
}

}  // namespace

template <class Device, class T>
void EmbeddingKernels<Device, T>::forward(const Device& device, i64 count, i64 V, i64 d,
                                          const T* table, const i64* ids, T* y) {
  for_rows("embedding", device, count, d, GatherRow<T>{V, d, table, ids, y});
}

template <class Device, class T>
void EmbeddingKernels<Device, T>::backward(const Device& device, i64 count, i64 V, i64 d,
                                           const T* dy, const i64* ids, T* dtable) {
  const i64 tiles = (count + id_tile - 1) / id_tile;
  const Workspace<std::int32_t> first(device, V + 1), sorted(device, count);
  const Workspace<double> ends(device, 2 * tiles * d);
  sort_rows("embedding", device, {1, count, V, sorted.data(), first.data()}, IdAt{ids});
  const SortedIds sort{count, V, ids, first.data(), sorted.data()};
  sum_sorted_rows(device, sort, d, dy, ends.data(), ends.data() + tiles * d, dtable);
}

template struct EmbeddingKernels<Cuda, float>;
template struct EmbeddingKernels<Cuda, double>;
template struct EmbeddingKernels<Cuda, bf16>;

}  // namespace weft
