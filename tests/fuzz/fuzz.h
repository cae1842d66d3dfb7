// Shared by the fuzz targets. A target is one function over the bytes of an untrusted file:
//
//     extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size)
//
// It passes them to a reader, which reads them or throws Error; anything else, an Error that does
// not name the file included, ends the program. libFuzzer runs each target (tests/fuzz/run builds
// and runs them, by clang; runs.md has the results), and in every build the tests run all of them
// over tests/fuzz/corpus (corpus.cpp).
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include "runtime/error.h"

namespace weft::fuzz {

// The path of a regular file of these bytes, in memory. There is one: the next call changes it.
const std::string& memory_file(const std::uint8_t* data, std::size_t size);

inline bool refused = false;  // the last input

// A reader may refuse its input, in a message of a few lines that names `source`.
template <class Read>
int read_untrusted(const std::string& source, const Read& read) {
  refused = false;
  try {
    read();
  } catch (const Error& error) {
    refused = true;
    const std::string message = error.what();
    const bool named = message.find(source) != std::string::npos;
    if (!named || message.size() > 1000) {
      throw std::logic_error("this error is no good: " + message.substr(0, 1000));
    }
  }
  return 0;
}

}  // namespace weft::fuzz
