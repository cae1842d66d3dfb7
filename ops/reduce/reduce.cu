// CUDA kernels of the sums: short ones by a thread each, those along the last axis by a warp or a
// block, those of columns by blocks (column_sums.cuh). Every element is read once, 4 bytes in f32
// for one addition in f64: bound by memory bandwidth (estimated).
#include "ops/reduce/column_sums.cuh"
#include "runtime/cuda/workspace.h"

namespace weft {
namespace {

// A thread computes one sum.
template <class From, class To>
struct ShortSum {
  i64 n, inner;
  const From* x;
  To* s;

  __device__ void operator()(i64 i) const {
    const From* from = x + i / inner * n * inner + i % inner;
    double sum = 0;
#pragma unroll 4
    for (i64 k = 0; k < n; ++k) sum += convert<double>(from[k * inner]);
    s[i] = convert<To>(sum);
  }
};

// A team computes one piece of a sum of contiguous elements.
template <class From, class To>
struct PieceSum {
  i64 n, pieces;
  const From* x;
  To* partial;

  template <class Team>
  __device__ void operator()(const Team& team, i64 row) const {
    const i64 piece = (n + pieces - 1) / pieces, k = row % pieces;
    const i64 end = std::min(n, (k + 1) * piece);
    const From* const from = x + row / pieces * n;
    double part = 0;
#pragma unroll 4
    for (i64 i = k * piece + team.rank(); i < end; i += Team::threads) {
      part += convert<double>(from[i]);
    }
    part = team.sum(part);
    if (team.rank() == 0) partial[row] = convert<To>(part);
  }
};

template <class From>
struct ColumnElement {
  i64 n, inner;
  const From* x;

  __device__ void operator()(i64 o, i64 i, i64 j,
                             double (&sums)[1]) const {
    sums[0] += convert<double>(x[(o * n + i) * inner + j]);
  }
};

}  // namespace

template <class Device, class From, class To>
void PieceSumKernels<Device, From, To>::sum(const Device& device, const SumSizes& s, i64 pieces,
                                            const From* x, To* partial) {
  if (s.n <= shortest_sum) {
    const ShortSum<From, To> each{s.n, s.inner, x, partial};
    for_elements("sum", device, s.outer * s.inner, each);
  } else if (s.inner == 1) {
    const PieceSum<From, To> each{s.n, pieces, x, partial};
    for_rows("sum", device, s.outer * pieces, (s.n + pieces - 1) / pieces, each);
  } else {
    const ColumnElement<From> element{s.n, s.inner, x};
    column_sums<1>("sum", device, s, pieces, element, partial);
  }
}

template <class Device, class S>
void SumKernels<Device, S>::sum(const Device& device, const SumSizes& sizes, const S* x, S* s) {
  const i64 pieces = sum_pieces(sizes);
  if (pieces == 1) return PieceSumKernels<Device, S, S>::sum(device, sizes, 1, x, s);
  const SumSizes rest{sizes.outer, pieces, sizes.inner};
  const Workspace<double> partial(device, rest.outer * rest.n * rest.inner);
  PieceSumKernels<Device, S, double>::sum(device, sizes, pieces, x, partial.data());
  PieceSumKernels<Device, double, S>::sum(device, rest, 1, partial.data(), s);
}

template struct PieceSumKernels<Cuda, float, float>;
template struct PieceSumKernels<Cuda, float, double>;
template struct PieceSumKernels<Cuda, double, float>;
template struct PieceSumKernels<Cuda, double, double>;
template struct PieceSumKernels<Cuda, bf16, bf16>;
template struct PieceSumKernels<Cuda, bf16, double>;
template struct PieceSumKernels<Cuda, double, bf16>;
template struct SumKernels<Cuda, float>;
template struct SumKernels<Cuda, double>;
template struct SumKernels<Cuda, bf16>;

}  // namespace weft
