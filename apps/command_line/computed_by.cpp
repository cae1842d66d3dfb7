#include "apps/command_line/computed_by.h"

#include <fmt/core.h>
#include <hwy/targets.h>

#include "runtime/amx.h"
#include "runtime/matmul.h"
#include "runtime/simd.h"

namespace weft {
namespace {

// What multiplies the tiles of attention in bf16.
const char* pairs_of_bf16() {
  if (simd::has_amx && amx::permitted()) return "AMX";
  return simd::has_bf16_dot ? "AVX512-BF16" : "f32";
}

}  // namespace

ComputedBy computed_by() {
  return {hwy::TargetName(HWY_STATIC_TARGET),
          fmt::format("products by {}; attention in bf16 by {}", matmul_library(), pairs_of_bf16())};
}

std::string text_of(const ComputedBy& by) {
  return fmt::format("{}; {}", by.instructions, by.libraries);
}

std::string gpu_of_build() { return WEFT_GPU_KIND; }

}  // namespace weft
