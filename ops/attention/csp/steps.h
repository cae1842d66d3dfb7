// The steps of channel-wise sample permutation on a CUDA device, each a kernel (csp.cu,
// csp_sort.cu); csp_cuda.cpp puts them together. Equations: csp.h.
//
// Groups are ordered by how long they are:
//
//     1 and 2         nothing is ordered before; move_samples compares the two
//     up to 64        rank_groups: every sample is compared with all of its group
//     up to 4,096     sort_groups: a block sorts a group in shared memory
//     more            radix_groups: a block sorts a group in memory, eight bits at a time
//
// and what is kept then says where each output comes from. With the reference order it is a
// channel's sample of rank r that goes to where the first channel's sample of rank r stands: for
// long groups these places are found first.
#pragma once

#include "ops/attention/csp/csp.h"

namespace weft {

template <class T>
using CspKey = decltype(csp_key(false, T{}));

// Groups up to here are ranked, and up to here sorted in shared memory.
constexpr std::int64_t csp_ranked = 64, csp_sorted = 4096;

// A range of columns: column q is channel q mod C of batch item q / C.
struct CspColumns {
  std::int64_t first = 0, count = 0;
};

// For groups of one or two: out, and the bits of the pairs.
template <class T>
void move_samples(const Cuda&, const CspProblem&, View<const T, 4> v, View<T, 4> out);

// Keeps the order of groups up to csp_ranked.
template <class T>
void rank_groups(const Cuda&, const CspProblem&, View<const T, 4> v);

// Keep the order of the groups of some columns: those up to csp_sorted, and longer ones. Rank r
// goes to places[b, group + r], [B, N], or to r itself where `places` is null.
template <class T>
void sort_groups(const Cuda&, const CspProblem&, View<const T, 4> v, CspColumns,
                 const std::uint32_t* places);

// Two lists of keys, and two of offsets, for every column: [2, columns, N].
template <class T>
struct CspLists {
  CspKey<T>* keys;
  std::uint32_t* offsets;
};
template <class T>
void radix_groups(const Cuda&, const CspProblem&, View<const T, 4> v, CspColumns,
                  const std::uint32_t* places, CspLists<T>);

// out by what is kept; and dv.
template <class T>
void take_samples(const Cuda&, const CspProblem&, View<const T, 4> v, View<T, 4> out);
template <class T>
void return_samples(const Cuda&, const CspProblem&, View<const T, 4> dout, View<T, 4> dv);

}  // namespace weft
