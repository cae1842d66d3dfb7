#include <cstring>
#include <numeric>
#include <vector>

#include "ops/embedding/kernels.h"
#include "runtime/parallel.h"

namespace weft {
namespace {

constexpr i64 grain = 1 << 15;  // elements that one task copies or adds

}  // namespace

template <class Device, class T>
void EmbeddingKernels<Device, T>::forward(const Device&, i64 count, i64, i64 d, const T* table,
                                          const i64* ids, T* y) {
  const i64 together = std::max<i64>(1, grain / d);
  parallel_ranges(count, together, [=](i64 begin, i64 end) {
    for (i64 p = begin; p < end; ++p) {
      std::memcpy(y + p * d, table + ids[p] * d, static_cast<std::size_t>(d) * sizeof(T));
    }
  });
}

namespace {

// The positions sorted by id, stable; those of id v end at ends[v].
struct Positions {
  std::vector<i64> sorted, ends;

  Positions(i64 count, i64 V, const i64* ids)
      : sorted(static_cast<std::size_t>(count)), ends(static_cast<std::size_t>(V + 1)) {
    for (i64 p = 0; p < count; ++p) ++ends[static_cast<std::size_t>(ids[p] + 1)];
    std::partial_sum(ends.begin(), ends.end(), ends.begin());
    for (i64 p = 0; p < count; ++p) {
      sorted[static_cast<std::size_t>(ends[static_cast<std::size_t>(ids[p])]++)] = p;
    }
    ends.pop_back();
  }
};

}  // namespace

template <class Device, class T>
void EmbeddingKernels<Device, T>::backward(const Device&, i64 count, i64 V, i64 d, const T* dy,
                                           const i64* ids, T* dtable) {
  const Positions positions(count, V, ids);
  const i64 together = std::max<i64>(1, grain * V / std::max<i64>(1, (count + V) * d));
  parallel_ranges(V, together, [&](i64 begin, i64 end) {
    std::vector<double> sums(static_cast<std::size_t>(d));
    for (i64 v = begin; v < end; ++v) {
      std::fill(sums.begin(), sums.end(), 0.0);
      const i64 first = v == 0 ? 0 : positions.ends[static_cast<std::size_t>(v - 1)];
      for (i64 i = first; i < positions.ends[static_cast<std::size_t>(v)]; ++i) {
        const T* const from = dy + positions.sorted[static_cast<std::size_t>(i)] * d;
        for (i64 j = 0; j < d; ++j) sums[static_cast<std::size_t>(j)] += convert<double>(from[j]);
      }
      for (i64 j = 0; j < d; ++j) {
        dtable[v * d + j] = convert<T>(sums[static_cast<std::size_t>(j)]);
      }
    }
  });
}

template struct EmbeddingKernels<Cpu, float>;
template struct EmbeddingKernels<Cpu, double>;
template struct EmbeddingKernels<Cpu, bf16>;

}  // namespace weft
