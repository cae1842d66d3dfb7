#include "apps/data/augment.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "runtime/error.h"

namespace weft {
namespace {

constexpr i64 border = 4;

// Random streams 0, 1, … of a step belong to the modules; those of pictures are far above them.
enum : std::uint32_t { order_stream = 0xffff0010, cut_stream, division_stream };

PictureBatch empty_batch(i64 count) {
  return {Tensor::empty({count, picture_size, picture_size, 3}, DType::f32),
          Tensor::empty({count}, DType::i64)};
}

void put(const Pictures& pictures, i64 which, const Cut& cut, const Normalisation& normalisation,
         i64 at, const PictureBatch& batch) {
  cut_picture(pictures.at(which), cut, normalisation,
              batch.images.data<float>() + at * picture_bytes);
  batch.labels.data<i64>()[at] = pictures.labels[static_cast<std::size_t>(which)];
}

}  // namespace

Cut random_cut(std::uint64_t seed, std::uint32_t epoch, i64 picture) {
  const Philox words =
      RandomKey{seed, epoch, cut_stream}.words(static_cast<std::uint64_t>(picture));
  return {below(words.word[0], 2 * border + 1), below(words.word[1], 2 * border + 1),
          below(words.word[2], 2) == 1};
}

void cut_picture(const std::uint8_t* pixels, const Cut& cut, const Normalisation& normalisation,
                 float* to) {
  float scale[3], offset[3];
  for (std::size_t c = 0; c < 3; ++c) {
    scale[c] = static_cast<float>(1 / (255 * normalisation.deviation[c]));
    offset[c] = static_cast<float>(-normalisation.mean[c] / normalisation.deviation[c]);
  }
  for (i64 row = 0; row < picture_size; ++row) {
    const i64 y = row + cut.top - border;
    for (i64 column = 0; column < picture_size; ++column, to += 3) {
      const i64 across = cut.mirrored ? picture_size - 1 - column : column;
      const i64 x = across + cut.left - border;
      const bool there = y >= 0 && y < picture_size && x >= 0 && x < picture_size;
      const i64 from = 3 * (y * picture_size + x);
      for (int c = 0; c < 3; ++c) {
        to[c] = (there ? float(pixels[from + c]) * scale[c] : 0) + offset[c];
      }
    }
  }
}

PictureBatch plain_batch(const Pictures& pictures, std::span<const i64> which,
                         const Normalisation& normalisation) {
  const PictureBatch batch = empty_batch(static_cast<i64>(which.size()));
  for (std::size_t i = 0; i < which.size(); ++i) {
    put(pictures, which[i], {}, normalisation, static_cast<i64>(i), batch);
  }
  return batch;
}

Division hold_out(i64 count, i64 held, std::uint64_t seed) {
  const std::vector<i64> order = shuffled(count, {seed, 0, division_stream});
  const auto cut = order.begin() + static_cast<std::ptrdiff_t>(held);
  Division parts{{cut, order.end()}, {order.begin(), cut}};
  std::sort(parts.kept.begin(), parts.kept.end());
  std::sort(parts.held.begin(), parts.held.end());
  return parts;
}

TrainingBatches::TrainingBatches(const Pictures& pictures, std::span<const i64> which,
                                 const Normalisation& normalisation, i64 batch, std::uint64_t seed,
                                 bool augment)
    : pictures_(pictures),
      which_(which),
      normalisation_(normalisation),
      seed_(seed),
      rows_(own_rows(batch)),
      augment_(augment),
      order_(static_cast<i64>(which.size()), batch, seed, order_stream) {
  require(batch >= 1 && epoch_steps() >= 1,
          "--batch: wanted no more than the {} pictures of the training part, got {}", which.size(),
          batch);
}

TrainingBatches::~TrainingBatches() {
  if (next_.valid()) next_.wait();
}

PictureBatch TrainingBatches::operator()(std::uint32_t step) {
  if (next_.valid() && next_step_ != step) next_.wait();  // the thread writes order_, read below
  PictureBatch batch = next_.valid() && next_step_ == step ? next_.get() : prepared(step);
  next_step_ = step + 1;
  next_ = std::async(std::launch::async, [this, step] { return prepared(step + 1); });
  return batch;
}

PictureBatch TrainingBatches::prepared(std::uint32_t step) {
  const std::uint32_t epoch = order_.epoch(step);
  const std::span<const i64> places = rows_.of(order_(step));
  const PictureBatch batch = empty_batch(std::ssize(places));
  for (i64 i = 0; i < std::ssize(places); ++i) {
    const i64 which = which_[static_cast<std::size_t>(places[static_cast<std::size_t>(i)])];
    const Cut cut = augment_ ? random_cut(seed_, epoch, which) : Cut{};
    put(pictures_, which, cut, normalisation_, i, batch);
  }
  return batch;
}

}  // namespace weft
