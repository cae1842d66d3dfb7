#include "apps/training/event_file.h"

#include "doctest/doctest.h"
#include "tests/files.h"

using namespace weft;

TEST_SUITE("charlm") {

// The values of RFC 3720, section B.4, and of the catalogue of checksums.
TEST_CASE("event file: CRC-32C of known bytes") {
  CHECK(crc32c("") == 0);
  CHECK(crc32c("123456789") == 0xE3069283u);
  CHECK(crc32c(std::string(32, '\0')) == 0x8A9136AAu);
  CHECK(crc32c(std::string(32, '\xff')) == 0x62A8AB43u);
}

// tests/formats/formats.py wrote the file by TensorBoard's own code.
TEST_CASE("event file: the bytes are those of TensorBoard's own writer") {
  const TemporaryFolder folder;
  const std::string path = folder.path("x.tfevents");
  {
    EventFile file(path, 1600000000.25);
    const Scalar train[] = {{"train/loss", 2.5f}, {"train/learning_rate", 0.1f}};
    file.add(1600000000.25, 1, train);
    const Scalar validation[] = {{"validation/loss", -1.0f}};
    file.add(1600000060.5, 300, validation);
    file.add_text(1600000061, 301, "sample", "    the river\n    ×");
    // Complete after every event: TensorBoard reads during the run.
    CHECK(read_file(path) ==
          read_file(std::string(WEFT_SOURCE_ROOT) + "/tests/formats/events.tfevents"));
  }
  CHECK(contains(error_of([&] { EventFile(folder.path("no/file"), 0); }), "cannot be written"));
  CHECK(contains(error_of([] { EventFile("/dev/full", 0); }), "No space left"));
}

TEST_CASE("event file: what of a line of the log is drawn") {
  const auto tags = [](const Json& line) {
    std::string text;
    for (const auto& [tag, value] : scalars_of(line)) text += fmt::format("{}={} ", tag, value);
    return text;
  };
  // Without the step and the time, which TensorBoard shows by itself.
  CHECK(tags({{"kind", "train"},
              {"step", 7},
              {"epoch", 1},
              {"round", 1},
              {"tokens", 90},
              {"loss", 0.5},
              {"elapsed", 2},
              {"remaining", 3}}) == "train/loss=0.5 ");
  CHECK(tags({{"kind", "validation"}, {"best", true}, {"top_1", 5}}) == "validation/top_1=5 ");
  CHECK(tags({{"kind", "test"}, {"windows", "random"}, {"loss", 1}}) == "test/random/loss=1 ");
  CHECK(tags({{"kind", "skipped"}, {"step", 3}, {"what", "loss"}}) == "");
}

}  // TEST_SUITE
