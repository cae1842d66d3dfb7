// The result of `meson install`, used by a program outside the tree.
#include <filesystem>

#include <nlohmann/json.hpp>

#include "tests/cuda_there.h"
#include "tests/program.h"
#include "tests/sanitized.h"

using namespace weft;

namespace {

TEST_SUITE("tools") {

// The commands of the README, as a shell reads them.
std::string shown_commands() {
  const std::string readme = read_file(WEFT_SOURCE_ROOT "/README.md");
  const std::size_t title = readme.find("## As a library\n");
  REQUIRE(title != std::string::npos);
  const std::size_t begin = readme.find("    ", title), end = readme.find("\n\n", begin);
  return readme.substr(begin, end - begin) + "\n";
}

// The options that this build was configured with, but for tests and benchmarks.
std::string own_options() {
  const auto all = nlohmann::json::parse(read_file(built("meson-info/intro-buildoptions.json")));
  std::string words;
  for (const auto& option : all) {
    const std::string name = option["name"];
    if (option["section"] != "user" || name == "tests" || name == "bench") continue;
    const auto& value = option["value"];
    std::string text = value.is_string() ? value.get<std::string>() : value.dump();
    std::erase_if(text, [](char c) { return c == '"' || c == '[' || c == ']'; });
    words += " " + quoted("-D" + name + "=" + text);
  }
  return words;
}

// meson as the README calls it, in a copy of the tree, except that files that this build has
// compiled are not compiled again.
const std::string meson_of_the_test = R"(
meson() {
  case $1 in
    setup)
      eval command meson '"$@"' "$options" >/dev/null || return
      for file in $built/libweft*.so* $built/apps/*; do
        if [ -f "$file" ]; then cp -dp "$file" "$2/${file#$built/}"; fi
      done ;;
    install) command meson "$@" --no-rebuild >/dev/null ;;
  esac
}
)";

TEST_CASE(
    "install: programs outside the tree, by the README's commands, in a prefix of one's own") {
  if (skipped_because_sanitizers("would be in the library, and so in all that links it")) return;
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder.path("tree"));
  const std::string tree = quoted(folder.path("tree"));
  const ProgramRun run = shell(
      "set -e; cd " WEFT_SOURCE_ROOT
      "; tar c --exclude='./build*' --exclude=./.git"
      " --exclude=./runs --exclude=./data . | tar x -C " +
      tree + "; cd " + tree + "; export HOME=" + quoted(folder.path()) +
      " built=" + quoted(built(".")) + "; options=" + quoted(own_options()) + meson_of_the_test +
      shown_commands() +
      "g++ -std=c++20 tests/install/custom_op.cpp -o custom_op $(pkg-config --cflags --libs weft)"
      " && ./custom_op >op.txt\n"
      // Every installed header compiles there.
      "(cd \"$HOME/weft/include/weft\" && find . -name '*.h' -printf '#include \"%P\"\\n') "
      ">all.cpp\n"
      "g++ -std=c++20 -fsyntax-only all.cpp $(pkg-config --cflags weft)\n");
  const std::string said = run.out + run.err;
  REQUIRE_MESSAGE(run.status == 0, said);
  const std::size_t last = run.out.rfind("loss ");
  REQUIRE(last != std::string::npos);
  CHECK_MESSAGE(std::stod(run.out.substr(last + 5)) < 0.5, run.out);  // guessing: ln 10 = 2.3
  const std::string refused =
      cuda_is_there() ? ": this op has kernels for the CPU only, none for CUDA devices; use "
                        "--device cpu, or move the tensors with to(Device{}); in cube: [3]"
                      : "";
  CHECK(read_file(folder.path("tree/op.txt")) ==
        "3 12 27 " + std::string(built_for_cuda ? "cuda" : "") + refused + "\n");
  for (const std::string name : {"charlm", "wordlm", "vision", "lra", "attend", "zoo", "devices"}) {
    CHECK(std::filesystem::exists(folder.path("weft/bin/" + name)));
  }
}

}  // TEST_SUITE("tools")

}  // namespace
