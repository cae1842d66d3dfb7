// Whether CUDA devices are emulated: this one is.
#pragma once

namespace weft {

inline constexpr bool emulated_device = true;

}  // namespace weft
