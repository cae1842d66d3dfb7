#include "runtime/names.h"

#include "tests/check.h"

namespace weft {
namespace {

TEST_SUITE("runtime") {

TEST_CASE("names: the nearest by edits, and none that is far") {
  const std::vector<std::string> names = {"full", "agglomerative", "topk"};
  CHECK(nearest_name("ful", names) == "full");
  CHECK(nearest_name("aglomerativ", names) == "agglomerative");
  CHECK(nearest_name("tokp", names) == "topk");  // neighbours in the other order are one edit
  CHECK(nearest_name("xyz", names).empty());
  CHECK(known_names("ful", names) == "full, agglomerative, topk; did you mean full?");
  CHECK(known_names("xyz", names) == "full, agglomerative, topk");
  CHECK(known_names("xyz", {}) == "none");
}

}  // TEST_SUITE("runtime")

}  // namespace
}  // namespace weft
