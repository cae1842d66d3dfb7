// Text for models of words: its word pieces are learnt (and not kept), and it is cut into them.
#include "apps/data/word_corpus.h"
#include "tests/fuzz/fuzz.h"

using namespace weft;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string& file = fuzz::memory_file(data, size);
  fuzz::read_untrusted(file, [&] { load_words(file, "bpe"); });
  return fuzz::read_untrusted(file, [&] { load_words(file, "paper", false); });
}
