// Names for addresses, by binutils' addr2line and nm, asked only when something is said.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace weft::emulated::accesses {

// The line of the tree whose code returns to `pc`: of what is inlined there, the innermost that is
// neither the emulated device's nor the standard library's.
struct Line {
  std::string file;  // from the root of the tree on
  int number = 0;
};
std::map<const void*, Line> lines_of(const std::vector<const void*>& pcs);
std::string line_of(const void* pc);  // FILE:NUMBER
// A path as it stands in the tree, from wherever the compiler saw the file.
std::string from_root(const std::string& file);

// A kernel without its namespaces and arguments: forward_tiles<float, 4, 2>.
std::string name_of_kernel(const void* kernel);

// The __shared__ variable in which an address lies: its name, and where it begins.
struct Variable {
  std::string name;
  const std::byte* begin = nullptr;
};
Variable variable_at(const std::byte* at);

}  // namespace weft::emulated::accesses
