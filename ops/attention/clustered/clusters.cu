// CUDA kernels of the clustering of queries; the rules are in clusters.h.
//
// For one head of N = 2048, E = 64, 32 bits, C = 100, T = 10 (estimates, not measured): the hashes
// read 0.5 MB and take 8 MFLOP; K-means takes T N C = 2 M counts of bits, of which a multiprocessor
// does 16 a clock, so about 130 000 clocks of one, with all data in its shared memory. It has a
// block for each head and is one launch for all iterations: with few heads most of the device is
// idle then, which costs less than ten or twenty launches.
#include <cmath>
#include <limits>
#include <type_traits>

#include "ops/attention/clustered/kernels.h"
#include "ops/attention/clustered/sorted.cuh"
#include "ops/select/sort_rows.cuh"

namespace weft {
namespace {

constexpr const char* name = "clusters";
constexpr unsigned whole_warp = 0xffffffffu;

// --- positions

constexpr unsigned position_threads = 128;

// A block has one row of the positions, its thread t those of the clusters t, t + 128, …. Swap i of
// Fisher and Yates takes the number at index target[i] >= i, and writes the number at index i
// there: so the number at an index comes from the last earlier swap that targeted it, or is the
// index.
__global__ void position_kernel(PositionDraw p, i64* positions) {
  std::int32_t* const target = SharedMemory{}.take<std::int32_t>(p.clusters);
  const i64 b = blockIdx.x;
  i64 length = 0;
  if (b < p.B) {
    length = length_of(p.lengths, b, p.N);
  } else if (p.B == 0) {
    length = p.N;
  }
  for (i64 i = 0; b == p.B && i < p.B; ++i) {
    const i64 other = length_of(p.lengths, i, p.N);
    length = other > length ? other : length;
  }
  if (length == 0) length = 1;
  const i64 drawn = length < p.clusters ? length : p.clusters;
  for (i64 i = threadIdx.x; i < drawn; i += position_threads) {
    const auto left = static_cast<std::uint32_t>(length - i);
    target[i] = static_cast<std::int32_t>(
        i + below(p.random.words(static_cast<std::uint64_t>(i)).word[0], left));
  }
  __syncthreads();
  for (i64 c = threadIdx.x; c < p.clusters; c += position_threads) {
    i64 position = 0;
    if (p.given != nullptr) {
      position = (p.given[c] % length + length) % length;
    } else {
      auto time = static_cast<std::int32_t>(c % drawn);
      std::int32_t place = target[time];
      for (std::int32_t i = time - 1; i >= 0; --i) {
        if (target[i] == place) place = i;
      }
      position = place;
    }
    positions[b * p.clusters + c] = position;
  }
}

// --- hashes

constexpr unsigned hash_threads = 128;
constexpr int hash_queries = 32, warp_queries = 8, hash_depth = 32, most_bits = 64;

// A block hashes 32 queries of one head, each warp eight of them: lane r has the planes r and r +
// 32, and a ballot makes the word.
template <class T, bool Both>
__global__ void hash_kernel(QueryClusters<T> p, i64* hashes) {
  __shared__ T planes[hash_depth][most_bits + 1];
  __shared__ T queries[hash_queries][hash_depth + 1];
  const int t = threadIdx.x, lane = t % 32, warp = t / 32;
  const i64 tiles = (p.N() + hash_queries - 1) / hash_queries;
  const i64 row = blockIdx.x / tiles, begin = blockIdx.x % tiles * hash_queries;
  const i64 b = row / p.H(), h = row % p.H(), count = length_of(p.lengths, b, p.N());
  const i64 bits = p.bits();
  T low[warp_queries] = {}, high[warp_queries] = {};
  for (i64 first = 0; first < p.E() && begin < count; first += hash_depth) {
    const i64 e = first + lane;
    __syncthreads();
    for (int i = warp; i < hash_queries; i += hash_threads / 32) {
      const bool real = begin + i < count && e < p.E();
      queries[i][lane] = real ? p.q(b, begin + i, h, e) : T(0);
    }
    for (int r = warp; r < (Both ? 64 : 32); r += hash_threads / 32) {
      planes[lane][r] = r < bits && e < p.E() ? p.planes(r, e) : T(0);
    }
    __syncthreads();
#pragma unroll 4
    for (int d = 0; d < hash_depth; ++d) {
      const T one = planes[d][lane], other = Both ? planes[d][lane + 32] : T(0);
#pragma unroll
      for (int i = 0; i < warp_queries; ++i) {
        const T x = queries[warp * warp_queries + i][d];
        low[i] += x * one;
        if constexpr (Both) high[i] += x * other;
      }
    }
  }
  const T none = std::numeric_limits<T>::infinity();
  const T low_threshold = lane < bits ? p.planes(lane, p.E()) : none;
  const T high_threshold = Both && lane + 32 < bits ? p.planes(lane + 32, p.E()) : none;
#pragma unroll
  for (int i = 0; i < warp_queries; ++i) {
    const unsigned word = __ballot_sync(whole_warp, low[i] > low_threshold);
    unsigned more = 0;
    if constexpr (Both) more = __ballot_sync(whole_warp, high[i] > high_threshold);
    const i64 query = begin + warp * warp_queries + i;
    if (lane != 0 || query >= p.N()) continue;
    const std::uint64_t code = std::uint64_t{more} << 32 | word;
    hashes[row * p.N() + query] = query < count ? static_cast<i64>(code) : 0;
  }
}

// --- K-means

constexpr int cluster_bits = 12;  // of a key (distance, cluster)
constexpr std::size_t most_shared = 96 * 1024;

struct HammingMeans {
  const i64* hashes;
  const i64* positions;
  const i64* lengths;
  std::int32_t* labels;
  i64 N, H, clusters, iterations, bits;
  i64 range;  // clusters whose bits are counted together
  bool held;           // the codes are in shared memory

  constexpr i64 stride() const { return bits | 1; }  // odd: clusters start in different banks
};

__device__ inline int ones_of(std::uint32_t code) { return __popc(code); }
__device__ inline int ones_of(std::uint64_t code) { return __popcll(code); }

// A block has one head. Queries are assigned to threads in the search for the nearest centroid, and
// to warps when bits are counted: lane r then adds bit r (and r + 32) of a code to its cluster's
// counter.
template <class Word>
__global__ void hamming_means(HammingMeans p) {
  const i64 row = blockIdx.x, count = length_of(p.lengths, row / p.H, p.N);
  const int t = threadIdx.x, threads = blockDim.x, lane = t % 32;
  const i64* const hashes = p.hashes + row * p.N;
  std::int32_t* const labels = p.labels + row * p.N;
  for (i64 i = count + t; i < p.N; i += threads) labels[i] = 0;
  if (count == 0) return;
  SharedMemory shared;
  Word* const centroids = shared.take<Word>(p.clusters);
  std::int32_t* const ones = shared.take<std::int32_t>(p.range * p.stride());
  std::int32_t* const sizes = shared.take<std::int32_t>(p.range);
  Word* const codes = shared.take<Word>(p.held ? p.N : 0);
  const auto code_of = [&](i64 i) {
    return p.held ? codes[i] : static_cast<Word>(hashes[i]);
  };
  for (i64 i = t; p.held && i < count; i += threads)
    codes[i] = static_cast<Word>(hashes[i]);
  for (i64 c = t; c < p.clusters; c += threads) {
    centroids[c] = static_cast<Word>(hashes[p.positions[row / p.H * p.clusters + c]]);
  }
  __syncthreads();
  for (i64 iteration = 0; iteration < p.iterations; ++iteration) {
    for (i64 i = t; i < count; i += threads) {
      const Word code = code_of(i);
      int best = std::numeric_limits<int>::max();
#pragma unroll 4
      for (int c = 0; c < p.clusters; ++c) {
        const int key = ones_of(static_cast<Word>(code ^ centroids[c])) << cluster_bits | c;
        best = key < best ? key : best;
      }
      labels[i] = best & ((1 << cluster_bits) - 1);
    }
    if (iteration + 1 == p.iterations) return;
    bool changed = false;
    for (i64 first = 0; first < p.clusters; first += p.range) {
      const i64 some = p.clusters - first < p.range ? p.clusters - first : p.range;
      __syncthreads();
      for (i64 i = t; i < some * p.stride(); i += threads) ones[i] = 0;
      for (i64 c = t; c < some; c += threads) sizes[c] = 0;
      __syncthreads();
      for (i64 i = t / 32; i < count; i += threads / 32) {
        const i64 c = labels[i] - first;
        if (c < 0 || c >= some) continue;
        const Word code = code_of(i);
        for (i64 r = lane; r < p.bits; r += 32) {
          atomicAdd(&ones[c * p.stride() + r], static_cast<std::int32_t>(code >> r & 1));
        }
        if (lane == 0) atomicAdd(&sizes[c], 1);
      }
      __syncthreads();
      for (i64 c = t; c < some; c += threads) {
        if (sizes[c] == 0) continue;
        Word code = 0;
        for (i64 r = 0; r < p.bits; ++r) {
          code |= static_cast<Word>(Word{2 * ones[c * p.stride() + r] > sizes[c]} << r);
        }
        changed = changed || code != centroids[first + c];
        centroids[first + c] = code;
      }
    }
    if (__syncthreads_or(changed) == 0) return;
  }
}

template <class Word>
void start_means(const Cuda& device, HammingMeans p, i64 rows) {
  const auto words = [](i64 count) {
    return SharedMemory::bytes<Word>(static_cast<std::size_t>(count));
  };
  const auto counts = [](i64 count) {
    return SharedMemory::bytes<std::int32_t>(static_cast<std::size_t>(count));
  };
  std::size_t shared = words(p.clusters);
  const auto row = static_cast<std::size_t>(p.stride() + 1) * sizeof(std::int32_t);
  const auto fit = static_cast<i64>((most_shared - shared - 2 * SharedMemory::alignment) / row);
  p.range = p.clusters < fit ? p.clusters : fit;
  shared += counts(p.range * p.stride()) + counts(p.range);
  p.held = shared + words(p.N) <= most_shared;
  if (p.held) shared += words(p.N);
  const i64 wanted = (p.N + 31) / 32 * 32;
  const auto threads = static_cast<unsigned>(wanted < 512 ? wanted : 512);
  start(name, device, static_cast<unsigned>(rows), threads, shared, hamming_means<Word>, p);
}

// --- labels

struct LabelAt {
  LabelSort p;
  __device__ i64 operator()(i64 row, i64 query) const {
    const bool real = query < length_of(p.lengths, row / p.H, p.N);
    return real ? p.labels[row * p.N + query] : -1;
  }
};

}  // namespace

template <class Device>
void ClusterChoiceKernels<Device>::draw_positions(const Device& device, const PositionDraw& draw,
                                                  i64* positions) {
  PositionDraw p = draw;
  p.random = p.random.further(DrawPurpose::positions);
  start(name, device, static_cast<unsigned>(p.B + 1), position_threads,
        SharedMemory::bytes<std::int32_t>(static_cast<std::size_t>(p.clusters)), position_kernel, p,
        positions);
}

template <class Device, class T>
void ClusterKernels<Device, T>::cluster(const Device& device, const QueryClusters<T>& p,
                                        View<std::int32_t, 3> labels,
                                        View<i64, 3> hashes) {
  const i64 rows = p.B() * p.H(), tiles = (p.N() + hash_queries - 1) / hash_queries;
  if (rows * tiles == 0) return;
  start(name, device, static_cast<unsigned>(rows * tiles), hash_threads, 0,
        p.bits() <= 32 ? hash_kernel<T, false> : hash_kernel<T, true>, p, hashes.data);
  if (labels.data == nullptr) return;
  const HammingMeans means{hashes.data, p.positions,  p.lengths, labels.data, p.N(), p.H(),
                           p.clusters,  p.iterations, p.bits(),  0,           false};
  if (p.bits() <= 32) {
    start_means<std::uint32_t>(device, means, rows);
  } else {
    start_means<std::uint64_t>(device, means, rows);
  }
}

void sort_labels(const Cuda& device, const LabelSort& p) {
  sort_rows(name, device, {p.B * p.H, p.N, p.clusters, p.order, p.begins}, LabelAt{p});
}

template struct ClusterChoiceKernels<Cuda>;
template struct ClusterKernels<Cuda, float>;
template struct ClusterKernels<Cuda, double>;

}  // namespace weft
