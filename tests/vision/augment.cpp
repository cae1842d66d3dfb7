// Pictures cropped, mirrored, normalised and batched.
#include "apps/data/augment.h"
#include "apps/data/shuffle.h"

#include <algorithm>
#include <set>

#include "tests/check.h"
#include "tests/files.h"
#include "tests/threads.h"

using namespace weft;

namespace {

constexpr Normalisation plain{{0, 0, 0}, {1.0 / 255, 1.0 / 255, 1.0 / 255}};  // bytes stay

std::vector<float> cut(const std::vector<std::uint8_t>& pixels, const Cut& where,
                       const Normalisation& normalisation = plain) {
  std::vector<float> out(picture_bytes);
  cut_picture(pixels.data(), where, normalisation, out.data());
  return out;
}

std::vector<std::uint8_t> bytes_of(const std::vector<float>& values) {
  std::vector<std::uint8_t> bytes;
  for (const float v : values) bytes.push_back(static_cast<std::uint8_t>(std::lround(v)));
  return bytes;
}

std::vector<std::uint8_t> random_picture() {
  const Pictures drawn = drawn_pictures(3, 1);
  return drawn.pixels;
}

std::vector<i64> first(i64 count) {
  std::vector<i64> list;
  for (i64 i = 0; i < count; ++i) list.push_back(i);
  return list;
}

}  // namespace

TEST_SUITE("vision") {

TEST_CASE("cut: the middle is the picture; mirrored twice it is again") {
  const std::vector<std::uint8_t> picture = random_picture();
  CHECK(bytes_of(cut(picture, {})) == picture);
  const Cut mirror{4, 4, true};
  const auto once = bytes_of(cut(picture, mirror));
  CHECK(once != picture);
  CHECK(bytes_of(cut(once, mirror)) == picture);
}

TEST_CASE("cut: pixels move by the corner, black comes in") {
  const std::vector<std::uint8_t> picture = random_picture();
  for (const Cut& where : {Cut{0, 8, false}, Cut{8, 1, false}, Cut{3, 5, true}}) {
    const std::vector<float> out = cut(picture, where);
    for (i64 y = 0; y < 32; ++y) {
      for (i64 x = 0; x < 32; ++x) {
        const i64 across = where.mirrored ? 31 - x : x;
        const i64 row = y + where.top - 4, column = across + where.left - 4;
        const bool there = row >= 0 && row < 32 && column >= 0 && column < 32;
        const int wanted = there ? picture[std::size_t(3 * (32 * row + column) + 1)] : 0;
        REQUIRE(std::abs(out[std::size_t(3 * (32 * y + x) + 1)] - float(wanted)) < 1e-3);
      }
    }
  }
}

TEST_CASE("cut: a white picture stays white but for the border, normalised") {
  const std::vector<std::uint8_t> white(picture_bytes, 255);
  const Normalisation n = normalisation_of("cifar-10");
  const std::vector<float> out = cut(white, {0, 4, false}, n);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::size_t c = i % 3, row = i / 96;
    const double wanted = ((row < 4 ? 0.0 : 1.0) - n.mean[c]) / n.deviation[c];
    REQUIRE(std::abs(out[i] - wanted) < 1e-5);
  }
}

TEST_CASE("cut: drawn by seed, epoch and picture, every place and both ways") {
  std::set<i64> tops, lefts;
  int mirrored = 0;
  for (i64 i = 0; i < 2000; ++i) {
    const Cut c = random_cut(1, 2, i);
    tops.insert(c.top), lefts.insert(c.left);
    mirrored += c.mirrored;
  }
  CHECK(tops == std::set<i64>{0, 1, 2, 3, 4, 5, 6, 7, 8});
  CHECK(lefts == tops);
  CHECK(std::abs(mirrored - 1000) < 5 * std::sqrt(500.0));
  const auto cuts = [](std::uint64_t seed, std::uint32_t epoch) {
    std::vector<i64> all;
    for (i64 i = 0; i < 20; ++i) all.push_back(random_cut(seed, epoch, i).top);
    return all;
  };
  CHECK(cuts(1, 2) == cuts(1, 2));
  CHECK(cuts(1, 2) != cuts(2, 2));
  CHECK(cuts(1, 2) != cuts(1, 3));
}

TEST_CASE("shuffled: a permutation, another for another key") {
  const auto order = shuffled(1000, {1, 2, 3});
  auto sorted = order;
  std::sort(sorted.begin(), sorted.end());
  CHECK(sorted == first(1000));
  CHECK(order != sorted);
  CHECK(order != shuffled(1000, {1, 3, 3}));
  CHECK(shuffled(0, {}).empty());
}

TEST_CASE("held out: two parts that make the whole, by the seed") {
  const Division parts = hold_out(100, 30, 4);
  CHECK(parts.held.size() == 30);
  std::vector<i64> all = parts.kept;
  all.insert(all.end(), parts.held.begin(), parts.held.end());
  std::sort(all.begin(), all.end());
  CHECK(all == first(100));
  CHECK(parts.held == hold_out(100, 30, 4).held);
  CHECK(parts.held != hold_out(100, 30, 5).held);
}

TEST_CASE("training batches: an epoch takes each picture at most once, the next in another order") {
  const Pictures pictures = drawn_pictures(1, 23);
  const std::vector<i64> which = first(23);
  TrainingBatches batches(pictures, which, plain, 5, 9, false);
  CHECK(batches.epoch_steps() == 4);
  std::vector<std::vector<float>> epochs;
  std::uint32_t step = 0;
  for (int epoch = 0; epoch < 2; ++epoch) {
    epochs.emplace_back();
    std::set<std::vector<float>> seen;
    for (int i = 0; i < 4; ++i) {
      const PictureBatch batch = batches(++step);
      const std::vector<float> values = batch.images.to_vector<float>();
      const std::vector<i64> labels = batch.labels.to_vector<i64>();
      for (std::size_t k = 0; k < 5; ++k) {
        const auto from = values.begin() + std::ptrdiff_t(k) * picture_bytes;
        const std::vector<float> one(from, from + picture_bytes);
        seen.insert(one);
        bool known = false;
        for (i64 p = 0; p < 23; ++p) {
          const std::vector<std::uint8_t> bytes(pictures.at(p), pictures.at(p) + picture_bytes);
          known = known || (bytes_of(one) == bytes && pictures.labels[std::size_t(p)] == labels[k]);
        }
        CHECK(known);
      }
      epochs.back().insert(epochs.back().end(), values.begin(), values.end());
    }
    CHECK(seen.size() == 20);
  }
  CHECK(epochs[0] != epochs[1]);
}

TEST_CASE("training batches: the same for any threads, in any order of asking, twice") {
  const Pictures pictures = drawn_pictures(1, 40);
  const std::vector<i64> which = first(40);
  std::vector<Tensor> wanted;
  {
    const ThreadsOf one(1);
    TrainingBatches batches(pictures, which, plain, 8, 9);
    for (std::uint32_t step = 1; step <= 12; ++step) wanted.push_back(batches(step).images);
  }
  const ThreadsOf three(3);
  TrainingBatches again(pictures, which, plain, 8, 9);
  for (const std::uint32_t step : {12u, 1u, 2u, 3u, 7u, 6u, 6u, 11u, 12u}) {
    CHECK(same_bits(again(step).images, wanted[step - 1]));
  }
  TrainingBatches other(pictures, which, plain, 8, 10);
  CHECK_FALSE(same_bits(other(1).images, wanted[0]));
}

TEST_CASE("training batches: too few pictures for one") {
  const Pictures pictures = drawn_pictures(1, 4);
  const std::vector<i64> which = first(4);
  CHECK_ERROR(TrainingBatches(pictures, which, plain, 5, 1),
              "--batch: wanted no more than the 4 pictures of the training part, got 5");
}

}  // TEST_SUITE("vision")
