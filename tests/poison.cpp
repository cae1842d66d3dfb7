// Every test runs with fresh memory full of NaN: an element that a kernel forgets to write is
// noticed. Under the address sanitizer blocks are also returned to the system at once, so that it
// tracks each one, and a request that is too large fails as without it.
#include "tests/check.h"

#include <cstdlib>

#include "runtime/allocator.h"

#if defined(__SANITIZE_ADDRESS__)
extern "C" const char* __asan_default_options() { return "allocator_may_return_null=1"; }
const bool weft::sanitized = true;
#else
const bool weft::sanitized = false;
#endif

bool weft::all_wanted() {
  const char* const wanted = std::getenv("WEFT_TEST_ALL");
  return wanted != nullptr && *wanted != 0;
}

namespace {

const bool prepared = [] {
  weft::allocator().set_poison(true);
  weft::allocator().set_caching(!weft::sanitized);
  return true;
}();

}  // namespace

weft::WithCache::WithCache() {
  weft::allocator().set_caching(true);
  weft::allocator(tested_device()).set_caching(true);
}
weft::WithCache::~WithCache() {
  weft::allocator(tested_device()).set_caching(!tested_is_emulated());
  weft::allocator().set_caching(!sanitized);
}
