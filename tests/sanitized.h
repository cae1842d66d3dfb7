#pragma once

#include "doctest/doctest.h"

namespace weft {

// Whether the address sanitizer watches this build: all is some twenty times slower then.
extern const bool sanitized;

// Whether `./weft test --all` asks for what CI leaves out: every sample, at its full size, on an
// emulated device and under the sanitizers, too.
bool all_wanted();
// Whether some cases have to stand for all: under the sanitizers, unless all are wanted.
inline bool few_here() { return sanitized && !all_wanted(); }
// Decorates a case about values, or about what a program says, whose memory other cases look at:
// the sanitizers leave it out, unless all are wanted.
inline doctest::skip not_sanitized() { return doctest::skip(few_here()); }

}  // namespace weft
