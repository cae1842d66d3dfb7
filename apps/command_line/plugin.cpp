#include "apps/command_line/plugin.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <set>

#include <cxxabi.h>
#include <dlfcn.h>

#include "ops/attention/mechanism.h"
#include "runtime/error.h"
#include "runtime/names.h"

namespace weft {
namespace {

std::string demangled(const std::string& symbol) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> name(
      abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &status), std::free);
  return status == 0 ? name.get() : symbol;
}

// The loader's message without its leading path; for an undefined symbol of weft an explanation.
std::string reason(const std::string& path, const char* said) {
  std::string text = said == nullptr ? "the loader gives no reason" : said;
  if (text.starts_with(path + ": ")) text = text.substr(path.size() + 2);
  const std::string missing = "undefined symbol: ";
  const std::size_t place = text.find(missing);
  if (place == std::string::npos) return "cannot be loaded: " + text;
  const std::string symbol = text.substr(place + missing.size());
  const std::string name = demangled(symbol.substr(0, symbol.find_first_of(" \t(")));
  if (name.find("weft::") == std::string::npos) {
    return "needs the symbol " + name + ", which neither weft nor its libraries define";
  }
  return "needs " + name.substr(0, name.find('(')) +
         ", which this version of weft does not define: it was built with the headers of another "
         "version; rebuild it with those of this one";
}

}  // namespace

void load_plugin(const std::string& path) {
  static std::set<std::string> loaded;
  std::error_code error;
  const std::string file = std::filesystem::canonical(path, error).string();
  require(!error, "--plugin {}: {}", path, error.message());
  require(std::filesystem::is_regular_file(file), "--plugin {}: is not a shared object", path);
  if (!loaded.insert(file).second) return;
  const RegistrationWatch watch;
  // RTLD_NOW resolves every symbol: a plugin built against another version of weft fails here, not
  // at its first call.
  void* const handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) fail("--plugin {}: {}", path, reason(file, dlerror()));
  require(watch.error.empty(), "--plugin {}: {}", path, watch.error);
  require(!watch.registered.empty(),
          "--plugin {}: registers no mechanism; it needs a weft::Registration", path);
}

void require_mechanism(const std::string& attention, const std::string& source) {
  const std::vector<const Mechanism*>& known = mechanisms();
  for (std::size_t begin = 0; begin < attention.size();) {  // a wrapper's inner one follows a /
    const std::size_t end = std::min(attention.find('/', begin), attention.size());
    const std::string part = attention.substr(begin, end - begin),
                      name = part.substr(0, part.find(':'));
    const bool there = std::ranges::count(known, name, &Mechanism::name) > 0;
    std::vector<std::string> names;
    for (const Mechanism* mechanism : known) names.push_back(mechanism->name);
    const std::string near = there ? name : nearest_name(name, names);
    require(there,
            "{}: its attention is '{}', and this program has no mechanism '{}'{}; if it is a "
            "plugin's, load it with --plugin FILE.so",
            source, attention, name, near.empty() ? "" : fmt::format("; did you mean {}?", near));
    begin = end + 1;
  }
}

}  // namespace weft
