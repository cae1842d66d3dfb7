#include "tests/cuda_there.h"

#include "runtime/dispatch.h"

namespace weft {

const bool built_for_cuda = has_cuda;
const char* const no_cuda =
    has_cuda ? "no device to compute on" : "this build computes on the CPU only";

}  // namespace weft
