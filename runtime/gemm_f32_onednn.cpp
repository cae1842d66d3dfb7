#include <dnnl.h>

#include "runtime/error.h"
#include "runtime/gemm.h"
#include "runtime/parallel.h"

namespace weft {

void gemm(bool transpose_a, bool transpose_b, i64 m, i64 n, i64 k, const float* a, i64 lda,
          const float* b, i64 ldb, float beta, float* c, i64 ldc) {
  const OneThread one;
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
