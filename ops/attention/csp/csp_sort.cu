// CUDA kernels of channel-wise sample permutation that order groups; the equations stand in csp.h,
// the steps in steps.h.
//
// Ranking compares each of G samples with all, some 3 operations a comparison: 100 a sample at G
// = 32, which is 0.3 · 10¹² samples a second of the machine's 28 · 10¹². The bitonic sort of a
// group of P = 2^k takes k (k + 1) / 2 steps, 16 bytes of shared memory each: 78 at 4,096, so
// that 29 TB/s of shared memory bound it by 23 · 10⁹ samples a second. A merge reads a sample's
// neighbourhood in the other run by a binary search, in the second-level cache, and moves 16
// bytes: log₂ (G / 4,096) of them for groups of more. A segmented radix sort would move 20 bytes
// in each of its four passes, for keys and offsets, and want lists of both and of where groups
// begin; CUB's would not run on the emulated device. None of this is measured.
//
// Blocks on a multiprocessor, in f32: 10 of 128 threads that rank (48 registers, 13 KB of shared
// memory), 4 of 512 threads that sort runs of 4,096 (23, 32 KB): all of its threads.
#include "ops/attention/csp/channel.cuh"

namespace weft {
namespace {

using namespace permuted;

constexpr int most_ranked = csp_ranked;
template <class T>
using Key = decltype(csp_key(false, T{}));

// Rows of whole groups that a block of rank_kernel has.
constexpr std::int64_t ranked_rows(std::int64_t G) { return csp_ranked / G * G; }

// A block has whole groups, up to 64 rows, of 32 channels; a thread has every fourth row of a
// channel, and counts the samples of the group that stand before its own.
template <class T>
__global__ void rank_kernel(CspProblem p, std::int64_t tiles, View<const T, 4> v) {
  __shared__ Key<T> keys[most_ranked][lanes], first_keys[most_ranked];
  __shared__ std::uint16_t found[lanes][most_ranked + 2], places[most_ranked];
  const Tile tile(p, tiles, 0);
  const std::int64_t L = tile.L;
  if (L == 0) return;
  const std::int64_t G = p.group_of(L), begin = tile.index * ranked_rows(G);
  if (begin >= L) return;
  const int rows = static_cast<int>(L - begin < ranked_rows(G) ? L - begin : ranked_rows(G));
  const int size = static_cast<int>(G);
  const int thread = static_cast<int>(threadIdx.y * lanes + threadIdx.x);
  const bool down = p.order == CspOrder::descending, aligned = p.order == CspOrder::reference;
  if (tile.there) {
    const std::int64_t J = p.shift(tile.b, tile.c);
    const Channel<const T> x(v, tile.b, tile.c);
    for (int r = threadIdx.y; r < rows; r += warps) {
      keys[r][threadIdx.x] = csp_key(down, x[p.unshifted(begin + r, J, L)]);
    }
  }
  if (aligned && thread < rows) {
    const Channel<const T> x(v, tile.b, 0);
    first_keys[thread] = csp_key(down, x[p.unshifted(begin + thread, p.shift(tile.b, 0), L)]);
  }
  __syncthreads();
  const auto end_of = [&](int group) { return group + size < rows ? group + size : rows; };
  if (aligned && thread < rows) {
    const int group = thread - thread % size;
    int rank = 0;
    for (int j = group; j < end_of(group); ++j) {
      rank += first_keys[j] < first_keys[thread] ||
              (first_keys[j] == first_keys[thread] && j < thread);
    }
    places[group + rank] = static_cast<std::uint16_t>(thread - group);
  }
  __syncthreads();
  for (int r = threadIdx.y; tile.there && r < rows; r += warps) {
    const int group = r - r % size, end = end_of(group);
    const Key<T> own = keys[r][threadIdx.x];
    int rank = 0;
    for (int j = group; j < r; ++j) rank += !(own < keys[j][threadIdx.x]);
    for (int j = r + 1; j < end; ++j) rank += keys[j][threadIdx.x] < own;
    const int to = aligned ? places[group + rank] : rank;
    found[threadIdx.x][group + to] = static_cast<std::uint16_t>(r - group);
  }
  __syncthreads();
  for (int e = thread; e < lanes * rows; e += lanes * warps) {  // along the rows
    const std::int64_t c = tile.first + e / rows;
    if (c < p.C) p.offsets<std::uint16_t>(tile.b, c)[begin + e % rows] = found[e / rows][e % rows];
  }
}

// Sorts `count`, a power of two, entries in shared memory. Thread t exchanges the pairs t,
// t + threads, …; as long as partners are at most 32 apart, they stay among what one warp has.
template <class Entry>
__device__ void sort_block(Entry* entries, int count) {
  __syncthreads();
  for (int run = 2; run <= count; run *= 2) {
    for (int apart = run / 2; apart > 0; apart /= 2) {
      for (int t = threadIdx.x; t < count / 2; t += static_cast<int>(blockDim.x)) {
        const int i = 2 * t - (t & (apart - 1));
        const Entry a = entries[i], b = entries[i + apart];
        if ((b < a) == ((i & run) == 0)) {
          entries[i] = b;
          entries[i + apart] = a;
        }
      }
      const int next = apart > 1 ? apart / 2 : run;
      if (apart > 32 || next > 32) {
        __syncthreads();
      } else {
        __syncwarp();
      }
    }
  }
  __syncthreads();
}

// Where the offset of rank r of a column's group goes.
struct Keeper {
  CspProblem p;
  const std::uint32_t* places;
  std::uint32_t* found;

  __device__ void operator()(std::int64_t b, std::int64_t c, std::int64_t group, std::int64_t rank,
                             std::uint32_t offset) const {
    if (found != nullptr) {
      found[b * p.N + group + rank] = offset;
      return;
    }
    const std::int64_t to = group + (places != nullptr ? places[b * p.N + group + rank] : rank);
    p.with_offsets(b, c, [=](auto* at) {
      at[to] = static_cast<std::decay_t<decltype(*at)>>(offset);
    });
  }
};

// A block has a group of a column, or a run of it. Neighbouring blocks have neighbouring channels,
// whose samples share sectors.
template <class T>
__global__ void sort_kernel(Keeper keep, View<const T, 4> v, CspColumns columns,
                            CspEntry<T>* runs) {
  using Entry = CspEntry<T>;
  const CspProblem& p = keep.p;
  const std::int64_t at = blockIdx.x % columns.count, q = columns.first + at;
  const std::int64_t b = q / columns.channels, c = q % columns.channels, L = p.length(b);
  if (L == 0) return;
  const std::int64_t G = p.group_of(L), run = csp_run<T>;
  const std::int64_t runs_of_group = (G + run - 1) / run, index = blockIdx.x / columns.count;
  const std::int64_t group = index / runs_of_group * G, offset = index % runs_of_group * run;
  const std::int64_t end = group + G < L ? group + G : L, begin = group + offset;
  if (begin >= end) return;
  const int size = static_cast<int>(end - begin < run ? end - begin : run);
  int count = 2;
  while (count < size) count *= 2;
  SharedMemory shared;
  Entry* const entries = shared.take<Entry>(static_cast<std::size_t>(count));
  const Channel<const T> x(v, b, c);
  const std::int64_t J = p.shift(b, c);
  const bool down = p.order == CspOrder::descending;
  for (int i = threadIdx.x; i < count; i += blockDim.x) {  // what fills up stands behind NaN
    const Key<T> key = i < size ? csp_key(down, x[p.unshifted(begin + i, J, L)]) : ~Key<T>{0};
    entries[i] = Entry(key, static_cast<std::uint32_t>(offset + i));
  }
  sort_block(entries, count);
  for (int i = threadIdx.x; i < size; i += blockDim.x) {
    if (runs != nullptr) {
      runs[at * p.N + begin + i] = entries[i];
    } else {
      keep(b, c, group, i, entries[i].offset());
    }
  }
}

// A position of a column: its group, and the end of that.
struct Place {
  std::int64_t b, c, n, group, end;

  __device__ Place(const CspProblem& p, const CspColumns& columns, std::int64_t i) {
    const std::int64_t q = columns.first + i / p.N;
    b = q / columns.channels;
    c = q % columns.channels;
    n = i % p.N;
    const std::int64_t L = p.length(b), G = L > 0 ? p.group_of(L) : 1;
    group = n - n % G;
    end = n < L ? (group + G < L ? group + G : L) : n;  // past the length: an empty group
  }
};

// A thread has an entry, which goes behind the entries before it in its own run and in the other.
template <class T>
struct MergeEntry {
  CspProblem p;
  CspColumns columns;
  std::int64_t run;
  const CspEntry<T>* from;
  CspEntry<T>* to;

  __device__ void operator()(std::int64_t i) const {
    const Place at(p, columns, i);
    if (at.n >= at.end) return;
    const std::int64_t column = i - at.n, offset = at.n - at.group, own = offset / run;
    const std::int64_t other = at.group + (own ^ 1) * run;
    const CspEntry<T> entry = from[i];
    std::int64_t low = other < at.end ? other : at.end;
    std::int64_t high = other + run < at.end ? other + run : at.end;
    const std::int64_t first = low;
    while (low < high) {
      const std::int64_t middle = (low + high) / 2;
      if (from[column + middle] < entry) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    to[column + at.group + own / 2 * 2 * run + offset % run + (low - first)] = entry;
  }
};

template <class T>
struct KeepEntry {
  Keeper keep;
  CspColumns columns;
  const CspEntry<T>* sorted;

  __device__ void operator()(std::int64_t i) const {
    const Place at(keep.p, columns, i);
    if (at.n < at.end) keep(at.b, at.c, at.group, at.n - at.group, sorted[i].offset());
  }
};

}  // namespace

template <class T>
void rank_groups(const Cuda& device, const CspProblem& p, View<const T, 4> v) {
  // With lengths a batch item's groups may be shorter than those of N, and a block has fewer rows,
  // yet more than half of 64.
  const std::int64_t rows =
      p.lengths == nullptr ? ranked_rows(p.group_of(p.N)) : csp_ranked / 2 + 1;
  const std::int64_t tiles = (p.N + rows - 1) / rows;
  start_tiles(device, p, tiles, rank_kernel<T>, p, tiles, v);
}

template <class T>
void sort_groups(const Cuda& device, const CspProblem& p, View<const T, 4> v, CspColumns columns,
                 const std::uint32_t* places, std::uint32_t* found, CspEntry<T>* runs) {
  const std::int64_t G = p.group_of(p.N);
  // Not more than these for any length: groups, and runs of one.
  const std::int64_t groups = p.groups > 0 ? (p.groups < p.N ? p.groups : p.N) : (p.N + G - 1) / G;
  const std::int64_t blocks = columns.count * groups * ((G + csp_run<T> - 1) / csp_run<T>);
  std::int64_t count = 2;
  while (count < G && count < csp_run<T>) count *= 2;
  const unsigned threads = count <= 512 ? 64 : static_cast<unsigned>(count / 8);
  start("csp", device, static_cast<unsigned>(blocks), threads,
        SharedMemory::bytes<CspEntry<T>>(static_cast<std::size_t>(count)), sort_kernel<T>,
        Keeper{p, places, found}, v, columns, runs);
}

template <class T>
void merge_runs(const Cuda& device, const CspProblem& p, CspColumns columns, std::int64_t run,
                const CspEntry<T>* from, CspEntry<T>* to) {
  for_elements("csp", device, columns.count * p.N, MergeEntry<T>{p, columns, run, from, to});
}

template <class T>
void keep_order(const Cuda& device, const CspProblem& p, CspColumns columns,
                const CspEntry<T>* sorted, const std::uint32_t* places, std::uint32_t* found) {
  for_elements("csp", device, columns.count * p.N,
               KeepEntry<T>{{p, places, found}, columns, sorted});
}

#define WEFT_CSP(T)                                                                              \
  template void rank_groups(const Cuda&, const CspProblem&, View<const T, 4>);                   \
  template void sort_groups(const Cuda&, const CspProblem&, View<const T, 4>, CspColumns,        \
                            const std::uint32_t*, std::uint32_t*, CspEntry<T>*);                 \
  template void merge_runs(const Cuda&, const CspProblem&, CspColumns, std::int64_t,             \
                           const CspEntry<T>*, CspEntry<T>*);                                    \
  template void keep_order(const Cuda&, const CspProblem&, CspColumns, const CspEntry<T>*,       \
                           const std::uint32_t*, std::uint32_t*);
WEFT_CSP(float)
WEFT_CSP(double)

}  // namespace weft
