#include <cstring>
#include <numeric>
#include <vector>

#include "ops/embedding/kernels.h"
#include "runtime/parallel.h"

namespace weft {
namespace {

constexpr std::int64_t grain = 1 << 15;  // elements that one piece of parallel work copies or adds

}  // namespace

template <class Device, class T>
void EmbeddingKernels<Device, T>::forward(const Device&, std::int64_t count, std::int64_t,
                                          std::int64_t d, const T* table, const std::int64_t* ids,
                                          T* y) {
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

template <class Device, class T>
void EmbeddingKernels<Device, T>::backward(const Device&, std::int64_t count, std::int64_t V,
                                           std::int64_t d, const T* dy, const std::int64_t* ids,
                                           T* dtable) {
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

template struct EmbeddingKernels<Cpu, float>;
template struct EmbeddingKernels<Cpu, double>;

}  // namespace weft
