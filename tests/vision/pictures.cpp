// The readers of picture sets, the generated set, and PNG files.
#include <algorithm>
#include <cstdlib>

#include "apps/data/cifar.h"
#include "apps/data/picture.h"
#include "tests/check.h"
#include "tests/files.h"

using namespace weft;

namespace {

// A record whose pixels are byte(channel, row, column).
template <class F>
std::string record(const std::string& labels, const F& byte) {
  std::string bytes = labels;
  for (int c = 0; c < 3; ++c) {
    for (int y = 0; y < 32; ++y) {
      for (int x = 0; x < 32; ++x) bytes += static_cast<char>(byte(c, y, x));
    }
  }
  return bytes;
}

std::string flat(const std::string& labels, int value) {
  return record(labels, [=](int, int, int) { return value; });
}

std::string text(std::initializer_list<int> bytes) {
  std::string s;
  for (const int b : bytes) s += static_cast<char>(b);
  return s;
}

// A folder of CIFAR-10 with one record a file, of label i and pixels 10 i.
void fill_cifar_10(const TemporaryFolder& folder) {
  for (int i = 1; i <= 5; ++i) {
    folder.file(fmt::format("data_batch_{}.bin", i), flat(text({i}), 10 * i));
  }
  folder.file("test_batch.bin", flat(text({9}), 7) + flat(text({0}), 8));
}

std::string failure(const std::string& data, const std::string& set = "auto") {
  return error_of([&] { load_pictures(data, set); });
}

}  // namespace

TEST_SUITE("vision") {

TEST_CASE("cifar-10: records in order, pixels by row, column and channel") {
  const TemporaryFolder folder;
  fill_cifar_10(folder);
  folder.file("data_batch_3.bin", record(text({3}), [](int c, int y, int x) {
                return c == 0 ? y : c == 1 ? x : 255 - y;
              }));
  const PictureSet set = load_pictures(folder.path(), "auto");
  CHECK(set.name == "cifar-10");
  CHECK(set.classes == class_names("cifar-10"));
  REQUIRE(set.train.count() == 5);
  CHECK(set.train.labels == std::vector<std::uint8_t>{1, 2, 3, 4, 5});
  CHECK(set.test.labels == std::vector<std::uint8_t>{9, 0});
  CHECK(set.test.at(1)[0] == 8);
  const std::uint8_t* const pixel = set.train.at(2) + 3 * (32 * 20 + 5);
  CHECK(pixel[0] == 20);
  CHECK(pixel[1] == 5);
  CHECK(pixel[2] == 235);
}

TEST_CASE("cifar-100: fine labels, coarse ones on demand, in the archive's own folder") {
  const TemporaryFolder folder;
  folder.file("cifar-100-binary/train.bin", flat(text({19, 99}), 1) + flat(text({4, 0}), 2));
  folder.file("cifar-100-binary/test.bin", flat(text({0, 7}), 3));
  const PictureSet fine = load_pictures(folder.path(), "auto");
  CHECK(fine.name == "cifar-100");
  CHECK(fine.classes.size() == 100);
  CHECK(fine.train.labels == std::vector<std::uint8_t>{99, 0});
  const PictureSet coarse = load_pictures(folder.path(), "cifar-100-coarse");
  CHECK(coarse.classes.size() == 20);
  CHECK(coarse.train.labels == std::vector<std::uint8_t>{19, 4});
}

TEST_CASE("cifar: class names beside the pictures count") {
  const TemporaryFolder folder;
  fill_cifar_10(folder);
  std::string names;
  for (int i = 0; i < 10; ++i) names += fmt::format("name {}\r\n", i);
  folder.file("batches.meta.txt", names + "\n");
  CHECK(load_pictures(folder.path(), "cifar-10").classes[9] == "name 9");
  folder.file("batches.meta.txt", "one\ntwo\n");
  CHECK(contains(failure(folder.path()),
                 "batches.meta.txt: wanted 10 class names, one a line, got 2"));
  folder.file("batches.meta.txt", "one\n\x1b[2J\n");
  CHECK(contains(failure(folder.path()), "batches.meta.txt: line 2 is not a class name"));
}

TEST_CASE("cifar: files that are not what they should be") {
  const TemporaryFolder folder;
  CHECK(contains(failure(folder.path("none")), "none: there is no such folder"));
  CHECK(contains(failure(folder.path()), "holds no pictures; wanted data_batch_1.bin"));
  CHECK(contains(failure("builtin", "cifar-10"), "--dataset cifar-10: needs --data"));
  fill_cifar_10(folder);
  CHECK(contains(failure(folder.path(), "cifar-100"), "holds no pictures of cifar-100"));
  CHECK(contains(failure(folder.path(), "builtin"), "needs --data builtin"));
  folder.file("data_batch_2.bin", flat(text({2}), 1) + "x");
  CHECK(contains(failure(folder.path()),
                 "data_batch_2.bin: has 3074 bytes; wanted a multiple of 3073"));
  folder.file("data_batch_2.bin", "");
  CHECK(contains(failure(folder.path()), "data_batch_2.bin: has 0 bytes"));
  folder.file("data_batch_2.bin", flat(text({2}), 1) + flat(text({10}), 1));
  CHECK(contains(failure(folder.path()),
                 "data_batch_2.bin: record 1 (byte 3073): label 10, wanted 0 to 9"));
  std::filesystem::remove(folder.path("data_batch_2.bin"));
  CHECK(contains(failure(folder.path()), "data_batch_2.bin: cannot be opened"));
  std::filesystem::create_directory(folder.path("data_batch_2.bin"));
  CHECK(contains(failure(folder.path()), "data_batch_2.bin: wanted a file, got a folder"));
}

TEST_CASE("cifar-100: both labels of a record are checked") {
  const TemporaryFolder folder;
  folder.file("test.bin", flat(text({0, 0}), 0));
  folder.file("train.bin", flat(text({20, 5}), 0));
  CHECK(contains(failure(folder.path()), "train.bin: record 0 (byte 0): label 20, wanted 0 to 19"));
  folder.file("train.bin", flat(text({19, 5}), 0) + flat(text({1, 100}), 0));
  CHECK(contains(failure(folder.path()), "record 1 (byte 3075): label 100, wanted 0 to 99"));
}

TEST_CASE("cifar: the real CIFAR-10") {
  const char* const data = std::getenv("WEFT_DATA");
  const std::string folder = std::string(data == nullptr ? "" : data) + "/cifar-10-batches-bin";
  if (data == nullptr || !std::filesystem::exists(folder)) {
    MESSAGE("skipped: WEFT_DATA names no folder with cifar-10-batches-bin");
    return;
  }
  const PictureSet set = load_pictures(folder, "auto");
  CHECK(set.train.count() == 50'000);
  CHECK(set.test.count() == 10'000);
  // A thousand test pictures of each class, and the published means of the channels; re-encoded
  // copies differ from them in the fourth digit.
  for (int label = 0; label < 10; ++label) {
    CHECK(std::count(set.test.labels.begin(), set.test.labels.end(), label) == 1000);
  }
  double mean[3] = {};
  const auto pixels = static_cast<double>(set.train.pixels.size() / 3);
  for (std::size_t i = 0; i < set.train.pixels.size(); ++i) {
    mean[i % 3] += set.train.pixels[i] / (255 * pixels);
  }
  for (std::size_t c = 0; c < 3; ++c) {
    CHECK(std::abs(mean[c] - normalisation_of("cifar-10").mean[c]) < 5e-4);
  }
  CHECK(set.classes == class_names("cifar-10"));
}

TEST_CASE("drawn pictures: a function of the seed, all classes, longer lists begin alike") {
  const Pictures few = drawn_pictures(5, 40), more = drawn_pictures(5, 400);
  CHECK(std::equal(few.pixels.begin(), few.pixels.end(), more.pixels.begin()));
  CHECK(std::equal(few.labels.begin(), few.labels.end(), more.labels.begin()));
  CHECK(few.pixels != drawn_pictures(6, 40).pixels);
  CHECK(more.pixels.size() == 400 * picture_bytes);
  for (std::size_t label = 0; label < 10; ++label) {
    const auto seen = std::count(more.labels.begin(), more.labels.end(), label);
    CHECK(seen > 15);  // of 400, where 40 are expected
    CHECK(seen < 75);
  }
  CHECK(class_names("builtin").size() == 10);
}

TEST_CASE("class names: as many as there are labels, all different") {
  for (const std::string& set : picture_sets()) {
    std::vector<std::string> names = class_names(set);
    const std::size_t wanted = set == "cifar-100" ? 100 : set == "cifar-100-coarse" ? 20 : 10;
    CHECK(names.size() == wanted);
    std::sort(names.begin(), names.end());
    CHECK(std::unique(names.begin(), names.end()) == names.end());
  }
}

TEST_CASE("png: what was written is read back") {
  const TemporaryFolder folder;
  Picture picture(5, 3);
  for (i64 y = 0; y < 3; ++y) {
    for (i64 x = 0; x < 5; ++x) {
      picture.at(x, y) = {std::uint8_t(50 * x), std::uint8_t(100 * y), std::uint8_t(7)};
    }
  }
  picture.save(folder.path("a.png"));
  Picture read = Picture::load(folder.path("a.png"));
  CHECK(read.width() == 5);
  CHECK(read.height() == 3);
  CHECK(read.at(4, 2).red == 200);
  CHECK(read.at(4, 2).green == 200);
  CHECK(read.at(0, 0).blue == 7);
}

TEST_CASE("png: bad files") {
  const TemporaryFolder folder;
  const auto refusal = [&](const std::string& bytes) {
    const std::string file = folder.file("bad.png", bytes);
    return error_of([&] { Picture::load(file); });
  };
  CHECK(contains(refusal(""), "bad.png: is not a PNG picture"));
  CHECK(contains(refusal("GIF89a and more"), "bad.png: is not a PNG picture"));
  Picture(40, 40).save(folder.path("good.png"));
  const std::string good = read_file(folder.path("good.png"));
  for (std::size_t length = 0; length + 12 < good.size(); ++length) {  // the last 12 are IEND
    CHECK(contains(refusal(good.substr(0, length)), "bad.png: is "));
  }
  std::string damaged = good;
  damaged[good.size() / 2] = static_cast<char>(damaged[good.size() / 2] ^ 0x55);
  CHECK(contains(refusal(damaged), "bad.png: is a damaged PNG picture"));
  Picture(2049, 2048).save(folder.path("large.png"));
  CHECK(contains(error_of([&] { Picture::load(folder.path("large.png")); }),
                 "large.png: has 2049 x 2048 pixels, more than 4194304"));
}

TEST_CASE("resized pictures: a flat one stays flat, a mean stays, an edge stays where it is") {
  Picture flat(7, 50, {10, 20, 30});
  const Picture same = flat.resized(32, 32);
  for (int i = 0; i < 32 * 32; ++i) {
    CHECK(same.pixels()[i].red == 10);
    CHECK(same.pixels()[i].blue == 30);
  }
  Picture halves(64, 64, {0, 0, 0});
  halves.fill(32, 0, 32, 64, {200, 200, 200});
  Picture small = halves.resized(32, 32);
  CHECK(small.at(14, 5).red == 0);
  CHECK(small.at(17, 5).red == 200);
  CHECK(int(small.at(15, 5).red) + int(small.at(16, 5).red) == 200);
  Picture own = halves.resized(64, 64);
  for (i64 x = 0; x < 64; ++x) CHECK(own.at(x, 9).red == halves.at(x, 9).red);
}

}  // TEST_SUITE("vision")
