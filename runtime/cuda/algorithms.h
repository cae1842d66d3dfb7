// Sorts over the whole device, by Thrust. For .cu files.
//
// A sort is queued on the device's stream like a kernel: nothing waits for the host, scratch comes
// from the counting allocator, and a step that sorts can be captured. Thrust's headers take many
// seconds to compile; algorithms.cu alone includes them, and instantiates what stands here.
//
// Segments of a list are sorted by composite keys. A key that is longer than a word is sorted by
// its words, the lowest first, since equal keys keep their order.
#pragma once

#include "runtime/cuda/device.h"
#include "runtime/types.h"

namespace weft {

// Brings `count` pairs into rising order of their keys; equal keys keep their order. Key: u32 or
// u64. Scratch: as many bytes again as the pairs have, and little more. `name` is that of the op,
// for errors.
template <class Key>
void sort_by_key(const char* name, const Cuda&, i64 count, Key* keys, std::int32_t* values);

}  // namespace weft
