// The op on the kernels of directed.h.
#include "ops/attention/biblosa/directed.h"

#include "runtime/dispatch.h"

namespace weft {
namespace {

template <class T>
Directed<T> problem(const DirectedAttention& op, const DirectedAttention::Saved& saved) {
  const i64* const lengths = op.lengths.defined() ? op.lengths.data<i64>() : nullptr;
  return {saved.scores.view<const T, 3>(),
          saved.h.view<const T, 3>(),
          {op.size, saved.h.size(1), lengths},
          op.later};
}

}  // namespace

Tensor DirectedAttention::forward(Saved& saved, const Tensor& scores, const Tensor& h) const {
  require_real(name, h);
  Shape both = h.shape();
  if (h.rank() == 3) both[2] *= 2;
  require(h.rank() == 3 && scores.shape() == both && scores.dtype() == h.dtype() && size >= 1,
          "{}: wanted h [B, N, C] and scores [B, N, 2C] in blocks of at least one position, got {} "
          "and {} in blocks of {}",
          name, h.shape(), scores.shape(), size);
  require(!lengths.defined() || (lengths.shape() == Shape{h.size(0)} && lengths.contiguous() &&
                                 lengths.dtype() == DType::i64),
          "{}: lengths must be [{}] of i64, got {} of {}", name, h.size(0), lengths.shape(),
          name_of(lengths.dtype()));
  const auto made = [&] { return Tensor::empty(h.shape(), h.dtype(), h.device()); };
  saved = {scores.packed(), h.packed(), made(), made()};
  dispatch(h, [&](auto device, auto type) {
    using T = decltype(type);
    DirectedKernels<decltype(device), T>::forward(device, problem<T>(*this, saved),
                                                  saved.s.view<T, 3>(), saved.sums.view<T, 3>());
  });
  return saved.s;
}

std::array<Tensor, 2> DirectedAttention::backward(const Saved& saved, const Tensor& ds) const {
  const Tensor dscores = Tensor::empty_like(saved.scores), dh = Tensor::empty_like(saved.h);
  const Tensor packed = ds.packed();
  dispatch(ds, [&](auto device, auto type) {
    using T = decltype(type);
    DirectedKernels<decltype(device), T>::backward(
        device, problem<T>(*this, saved), saved.s.view<const T, 3>(), saved.sums.view<const T, 3>(),
        packed.view<const T, 3>(), dscores.view<T, 3>(), dh.view<T, 3>());
  });
  return {dscores, dh};
}

Variable directed_attention(const Variable& scores, const Variable& h, i64 size, bool later,
                            const Tensor& lengths) {
  return apply(DirectedAttention{size, later, lengths}, scores, h);
}

}  // namespace weft
