// Names of addresses, by binutils' addr2line and nm, which run only when a report is made.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace weft::emulated::accesses {

// The source line whose code returns to `pc`. Among inlined frames it is the innermost that is
// neither in the emulated device nor in the standard library.
struct Line {
  std::string file;  // relative to the root of the tree
  int number = 0;
};
std::map<const void*, Line> lines_of(const std::vector<const void*>& pcs);
std::string line_of(const void* pc);  // FILE:NUMBER
// The path relative to the root of the tree, whatever path the compiler was given.
std::string from_root(const std::string& file);

// A kernel without its namespaces and arguments: forward_tiles<float, 4, 2>.
std::string name_of_kernel(const void* kernel);

// The __shared__ variable that contains an address: its name and its first byte.
struct Variable {
  std::string name;
  const std::byte* begin = nullptr;
};
Variable variable_at(const std::byte* at);

}  // namespace weft::emulated::accesses
