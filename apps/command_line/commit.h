// The commit that a program was built from.
#pragma once

namespace weft {

extern const char* const commit;  // "…-dirty" with changes, "unknown" without git

}  // namespace weft
