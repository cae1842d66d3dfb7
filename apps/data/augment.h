// Batches of pictures, for training and evaluation.
//
// Augmentation pads each training picture with a black border of 4 pixels, crops a random square of
// 32 × 32, and mirrors it with probability ½. The crop and the mirroring are functions of seed,
// epoch and picture; the order of an epoch is a function of seed and epoch.
#pragma once

#include <future>
#include <span>
#include <vector>

#include "apps/data/cifar.h"
#include "apps/data/rows.h"
#include "apps/data/shuffle.h"
#include "runtime/random.h"
#include "runtime/tensor.h"

namespace weft {

// The crop of a picture: its corner in the padded picture, 0 … 8; 4 is the centre.
struct Cut {
  i64 top = 4, left = 4;
  bool mirrored = false;
};
Cut random_cut(std::uint64_t seed, std::uint32_t epoch, i64 picture);

// Crops and normalises the pixels [32, 32, 3] of a picture.
void cut_picture(const std::uint8_t* pixels, const Cut& cut, const Normalisation& normalisation,
                 float* to);

struct PictureBatch {
  Tensor images;  // [B, 32, 32, 3] f32
  Tensor labels;  // [B] i64
};

// These pictures without augmentation, normalised.
PictureBatch plain_batch(const Pictures& pictures, std::span<const i64> which,
                         const Normalisation& normalisation);

// Splits 0 … count − 1: `held` random ones are held out. Both parts are ascending.
struct Division {
  std::vector<i64> kept, held;
};
Division hold_out(i64 count, i64 held, std::uint64_t seed);

// The training batches of steps 1, 2, …. Each epoch has another order and drops its last, partial
// batch. Each rank reads its own_rows(). A thread prepares the next batch while a step computes.
class TrainingBatches {
 public:
  // Batches from the pictures `which`, at least `batch` of them. Both arguments must outlive this
  // object. Without `augment` pictures are only normalised.
  TrainingBatches(const Pictures& pictures, std::span<const i64> which,
                  const Normalisation& normalisation, i64 batch, std::uint64_t seed,
                  bool augment = true);
  ~TrainingBatches();

  i64 epoch_steps() const { return order_.steps(); }
  PictureBatch operator()(std::uint32_t step);

 private:
  PictureBatch prepared(std::uint32_t step);

  const Pictures& pictures_;
  std::span<const i64> which_;
  Normalisation normalisation_;
  std::uint64_t seed_;
  Rows rows_;
  bool augment_;
  EpochOrder order_;
  std::uint32_t next_step_ = 0;  // the step whose batch `next_` prepares
  std::future<PictureBatch> next_;
};

}  // namespace weft
