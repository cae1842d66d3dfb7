// A program's output and exit status.
#pragma once

#include <cstdio>
#include <exception>
#include <filesystem>
#include <string>
#include <utility>

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include "runtime/error.h"
#include "runtime/one_line.h"

namespace weft {

// Opens /dev/null in place of each of stdin, stdout and stderr that is closed: the next file opened
// would take its number, and what is printed would go into that file. Opened for reading only, so
// that printing fails as on a closed stream.
inline void reserve_standard_streams() {
  int opened = 0;
  do {
    opened = ::open("/dev/null", O_RDONLY);
  } while (opened >= 0 && opened <= STDERR_FILENO);
  if (opened >= 0) ::close(opened);
}

// Prints a line to stderr. One that cannot be written is dropped: fmt::print would throw, and a
// note or the report of an error must not end the program.
template <typename... Values>
void print_stderr(fmt::format_string<Values...> format, Values&&... values) {
  const std::string line = fmt::format(format, std::forward<Values>(values)...) + "\n";
  std::fwrite(line.data(), 1, line.size(), stderr);
}

// Flushes standard output; throws if it could not be written.
inline void flush_output() {
  require(std::fflush(stdout) == 0 && std::ferror(stdout) == 0,
          "standard output could not be written");
}

// Throws if the folder of a file to be written does not exist.
inline void require_folder_for(const std::string& file) {
  require(std::filesystem::is_directory(std::filesystem::absolute(file).parent_path()),
          "{}: its folder does not exist", file);
}

// The main() of a program without commands: the exit status of f. An error is one line on stderr,
// and 2.
inline int run_main(const char* name, int (*f)(int, char**), int argc, char** argv) {
  reserve_standard_streams();
  try {
    const int status = f(argc, argv);
    flush_output();
    return status;
  } catch (const std::exception& error) {
    print_stderr("{}: {}", name, one_line(error.what()));
    return 2;
  }
}

}  // namespace weft
