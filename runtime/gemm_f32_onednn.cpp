#include <dnnl.h>

#include "runtime/error.h"
#include "runtime/gemm.h"

namespace weft {

void gemm(bool transpose_a, bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k,
          const float* a, std::int64_t lda, const float* b, std::int64_t ldb, float beta, float* c,
          std::int64_t ldc) {
  const dnnl_status_t status = dnnl_sgemm(transpose_a ? 'T' : 'N', transpose_b ? 'T' : 'N', m, n, k,
                                          1.0f, a, lda, b, ldb, beta, c, ldc);
  require(status == dnnl_success, "matmul: oneDNN refused a product of {}×{}×{} (status {})", m, k,
          n, static_cast<int>(status));
}

std::string gemm_f32_library() {
  const dnnl_version_t* version = dnnl_version();
  return fmt::format("oneDNN {}.{}.{}", version->major, version->minor, version->patch);
}

}  // namespace weft
