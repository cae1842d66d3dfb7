#include "runtime/prepared.h"

#include <algorithm>
#include <vector>

namespace weft {

struct PreparedLayouts {
  struct Made {
    const bf16* data;
    Shape shape, strides;
    PreparedRight layout;
  };
  std::vector<Made> made;
};

namespace {

PreparedRight prepared_anew(const Tensor& matrix) {
  const bool transposed = matrix.stride(1) != 1;
  return PreparedRight(transposed, matrix.size(0), matrix.size(1), matrix.data<bf16>(),
                       matrix.stride(transposed ? 1 : 0));
}

}  // namespace

PreparedRight prepared(const Tensor& matrix) {
  PreparedLayouts* const kept = matrix.prepared_layouts().get();
  if (kept == nullptr) return prepared_anew(matrix);
  const bf16* const data = matrix.data<bf16>();
  const auto found = std::ranges::find_if(kept->made, [&](const PreparedLayouts::Made& known) {
    return known.data == data && known.shape == matrix.shape() && known.strides == matrix.strides();
  });
  if (found != kept->made.end()) return found->layout;
  kept->made.push_back({data, matrix.shape(), matrix.strides(), prepared_anew(matrix)});
  return kept->made.back().layout;
}

void keep_prepared(const Tensor& x) {
  auto& layouts = x.prepared_layouts();
  if (layouts == nullptr) layouts = std::make_shared<PreparedLayouts>();
}

}  // namespace weft
