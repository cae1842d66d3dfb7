// Sorts over the whole device, by Thrust. For .cu files.
//
// A sort is queued on the device's stream like a kernel: the host never waits, scratch comes from
// the counting allocator, and a step that sorts can be captured. Thrust's headers take many seconds
// to compile; only algorithms.cu includes them, and it instantiates what is declared here.
//
// Segments of a list are sorted by composite keys. A key longer than a word is sorted word by word,
// the lowest first: the sort is stable.
#pragma once

#include "runtime/cuda/device.h"
#include "runtime/types.h"

namespace weft {

// Sorts `count` pairs by ascending key; stable. Key: u32 or u64. Scratch: slightly more bytes than
// the pairs have. `name` is that of the op, for errors.
template <class Key>
void sort_by_key(const char* name, const Cuda&, i64 count, Key* keys, std::int32_t* values);

}  // namespace weft
