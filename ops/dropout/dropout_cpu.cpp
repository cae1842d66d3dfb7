#include "ops/dropout/kernels.h"
#include "ops/dropout/mask_vectors.h"
#include "runtime/parallel.h"

namespace weft {
namespace {

constexpr i64 grain = 1 << 15;  // elements that one task draws

}  // namespace

template <class Device, class S>
void DropoutKernels<Device, S>::apply(const Device&, const DropoutMask& mask, i64 count, const S* x,
                                      S* y) {
  const i64 columns = mask.columns;
  if (columns % DropoutMask::pieces == 0) {  // indices continue from row to row: one long row
    return parallel_ranges(count, grain, [&](i64 begin, i64 end) {
      apply_dropout<S>(mask, 0, begin, end - begin, x + begin, y + begin);
    });
  }
  const i64 rows = count / columns;
  const i64 together = std::max<i64>(1, grain / columns);
  parallel_ranges(rows, together, [&](i64 begin, i64 end) {
    for (i64 row = begin; row < end; ++row) {
      apply_dropout<S>(mask, row, 0, columns, x + row * columns, y + row * columns);
    }
  });
}

template struct DropoutKernels<Cpu, float>;
template struct DropoutKernels<Cpu, double>;
template struct DropoutKernels<Cpu, bf16>;

}  // namespace weft
