#include <cblas.h>

#include <string_view>

#include <fmt/core.h>

#include "runtime/gemm.h"
#include "runtime/parallel.h"

namespace weft {

void gemm(bool transpose_a, bool transpose_b, i64 m, i64 n, i64 k, const double* a, i64 lda,
          const double* b, i64 ldb, double beta, double* c, i64 ldc) {
  const OneThread one;
  cblas_dgemm(CblasRowMajor, transpose_a ? CblasTrans : CblasNoTrans,
              transpose_b ? CblasTrans : CblasNoTrans, blas_size(m), blas_size(n), blas_size(k), 1,
              a, blas_size(lda), b, blas_size(ldb), beta, c, blas_size(ldc));
}

// "OpenBLAS 0.3.21 (Haswell)", with the processor that its kernels are for.
std::string gemm_f64_library() {
  std::string_view version = OPENBLAS_VERSION;  // " OpenBLAS 0.3.21 "
  version.remove_prefix(version.find_first_not_of(' '));
  version = version.substr(0, version.find_last_not_of(' ') + 1);
  return fmt::format("{} ({})", version, openblas_get_corename());
}

}  // namespace weft
