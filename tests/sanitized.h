#pragma once

#include "doctest/doctest.h"

namespace weft {

// Whether this build has the address sanitizer, which makes it some twenty times slower.
extern const bool sanitized;

// Under the sanitizers: prints "skipped: the sanitizers …", and returns true.
inline bool skipped_because_sanitizers(const char* what_they_do) {
  if (sanitized) MESSAGE("skipped: the sanitizers " << what_they_do);
  return sanitized;
}

// Whether `./weft test --all` wants what CI leaves out: every sample, at its full size, on an
// emulated device and under the sanitizers, too.
bool all_wanted();
// Whether some cases represent all: under the sanitizers, unless all are wanted.
inline bool few_here() { return sanitized && !all_wanted(); }
// Decorates a case about values or messages, whose memory accesses other cases cover: the
// sanitizers leave it out, unless all cases are wanted.
inline doctest::skip not_sanitized() { return doctest::skip(few_here()); }

}  // namespace weft
