#include "runtime/cuda/algorithms.h"

#include <thrust_policy.h>  // of native/ or of emulated/; before all of Thrust's own

#include <thrust/sort.h>

namespace weft {

template <class Key>
void sort_by_key(const char* name, const Cuda& device, i64 count, Key* keys, std::int32_t* values) {
  if (count == 0) return;
  const i64 copies = count * static_cast<i64>(sizeof(Key) + sizeof(std::int32_t));
  run_thrust(name, device, copies, [=](const auto& policy) {
    thrust::stable_sort_by_key(policy, keys, keys + count, values);
  });
}

template void sort_by_key(const char*, const Cuda&, i64, std::uint32_t*, std::int32_t*);
template void sort_by_key(const char*, const Cuda&, i64, std::uint64_t*, std::int32_t*);

}  // namespace weft
