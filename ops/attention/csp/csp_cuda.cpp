// Channel-wise sample permutation on a CUDA device: its steps in order, and the room for long
// groups.
#include <algorithm>
#include <utility>

#include "ops/attention/csp/steps.h"
#include "runtime/cuda/device.h"
#include "runtime/tensor.h"

namespace weft {
namespace {

// Orders groups of more than csp_ranked for some channels: keeps the order, or hands it out in
// `found`.
template <class T>
void order_long(const Cuda& device, const CspProblem& p, const View<const T, 4>& v,
                std::int64_t channels, const std::uint32_t* places, std::uint32_t* found) {
  using Entry = CspEntry<T>;
  const std::int64_t G = p.group_of(p.N), columns = p.B * channels;
  if (G <= csp_run<T>) {
    sort_groups<T>(device, p, v, {0, columns, channels}, places, found, nullptr);
    return;
  }
  // Two lists of entries for as many columns at a time as leave them no longer than the gradient of
  // v will be.
  constexpr std::int64_t entries_of_a_sample = 2 * sizeof(Entry) / sizeof(T);
  const std::int64_t most = std::max<std::int64_t>(1, p.B * p.C / entries_of_a_sample);
  const std::int64_t length = std::min(most, columns) * p.N;
  const Tensor room = Tensor::empty({2, length, std::int64_t(sizeof(Entry))}, DType::u8, device);
  Entry* const lists = reinterpret_cast<Entry*>(room.data<std::uint8_t>());
  for (std::int64_t first = 0; first < columns; first += most) {
    const CspColumns some{first, std::min(most, columns - first), channels};
    Entry *sorted = lists, *other = lists + length;
    sort_groups<T>(device, p, v, some, nullptr, nullptr, sorted);
    for (std::int64_t run = csp_run<T>; run < G; run *= 2) {
      merge_runs<T>(device, p, some, run, sorted, other);
      std::swap(sorted, other);
    }
    keep_order<T>(device, p, some, sorted, places, found);
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
    const bool aligned = p.order == CspOrder::reference;
    const Tensor of_first = Tensor::empty({aligned ? p.B : 0, p.N}, DType::i32, device);
    auto* const places = reinterpret_cast<std::uint32_t*>(of_first.data<std::int32_t>());
    if (aligned) order_long<T>(device, p, v, 1, nullptr, places);
    order_long<T>(device, p, v, p.C, aligned ? places : nullptr, nullptr);
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
