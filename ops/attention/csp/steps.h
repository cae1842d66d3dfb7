// The steps of channel-wise sample permutation on a CUDA device, each a kernel (csp.cu,
// csp_sort.cu); csp_cuda.cpp puts them together. Equations: csp.h.
//
// Groups are ordered by how long they are:
//
//     1 and 2         nothing is ordered before; move_samples compares the two
//     up to 64        rank_groups: every sample is compared with all of its group
//     up to a block   sort_groups: a block sorts a group in shared memory
//     more            sort_groups sorts runs, and merge_runs merges them two by two in memory
//
// and what is kept then says where each output comes from. With the reference order it is a
// channel's sample of rank r that goes to where the first channel's sample of rank r stands: for
// long groups these places are found first.
#pragma once

#include "ops/attention/csp/csp.h"

namespace weft {

// A sample of a group that is sorted: no two are equal. The lower word of `order` is the offset.
template <class T>
struct CspEntry;
template <>
struct CspEntry<float> {
  std::uint64_t order;  // key, offset

  constexpr CspEntry() = default;
  constexpr CspEntry(std::uint32_t key, std::uint32_t offset)
      : order(std::uint64_t{key} << 32 | offset) {}
  constexpr std::uint32_t offset() const { return static_cast<std::uint32_t>(order); }
  constexpr bool operator<(const CspEntry& other) const { return order < other.order; }
};
template <>
struct CspEntry<double> {
  std::uint64_t key, at;

  constexpr CspEntry() = default;
  constexpr CspEntry(std::uint64_t key, std::uint32_t offset) : key(key), at(offset) {}
  constexpr std::uint32_t offset() const { return static_cast<std::uint32_t>(at); }
  constexpr bool operator<(const CspEntry& other) const {
    return key < other.key || (key == other.key && at < other.at);
  }
};

constexpr std::int64_t csp_ranked = 64;  // groups up to here are ranked
template <class T>
constexpr std::int64_t csp_run = 32768 / sizeof(CspEntry<T>);  // what a block sorts

// A range of columns: column q is channel q mod `channels` of batch item q / channels.
struct CspColumns {
  std::int64_t first = 0, count = 0, channels = 0;
};

// For groups of one or two: out, and the bits of the pairs.
template <class T>
void move_samples(const Cuda&, const CspProblem&, View<const T, 4> v, View<T, 4> out);

// Keeps the order of groups up to csp_ranked.
template <class T>
void rank_groups(const Cuda&, const CspProblem&, View<const T, 4> v);

// Sorts the groups, or their runs of csp_run, of some columns. Where `runs` is null the order is
// kept, or, where `found` is not null, rank r's offset goes there, [B, N], of one channel.
// `places`, the same of the first channel, is null where there is no reference. Otherwise the
// sorted runs go to `runs`, [columns, N].
template <class T>
void sort_groups(const Cuda&, const CspProblem&, View<const T, 4> v, CspColumns,
                 const std::uint32_t* places, std::uint32_t* found, CspEntry<T>* runs);

// Merges runs of `run` entries of each group two by two.
template <class T>
void merge_runs(const Cuda&, const CspProblem&, CspColumns, std::int64_t run,
                const CspEntry<T>* from, CspEntry<T>* to);

// What sort_groups does with the order, from groups that are one run.
template <class T>
void keep_order(const Cuda&, const CspProblem&, CspColumns, const CspEntry<T>* sorted,
                const std::uint32_t* places, std::uint32_t* found);

// out by what is kept; and dv.
template <class T>
void take_samples(const Cuda&, const CspProblem&, View<const T, 4> v, View<T, 4> out);
template <class T>
void return_samples(const Cuda&, const CspProblem&, View<const T, 4> dout, View<T, 4> dv);

}  // namespace weft
