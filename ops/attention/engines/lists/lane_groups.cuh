// Products with rows that an index selects, and sums of such rows, by a team of threads. For .cu
// files.
//
// A row is read by 8, 16 or 32 adjacent lanes, a group, so that several short rows are read at
// once. Bound by what is gathered (unmeasured).
#pragma once

#include "runtime/cuda/loops.h"
#include "runtime/view.h"

namespace weft {

// Rows of one batch item and head, or the vectors of types.
template <class T>
struct RowsOf {
  const T* data;
  i64 row, column, width;

  __device__ RowsOf(const View<const T, 4>& x, i64 b, i64 h)
      : data(x.data + b * x.stride(0) + h * x.stride(2)),
        row(x.stride(1)),
        column(x.stride(3)),
        width(x.size(3)) {}
  __device__ explicit RowsOf(const View<const T, 2>& x)
      : data(x.data), row(x.stride(0)), column(x.stride(1)), width(x.size(1)) {}
  __device__ const T& at(i64 i, i64 e) const { return data[i * row + e * column]; }
};

// The groups of a team for rows of `width` elements, and the place of this thread among them.
template <class Team>
struct LaneGroups {
  int across, own, group, groups;

  __device__ LaneGroups(const Team& team, i64 width)
      : across(width <= 8    ? 8
               : width <= 16 ? 16
                             : 32),
        own(static_cast<int>(team.rank()) % across),
        group(static_cast<int>(team.rank()) / across),
        groups(static_cast<int>(Team::threads) / across) {}

  // to[t] = scale x[i] · rows[index(t)]. A lane keeps the product of one turn, so that all write
  // together.
  template <class T, class Index>
  __device__ void dots(T scale, const RowsOf<T>& x, i64 i, const RowsOf<T>& rows, i64 count,
                       const Index& index, T* to) const {
    for (i64 begin = 0; begin < count; begin += across * groups) {
      T held = 0;
      for (int turn = 0; turn < across && begin + turn * groups < count; ++turn) {
        const i64 t = begin + turn * groups + group;
        T part = 0;
        if (t < count) {
          const i64 j = index(t);
          for (i64 e = own; e < rows.width; e += across) part += x.at(i, e) * rows.at(j, e);
        }
        for (int by = across / 2; by > 0; by /= 2) part += __shfl_xor_sync(0xffffffffu, part, by);
        if (turn == own) held = part;
      }
      const i64 t = begin + own * groups + group;
      if (t < count) to[t] = scale * held;
    }
  }
  // Σ_t weights(t) rows[index(t)][e] of this group's t, `at_once` of which are gathered together.
  template <int at_once = 1, class T, class Weight, class Index>
  __device__ T weighted(const RowsOf<T>& rows, i64 e, i64 count, const Weight& weights,
                        const Index& index) const {
    T part = 0;
    if (e >= rows.width) return part;
#pragma unroll at_once
    for (i64 t = group; t < count; t += groups) part += weights(t) * rows.at(index(t), e);
    return part;
  }
  // Calls f(e, Σ part(e) over all groups) once for each column.
  template <class Part, class F>
  __device__ void columns(i64 width, const Part& part, const F& f) const {
    for (i64 e = own; e - own < width; e += across) {
      const auto sum = joined(part(e));
      if (group == 0 && e < width) f(e, sum);
    }
  }

 private:
  // Reduces over all groups of the team, for each lane of a group; the first group has the result.
  template <class T>
  __device__ T joined(T x) const {
    for (int by = across; by < 32; by *= 2) x += __shfl_xor_sync(0xffffffffu, x, by);
    if constexpr (Team::threads > 32) {
      __shared__ T of_lanes[Team::threads];
      of_lanes[threadIdx.x] = x;
      __syncthreads();
      x = 0;
      for (unsigned lane = threadIdx.x % 32; lane < Team::threads; lane += 32) x += of_lanes[lane];
      __syncthreads();  // before the next call writes
    }
    return x;
  }
};

}  // namespace weft
