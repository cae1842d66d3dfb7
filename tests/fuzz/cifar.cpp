// The records of CIFAR-100; those of CIFAR-10 differ by a label.
#include "apps/common/cifar.h"

#include "tests/files.h"
#include "tests/fuzz/fuzz.h"

using namespace weft;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const TemporaryFolder folder;
  const std::string records(reinterpret_cast<const char*>(data), size);
  folder.file("train.bin", records), folder.file("test.bin", records);
  return fuzz::read_untrusted(folder.path(), [&] { load_pictures(folder.path(), "cifar-100"); });
}
