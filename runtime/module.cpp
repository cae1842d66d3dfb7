#include "runtime/module.h"

#include <filesystem>

#include <dlfcn.h>

namespace weft {

ModuleFunction function_of_module(const char* file, const char* name) {
  Dl_info own{};
  dladdr(reinterpret_cast<void*>(&function_of_module), &own);
  const std::string path = std::filesystem::path(own.dli_fname).replace_filename(file);
  // Global: the plugins that Open MPI loads find its symbols in the process.
  void* const module = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (module == nullptr) return {nullptr, dlerror()};
  void* const found = dlsym(module, name);
  return {found, found == nullptr ? path + " is no module of weft's" : std::string()};
}

}  // namespace weft
