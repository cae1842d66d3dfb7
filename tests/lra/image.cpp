// Image: grey pictures of CIFAR-10 as sequences (apps/lra/image.h).
#include "apps/lra/image.h"

#include <cmath>

#include "apps/data/cifar.h"
#include "doctest/doctest.h"
#include "tests/check.h"
#include "tests/files.h"
#include "tests/lra/records.h"

namespace weft::lra {
namespace {

TEST_SUITE("lra") {

TEST_CASE("image: greys are those of the formula, in the order of rows") {
  const TemporaryFolder folder;
  write_records(folder, 4, 3);
  std::string record = picture_record(7, 0, 0, 0);
  const auto paint = [&](std::size_t pixel, int red, int green, int blue) {
    record[1 + pixel] = static_cast<char>(red);
    record[1 + 1024 + pixel] = static_cast<char>(green);
    record[1 + 2048 + pixel] = static_cast<char>(blue);
  };
  paint(0, 255, 255, 255);  // 0.9999 · 255.5 = 255.47
  paint(1, 255, 0, 0);      // 0.2989 · 255.5 = 76.37
  paint(2, 0, 255, 0);      // 0.5870 · 255.5 = 149.98
  paint(3, 0, 0, 255);      // 0.1140 · 255.5 = 29.13
  paint(32, 10, 20, 30);    // (2.989 + 11.74 + 3.42) · 255.5 / 255 = 18.18
  paint(1023, 1, 1, 1);     // 1.002
  folder.file("test_batch.bin", record);
  const SequenceTask task = read_image(folder.path());
  CHECK(task.test.count() == 1);
  CHECK(task.test.labels[0] == 7);
  const std::span<const std::uint8_t> pixels = task.test.at(0);
  CHECK(pixels.size() == 1024);
  CHECK(int{pixels[0]} == 255);
  CHECK(int{pixels[1]} == 76);
  CHECK(int{pixels[2]} == 149);
  CHECK(int{pixels[3]} == 29);
  CHECK(int{pixels[4]} == 0);
  CHECK(int{pixels[32]} == 18);
  CHECK(int{pixels[1023]} == 1);
}

TEST_CASE("image: a grey picture keeps its values, and others are the formula's in f64") {
  const TemporaryFolder folder;
  write_records(folder, 2, 1);
  std::string record = picture_record(0, 0, 0, 0);
  for (std::size_t p = 0; p < 1024; ++p) {
    for (std::size_t c = 0; c < 3; ++c) {
      const std::size_t value = p < 256 ? p : (p * (37 + 74 * c) + p / 5) % 256;
      record[1 + 1024 * c + p] = static_cast<char>(value);
    }
  }
  folder.file("test_batch.bin", record);
  const SequenceTask task = read_image(folder.path());
  const std::span<const std::uint8_t> pixels = task.test.at(0);
  for (std::size_t p = 0; p < 1024; ++p) {
    const auto value = [&](std::size_t c) {
      return double(static_cast<std::uint8_t>(record[1 + 1024 * c + p]));
    };
    const double exact = (0.2989 * value(0) + 0.5870 * value(1) + 0.1140 * value(2)) * 255.5 / 255;
    CHECK(std::abs(double(pixels[p]) + 0.5 - exact) <= 0.5 + 1e-9);
    if (p < 256) CHECK(std::size_t{pixels[p]} == p);
  }
}

TEST_CASE("image: the last tenth of the training files validates") {
  const TemporaryFolder folder;
  write_records(folder, 4, 3);
  const SequenceTask task = read_image(folder.path());
  CHECK(task.train.count() == 18);
  CHECK(task.validation.count() == 2);
  CHECK(task.test.count() == 3);
  CHECK(task.classes.size() == 10);
  CHECK(task.longest == 1024);
  // Record i of data_batch_k has the grey 10 k + i.
  CHECK(int{task.train.at(0)[5]} == 10);
  CHECK(int{task.train.at(17)[5]} == 51);
  CHECK(int{task.validation.at(0)[5]} == 52);
  CHECK(int{task.validation.at(1)[5]} == 53);
  CHECK(int{task.test.at(2)[5]} == 202);
}

TEST_CASE("image: what is wrong with the files is told with file and record") {
  const TemporaryFolder folder;
  CHECK_ERROR(read_image(folder.path("none")), "there is no such folder");
  CHECK_ERROR(read_image(folder.path()), "holds no pictures of cifar-10");
  write_records(folder, 1, 1);
  CHECK_ERROR(read_image(folder.path()), "has 5 training pictures; wanted at least 10");
  write_records(folder, 2, 1);
  folder.file("data_batch_3.bin", picture_record(3, 1, 1, 1) + picture_record(10, 1, 1, 1));
  CHECK_ERROR(read_image(folder.path()), "data_batch_3.bin: record 1 (byte 3073): label 10");
}

}  // TEST_SUITE("lra")

}  // namespace
}  // namespace weft::lra
