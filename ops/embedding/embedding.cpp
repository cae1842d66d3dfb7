#include "ops/embedding/embedding.h"

#include <cstring>
#include <numeric>

#include "ops/embedding/kernels.h"
#include "runtime/dispatch.h"
#include "runtime/parallel.h"

namespace weft {
namespace {

constexpr std::int64_t grain = 1 << 15;  // elements that one piece of parallel work copies or adds

}  // namespace

template <class T>
void gather_rows(const Cpu&, std::int64_t count, std::int64_t, std::int64_t d, const T* table,
                 const std::int64_t* ids, T* y) {
  const std::int64_t together = std::max<std::int64_t>(1, grain / d);
  parallel_ranges(count, together, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t p = begin; p < end; ++p) {
      std::memcpy(y + p * d, table + ids[p] * d, static_cast<std::size_t>(d) * sizeof(T));
    }
  });
}

namespace {

// The positions sorted by id, in order among equals; those of id v end at ends[v].
struct Positions {
  std::vector<std::int64_t> sorted, ends;

  Positions(std::int64_t count, std::int64_t V, const std::int64_t* ids)
      : sorted(static_cast<std::size_t>(count)), ends(static_cast<std::size_t>(V + 1)) {
    for (std::int64_t p = 0; p < count; ++p) ++ends[static_cast<std::size_t>(ids[p] + 1)];
    std::partial_sum(ends.begin(), ends.end(), ends.begin());
    for (std::int64_t p = 0; p < count; ++p) {
      sorted[static_cast<std::size_t>(ends[static_cast<std::size_t>(ids[p])]++)] = p;
    }
    ends.pop_back();
  }
};

}  // namespace

template <class T>
void scatter_rows(const Cpu&, std::int64_t count, std::int64_t V, std::int64_t d, const T* dy,
                  const std::int64_t* ids, T* dtable) {
  const Positions positions(count, V, ids);
  const std::int64_t together =
      std::max<std::int64_t>(1, grain * V / std::max<std::int64_t>(1, (count + V) * d));
  parallel_ranges(V, together, [&](std::int64_t begin, std::int64_t end) {
    std::vector<double> sums(static_cast<std::size_t>(d));
    for (std::int64_t v = begin; v < end; ++v) {
      std::fill(sums.begin(), sums.end(), 0.0);
      const std::int64_t first = v == 0 ? 0 : positions.ends[static_cast<std::size_t>(v - 1)];
      for (std::int64_t i = first; i < positions.ends[static_cast<std::size_t>(v)]; ++i) {
        const T* const from = dy + positions.sorted[static_cast<std::size_t>(i)] * d;
        for (std::int64_t j = 0; j < d; ++j) sums[static_cast<std::size_t>(j)] += double(from[j]);
      }
      for (std::int64_t j = 0; j < d; ++j) {
        dtable[v * d + j] = static_cast<T>(sums[static_cast<std::size_t>(j)]);
      }
    }
  });
}

namespace {

// Throws where the host can see, without waiting, that an id is not in 0 … V − 1.
void check_ids(const Tensor& ids, std::int64_t V) {
  if (ids.device() != Device{}) return;
  const std::int64_t* const numbers = ids.data<std::int64_t>();
  for (std::int64_t p = 0; p < ids.count(); ++p) {
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
  const std::int64_t count = ids.count(), V = table.size(0), d = table.size(1);
  check_ids(saved.ids, V);
  Shape shape = ids.shape();
  shape.push_back(d);
  const Tensor y = Tensor::empty(shape, table.dtype(), table.device());
  const Tensor rows = table.packed();
  if (d > 0) {
    dispatch(y, [&](auto device, auto type) {
      using T = decltype(type);
      gather_rows<T>(device, count, V, d, rows.data<T>(), saved.ids.data<std::int64_t>(),
                     y.data<T>());
    });
  }
  return y;
}

std::array<Tensor, 2> Embedding::backward(const Saved& saved, const Tensor& dy) const {
  const Tensor row_major = dy.packed();
  const Tensor dtable = Tensor::empty(saved.shape, dy.dtype(), dy.device());
  dispatch(dy, [&](auto device, auto type) {
    using T = decltype(type);
    scatter_rows<T>(device, saved.ids.count(), saved.shape[0], saved.shape[1], row_major.data<T>(),
                    saved.ids.data<std::int64_t>(), dtable.data<T>());
  });
  return {dtable, Tensor{}};
}

Variable embedding(const Variable& table, const Tensor& ids) {
  return apply(Embedding{}, table, Variable(ids));
}

}  // namespace weft
