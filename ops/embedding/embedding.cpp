#include "ops/embedding/embedding.h"

#include <limits>

#include "ops/embedding/kernels.h"
#include "runtime/dispatch.h"

namespace weft {

namespace {

// Throws if an id is not in 0 … V − 1 and the host can see that without waiting.
void check_ids(const Tensor& ids, i64 V) {
  if (ids.device() != Device{}) return;
  const i64* const numbers = ids.data<i64>();
  for (i64 p = 0; p < ids.count(); ++p) {
    require(0 <= numbers[p] && numbers[p] < V,
            "embedding: the id at position {} of {} is {}, but the table has {} rows", p,
            ids.shape(), numbers[p], V);
  }
}

}  // namespace

Tensor Embedding::forward(Saved& saved, const Tensor& table, const Tensor& ids) const {
  require_real(name, table);
  require(table.rank() == 2, "embedding: wanted a table [V, d], got {}", table.shape());
  require(ids.dtype() == DType::i64 || ids.dtype() == DType::i32,
          "embedding: wanted ids in i64 or i32, got {}", name_of(ids.dtype()));
  saved = {ids.to(DType::i64).packed(), table.shape()};
  const i64 count = ids.count(), V = table.size(0), d = table.size(1);
  check_ids(saved.ids, V);
  Shape shape = ids.shape();
  shape.push_back(d);
  const Tensor y = Tensor::empty(shape, table.dtype(), table.device());
  const Tensor rows = table.packed();
  if (d > 0) {
    dispatch_floating(y, [&](auto device, auto type) {
      using T = decltype(type);
      EmbeddingKernels<decltype(device), T>::forward(device, count, V, d, rows.data<T>(),
                                                     saved.ids.data<i64>(), y.data<T>());
    });
  }
  return y;
}

std::array<Tensor, 2> Embedding::backward(const Saved& saved, const Tensor& dy) const {
  constexpr i64 most = std::numeric_limits<std::int32_t>::max();  // of the sort's keys
  require(dy.device() == Device{} || (saved.ids.count() <= most && saved.shape[0] <= most),
          "embedding: wanted at most {} ids and rows of the table on a CUDA device, got {} and {}; "
          "split them, or use the CPU",
          most, saved.ids.count(), saved.shape[0]);
  const Tensor row_major = dy.packed();
  const Tensor dtable = Tensor::empty(saved.shape, dy.dtype(), dy.device());
  dispatch_floating(dy, [&](auto device, auto type) {
    using T = decltype(type);
    EmbeddingKernels<decltype(device), T>::backward(device, saved.ids.count(), saved.shape[0],
                                                    saved.shape[1], row_major.data<T>(),
                                                    saved.ids.data<i64>(), dtable.data<T>());
  });
  return {dtable, Tensor{}};
}

Variable embedding(const Variable& table, const Tensor& ids) {
  return apply(Embedding{}, table, Variable(ids));
}

}  // namespace weft
