// Pictures as batches for training and for measuring.
//
// For training, each picture is set into a black border of 4 pixels, of which a square of 32 × 32
// is cut at a random place, and mirrored with probability ½. Where and whether is a function of the
// seed, the epoch and the picture; so is the order of an epoch of seed and epoch.
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

// Where a picture is cut: the corner in the bordered picture, 0 … 8; 4 is its middle.
struct Cut {
  i64 top = 4, left = 4;
  bool mirrored = false;
};
Cut random_cut(std::uint64_t seed, std::uint32_t epoch, i64 picture);

// The pixels [32, 32, 3] of a picture, cut and then normalised.
void cut_picture(const std::uint8_t* pixels, const Cut& cut, const Normalisation& normalisation,
                 float* to);

struct PictureBatch {
  Tensor images;  // [B, 32, 32, 3] f32
  Tensor labels;  // [B] i64
};

// These pictures as they are, normalised.
PictureBatch plain_batch(const Pictures& pictures, std::span<const i64> which,
                         const Normalisation& normalisation);

// Of 0 … count − 1, `held` at random are held out; both parts are in rising order.
struct Division {
  std::vector<i64> kept, held;
};
Division hold_out(i64 count, i64 held, std::uint64_t seed);

// The batches of training: steps 1, 2, …; each epoch takes the pictures in another order, and
// leaves out those that fill no batch. Each rank reads its own_rows(). While a step computes, a
// thread prepares the next one's batch.
class TrainingBatches {
 public:
  // `which` of the pictures, at least `batch` of them; both stay where they are meanwhile. Without
  // `augment` pictures are taken as they are.
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
  std::uint32_t next_step_ = 0;  // that `next_` prepares
  std::future<PictureBatch> next_;
};

}  // namespace weft
