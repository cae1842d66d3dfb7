// Every fuzz target over tests/fuzz/corpus, and over those files truncated, changed and spliced:
// each is read or refused, within the memory of its size and 16 MB.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <string_view>

#include "doctest/doctest.h"
#include "nn/checkpoint.h"
#include "nn/npy.h"
#include "runtime/random.h"
#include "tests/files.h"
#include "tests/fuzz/fuzz.h"
#include "tests/sanitized.h"

using namespace weft;

using Target = int(const std::uint8_t* data, std::size_t size);
extern "C" Target fuzz_cifar, fuzz_configuration, fuzz_documents, fuzz_manifest, fuzz_npy,
    fuzz_pieces, fuzz_png, fuzz_safetensors, fuzz_text, fuzz_toml, fuzz_trees, fuzz_words;

namespace {

const std::pair<const char*, Target*> targets[] = {{"cifar", fuzz_cifar},
                                                   {"configuration", fuzz_configuration},
                                                   {"documents", fuzz_documents},
                                                   {"manifest", fuzz_manifest},
                                                   {"npy", fuzz_npy},
                                                   {"pieces", fuzz_pieces},
                                                   {"png", fuzz_png},
                                                   {"safetensors", fuzz_safetensors},
                                                   {"text", fuzz_text},
                                                   {"toml", fuzz_toml},
                                                   {"trees", fuzz_trees},
                                                   {"words", fuzz_words}};

// The files of a target's corpus by their names, in order.
std::map<std::string, std::string> corpus(const std::string& target) {
  std::map<std::string, std::string> files;
  const std::string folder = std::string(WEFT_SOURCE_ROOT) + "/tests/fuzz/corpus/" + target;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    files[entry.path().filename()] = read_file(entry.path());
  }
  return files;
}

void run(Target* target, const std::string& bytes) {
  CHECK(target(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()) == 0);
}

// A file that differs slightly from the one it was made from.
std::string changed(std::string bytes, const std::string& other, std::uint64_t seed) {
  const auto word = [&](std::uint64_t i) { return RandomKey{seed}.words(i).word[0]; };
  const auto place_in = [](std::uint32_t random, const std::string& text) {
    return below(random, static_cast<std::uint32_t>(text.size()) + 1);
  };
  const std::size_t place = place_in(word(0), bytes), from = place_in(word(1), other);
  constexpr std::string_view bad = {"\x00\xff\x7f\x80[{\"'\\\n-9", 12};
  switch (word(2) % 4) {
    case 0:
      return bytes.substr(0, place);
    case 1:
      return bytes.substr(0, place) + other.substr(from);
    case 2:
      return bytes.insert(place, other, from, 1 + word(3) % 16);
    default:
      for (std::uint64_t i = 4; i < 5 + word(3) % 4 && !bytes.empty(); ++i) {
        bytes[word(i) % bytes.size()] = bad[word(i + 8) % bad.size()];
      }
      return bytes;
  }
}

// The rise of the process's peak memory; unknown on some systems.
class Memory {
 public:
  Memory() {
    std::ofstream("/proc/self/clear_refs") << 5;  // resets the peak
    before_ = kilobytes("VmHWM:");
  }
  std::size_t risen() const { return 1024 * (kilobytes("VmHWM:") - before_); }

 private:
  static std::size_t kilobytes(const std::string& key) {
    std::ifstream status("/proc/self/status");
    for (std::string word; status >> word;) {
      std::size_t value = 0;
      if (word == key && status >> value) return value;
    }
    return 0;
  }

  std::size_t before_;
};

constexpr std::size_t allowance = 16 << 20;

}  // namespace

TEST_SUITE("fuzz") {

TEST_CASE("corpus: what is good is read, what is bad is refused") {
  for (const auto& [name, target] : targets) {
    for (const auto& [file, bytes] : corpus(name)) {
      CAPTURE(name);
      CAPTURE(file);
      REQUIRE((file.starts_with("good-") || file.starts_with("bad-")));
      const Memory memory;
      CHECK_NOTHROW(run(target, bytes));
      CHECK(fuzz::refused == file.starts_with("bad-"));
      if (!sanitized) CHECK(memory.risen() <= bytes.size() + allowance);
    }
  }
}

TEST_CASE("corpus: changed files are read or refused") {
  const std::uint64_t rounds = sanitized ? 20 : 100;
  for (const auto& [name, target] : targets) {
    const auto files = corpus(name);
    std::uint64_t seed = 0;
    for (const auto& [file, bytes] : files) {
      for (std::uint64_t round = 0; round < rounds; ++round) {
        CAPTURE(name);
        CAPTURE(file);
        CAPTURE(seed);
        const std::string& other =
            std::next(files.begin(), static_cast<std::ptrdiff_t>(seed % files.size()))->second;
        const std::string bad = changed(bytes, other, seed++);
        const Memory memory;
        CHECK_NOTHROW(run(target, bad));
        if (!sanitized) CHECK(memory.risen() <= bad.size() + allowance);
      }
    }
  }
}

TEST_CASE("memory: what is taken is seen") {
  const Memory memory;
  const std::string taken(32 << 20, 'x');
  CHECK(taken.back() == 'x');
  if (memory.risen() == 0) {
    MESSAGE("skipped: the system does not say how much is taken");
  } else {
    CHECK(memory.risen() >= taken.size() - (1 << 20));
  }
}

TEST_CASE("tensors: a file of 64 MB takes its own size of memory") {
  const TemporaryFolder folder;
  constexpr std::size_t size = 64 << 20;
  {
    const Tensor tensor = Tensor::full({size}, 1, DType::u8);
    write_npy(tensor, folder.path("x.npy"));
    write_checkpoint({{{"x", tensor}}, {}}, folder.path("x.safetensors"));
  }
  for (const bool npy : {true, false}) {
    const Memory memory;
    const Tensor tensor = npy ? read_npy(folder.path("x.npy"))
                              : read_checkpoint(folder.path("x.safetensors")).tensors.at("x");
    CHECK(tensor.count() == size);
    if (!sanitized) CHECK(memory.risen() <= size + allowance);
  }
}

}  // TEST_SUITE("fuzz")
