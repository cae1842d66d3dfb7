// CUDA kernels of layer normalisation; the equations are in layer_norm.h.
//
// In f32, forward moves 12 bytes an element (16 with a branch) with about 10 operations; backward
// moves 12 (16) for the rows and 8 for the sums over columns: bound by memory bandwidth
// (estimated).
#include "ops/dropout/warp_mask.cuh"
#include "ops/layer_norm/kernels.h"
#include "ops/reduce/column_sums.cuh"
#include "runtime/cuda/workspace.h"

namespace weft {
namespace {

// A row is processed by a warp, which holds it in registers, in chunks of 256 columns, eight in
// each thread; with more than 1024 columns, by a block, whose warps take chunks in turn and read
// them again when needed (Chunks = 0).
template <int Chunks, class Team, class F>
__device__ void each_chunk(i64 d, const F& f) {
  if constexpr (Chunks > 0) {
#pragma unroll
    for (int c = 0; c < Chunks; ++c) {
      if (c * WarpMask::columns < d) f(c * WarpMask::columns, c * WarpMask::each);
    }
  } else {
    constexpr i64 step = WarpMask::each * Team::threads;
    for (i64 begin = threadIdx.x / 32 * WarpMask::columns; begin < d; begin += step) {
      f(begin, 0);
    }
  }
}

// Calls f(column, slot) for the columns of this thread; its slots are numbered in registers.
template <int Chunks, class Team, class F>
__device__ void each_column(i64 d, const F& f) {
  each_chunk<Chunks, Team>(d, [&](i64 begin, int slot) {
#pragma unroll
    for (int k = 0; k < WarpMask::each; ++k) {
      const i64 j = begin + 32 * k + threadIdx.x % 32;
      if (j < d) f(j, slot + k);
    }
  });
}

// The same with the mask: f(column, slot, whether it is kept).
template <int Chunks, class Team, class F>
__device__ void each_masked(const DropoutMask& mask, i64 row, i64 d, const F& f) {
  if (mask.threshold == 0) {
    return each_column<Chunks, Team>(d, [&](i64 j, int slot) { f(j, slot, true); });
  }
  each_chunk<Chunks, Team>(d, [&](i64 begin, int slot) {
    const WarpMask kept(mask, row, begin, d);
#pragma unroll
    for (int k = 0; k < WarpMask::each; ++k) {
      const i64 j = begin + 32 * k + threadIdx.x % 32;
      const bool keep = kept.keeps(k);
      if (j < d) f(j, slot + k, keep);
    }
  });
}

// A thread's part of its row: in registers, or in memory.
template <class T, int Chunks>
struct Kept {
  T value[Chunks * WarpMask::each];
  __device__ explicit Kept(T*) {}
  __device__ T& at(i64, int slot) { return value[slot]; }
};
template <class T>
struct Kept<T, 0> {
  T* row;
  __device__ explicit Kept(T* row) : row(row) {}
  __device__ T& at(i64 j, int) { return row[j]; }
};

template <class S, int Chunks>
struct ForwardRow {
  using T = Accumulator<S>;
  LayerNormRows<S> p;
  T *normalised, *inverse_deviation;
  S* y;

  template <class Team>
  __device__ void operator()(const Team& team, i64 row) const {
    const i64 d = p.d, start = row * d;
    const T factor = static_cast<T>(p.mask.factor);
    Kept<T, Chunks> z(normalised + start);
    T part = 0;
    each_masked<Chunks, Team>(p.mask, row, d, [&](i64 j, int slot, bool kept) {
      T value = widen(p.x[start + j]);
      if (p.branch != nullptr) {
        const T branch = widen(p.branch[start + j]);
        value = p.dropout_on == DropoutOn::sum ? (kept ? (value + branch) * factor : T(0))
                                               : (kept ? value + branch * factor : value);
      }
      z.at(j, slot) = value;
      part += value;
    });
    const T mean = team.sum(part) / static_cast<T>(d);
    part = 0;
    each_column<Chunks, Team>(d, [&](i64 j, int slot) {
      const T centred = z.at(j, slot) - mean;
      part += centred * centred;
    });
    const T scale = 1 / std::sqrt(team.sum(part) / static_cast<T>(d) + p.epsilon);
    if (team.rank() == 0) inverse_deviation[row] = scale;
    each_column<Chunks, Team>(d, [&](i64 j, int slot) {
      const T unit = (z.at(j, slot) - mean) * scale;
      normalised[start + j] = unit;
      y[start + j] = convert<S>(p.gain[j] * unit + p.bias[j]);
    });
  }
};

template <class S, int Chunks>
struct BackwardRow {
  using T = Accumulator<S>;
  LayerNormRows<S> p;
  const T *normalised, *inverse_deviation;
  const S* dy;
  S *dx, *dbranch;

  template <class Team>
  __device__ void operator()(const Team& team, i64 row) const {
    const i64 d = p.d, start = row * d;
    const T factor = static_cast<T>(p.mask.factor);
    constexpr int slots = Chunks > 0 ? Chunks * WarpMask::each : 1;
    T units[slots], dunits[slots];
    T part = 0, product = 0;
    each_column<Chunks, Team>(d, [&](i64 j, int slot) {
      const T unit = normalised[start + j], dunit = p.gain[j] * widen(dy[start + j]);
      part += dunit;
      product += dunit * unit;
      if constexpr (Chunks > 0) units[slot] = unit, dunits[slot] = dunit;
    });
    const T mean = team.sum(part) / static_cast<T>(d);
    const T slope = team.sum(product) / static_cast<T>(d);
    const T scale = inverse_deviation[row];
    each_masked<Chunks, Team>(p.mask, row, d, [&](i64 j, int slot, bool kept) {
      T unit, dunit;
      if constexpr (Chunks > 0) {
        unit = units[slot], dunit = dunits[slot];
      } else {
        unit = normalised[start + j], dunit = p.gain[j] * widen(dy[start + j]);
      }
      const T dz = scale * (dunit - mean - slope * unit), dropped = kept ? dz * factor : T(0);
      dx[start + j] = convert<S>(p.dropout_on == DropoutOn::sum ? dropped : dz);
      if (dbranch != nullptr) dbranch[start + j] = convert<S>(dropped);
    });
  }
};

template <class Team, class Row>
void start_rows(const Cuda& device, i64 rows, const Row& row) {
  if (rows == 0) return;
  start("layer_norm", device, blocks_for(device, rows * Team::threads, row_threads), row_threads, 0,
        each_row<Team, Row>, rows, row);
}

template <template <class, int> class Row, class S, class... Arguments>
void each_row_of(const Cuda& device, const LayerNormRows<S>& p, Arguments... arguments) {
  if (p.d <= WarpMask::columns) {
    start_rows<WarpTeam>(device, p.rows, Row<S, 1>{p, arguments...});
  } else if (p.d <= 2 * WarpMask::columns) {
    start_rows<WarpTeam>(device, p.rows, Row<S, 2>{p, arguments...});
  } else if (p.d <= 4 * WarpMask::columns) {
    start_rows<WarpTeam>(device, p.rows, Row<S, 4>{p, arguments...});
  } else {
    start_rows<BlockTeam<row_threads>>(device, p.rows, Row<S, 0>{p, arguments...});
  }
}

template <class S>
struct GainAndBias {
  i64 d;
  const Accumulator<S>* normalised;
  const S* dy;

  __device__ void operator()(i64, i64 i, i64 j,
                             double (&sums)[2]) const {
    const auto gradient = convert<double>(dy[i * d + j]);
    sums[0] += gradient * static_cast<double>(normalised[i * d + j]);
    sums[1] += gradient;
  }
};

}  // namespace

template <class Device, class S>
void LayerNormKernels<Device, S>::forward(const Device& device, const LayerNormRows<S>& p,
                                          T* normalised, T* inverse_deviation, S* y) {
  each_row_of<ForwardRow>(device, p, normalised, inverse_deviation, y);
}

template <class Device, class S>
void LayerNormKernels<Device, S>::backward(const Device& device, const LayerNormRows<S>& p,
                                           const T* normalised, const T* inverse_deviation,
                                           const S* dy, S* dx, S* dbranch, T* sums) {
  each_row_of<BackwardRow>(device, p, normalised, inverse_deviation, dy, dx, dbranch);
  const SumSizes sizes{1, p.rows, p.d};
  const i64 pieces = sum_pieces(sizes);
  const GainAndBias<S> products{p.d, normalised, dy};
  if (pieces == 1) return column_sums<2>("layer_norm", device, sizes, 1, products, sums);
  const Workspace<double> partial(device, 2 * pieces * p.d);
  column_sums<2>("layer_norm", device, sizes, pieces, products, partial.data());
  PieceSumKernels<Device, double, T>::sum(device, {2, pieces, p.d}, 1, partial.data(), sums);
}

template struct LayerNormKernels<Cuda, float>;
template struct LayerNormKernels<Cuda, double>;
template struct LayerNormKernels<Cuda, bf16>;

}  // namespace weft
