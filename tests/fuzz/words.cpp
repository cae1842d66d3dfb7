// Text for models of words: its word pieces are learnt, and it is cut into them.
#include "apps/common/word_corpus.h"
#include "tests/fuzz/fuzz.h"

using namespace weft;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const fuzz::MemoryFile file(data, size);
  return fuzz::read_untrusted(file.path(), [&] { load_words(file.path(), "paper"); });
}
