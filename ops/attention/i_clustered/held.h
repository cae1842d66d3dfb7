// The keys T that were handed in to improved clustered attention, on a CUDA device.
#pragma once

#include "ops/attention/mechanism.h"

namespace weft {

// i32, of the shape [B, H, C, k]; undefined where none were. Nothing is waited for: what is no key
// of its item counts as none.
Tensor held_topk(const Cuda&, const AttentionSpec& spec, const AttentionCall& call,
                 const Shape& shape, std::int64_t S);

}  // namespace weft
