// What computes in this program besides its own code.
#pragma once

#include <string>

namespace weft {

// On the CPU: the instruction set, "AVX3_DL", and the libraries, "products by f32 oneDNN 2.6.3, …;
// attention in bf16 by AMX". The bits of a result depend on both, as they do on the build.
struct ComputedBy {
  std::string instructions, libraries;
};
ComputedBy computed_by();
std::string text_of(const ComputedBy& by);  // both in one line

// The meson option `gpu` of the build: "cuda", "emulated", "none".
std::string gpu_of_build();

}  // namespace weft
