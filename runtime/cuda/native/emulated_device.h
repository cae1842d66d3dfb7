// Whether CUDA devices are emulated: not where CUDA itself has them.
#pragma once

namespace weft {

inline constexpr bool emulated_device = false;

}  // namespace weft
