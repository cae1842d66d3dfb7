// CUDA kernels of channel-wise sample permutation that order groups; the equations stand in csp.h.
// By how long the groups are:
//
//     up to 64        rank_groups: every sample is compared with all of its group
//     up to 4,096     sort_groups: a block sorts a group in shared memory
//     more            radix_groups: a block sorts a group in memory, eight bits at a time
//
// With the reference order it is a channel's sample of rank r that goes to where the first
// channel's sample of rank r stands: for long groups these places are found first.
//
// Ranking compares each of G samples with all, some 3 operations a comparison: 100 a sample at G
// = 32, which is 0.3 · 10¹² samples a second of the machine's 28 · 10¹². The bitonic sort of a
// group of P = 2^k takes k (k + 1) / 2 steps, 16 bytes of shared memory each: 78 at 4,096, so
// that 29 TB/s of shared memory bound it by 23 · 10⁹ samples a second.
//
// A radix pass reads a key twice and an offset, and writes both: 20 bytes a sample in f32, 32 in
// f64. Before the first, which has no offsets to read, the keys are read from v and written; the
// last writes 2 or 4 bytes. That is 78 bytes in all, or 258: 55 or 17 · 10⁹ samples a second of
// 4.3 TB/s, where some 90 instructions a pass for 32 samples allow 78 or 39. Neighbours of
// different digits write to sectors of their own, which the second-level cache gathers: up to 7
// a sample, or 15. (Samples that changed places in shared memory first would write fewer.) A
// block has a whole group, and a third or a quarter of the columns is under way at a time, as the
// lists have room; the first channel's groups are sorted before the others.
//
// None of this is measured.
//
// Blocks on a multiprocessor, in f32: 10 of 128 threads that rank (48 registers, 13 KB of shared
// memory), 4 of 512 threads that sort 4,096 (32, 32 KB; in f64 3, 36, 64 KB), 2 of 1,024 threads
// that sort longer groups (32, 32 KB; in f64 too): all of its threads.
#include <algorithm>

#include "ops/attention/csp/channel.cuh"
#include "ops/attention/radix.cuh"
#include "runtime/cuda/workspace.h"

namespace weft {
namespace {

using namespace permuted;

// Groups up to here are ranked, and up to here sorted in shared memory.
constexpr std::int64_t csp_ranked = 64, csp_sorted = 4096;

// A range of columns: column q is channel q mod C of batch item q / C.
struct CspColumns {
  std::int64_t first = 0, count = 0;
};

// Two lists of keys, and two of offsets, for every column: [2, columns, N].
template <class T>
struct CspLists {
  Bits<T>* keys;
  std::uint32_t* offsets;
};

constexpr int most_ranked = csp_ranked;

// Rows of whole groups that a block of rank_kernel has.
constexpr std::int64_t ranked_rows(std::int64_t G) { return csp_ranked / G * G; }

// A block has whole groups, up to 64 rows, of 32 channels; a thread has every fourth row of a
// channel, and counts the samples of the group that stand before its own.
template <class T>
__global__ void rank_kernel(CspProblem p, std::int64_t tiles, View<const T, 4> v) {
  __shared__ Bits<T> keys[most_ranked][lanes], first_keys[most_ranked];
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
    const Bits<T> own = keys[r][threadIdx.x];
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

// A sample of a group that is sorted: no two are equal. The lower word of `order` is the offset.
template <class T>
struct Entry;
template <>
struct Entry<float> {
  std::uint64_t order;  // key, offset

  constexpr Entry() = default;
  constexpr Entry(std::uint32_t key, std::uint32_t offset)
      : order(std::uint64_t{key} << 32 | offset) {}
  constexpr std::uint32_t offset() const { return static_cast<std::uint32_t>(order); }
  constexpr bool operator<(const Entry& other) const { return order < other.order; }
};
template <>
struct Entry<double> {
  std::uint64_t key, at;

  constexpr Entry() = default;
  constexpr Entry(std::uint64_t key, std::uint32_t offset) : key(key), at(offset) {}
  constexpr std::uint32_t offset() const { return static_cast<std::uint32_t>(at); }
  constexpr bool operator<(const Entry& other) const {
    return key < other.key || (key == other.key && at < other.at);
  }
};

// Sorts `count`, a power of two, entries in shared memory. Thread t exchanges the pairs t,
// t + threads, …; as long as partners are at most 32 apart, they stay among what one warp has.
template <class T>
__device__ void sort_block(Entry<T>* entries, int count) {
  __syncthreads();
  for (int run = 2; run <= count; run *= 2) {
    for (int apart = run / 2; apart > 0; apart /= 2) {
      for (int t = threadIdx.x; t < count / 2; t += static_cast<int>(blockDim.x)) {
        const int i = 2 * t - (t & (apart - 1));
        const Entry<T> a = entries[i], b = entries[i + apart];
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

  __device__ void operator()(std::int64_t b, std::int64_t c, std::int64_t group, std::int64_t rank,
                             std::uint32_t offset) const {
    const std::int64_t to = group + (places != nullptr ? places[b * p.N + group + rank] : rank);
    p.with_offsets(b, c, [=](auto* at) {
      at[to] = static_cast<std::decay_t<decltype(*at)>>(offset);
    });
  }
};

// The group of a column that a block has. Neighbouring blocks have neighbouring channels, whose
// samples share sectors.
template <class T>
struct Group {
  int column, b, c;  // column: among those of the launch
  std::uint32_t size = 0;
  std::int64_t begin, L, J;
  Channel<const T> x;
  bool down;

  __device__ Group(const CspProblem& p, const View<const T, 4>& v, const CspColumns& columns)
      : column(static_cast<int>(blockIdx.x % columns.count)),
        b(static_cast<int>((columns.first + column) / p.C)),
        c(static_cast<int>((columns.first + column) % p.C)),
        L(p.length(b)),
        J(p.shift(b, c)),
        x(v, b, c),
        down(p.order == CspOrder::descending) {
    const std::int64_t G = p.group_of(L);
    begin = blockIdx.x / columns.count * G;
    if (begin < L) size = static_cast<std::uint32_t>(L - begin < G ? L - begin : G);
  }
  __device__ Bits<T> key(std::int64_t i) const {
    return csp_key(down, x[CspProblem::unshifted(begin + i, J, L)]);
  }
};

template <class T>
__global__ void sort_kernel(Keeper keep, View<const T, 4> v, CspColumns columns) {
  const Group<T> group(keep.p, v, columns);
  if (group.size == 0) return;
  const int size = static_cast<int>(group.size);
  int count = 2;
  while (count < size) count *= 2;
  SharedMemory shared;
  auto* const entries = shared.take<Entry<T>>(static_cast<std::size_t>(count));
  for (int i = threadIdx.x; i < count; i += blockDim.x) {  // what fills up stands behind NaN
    const Bits<T> key = i < size ? group.key(i) : ~Bits<T>{0};
    entries[i] = Entry<T>(key, static_cast<std::uint32_t>(i));
  }
  sort_block(entries, count);
  for (int i = threadIdx.x; i < size; i += blockDim.x) {
    keep(group.b, group.c, group.begin, i, entries[i].offset());
  }
}

constexpr unsigned radix_threads = 1024;

// The keys of a block's group are put side by side; with their offsets they go to and fro between
// the lists, a digit a pass, and the last pass keeps the offsets.
template <class T>
__global__ void __launch_bounds__(radix_threads)
    radix_kernel(Keeper keep, View<const T, 4> v, CspColumns columns, CspLists<T> lists) {
  const Group<T> group(keep.p, v, columns);
  if (group.size == 0) return;
  std::int64_t other = columns.count * keep.p.N;  // from what the lists hold to where it goes
  Bits<T>* keys = lists.keys + group.column * keep.p.N + group.begin;
  std::uint32_t* offsets = lists.offsets + group.column * keep.p.N + group.begin;
  for (std::uint32_t i = threadIdx.x; i < group.size; i += radix_threads) keys[i] = group.key(i);
  constexpr unsigned bits = 8 * sizeof(T);
#pragma unroll 1
  for (unsigned shift = 0; shift < bits; shift += radix_bits) {
    const auto digit = [&](std::uint32_t i) {
      return static_cast<unsigned>(keys[i] >> shift) % radix_bins;
    };
    radix_pass<radix_threads>(group.size, digit, [&](std::uint32_t i, std::uint32_t rank) {
      const std::uint32_t offset = shift == 0 ? i : offsets[i];
      if (shift + radix_bits == bits) {
        keep(group.b, group.c, group.begin, rank, offset);
      } else {
        keys[other + rank] = keys[i];
        offsets[other + rank] = offset;
      }
    });
    keys += other, offsets += other, other = -other;
  }
}

// Groups of a column, not fewer than there are for any length.
std::int64_t groups_of(const CspProblem& p) {
  const std::int64_t G = p.group_of(p.N);
  return p.groups > 0 ? std::min(p.groups, p.N) : (p.N + G - 1) / G;
}

// Keeps the order of groups up to csp_ranked.
template <class T>
void rank_groups(const Cuda& device, const CspProblem& p, View<const T, 4> v) {
  // With lengths a batch item's groups may be shorter than those of N, and a block has fewer rows,
  // yet more than half of 64.
  const std::int64_t rows =
      p.lengths == nullptr ? ranked_rows(p.group_of(p.N)) : csp_ranked / 2 + 1;
  const std::int64_t tiles = (p.N + rows - 1) / rows;
  start_tiles(device, p, tiles, rank_kernel<T>, p, tiles, v);
}

// Keep the order of the groups of some columns: those up to csp_sorted, and longer ones. Rank r
// goes to places[b, group + r], [B, N], or to r itself where `places` is null.
template <class T>
void sort_groups(const Cuda& device, const CspProblem& p, View<const T, 4> v, CspColumns columns,
                 const std::uint32_t* places) {
  std::int64_t count = 2;
  while (count < p.group_of(p.N)) count *= 2;
  const unsigned threads = count <= 512 ? 64 : static_cast<unsigned>(count / 8);
  start("csp", device, static_cast<unsigned>(columns.count * groups_of(p)), threads,
        SharedMemory::bytes<Entry<T>>(static_cast<std::size_t>(count)), sort_kernel<T>,
        Keeper{p, places}, v, columns);
}

template <class T>
void radix_groups(const Cuda& device, const CspProblem& p, View<const T, 4> v, CspColumns columns,
                  const std::uint32_t* places, CspLists<T> lists) {
  start("csp", device, static_cast<unsigned>(columns.count * groups_of(p)), radix_threads, 0,
        radix_kernel<T>, Keeper{p, places}, v, columns, lists);
}

// Keeps the order of groups of more than csp_ranked.
template <class T>
void order_long(const Cuda& device, const CspProblem& p, const View<const T, 4>& v,
                const std::uint32_t* places) {
  const std::int64_t columns = p.B * p.C;
  if (p.group_of(p.N) <= csp_sorted) {
    sort_groups<T>(device, p, v, {0, columns}, places);
    return;
  }
  // Lists for as many columns at a time as leave them no longer than the gradient of v will be.
  constexpr std::int64_t item = sizeof(T), bytes_of_a_sample = 2 * (item + 4);
  const std::int64_t most = v.size(0) * v.size(2) * v.size(3) * item / bytes_of_a_sample;
  const std::int64_t some = std::clamp<std::int64_t>(most, 1, columns), length = some * p.N;
  const Workspace<Bits<T>> keys(device, 2 * length);
  const Workspace<std::uint32_t> offsets(device, 2 * length);
  for (std::int64_t first = 0; first < columns; first += some) {
    radix_groups<T>(device, p, v, {first, std::min(some, columns - first)}, places,
                    {keys.data(), offsets.data()});
  }
}

}  // namespace

template <class T>
void CspSortKernels<T>::order(const Cuda& device, const CspProblem& p, View<const T, 4> v) {
  if (p.group_of(p.N) <= csp_ranked) return rank_groups<T>(device, p, v);
  Workspace<std::uint8_t> room;
  const std::uint32_t* places = nullptr;
  if (p.order == CspOrder::reference) {  // of the first channel, as if there were no other
    CspProblem alone = p;
    alone.C = 1;
    alone.record = CspRecord::wide;
    room = {device, p.B * CspProblem::row_bytes(alone.record, p.N)};
    alone.kept = room.data();
    order_long<T>(device, alone, v, nullptr);
    places = alone.offsets<std::uint32_t>(0, 0);
  }
  order_long<T>(device, p, v, places);
}

template struct CspSortKernels<float>;
template struct CspSortKernels<double>;

}  // namespace weft
