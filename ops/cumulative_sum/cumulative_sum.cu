// CUDA kernels of the cumulative sums. If there are many contiguous columns, a thread computes one,
// with coalesced accesses. Otherwise a warp computes a column: its lanes scan 32 positions of the
// axis at a time and add the sum of those before. Each element is read and written once: bound by
// memory bandwidth if there are enough columns to fill the device.
#include "ops/cumulative_sum/kernels.h"
#include "runtime/cuda/loops.h"

namespace weft {
namespace {

constexpr unsigned warp = WarpTeam::threads;

template <class T>
struct ThreadColumn {
  View<const T, 3> x;
  View<T, 3> y;

  __device__ void operator()(i64 column) const {
    const i64 o = column / x.size(2), j = column % x.size(2);
    double sum = 0;
    for (i64 i = 0; i < x.size(1); ++i) {
      sum += static_cast<double>(x(o, i, j));
      y(o, i, j) = static_cast<T>(sum);
    }
  }
};

template <class T>
struct WarpColumn {
  View<const T, 3> x;
  View<T, 3> y;

  __device__ void operator()(const WarpTeam& team, i64 column) const {
    const i64 o = column / x.size(2), j = column % x.size(2), n = x.size(1);
    double before = 0;
    for (i64 begin = 0; begin < n; begin += warp) {
      const i64 i = begin + team.rank();
      double sum = i < n ? static_cast<double>(x(o, i, j)) : 0;
#pragma unroll
      for (unsigned by = 1; by < warp; by *= 2) {
        const double left = __shfl_up_sync(0xffffffffu, sum, by);
        if (team.rank() >= by) sum += left;
      }
      sum += before;
      if (i < n) y(o, i, j) = static_cast<T>(sum);
      before = __shfl_sync(0xffffffffu, sum, warp - 1);
    }
  }
};

}  // namespace

template <class Device, class T>
void CumulativeSumKernels<Device, T>::sum(const Device& device, View<const T, 3> x, View<T, 3> y) {
  const char* const name = "cumulative_sum";
  const i64 columns = x.size(0) * x.size(2);
  if (x.size(2) >= warp) return for_elements(name, device, columns, ThreadColumn<T>{x, y});
  start(name, device, blocks_for(device, columns * warp, row_threads), row_threads, 0,
        each_row<WarpTeam, WarpColumn<T>>, columns, WarpColumn<T>{x, y});
}

template struct CumulativeSumKernels<Cuda, float>;
template struct CumulativeSumKernels<Cuda, double>;

}  // namespace weft
