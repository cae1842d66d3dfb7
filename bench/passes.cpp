#include "bench/passes.h"

#include "autograd/gradcheck.h"
#include "autograd/tape.h"
#include "runtime/allocator.h"

namespace weft::bench {

Passes measure_passes(const Subject& subject, Device device, const PassLimits& limits,
                      const Clock& clock, const std::function<bool()>& stop) {
  constexpr int most_runs = 1000;
  CachingAllocator& memory = allocator(device);
  const double start = clock();
  Passes passes;
  Tensor dout;
  std::size_t output = 0;  // bytes, as the allocator rounds them
  double total = 0;
  const auto enough = [&](int run) {
    if (run < 2) return false;  // one to warm up, one to measure
    if (limits.most_seconds > 0 && clock() - start > limits.most_seconds) return true;
    return run > most_runs || (run > limits.runs && total >= limits.seconds);
  };
  for (int run = 0; !enough(run); ++run) {
    for (const Variable& leaf : subject.leaves) leaf.place()->clear();
    memory.reset_peak();
    const std::size_t before = memory.counts().live;
    wait_for(device);
    Tape tape;
    const double begin = clock();
    const Variable out = subject.forward();
    wait_for(device);
    const double middle = clock();
    const std::size_t between = memory.counts().live;
    if (run == 0) {
      dout = random_normal(out.shape(), out.value().dtype(), 99).to(device);
      output = memory.counts().live - between;
      wait_for(device);
    }
    const double again = clock();
    tape.backward(out, dout);
    wait_for(device);
    const double end = clock();
    if (run > 0) {
      passes.forward.push_back(middle - begin);
      passes.backward.push_back(end - again);
      total += middle - begin + end - again;
      passes.saved_bytes = between - before - output;
      passes.peak_bytes = memory.counts().peak - before;
    }
    if (stop()) throw Interrupted{};
  }
  return passes;
}

}  // namespace weft::bench
