#pragma once

namespace weft {

// Whether the address sanitizer watches this build: all is some twenty times slower then.
extern const bool sanitized;

}  // namespace weft
