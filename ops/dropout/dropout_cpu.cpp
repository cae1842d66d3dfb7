#include "ops/dropout/kernels.h"
#include "ops/dropout/mask_vectors.h"
#include "runtime/parallel.h"

namespace weft {
namespace {

constexpr std::int64_t grain = 1 << 15;  // elements that one piece of parallel work draws

}  // namespace

template <class Device, class T>
void DropoutKernels<Device, T>::apply(const Device&, const DropoutMask& mask, std::int64_t count,
                                      const T* x, T* y) {
  const std::int64_t columns = mask.columns;
  if (columns % DropoutMask::pieces == 0) {  // the indices run on from row to row: one long row
    return parallel_ranges(count, grain, [&](std::int64_t begin, std::int64_t end) {
      apply_dropout<T>(mask, 0, begin, end - begin, x + begin, y + begin);
    });
  }
  const std::int64_t rows = count / columns;
  const std::int64_t together = std::max<std::int64_t>(1, grain / columns);
  parallel_ranges(rows, together, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      apply_dropout<T>(mask, row, 0, columns, x + row * columns, y + row * columns);
    }
  });
}

template struct DropoutKernels<Cpu, float>;
template struct DropoutKernels<Cpu, double>;

}  // namespace weft
