// CUDA kernels of channel-wise sample permutation that sort groups; the equations are in csp.h. By
// the length of the groups:
//
//     up to 64        rank_groups: every sample is compared with all of its group
//     up to 4,096     sort_groups: a block sorts a group in shared memory
//     more            order_columns: all groups of some columns are sorted over the whole device
//
// With the reference order a channel's sample of rank r goes to the position of the first channel's
// sample of rank r: for long groups these positions are computed first.
//
// Ranking compares each of G samples with all, some 3 operations a comparison: 100 a sample at G =
// 32. The bitonic sort of a group of P = 2^k takes k (k + 1) / 2 steps, 16 bytes of shared memory
// each: 78 at 4,096, so that it is bound by the bandwidth of shared memory.
//
// Longer groups take two sorts, which move keys and offsets of 8 bytes in f32 and 12 in f64: by the
// samples, then, as the sort is stable, by column and group. That is 4 passes and 4 in f32, 8 and 4
// in f64. A third or a quarter of the columns is sorted at a time, as many as the lists have room
// for; the first channel's groups are sorted before the others.
//
// None of this is measured.
#include <algorithm>
#include <limits>

#include "ops/attention/csp/channel.cuh"
#include "runtime/cuda/algorithms.h"
#include "runtime/cuda/workspace.h"

namespace weft {
namespace {

using namespace permuted;

// The longest groups that are ranked, and that are sorted in shared memory.
constexpr i64 csp_ranked = 64, csp_sorted = 4096;

constexpr int most_ranked = csp_ranked;

// Rows of whole groups in a block of rank_kernel.
constexpr i64 ranked_rows(i64 G) { return csp_ranked / G * G; }

// A block has whole groups, up to 64 rows, of 32 channels; a thread has every fourth row of a
// channel, and counts the samples of the group that come before its own.
template <class T>
__global__ void rank_kernel(CspProblem p, i64 tiles, View<const T, 4> v) {
  __shared__ Bits<T> keys[most_ranked][lanes], first_keys[most_ranked];
  __shared__ std::uint16_t found[lanes][most_ranked + 2], places[most_ranked];
  const Tile tile(p, tiles, 0);
  const i64 L = tile.L;
  if (L == 0) return;
  const i64 G = p.group_of(L), begin = tile.index * ranked_rows(G);
  if (begin >= L) return;
  const int rows = static_cast<int>(L - begin < ranked_rows(G) ? L - begin : ranked_rows(G));
  const int size = static_cast<int>(G);
  const int thread = static_cast<int>(threadIdx.y * lanes + threadIdx.x);
  const bool down = p.order == CspOrder::descending, aligned = p.order == CspOrder::reference;
  if (tile.there) {
    const i64 J = p.shift(tile.b, tile.c);
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
    const i64 c = tile.first + e / rows;
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

// Sorts `count`, a power of two, entries in shared memory. Thread t exchanges the pairs t, t +
// threads, …; while partners are at most 32 apart, they belong to the same warp.
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

// The output index for the offset of rank r of a column's group.
struct Keeper {
  CspProblem p;
  const std::uint32_t* places;

  __device__ void operator()(i64 b, i64 c, i64 group, i64 rank,
                             std::uint32_t offset) const {
    const i64 to = group + (places != nullptr ? places[b * p.N + group + rank] : rank);
    p.with_offsets(b, c, [=](auto* at) {
      at[to] = static_cast<std::decay_t<decltype(*at)>>(offset);
    });
  }
};

// The group of a column of a block. Adjacent blocks have adjacent channels, whose samples share
// sectors.
template <class T>
struct Group {
  int b, c;
  std::uint32_t size = 0;
  i64 begin, L, J;
  Channel<const T> x;
  bool down;

  __device__ Group(const CspProblem& p, const View<const T, 4>& v)
      : b(static_cast<int>(blockIdx.x % (p.B * p.C) / p.C)),
        c(static_cast<int>(blockIdx.x % p.C)),
        L(p.length(b)),
        J(p.shift(b, c)),
        x(v, b, c),
        down(p.order == CspOrder::descending) {
    const i64 G = p.group_of(L);
    begin = blockIdx.x / (p.B * p.C) * G;
    if (begin < L) size = static_cast<std::uint32_t>(L - begin < G ? L - begin : G);
  }
  __device__ Bits<T> key(i64 i) const {
    return csp_key(down, x[CspProblem::unshifted(begin + i, J, L)]);
  }
};

template <class T>
__global__ void sort_kernel(Keeper keep, View<const T, 4> v) {
  const Group<T> group(keep.p, v);
  if (group.size == 0) return;
  const int size = static_cast<int>(group.size);
  int count = 2;
  while (count < size) count *= 2;
  SharedMemory shared;
  auto* const entries = shared.take<Entry<T>>(static_cast<std::size_t>(count));
  for (int i = threadIdx.x; i < count; i += blockDim.x) {  // padding comes after NaN
    const Bits<T> key = i < size ? group.key(i) : ~Bits<T>{0};
    entries[i] = Entry<T>(key, static_cast<std::uint32_t>(i));
  }
  sort_block(entries, count);
  for (int i = threadIdx.x; i < size; i += blockDim.x) {
    keep(group.b, group.c, group.begin, i, entries[i].offset());
  }
}

// The number of groups of a column, or more.
i64 groups_of(const CspProblem& p) {
  const i64 G = p.group_of(p.N);
  return p.groups > 0 ? std::min(p.groups, p.N) : (p.N + G - 1) / G;
}

// A range of columns: column q is channel q mod C of batch item q / C.
struct CspColumns {
  i64 first = 0, count = 0;
};

template <class T>
struct CspLists {
  Bits<T>* keys;
  std::int32_t* elements;
};

// Position n of the range's column q is element q N + n of the lists.
template <class T>
struct SampleKeys {
  CspProblem p;
  CspColumns columns;
  View<const T, 4> v;
  Bits<T>* keys;
  std::int32_t* elements;

  __device__ void operator()(i64 i) const {
    const i64 column = columns.first + i / p.N, n = i % p.N;
    const i64 b = column / p.C, c = column % p.C, L = p.length(b);
    const Channel<const T> x(v, b, c);
    const bool down = p.order == CspOrder::descending;
    keys[i] = n < L ? csp_key(down, x[CspProblem::unshifted(n, p.shift(b, c), L)]) : 0;
    elements[i] = static_cast<std::int32_t>(i);
  }
};

// The group of each element, counted through the columns; positions from its length on come after a
// column's groups.
struct GroupKeys {
  CspProblem p;
  CspColumns columns;
  i64 groups;
  const std::int32_t* elements;
  std::uint32_t* keys;

  __device__ void operator()(i64 i) const {
    const i64 q = elements[i] / p.N, n = elements[i] % p.N;
    const i64 L = p.length((columns.first + q) / p.C);
    const i64 group = n < L ? n / p.group_of(L) : groups;
    keys[i] = static_cast<std::uint32_t>(q * (groups + 1) + group);
  }
};

// Element i has rank i mod N in its column, whose groups are as long as before.
struct KeepSorted {
  Keeper keep;
  CspColumns columns;
  const std::int32_t* elements;

  __device__ void operator()(i64 i) const {
    const CspProblem& p = keep.p;
    const i64 column = columns.first + i / p.N, at = i % p.N, b = column / p.C;
    const i64 L = p.length(b);
    if (at >= L) return;
    const i64 rank = at % p.group_of(L), begin = at - rank;
    keep(b, column % p.C, begin, rank, static_cast<std::uint32_t>(elements[i] % p.N - begin));
  }
};

// Records the order of groups up to csp_ranked.
template <class T>
void rank_groups(const Cuda& device, const CspProblem& p, View<const T, 4> v) {
  // With lengths a batch item's groups may be shorter than those of N, and a block has fewer rows,
  // but more than half of 64.
  const i64 rows =
      p.lengths == nullptr ? ranked_rows(p.group_of(p.N)) : csp_ranked / 2 + 1;
  const i64 tiles = (p.N + rows - 1) / rows;
  start_tiles(device, p, tiles, rank_kernel<T>, p, tiles, v);
}

// Record the order of longer groups: of those up to csp_sorted, and of the others in some columns.
// Rank r goes to places[b, group + r], [B, N], or to r itself if `places` is null.
template <class T>
void sort_groups(const Cuda& device, const CspProblem& p, View<const T, 4> v,
                 const std::uint32_t* places) {
  i64 count = 2;
  while (count < p.group_of(p.N)) count *= 2;
  const unsigned threads = count <= 512 ? 64 : static_cast<unsigned>(count / 8);
  start("csp", device, static_cast<unsigned>(p.B * p.C * groups_of(p)), threads,
        SharedMemory::bytes<Entry<T>>(static_cast<std::size_t>(count)), sort_kernel<T>,
        Keeper{p, places}, v);
}

template <class T>
void order_columns(const Cuda& device, const CspProblem& p, View<const T, 4> v, CspColumns columns,
                   const std::uint32_t* places, CspLists<T> lists) {
  const i64 count = columns.count * p.N;
  std::int32_t* const elements = lists.elements;
  for_elements("csp", device, count, SampleKeys<T>{p, columns, v, lists.keys, elements});
  sort_by_key("csp", device, count, lists.keys, elements);
  auto* const groups = reinterpret_cast<std::uint32_t*>(lists.keys);  // no longer used
  for_elements("csp", device, count, GroupKeys{p, columns, groups_of(p), elements, groups});
  sort_by_key("csp", device, count, groups, elements);
  for_elements("csp", device, count, KeepSorted{{p, places}, columns, elements});
}

// Records the order of groups of more than csp_ranked.
template <class T>
void order_long(const Cuda& device, const CspProblem& p, const View<const T, 4>& v,
                const std::uint32_t* places) {
  if (p.group_of(p.N) <= csp_sorted) return sort_groups<T>(device, p, v, places);
  // As many columns at a time as keep the lists and the sort's copies no larger than the later
  // gradient of v.
  constexpr i64 item = sizeof(T), bytes_of_a_sample = 2 * (item + 4);
  const i64 room = v.size(0) * v.size(2) * v.size(3) * item / bytes_of_a_sample;
  const i64 most = std::min(room, std::numeric_limits<std::int32_t>::max() / p.N);
  const i64 columns = p.B * p.C, some = std::clamp<i64>(most, 1, columns);
  const Workspace<Bits<T>> keys(device, some * p.N);
  const Workspace<std::int32_t> elements(device, some * p.N);
  for (i64 first = 0; first < columns; first += some) {
    order_columns<T>(device, p, v, {first, std::min(some, columns - first)}, places,
                     {keys.data(), elements.data()});
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
