// CUDA kernels of the embedding; the equations stand in embedding.h.
//
// Forward moves 8 bytes an element in f32. Backward reads dy once, 4 bytes an element; the sort
// moves some 40 bytes a position and 30 for every id and chunk (40 MB for 65,536 positions and 10,000
// ids). The bandwidth of the memory is the limit; for few positions, the eight launches. Estimated,
// not measured.
//
// Blocks on a multiprocessor: 8 of 256 threads that gather, 12 of 128 that add up (40
// registers), 16 that sort (32): three quarters of its threads at least.
#include <limits>

#include "ops/embedding/kernels.h"
#include "runtime/cuda/loops.h"
#include "runtime/cuda/workspace.h"

namespace weft {
namespace {

constexpr unsigned threads = 128;

// A stable counting sort of the positions by id. They are cut into chunks, which warps count and
// place; ids outside of the table come last, as if theirs were V.
struct IdSort {
  i64 count, V;
  const i64* ids;
  std::int32_t* counts;  // [chunks, V + 1], zero at first
  i64* starts;           // [chunks, V + 1]: where the next of a chunk goes among those of its id
  i64* first;            // [V + 2]: where an id begins in `sorted`
  i64* sorted;           // [count]: the positions

  constexpr i64 chunk() const {
    const i64 share = (count + 127) / 128;
    return share < 512 ? 512 : share;
  }
  constexpr i64 chunks() const { return (count + chunk() - 1) / chunk(); }
};

constexpr i64 id_tile = 64;  // sorted positions that are summed at a time

template <class T>
struct GatherRow {
  std::int64_t V, d;
  const T* table;
  const std::int64_t* ids;
  T* y;

  template <class Team>
  __device__ void operator()(const Team& team, std::int64_t p) const {
    const std::int64_t id = ids[p];
    const bool there = 0 <= id && id < V;
    for (std::int64_t j = team.rank(); j < d; j += Team::threads) {
      y[p * d + j] = there ? table[id * d + j] : std::numeric_limits<T>::quiet_NaN();
    }
  }
};

__device__ std::int64_t key(const IdSort& s, std::int64_t position) {
  const std::int64_t id = s.ids[position];
  return 0 <= id && id < s.V ? id : s.V;
}

// A warp has a chunk; sums of whole numbers do not depend on the order.
__global__ void __launch_bounds__(threads) count_ids(IdSort s) {
  const std::int64_t chunk = threads / 32 * std::int64_t{blockIdx.x} + threadIdx.x / 32;
  const std::int64_t end = std::min(s.count, (chunk + 1) * s.chunk());
  for (std::int64_t p = chunk * s.chunk() + threadIdx.x % 32; p < end; p += 32) {
    atomicAdd(&s.counts[chunk * (s.V + 1) + key(s, p)], 1);
  }
}

// A thread has an id: where its positions in each chunk begin among all of its own. How many there
// are stands in `first`.
struct StartsOfId {
  IdSort s;
  __device__ void operator()(std::int64_t id) const {
    std::int64_t sum = 0;
    for (std::int64_t at = id; at < s.chunks() * (s.V + 1); at += s.V + 1) {
      s.starts[at] = sum;
      sum += s.counts[at];
    }
    s.first[id] = sum;
  }
};

// From how many there are of an id to where they begin. One block has all; a thread, a run of ids.
__global__ void __launch_bounds__(threads) first_of_ids(IdSort s) {
  __shared__ std::int64_t before[threads];
  const std::int64_t share = (s.V + 1 + threads - 1) / threads;
  const std::int64_t begin = std::min(s.V + 1, threadIdx.x * share);
  const std::int64_t end = std::min(s.V + 1, begin + share);
  std::int64_t sum = 0;
  for (std::int64_t id = begin; id < end; ++id) sum += s.first[id];
  before[threadIdx.x] = sum;
  __syncthreads();
  sum = 0;
  for (unsigned t = 0; t < threadIdx.x; ++t) sum += before[t];
  for (std::int64_t id = begin; id < end; ++id) {
    const std::int64_t count = s.first[id];
    s.first[id] = sum;
    sum += count;
  }
  if (threadIdx.x == threads - 1) s.first[s.V + 1] = s.count;
}

// A warp has a chunk, and places 32 positions at a time: lanes with the same id side by side.
__global__ void __launch_bounds__(threads) place_positions(IdSort s) {
  const std::int64_t chunk = threads / 32 * std::int64_t{blockIdx.x} + threadIdx.x / 32;
  const std::int64_t end = std::min(s.count, (chunk + 1) * s.chunk());
  std::int64_t* const starts = s.starts + chunk * (s.V + 1);
  const unsigned lane = threadIdx.x % 32;
  for (std::int64_t begin = chunk * s.chunk(); begin < end; begin += 32) {
    const std::int64_t p = begin + lane;
    const std::int64_t id = p < end ? key(s, p) : -1 - static_cast<std::int64_t>(lane);
    const unsigned alike = __match_any_sync(0xffffffffu, id);
    const int rank = __popc(alike & ((1u << lane) - 1));
    if (p < end) s.sorted[s.first[id] + starts[id] + rank] = p;
    __syncwarp();
    if (p < end && rank == 0) starts[id] += __popc(alike);
    __syncwarp();
  }
}

// A block has a tile of sorted positions and a strip of columns, a thread one column: it adds
// positions until the id changes.
template <class T>
__global__ void __launch_bounds__(threads)
    sum_tiles(IdSort s, std::int64_t d, const T* dy, double* heads, double* tails, T* dtable) {
  __shared__ std::int64_t position[id_tile], id[id_tile + 1];
  constexpr int abreast = 8;  // loads under way
  const std::int64_t strips = (d + blockDim.x - 1) / blockDim.x;
  const std::int64_t known = s.first[s.V], tiles = (known + id_tile - 1) / id_tile;
  for (std::int64_t work = blockIdx.x; work < tiles * strips; work += gridDim.x) {
    const std::int64_t tile = work / strips, j = work % strips * blockDim.x + threadIdx.x;
    const std::int64_t begin = tile * id_tile, left = known - begin;
    const std::int64_t count = left < id_tile ? left : id_tile;
    for (std::int64_t t = threadIdx.x; t < count; t += blockDim.x) {
      position[t] = s.sorted[begin + t];
      id[t] = s.ids[position[t]];
    }
    if (threadIdx.x == 0) id[count] = -1;
    __syncthreads();
    double sum = 0;
    for (std::int64_t t0 = 0; j < d && t0 < count; t0 += abreast) {
      T value[abreast];
#pragma unroll
      for (int k = 0; k < abreast; ++k) {
        value[k] = t0 + k < count ? dy[position[t0 + k] * d + j] : T(0);
      }
#pragma unroll
      for (int k = 0; k < abreast; ++k) {
        if (t0 + k >= count) break;
        const std::int64_t row = id[t0 + k];
        sum += static_cast<double>(value[k]);
        if (id[t0 + k + 1] == row) continue;
        if (s.first[row] < begin) {
          heads[tile * d + j] = sum;
        } else if (s.first[row + 1] > begin + id_tile) {
          tails[tile * d + j] = sum;
        } else {
          dtable[row * d + j] = static_cast<T>(sum);
        }
        sum = 0;
      }
    }
    __syncthreads();  // before the next tile is read
  }
}

// A block has the row that begins in a tile and goes on after it, where there is one; a thread, one
// column of it.
template <class T>
__global__ void __launch_bounds__(threads)
    join_tiles(IdSort s, std::int64_t d, const double* heads, const double* tails, T* dtable) {
  const std::int64_t strips = (d + blockDim.x - 1) / blockDim.x;
  const std::int64_t known = s.first[s.V], tiles = (known + id_tile - 1) / id_tile;
  for (std::int64_t work = blockIdx.x; work < (tiles - 1) * strips; work += gridDim.x) {
    const std::int64_t tile = work / strips, j = work % strips * blockDim.x + threadIdx.x;
    const std::int64_t next = (tile + 1) * id_tile;
    const std::int64_t row = s.ids[s.sorted[next - 1]], end = s.first[row + 1];
    if (j >= d || s.first[row] < next - id_tile || end <= next) continue;
    double sum = tails[tile * d + j];
#pragma unroll 8
    for (std::int64_t t = tile + 1; t * id_tile < end; ++t) sum += heads[t * d + j];
    dtable[row * d + j] = static_cast<T>(sum);
  }
}

void sort_ids(const Cuda& device, const IdSort& s) {
  const auto warps = static_cast<unsigned>(s.chunks());
  const unsigned blocks = (warps * 32 + threads - 1) / threads;
  if (blocks > 0) {
    const auto bytes = static_cast<std::size_t>(s.chunks() * (s.V + 1)) * sizeof(*s.counts);
    check_cuda(cudaMemsetAsync(s.counts, 0, bytes, stream_of(device)), "embedding");
    start("embedding", device, blocks, threads, 0, count_ids, s);
  }
  for_elements("embedding", device, s.V + 1, StartsOfId{s});
  start("embedding", device, 1, threads, 0, first_of_ids, s);
  if (blocks > 0) start("embedding", device, blocks, threads, 0, place_positions, s);
}

// dtable from the sorted positions: sums over tiles of them, then the sums of those of rows that
// lie in several. heads and tails [tiles, d] hold what a tile has of a row that began before it,
// and of one that goes on after it.
template <class T>
void sum_sorted_rows(const Cuda& device, const IdSort& s, i64 d, const T* dy, double* heads,
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
  IdSort sort{count, V, ids, nullptr, nullptr, nullptr, nullptr};
  const i64 tiles = (count + id_tile - 1) / id_tile, cells = sort.chunks() * (V + 1);
  const Workspace<std::int32_t> counts(device, cells);
  const Workspace<i64> starts(device, cells), first(device, V + 2), sorted(device, count);
  const Workspace<double> ends(device, 2 * tiles * d);
  sort.counts = counts.data();
  sort.starts = starts.data();
  sort.first = first.data();
  sort.sorted = sorted.data();
  sort_ids(device, sort);
  sum_sorted_rows(device, sort, d, dy, ends.data(), ends.data() + tiles * d, dtable);
}

template struct EmbeddingKernels<Cuda, float>;
template struct EmbeddingKernels<Cuda, double>;

}  // namespace weft
