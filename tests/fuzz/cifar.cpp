// The records of CIFAR-100; those of CIFAR-10 differ by a label.
#include "apps/data/cifar.h"

#include "tests/files.h"
#include "tests/fuzz/fuzz.h"

using namespace weft;

namespace {

// Both parts of the set are the same file.
struct Folder : TemporaryFolder {
  explicit Folder(const std::string& file) {
    for (const char* name : {"train.bin", "test.bin"}) {
      std::filesystem::create_symlink(file, path(name));
    }
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Folder folder(fuzz::memory_file(data, size));
  fuzz::memory_file(data, size);
  return fuzz::read_untrusted(folder.path(), [&] { load_pictures(folder.path(), "cifar-100"); });
}
