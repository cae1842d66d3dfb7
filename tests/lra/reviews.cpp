// Text: reviews as bytes (apps/lra/reviews.h).
#include "apps/lra/reviews.h"

#include "doctest/doctest.h"
#include "tests/check.h"
#include "tests/lra/records.h"

namespace weft::lra {
namespace {

TEST_SUITE("lra") {

TEST_CASE("reviews: bytes are read in the order of names, and every tenth validates") {
  const TemporaryFolder folder;
  write_reviews(folder, 20, 3);
  const std::string start = "\xC3\xA9t\xC3\xA9";
  folder.file("test/pos/0_9.txt", start + std::string(5000, 'x'));
  const SequenceTask task = read_reviews(folder.path());
  CHECK(task.train.count() == 36);
  CHECK(task.validation.count() == 4);
  CHECK(task.test.count() == 7);
  const auto text = [](const Sequences& part, i64 i) {
    const std::span<const std::uint8_t> bytes = part.at(i);
    return std::string(bytes.begin(), bytes.end());
  };
  CHECK(text(task.train, 0) == "neg 100");
  CHECK(text(task.train, 8) == "neg 108");
  CHECK(text(task.validation, 0) == "neg 109");
  CHECK(text(task.train, 9) == "neg 110");
  CHECK(text(task.validation, 3) == "pos 119");
  CHECK(task.validation.labels == std::vector<std::uint8_t>{0, 0, 1, 1});
  CHECK(task.test.labels == std::vector<std::uint8_t>{0, 0, 0, 1, 1, 1, 1});
  CHECK(text(task.test, 3) == start + std::string(3995, 'x'));  // 0_9 is before 100_9
  CHECK(task.longest == 4000);
}

TEST_CASE("reviews: what is missing is named") {
  const TemporaryFolder folder;
  CHECK_ERROR(read_reviews(folder.path()),
              "train/neg: there is no such folder; wanted the reviews");
  write_reviews(folder, 9, 1);
  CHECK_ERROR(read_reviews(folder.path()), "train/neg: has 9 reviews; wanted at least 10");
  write_reviews(folder, 10, 1);
  folder.file("train/pos/103_9.txt", "");
  CHECK_ERROR(read_reviews(folder.path()), "train/pos/103_9.txt: is empty");
  folder.file("train/pos/103_9.txt", "x");
  std::filesystem::remove(folder.path("test/pos/100_9.txt"));
  CHECK_ERROR(read_reviews(folder.path()), "test/pos: has no reviews");
  const TemporaryFolder outer;
  std::filesystem::create_directories(outer.path("aclImdb"));
  CHECK_ERROR(read_reviews(outer.path()), "aclImdb/train/neg: there is no such folder");
}

}  // TEST_SUITE("lra")

}  // namespace
}  // namespace weft::lra
