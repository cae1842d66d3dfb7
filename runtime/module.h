// Modules: shared libraries beside libweft that a process loads only when it needs them, so that
// libweft and the programs do not link what they link.
#pragma once

#include <string>

namespace weft {

// A function of a module; if it is null, the reason.
struct ModuleFunction {
  void* found = nullptr;
  std::string reason = {};
};
// `file` is in the folder of the library that has this function. A module stays loaded.
ModuleFunction function_of_module(const char* file, const char* name);

}  // namespace weft
