// "OpenBLAS 0.3.21 (Haswell)": the library and the processor that it has kernels for.
#pragma once

#include <cblas.h>

#include <string>
#include <string_view>

#include <fmt/core.h>

namespace weft {

inline std::string openblas_name() {
  std::string_view version = OPENBLAS_VERSION;  // " OpenBLAS 0.3.21 "
  version.remove_prefix(version.find_first_not_of(' '));
  version = version.substr(0, version.find_last_not_of(' ') + 1);
  return fmt::format("{} ({})", version, openblas_get_corename());
}

}  // namespace weft
