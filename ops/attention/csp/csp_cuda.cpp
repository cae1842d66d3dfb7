// Channel-wise sample permutation on a CUDA device: its steps in order, and the room for long
// groups.
#include <algorithm>

#include "ops/attention/csp/steps.h"
#include "runtime/cuda/device.h"
#include "runtime/tensor.h"

namespace weft {
namespace {

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
  const Tensor keys = Tensor::empty({2, length, item}, DType::u8, device);
  const Tensor offsets = Tensor::empty({2, length}, DType::i32, device);
  const CspLists<T> lists{reinterpret_cast<CspKey<T>*>(keys.data<std::uint8_t>()),
                          reinterpret_cast<std::uint32_t*>(offsets.data<std::int32_t>())};
  for (std::int64_t first = 0; first < columns; first += some) {
    radix_groups<T>(device, p, v, {first, std::min(some, columns - first)}, places, lists);
  }
}

}  // namespace

template <class T>
void csp_forward(const Cuda& device, const CspProblem& p, View<const T, 4> v, View<T, 4> out) {
  if (p.B * p.N * p.C == 0) return;
  if (p.record == CspRecord::nothing || p.record == CspRecord::pairs) {
    move_samples<T>(device, p, v, out);
    return;
  }
  if (!p.decided && p.group_of(p.N) <= csp_ranked) {
    rank_groups<T>(device, p, v);
  } else if (!p.decided) {
    Tensor room;
    const std::uint32_t* places = nullptr;
    if (p.order == CspOrder::reference) {  // of the first channel, as if there were no other
      CspProblem alone = p;
      alone.C = 1;
      alone.record = CspRecord::wide;
      room = Tensor::empty({p.B, CspProblem::row_bytes(alone.record, p.N)}, DType::u8, device);
      alone.kept = room.data<std::uint8_t>();
      order_long<T>(device, alone, v, nullptr);
      places = alone.offsets<std::uint32_t>(0, 0);
    }
    order_long<T>(device, p, v, places);
  }
  take_samples<T>(device, p, v, out);
}

template <class T>
void csp_backward(const Cuda& device, const CspProblem& p, View<const T, 4> dout, View<T, 4> dv) {
  if (p.B * p.N * p.C > 0) return_samples<T>(device, p, dout, dv);
}

#define WEFT_CSP(T)                                                                        \
  template void csp_forward(const Cuda&, const CspProblem&, View<const T, 4>, View<T, 4>); \
  template void csp_backward(const Cuda&, const CspProblem&, View<const T, 4>, View<T, 4>);
WEFT_CSP(float)
WEFT_CSP(double)

}  // namespace weft
