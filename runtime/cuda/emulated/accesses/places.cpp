#include "runtime/cuda/emulated/accesses/places.h"

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <unordered_map>
#include <utility>

#include <cxxabi.h>
#include <dlfcn.h>
#include <fmt/core.h>
#include <unistd.h>

namespace weft::emulated::accesses {
namespace {

struct Object {
  std::string path;
  const std::byte* base = nullptr;
};

Object object_of(const void* address) {
  Dl_info info{};
  if (dladdr(address, &info) == 0) return {};
  char path[4096];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path);
  // The program's own name may be relative to the folder that it was started in.
  const bool library = std::string_view(info.dli_fname).find(".so") != std::string_view::npos;
  return {library || length <= 0 ? info.dli_fname : std::string(path, std::size_t(length)),
          static_cast<const std::byte*>(info.dli_fbase)};
}

std::vector<std::string> output_of(const std::string& command) {
  std::vector<std::string> lines;
  FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return lines;
  std::string line;
  for (int c; (c = std::fgetc(pipe)) != EOF;) {
    if (c == '\n') {
      lines.push_back(std::exchange(line, {}));
    } else {
      line += static_cast<char>(c);
    }
  }
  pclose(pipe);
  return lines;
}

// Whether a line is in the emulated device or the standard library, below the kernel's own code.
bool is_below(const std::string& file) {
  return file.empty() || file == "??" || file.find("runtime/cuda/emulated/") != file.npos ||
         file.find("/usr/") == 0 || file.find("/include/c++/") != file.npos;
}

Line parsed(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  if (colon == text.npos) return {text, 0};
  return {from_root(text.substr(0, colon)), std::atoi(text.c_str() + colon + 1)};
}

std::map<const void*, Line>& known_lines() {
  static auto* const all = new std::map<const void*, Line>;
  return *all;
}

}  // namespace

std::string from_root(const std::string& file) {
  std::size_t begin = file.npos;
  for (const char* room : {"/runtime/", "/ops/", "/nn/", "/tests/", "/bench/", "/autograd/"}) {
    begin = std::min(begin, file.find(room));
  }
  return begin == file.npos ? file : file.substr(begin + 1);
}

std::map<const void*, Line> lines_of(const std::vector<const void*>& pcs) {
  std::map<const void*, Line>& known = known_lines();
  std::map<std::string, std::vector<std::pair<const void*, std::ptrdiff_t>>> asked;
  for (const void* pc : pcs) {
    if (known.contains(pc)) continue;
    const Object object = object_of(pc);
    // The address of the call, which is before the address it returns to.
    asked[object.path].push_back({pc, static_cast<const std::byte*>(pc) - object.base - 1});
  }
  constexpr std::size_t at_a_time = 1000;
  for (const auto& [path, addresses] : asked) {
    for (std::size_t begin = 0; begin < addresses.size(); begin += at_a_time) {
      const std::size_t end = std::min(addresses.size(), begin + at_a_time);
      std::string command = "addr2line -a -i -e '" + path + "'";
      for (std::size_t i = begin; i < end; ++i)
        command += fmt::format(" {:#x}", addresses[i].second);
      std::size_t at = begin;
      bool first = true;
      const void* pc = nullptr;
      for (const std::string& text : output_of(command + " 2>/dev/null")) {
        if (text.starts_with("0x")) {
          pc = addresses[at++].first, first = true;
          continue;
        }
        Line line = parsed(text.substr(0, text.find(" (discriminator")));
        if (first || is_below(known[pc].file)) {
          if (first || !is_below(line.file)) known[pc] = std::move(line);
        }
        first = false;
      }
    }
  }
  std::map<const void*, Line> found;
  for (const void* pc : pcs) found[pc] = known[pc];
  return found;
}

std::string line_of(const void* pc) {
  const Line line = lines_of({pc})[pc];
  return line.number == 0 ? fmt::format("{}", pc) : fmt::format("{}:{}", line.file, line.number);
}

std::string name_of_kernel(const void* kernel) {
  static auto* const known = new std::map<const void*, std::string>;
  if (const auto found = known->find(kernel); found != known->end()) return found->second;
  const Object object = object_of(kernel);
  const auto lines = output_of(fmt::format("addr2line -C -f -e '{}' {:#x} 2>/dev/null", object.path,
                                           static_cast<const std::byte*>(kernel) - object.base));
  std::string name = lines.empty() ? "a kernel" : lines[0];
  int depth = 0;  // of template arguments
  std::size_t begin = 0, end = name.size();
  for (std::size_t i = 0; i < name.size(); ++i) {
    if (name.compare(i, 21, "(anonymous namespace)") == 0) i += 21;
    if (i >= name.size()) break;
    if (name[i] == '<') ++depth;
    if (name[i] == '>') --depth;
    if (depth > 0) continue;
    if (name[i] == ' ' || name[i] == ':') begin = i + 1;
    if (name[i] == '(') {
      end = i;
      break;
    }
  }
  return (*known)[kernel] = name.substr(begin, end - begin);
}

Variable variable_at(const std::byte* at) {
  const Object object = object_of(at);
  const auto offset = static_cast<std::uint64_t>(at - object.base);
  // ADDRESS SIZE TYPE NAME, in hexadecimal
  for (const std::string& line : output_of("nm -S -C '" + object.path + "' 2>/dev/null")) {
    char* rest = nullptr;
    const std::uint64_t begin = std::strtoull(line.c_str(), &rest, 16);
    if (*rest != ' ' || begin > offset) continue;
    const std::uint64_t size = std::strtoull(rest, &rest, 16);
    if (offset - begin >= size || rest[0] != ' ') continue;
    std::string name = line.substr(static_cast<std::size_t>(rest - line.c_str()) + 3);
    return {name.substr(name.rfind("::") == name.npos ? 0 : name.rfind("::") + 2),
            object.base + begin};
  }
  return {"data", at};
}

}  // namespace weft::emulated::accesses
