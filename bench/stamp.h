// Which library was measured, and the result of its tests.
//
// `./weft test` writes a stamp when it ends: one line, the hash of the library's objects and
// "passed" or "failed". The hash of the library that a benchmark is linked with is compiled into it
// (bench/library_hash), so that a stamp of an earlier build is ignored.
#pragma once

#include <string>

namespace weft::bench {

extern const char* const library_hash;  // 16 hexadecimal digits

// "passed" or "failed" by the stamp in this file; "untested" if there is none, or if it is of a
// library with another hash.
std::string tests_of(const std::string& hash, const std::string& stamp_file);

// The result for this library by the stamp of this build.
std::string tests_of_this_library();

}  // namespace weft::bench
