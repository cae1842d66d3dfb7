// Three rules of the tree, checked on its text: an include points along apps → nn → ops → autograd
// → runtime, and inside apps along language → training → command_line → data; #if is only in
// runtime/dispatch.h; and no .cu file includes fmt, even indirectly, whose format strings g++
// refuses as nvcc passes them on. On the emulated device it would compile.
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "tests/check.h"
#include "tests/files.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

const std::vector<std::string> rooms{"runtime", "autograd", "ops", "nn", "apps", "bench", "tests"};

// What the programs share; a program is behind all of them.
const std::vector<std::string> rooms_of_apps{"data", "command_line", "training", "language"};

std::string first_folder(const std::string& path) { return path.substr(0, path.find('/')); }

// The index of a room in the order, or −1 for other folders.
int place_of(const std::string& path) {
  const auto found = std::find(rooms.begin(), rooms.end(), first_folder(path));
  return found == rooms.end() ? -1 : static_cast<int>(found - rooms.begin());
}

// Whether both are in apps/, and `target` in a room behind that of `file`.
bool outward_in_apps(const std::string& file, const std::string& target) {
  const std::string apps = "apps/";
  if (file.rfind(apps, 0) != 0 || target.rfind(apps, 0) != 0) return false;
  const auto place = [&](const std::string& path) {
    return std::find(rooms_of_apps.begin(), rooms_of_apps.end(),
                     first_folder(path.substr(apps.size())));
  };
  return place(target) > place(file);
}

std::string trimmed(const std::string& text) {
  const std::size_t first = text.find_first_not_of(" \t");
  return first == std::string::npos ? "" : text.substr(first);
}

// The rule that one line of `file` (a path from the root) breaks; empty if none.
std::string fault_in(const std::string& file, const std::string& line) {
  std::string directive = trimmed(line);
  if (directive.empty() || directive[0] != '#') return "";
  directive = trimmed(directive.substr(1));
  if (directive.rfind("if", 0) == 0 && file != "runtime/dispatch.h" && place_of(file) < 6) {
    return fmt::format("{}: #{} stands outside runtime/dispatch.h", file, directive);
  }
  if (directive.rfind("include", 0) != 0) return "";
  const std::size_t open = directive.find('"');
  if (open == std::string::npos) return "";
  const std::string target = directive.substr(open + 1, directive.rfind('"') - open - 1);
  if (target.rfind(".", 0) == 0 || target.find('/') == std::string::npos) {
    return fmt::format("{}: \"{}\" is not a path from the root", file, target);
  }
  // bench/ sees all rooms but tests/, and tests/ all.
  const bool outward = place_of(target) > place_of(file) || outward_in_apps(file, target);
  return outward ? fmt::format("{} includes {}", file, target) : "";
}

// The file that a line includes, between quotes or brackets; empty if none.
std::string included(const std::string& line) {
  std::string directive = trimmed(line);
  if (directive.empty() || directive[0] != '#') return "";
  directive = trimmed(directive.substr(1));
  const std::size_t open = directive.find_first_of("<\""), close = directive.find_last_of(">\"");
  if (directive.rfind("include", 0) != 0 || open >= close) return "";
  return directive.substr(open + 1, close - open - 1);
}

struct Scan {
  std::size_t files = 0;
  std::vector<std::string> faults;
  std::map<std::string, std::vector<std::string>> includes = {};  // of each file
};

// The file included by `file`, directly or indirectly, that includes fmt; empty if none does.
std::string includer_of_fmt(const Scan& tree, const std::string& file,
                            std::set<std::string>& seen) {
  const auto found = tree.includes.find(file);
  if (found == tree.includes.end() || !seen.insert(file).second) return "";
  for (const std::string& target : found->second) {
    if (target.rfind("fmt/", 0) == 0) return file;
    const std::string further = includer_of_fmt(tree, target, seen);
    if (!further.empty()) return further;
  }
  return "";
}

Scan scan(const fs::path& root) {
  const std::set<std::string> extensions{".h", ".cpp", ".cu", ".cuh"};
  Scan result;
  for (const std::string& room : rooms) {
    if (!fs::exists(root / room)) continue;
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(root / room)) {
      const bool source = extensions.count(entry.path().extension().string()) > 0;
      if (!source || !entry.is_regular_file()) continue;
      ++result.files;
      std::ifstream stream(entry.path());
      const std::string file = fs::relative(entry.path(), root).generic_string();
      for (std::string line; std::getline(stream, line);) {
        const std::string fault = fault_in(file, line), target = included(line);
        if (!fault.empty()) result.faults.push_back(fault);
        if (!target.empty()) result.includes[file].push_back(target);
      }
    }
  }
  for (const auto& [file, targets] : result.includes) {
    std::set<std::string> seen;
    const std::string includer =
        fs::path(file).extension() == ".cu" ? includer_of_fmt(result, file, seen) : "";
    if (!includer.empty()) {
      result.faults.push_back(fmt::format("{} comes to fmt by {}", file, includer));
    }
  }
  return result;
}

TEST_SUITE("runtime") {

TEST_CASE("includes point along the arrows, #if stands in one file, and no kernel comes to fmt") {
  const Scan tree = scan(WEFT_SOURCE_ROOT);
  CHECK(tree.files > 50);
  for (const std::string& fault : tree.faults) FAIL_CHECK(fault);
}

TEST_CASE("the check of the tree bites") {
  const auto faults_of = [](const std::string& path, const std::string& text) {
    const TemporaryFolder tree;
    tree.file("runtime/dispatch.h", "#if WEFT_GPU\n#endif\n");
    tree.file(path, text);
    const Scan result = scan(tree.path());
    CHECK(result.files == 2);
    return result.faults.size();
  };
  CHECK(faults_of("runtime/deep/a.cpp", "#include \"autograd/tape.h\"\n") == 1);
  CHECK(faults_of("autograd/a.h", "#pragma once\n  #  include \"ops/linear/linear.h\"\n") == 1);
  CHECK(faults_of("ops/x/x.cu", "#include \"nn/layers.h\"\n#include \"apps/data/text.h\"\n") == 2);
  CHECK(faults_of("nn/a.cpp", "#include \"apps/charlm/model.h\"\n") == 1);
  CHECK(faults_of("ops/a.cpp", "#include \"tests/check.h\"\n") == 1);
  CHECK(faults_of("apps/a.cpp", "#include \"bench/a.h\"\n") == 1);
  CHECK(faults_of("bench/a.cpp", "#include \"tests/a.h\"\n") == 1);
  CHECK(faults_of("apps/data/a.h", "#include \"apps/training/a.h\"\n") == 1);
  CHECK(faults_of("apps/training/a.h", "#include \"apps/charlm/a.h\"\n") == 1);
  CHECK(faults_of("apps/language/a.h", "#include \"apps/training/a.h\"\n") == 0);
  CHECK(faults_of("tests/a.cpp", "#include \"bench/a.h\"\n") == 0);
  CHECK(faults_of("nn/a.cpp", "#include \"../ops/a.h\"\n#include \"layers.h\"\n") == 2);
  CHECK(faults_of("ops/a.h", "int a;\n#ifdef X\n#endif\n") == 1);
  CHECK(faults_of("bench/a.cpp", " # if 0\n#endif\n") == 1);
  CHECK(faults_of("nn/a.cpp", "#include \"runtime/tensor.h\"\n#include <vector>\n// #if\n") == 0);
  CHECK(faults_of("tests/a.cpp", "#include \"apps/a.h\"\n#if X\n#endif\n") == 0);
  CHECK(faults_of("ops/a.cu", "#include <fmt/core.h>\n") == 1);
  CHECK(faults_of("ops/a.cpp", "#include <fmt/core.h>\n") == 0);
  const TemporaryFolder tree;
  tree.file("runtime/error.h", "#include <fmt/core.h>\n");
  tree.file("ops/a.h", "#include \"ops/a.cuh\"\n#include \"runtime/error.h\"\n");
  tree.file("ops/a.cuh", "#include \"ops/a.h\"\n");
  tree.file("ops/a.cu", "#include \"ops/a.cuh\"\n");
  const Scan result = scan(tree.path());
  REQUIRE(result.faults.size() == 1);
  CHECK(result.faults[0] == "ops/a.cu comes to fmt by runtime/error.h");
}

}  // TEST_SUITE("runtime")
}  // namespace
}  // namespace weft
