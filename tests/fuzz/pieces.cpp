// Word pieces that a checkpoint carries; those that are whole are put to use.
#include "apps/data/byte_pieces.h"
#include "apps/data/paper_pieces.h"
#include "tests/fuzz/fuzz.h"

using namespace weft;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string saved(reinterpret_cast<const char*>(data), size);
  return fuzz::read_untrusted("the pieces", [&] {
    std::shared_ptr<const WordPieces> pieces;
    if (saved.starts_with(BytePieces::saved_head)) {
      pieces = BytePieces::restore(saved, "the pieces");
    } else {
      pieces = PaperPieces::restore(saved, "the pieces");
    }
    pieces->decode(pieces->encode("The old king, 12 of them, and the other one."));
  });
}
