// CUDA kernels of LSH attention that come before any score: planes, buckets and sorted lists;
// lsh.h.
//
// Hashing is a product, B H N E R buckets multiplications and additions, its heights compared
// where they arise and never stored: bound by arithmetic. A pass of the sort reads a list twice
// and writes it once, 12 bytes a rank beside 4 at random: bound by latency, one block to a list.
// Unmeasured.
//
// Blocks on a multiprocessor: 8 of 128 threads that hash in f32 (64 registers, 14 KB of shared
// memory), 8 of 256 threads that sort (32, 8 KB).
#include "ops/attention/lsh/tiles.cuh"
#include "ops/attention/lsh/work.cuh"
#include "ops/attention/radix.cuh"

namespace weft {
namespace {

using namespace lsh_detail;

template <class T>
struct DrawnPlane {
  RandomKey key;
  T* planes;
  __device__ void operator()(std::int64_t i) const {
    const Philox words = key.words(static_cast<std::uint64_t>(i));
    planes[i] = static_cast<T>(normal(words.word[0], words.word[1]));
  }
};

struct NarrowBucket {
  std::int64_t B, H, N;
  const std::int64_t* lengths;
  const std::int64_t* given;
  std::int32_t* to;
  __device__ void operator()(std::int64_t i) const {
    const bool real = i % N < length_of(lengths, i / N / H % B, N);
    to[i] = real ? static_cast<std::int32_t>(given[i]) : 0;
  }
};

// The better of two buckets with their heights: the higher, or at ties the lower bucket.
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

// A block has 32 positions of a head in one round and goes through the planes, 64 at a time; each
// thread keeps the best of its own for four positions.
template <class T>
__global__ void __launch_bounds__(tile_threads)
    hash_rows(Lsh<T> p, const T* planes, std::int32_t* buckets) {
  __shared__ Operands<T> shared;
  const std::int64_t N = p.N(), half = p.rules.buckets / 2;
  const std::int64_t tiles = (N + owned_rows - 1) / owned_rows;
  const std::int64_t items = p.rules.rounds * p.B() * p.H() * tiles;
  for (std::int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const std::int64_t list = item / tiles, first = item % tiles * owned_rows;
    const std::int64_t h = list % p.H(), b = list / p.H() % p.B(), r = list / p.H() / p.B();
    const std::int64_t length = p.length(b);
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
    for (std::int64_t k = 0; k < half; k += streamed_rows) {
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
      const std::int64_t n = first + own_group() * 4 + i;
      if (other_group() == 0 && n < N) buckets[list * N + n] = n < length ? best[i].bucket : 0;
    }
  }
}

// --- lists

constexpr unsigned sort_threads = 256;

struct SortPass {
  std::int64_t lists, B, H, N, chunk;
  const std::int64_t* lengths;
  const std::int32_t* buckets;
  const std::int32_t* from;  // the order so far; null: that of the positions
  std::int32_t* to;
  std::int32_t* chunks;      // null but in the last pass, where duplicates are counted
  int shift;                 // of the eight bits that this pass sorts by
};

// A block sorts a list at a time.
__global__ void __launch_bounds__(sort_threads) sort_lists(SortPass s) {
  for (std::int64_t list = blockIdx.x; list < s.lists; list += gridDim.x) {
    const std::int64_t at = list * s.N, length = length_of(s.lengths, list / s.H % s.B, s.N);
    const auto position = [&](std::uint32_t i) {
      return s.from == nullptr ? static_cast<std::int32_t>(i) : s.from[at + i];
    };
    const auto digit = [&](std::uint32_t i) {
      return static_cast<unsigned>(s.buckets[at + position(i)]) >> s.shift & (radix_bins - 1);
    };
    const auto put = [&](std::uint32_t i, std::uint32_t rank) {
      s.to[at + rank] = position(i);
      if (s.chunks != nullptr) {
        s.chunks[at + position(i)] = static_cast<std::int32_t>(rank / s.chunk);
      }
    };
    radix_pass<sort_threads>(static_cast<std::uint32_t>(length), digit, put);
  }
}

}  // namespace

template <class Device, class T>
void LshHashKernels<Device, T>::draw(const Device& device, const RandomKey& key, std::int64_t count,
                                     T* planes) {
  for_elements("lsh", device, count, DrawnPlane<T>{key, planes});
}

template <class Device>
void LshBucketKernels<Device>::narrow(const Device& device, const LshRules& rules, std::int64_t B,
                                      std::int64_t H, std::int64_t N, const std::int64_t* lengths,
                                      const std::int64_t* given, std::int32_t* buckets) {
  for_elements("lsh", device, rules.rounds * B * H * N,
               NarrowBucket{B, H, N, lengths, given, buckets});
}

template <class Device, class T>
void LshHashKernels<Device, T>::hash(const Device& device, const Lsh<T>& p, const T* planes,
                                     std::int32_t* buckets) {
  const std::int64_t items =
      p.rules.rounds * p.B() * p.H() * ((p.N() + owned_rows - 1) / owned_rows);
  if (items == 0) return;
  start("lsh", device, grid_of(items), tile_threads, 0, hash_rows<T>, p, planes, buckets);
}

template <class T>
void LshSortKernels<T>::sort(const Cuda& device, const LshWork<T>& w) {
  const Lsh<T>& p = w.p;
  const int passes = lsh_passes(p.rules.buckets);
  SortPass s{p.rules.rounds * w.heads(), p.B(),  p.H(), p.N(), w.chunk(), p.lengths, p.buckets,
             nullptr, nullptr, nullptr, 0};
  for (int pass = 0; pass < passes; ++pass) {
    s.from = pass == 0 ? nullptr : s.to;
    s.to = (passes - pass) % 2 == 1 ? w.lists : w.spare;
    s.chunks = pass + 1 == passes ? w.chunks : nullptr;
    s.shift = radix_bits * pass;
    start("lsh", device, grid_of(s.lists), sort_threads, 0, sort_lists, s);
  }
}

template struct LshHashKernels<Cuda, float>;
template struct LshHashKernels<Cuda, double>;
template struct LshBucketKernels<Cuda>;
template struct LshSortKernels<float>;
template struct LshSortKernels<double>;

}  // namespace weft
