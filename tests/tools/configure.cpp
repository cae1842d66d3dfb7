// The decision of `meson setup` about the GPU, with a fake toolkit and fake drivers.
#include <filesystem>

#include <dlfcn.h>
#include <fmt/ranges.h>

#include "tests/program.h"
#include "tests/sanitized.h"

using namespace weft;

namespace {

// A toolkit whose nvcc only prints its version: enough to configure, not to compile.
class Toolkit {
 public:
  Toolkit() {
    for (const char* name : {"/lib64", "/include"}) {
      std::filesystem::create_directory(root() + name);
    }
    folder_.program("bin/nvcc", "echo 'Cuda compilation tools, release 13.0, V13.0'\n");
    for (const char* name : {"cudart", "cublas"}) {
      library("", root() + "/lib64/lib" + name + ".so");
    }
  }

  // A folder with a driver whose cuInit returns `answer`, and GPUs of these compute capabilities.
  std::string driver(const std::string& name, int answer,
                     const std::vector<int>& capabilities = {90}) const {
    const std::string place = folder_.path(name);
    std::filesystem::create_directory(place);
    library(
        fmt::format(
            "constexpr int gpus[] = {{{}}};\n"
            "extern \"C\" int cuInit(unsigned) {{ return {}; }}\n"
            "extern \"C\" int cuDeviceGetCount(int* count) {{ return *count = {}, 0; }}\n"
            "extern \"C\" int cuDeviceGet(int* gpu, int number) {{ return *gpu = number, 0; }}\n"
            "extern \"C\" int cuDeviceGetAttribute(int* value, int which, int gpu) {{\n"
            "  return *value = which == 75 ? gpus[gpu] / 10 : gpus[gpu] % 10, 0;\n"
            "}}",
            fmt::join(capabilities, ", "), answer, capabilities.size()),
        place + "/libcuda.so.1");
    return place;
  }

  // The summary's line about the GPU.
  std::string decided(const std::string& drivers, const std::string& options = "") {
    const ProgramRun run =
        shell("PATH=" + quoted(root() + "/bin") + ":$PATH LD_LIBRARY_PATH=" + quoted(drivers) +
              " meson setup " + quoted(folder_.path("build" + std::to_string(++builds_))) +
              " " WEFT_SOURCE_ROOT " " + options);
    const std::string said = run.out + run.err;
    REQUIRE_MESSAGE(run.status == 0, said);
    const std::size_t at = run.out.find("  GPU ");
    REQUIRE(at != std::string::npos);
    const std::string line = run.out.substr(at, run.out.find('\n', at) - at);
    return line.substr(line.find(": ") + 2);
  }

 private:
  std::string root() const { return folder_.path(); }
  void library(const std::string& code, const std::string& file) const {
    const std::string source = folder_.file("library.cpp", code + "\n");
    const ProgramRun run = shell("g++ -shared -fPIC " + quoted(source) + " -o " + quoted(file));
    REQUIRE_MESSAGE(run.status == 0, run.err);
  }

  TemporaryFolder folder_;
  int builds_ = 0;
};

TEST_SUITE("tools") {

TEST_CASE("configure: auto means cuda where there is a driver, too, and says why not" *
          not_sanitized()) {
  Toolkit toolkit;
  CHECK(toolkit.decided(toolkit.driver("gpu", 0)) == "cuda by nvcc 13.0, compute capability 90");
  CHECK(toolkit.decided(toolkit.driver("gpus", 0, {90, 86, 90})) ==
        "cuda by nvcc 13.0, compute capability 86, 90");
  CHECK(toolkit.decided(toolkit.driver("older", 0, {86}), "-Dgpu=cuda -Dgpu_arch=100") ==
        "cuda by nvcc 13.0, compute capability 100");
  const std::string none = "none (nvcc 13.0 is there, but no NVIDIA driver: ",
                    anyway = "; -Dgpu=cuda compiles anyway)";
  CHECK(toolkit.decided(toolkit.driver("empty", 100)) ==
        none + "libcuda.so.1 finds no GPU" + anyway);
  CHECK(toolkit.decided(toolkit.driver("ill", 999)) ==
        none + "libcuda.so.1 reports error 999" + anyway);
  if (::dlopen("libcuda.so.1", RTLD_LAZY) == nullptr) {
    CHECK(toolkit.decided("") == none + "libcuda.so.1 was not found" + anyway);
    CHECK(toolkit.decided("", "-Dgpu=cuda") == "cuda by nvcc 13.0, compute capability 90");
  } else {
    MESSAGE("without a driver: skipped, this machine has one");
  }
}

}  // TEST_SUITE("tools")

}  // namespace
