// CUDA kernels of LSH attention that come before any score: buckets and sorted lists; lsh.h.
//
// Hashing is a product, B H N E R buckets multiplications and additions; its results are reduced in
// registers and never stored: bound by arithmetic. All lists of all rounds are one sort over the
// whole device, some 80 bytes a rank: bound by memory bandwidth. Unmeasured.
#include "ops/attention/lsh/tiles.cuh"
#include "ops/attention/lsh/work.cuh"
#include "ops/select/sort_rows.cuh"

namespace weft {
namespace {

using namespace lsh_detail;

// The better of two buckets with their products: the larger product, at ties the lower bucket.
template <class T>
struct Highest {
  T height;
  std::int32_t bucket;

  __device__ void meet(T other_height, std::int32_t other) {
    if (other_height > height || (other_height == height && other < bucket)) {
      height = other_height;
      bucket = other;
    }
  }
};

// A block has 32 positions of a head in one round and streams over the planes, 64 at a time; each
// thread keeps the best of its own for four positions.
template <class T>
__global__ void __launch_bounds__(tile_threads)
    hash_rows(Lsh<T> p, const T* planes, std::int32_t* buckets) {
  __shared__ Operands<T> shared;
  const i64 N = p.N(), half = p.rules.buckets / 2;
  const i64 tiles = (N + owned_rows - 1) / owned_rows;
  const i64 items = p.rules.rounds * p.B() * p.H() * tiles;
  for (i64 item = blockIdx.x; item < items; item += gridDim.x) {
    const i64 list = item / tiles, first = item % tiles * owned_rows;
    const i64 h = list % p.H(), b = list / p.H() % p.B(), r = list / p.H() / p.B();
    const i64 length = p.length(b);
    const Rows<T> rows{&p.q(b, 0, h, 0), p.q.stride(1), p.q.stride(3), p.E()};
    const Rows<T> plane{planes + r * half * p.E(), p.E(), 1, p.E()};
    const int count = length - first < owned_rows ? static_cast<int>(length - first) : owned_rows;
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < owned_rows; i += tile_threads) {
      shared.own[i] = first + i < length ? static_cast<std::int32_t>(first + i) : -1;
    }
    Highest<T> best[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) best[i] = {-std::numeric_limits<T>::infinity(), 0};
    for (i64 k = 0; k < half; k += streamed_rows) {
      __syncthreads();
      for (int j = static_cast<int>(threadIdx.x); j < streamed_rows; j += tile_threads) {
        shared.other[j] = k + j < half ? static_cast<std::int32_t>(k + j) : -1;
      }
      T z[4][4];
      clear(z);
      add_products(shared, count, rows, plane, z);
      if (idle_warp(count)) continue;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const std::int32_t bucket = shared.other[other_group() * 4 + j];
        if (bucket < 0) continue;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          best[i].meet(z[i][j], bucket);
          best[i].meet(-z[i][j], bucket + static_cast<std::int32_t>(half));
        }
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      for (int by = idle_warp(count) ? 0 : 8; by > 0; by /= 2) {
        const T height = __shfl_xor_sync(0xffffffffu, best[i].height, by);
        best[i].meet(height, __shfl_xor_sync(0xffffffffu, best[i].bucket, by));
      }
      const i64 n = first + own_group() * 4 + i;
      if (other_group() == 0 && n < N) buckets[list * N + n] = n < length ? best[i].bucket : 0;
    }
  }
}

// --- lists

struct BucketAt {
  i64 B, H, N;
  const i64* lengths;
  const std::int32_t* buckets;

  __device__ i64 operator()(i64 list, i64 position) const {
    const bool real = position < length_of(lengths, list / H % B, N);
    return real ? buckets[list * N + position] : -1;
  }
};

// Element i of the lists: the chunk of its rank is that of the position there.
struct ChunkOf {
  i64 N, chunk;
  const std::int32_t* lists;
  std::int32_t* chunks;

  __device__ void operator()(i64 i) const {
    const i64 rank = i % N;
    chunks[i - rank + lists[i]] = static_cast<std::int32_t>(rank / chunk);
  }
};

}  // namespace

template <class Device, class T>
void LshHashKernels<Device, T>::hash(const Device& device, const Lsh<T>& p, const T* planes,
                                     std::int32_t* buckets) {
  const i64 items =
      p.rules.rounds * p.B() * p.H() * ((p.N() + owned_rows - 1) / owned_rows);
  if (items == 0) return;
  start("lsh", device, grid_of(items), tile_threads, 0, hash_rows<T>, p, planes, buckets);
}

template <class T>
void LshSortKernels<T>::sort(const Cuda& device, const LshWork<T>& w) {
  const Lsh<T>& p = w.p;
  const i64 lists = p.rules.rounds * w.heads();
  sort_rows("lsh", device, {lists, p.N(), p.rules.buckets, w.lists},
            BucketAt{p.B(), p.H(), p.N(), p.lengths, p.buckets});
  if (w.chunks == nullptr) return;
  for_elements("lsh", device, lists * p.N(), ChunkOf{p.N(), w.chunk(), w.lists, w.chunks});
}

template struct LshHashKernels<Cuda, float>;
template struct LshHashKernels<Cuda, double>;
template struct LshSortKernels<float>;
template struct LshSortKernels<double>;

}  // namespace weft
