// LSH attention on CUDA devices: scratch, and the order of the kernels. Rounds follow each other,
// so that what they add to has one owner at a time.
#include "ops/attention/lsh/work.h"
#include "runtime/cuda/device.h"
#include "runtime/tensor.h"

namespace weft {
namespace {

// The scratch of a call; freed memory is used again only by what the stream does later.
template <class T>
class Scratch {
 public:
  LshWork<T> work;

  Scratch(const Cuda& device, const Lsh<T>& p)
      : work{p, DropoutMask(p.random, p.dropout, 2 * p.chunk(p.N()))}, device_(device) {
    const std::int64_t rows = p.B() * p.H() * p.N(), R = p.rules.rounds;
    work.lists = take<std::int32_t>(R * rows);
    if (lsh_passes(p.rules.buckets) > 1) work.spare = take<std::int32_t>(R * rows);
    if (p.rules.correct) work.chunks = take<std::int32_t>(R * rows);
    work.inverse_norms = take<T>(rows);
    lsh_sort(device, work);
  }

  void add_backward() {
    const Lsh<T>& p = work.p;
    const std::int64_t rows = p.B() * p.H() * p.N(), R = p.rules.rounds;
    work.dk = take<T>(rows * p.E());
    work.deltas = take<T>(p.rules.logsumexp ? rows : R * rows);
    const bool alone = !p.rules.logsumexp && p.rules.self == LshSelf::last;
    if (alone) work.alone = take<T>(R * rows);
  }

 private:
  template <class Item>
  Item* take(std::int64_t count) {
    pieces_.push_back(Tensor::empty({count}, dtype_of<Item>, device_));
    return pieces_.back().data<Item>();
  }

  Device device_;
  std::vector<Tensor> pieces_;
};

}  // namespace

template <class T>
void lsh_forward(const Cuda& device, const Lsh<T>& p, View<T, 4> out, View<T, 4> log_sums) {
  if (p.B() * p.N() * p.H() == 0) return;
  const Scratch<T> scratch(device, p);
  lsh_start(device, scratch.work, out, log_sums);
  for (std::int32_t r = 0; r < p.rules.rounds; ++r) {
    lsh_attend(device, scratch.work, r, out, log_sums);
  }
}

template <class T>
void lsh_backward(const Cuda& device, const Lsh<T>& p, View<const T, 4> out,
                  View<const T, 4> log_sums, View<const T, 4> dout, View<T, 4> dq,
                  View<T, 4> dv) {
  if (p.B() * p.N() * p.H() == 0) return;
  Scratch<T> scratch(device, p);
  scratch.add_backward();
  const LshWork<T>& work = scratch.work;
  const LshGradient<T> gradient{out, log_sums, dout};
  lsh_start_backward(device, work, gradient, dq, dv);
  for (std::int32_t r = 0; r < p.rules.rounds; ++r) {
    lsh_backward_queries(device, work, gradient, r, dq);
  }
  for (std::int32_t r = 0; r < p.rules.rounds; ++r) {
    lsh_backward_keys(device, work, gradient, r, dv);
  }
  lsh_finish_backward(device, work, dq);
}

#define WEFT_LSH_CUDA(T)                                                                       \
  template void lsh_forward(const Cuda&, const Lsh<T>&, View<T, 4>, View<T, 4>);               \
  template void lsh_backward(const Cuda&, const Lsh<T>&, View<const T, 4>, View<const T, 4>,   \
                             View<const T, 4>, View<T, 4>, View<T, 4>);
WEFT_LSH_CUDA(float)
WEFT_LSH_CUDA(double)

}  // namespace weft
