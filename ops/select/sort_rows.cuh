// Rows of small keys in ascending order, on CUDA devices.
//
//     order[row, j]     the index of the row's j-th key in order; the sort is stable
//     begins[row, k]    how many of the row's keys are less than k, for k = 0 … bins
//
// Keys are 0 … bins − 1. Elements with another key come last, as if their key were `bins`: so
// begins[row, bins] is the number of valid ones, and rows of several lengths share a call.
//
// The rows are segments of one sort over the whole device (runtime/cuda/algorithms.h), by the
// composite key row · (bins + 1) + key: as many rows at a time as 32-bit keys can distinguish. One
// long row and many short ones use the same sort. The begins of a row are found by bisection in the
// sorted keys.
//
// Scratch: sort_rows_bytes().
#pragma once

#include <algorithm>
#include <limits>

#include "ops/select/sort_rows.h"
#include "runtime/cuda/algorithms.h"
#include "runtime/cuda/loops.h"
#include "runtime/cuda/workspace.h"

namespace weft {

struct RowSort {
  i64 rows, N, bins;               // N < 2³¹ and bins < 2³² − 1
  std::int32_t* order;             // [rows, N]
  std::int32_t* begins = nullptr;  // [rows, bins + 1], or null
};

namespace sort_rows_detail {

// Element i of some rows, beginning with row `first`.
template <class KeyOf>
struct Compose {
  RowSort s;
  i64 first;
  KeyOf key_of;
  std::uint32_t* keys;

  __device__ void operator()(i64 i) const {
    const i64 row = i / s.N, place = i % s.N, key = key_of(first + row, place);
    keys[i] =
        static_cast<std::uint32_t>(row * (s.bins + 1) + (key >= 0 && key < s.bins ? key : s.bins));
    s.order[first * s.N + i] = static_cast<std::int32_t>(place);
  }
};

struct Begin {
  RowSort s;
  i64 first;
  const std::uint32_t* keys;

  __device__ void operator()(i64 i) const {
    const std::uint32_t* const row = keys + i / (s.bins + 1) * s.N;
    const auto wanted = static_cast<std::uint32_t>(i);
    i64 begin = 0;
    for (i64 left = s.N; left > 0;) {
      const i64 half = left / 2;
      const bool below = row[begin + half] < wanted;
      begin += below ? half + 1 : 0;
      left = below ? left - half - 1 : half;
    }
    s.begins[first * (s.bins + 1) + i] = static_cast<std::int32_t>(begin);
  }
};

}  // namespace sort_rows_detail

// KeyOf: a struct with `__device__ i64 operator()(i64 row, i64 place) const`.
template <class KeyOf>
void sort_rows(const char* name, const Cuda& device, const RowSort& s, const KeyOf& key_of) {
  using namespace sort_rows_detail;
  const i64 told_apart = std::numeric_limits<std::uint32_t>::max() / (s.bins + 1);
  const i64 most = std::min(s.rows, told_apart);
  const Workspace<std::uint32_t> keys(device, most * s.N);
  for (i64 first = 0; first < s.rows; first += most) {
    const i64 some = std::min(most, s.rows - first), count = some * s.N;
    for_elements(name, device, count, Compose<KeyOf>{s, first, key_of, keys.data()});
    sort_by_key(name, device, count, keys.data(), s.order + first * s.N);
    if (s.begins == nullptr) continue;
    for_elements(name, device, some * (s.bins + 1), Begin{s, first, keys.data()});
  }
}

}  // namespace weft
