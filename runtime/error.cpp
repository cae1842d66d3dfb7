#include "runtime/error.h"

namespace weft::detail {

void throw_error(fmt::string_view message, fmt::format_args args) {
  throw Error(fmt::vformat(message, args));
}

}  // namespace weft::detail
