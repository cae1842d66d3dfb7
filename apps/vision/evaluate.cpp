#include "apps/vision/evaluate.h"

#include <array>
#include <numeric>

#include "apps/training/accuracy.h"

namespace weft::vision {

Measure measure(const Model& model, const Pictures& pictures, std::span<const i64> which,
                const Advance& advance) {
  const Normalisation normalisation = normalisation_of(model.settings.dataset);
  const VisionTransformer& network = *model.network;
  const auto classify = [&](std::span<const i64> some) -> Classified {
    const PictureBatch batch = plain_batch(pictures, some, normalisation);
    Context context = Context::evaluation();
    return {network(context, batch.images.to(network.device())).value(), batch.labels};
  };
  const Accuracy found =
      accuracy_of(which, model.settings.at_once(), std::array{i64{1}, i64{5}}, classify, advance);
  return {found.loss,
          found.loss,
          {{"top_1", "% top-1", found.top[0]}, {"top_5", "% top-5", found.top[1]}}};
}

Parts divide(const PictureSet& set, const Settings& settings) {
  const i64 count = set.train.count();
  require(
      settings.validation <= count - settings.batch,
      "--validation: holding out {} of {} training pictures leaves no batch of {}; choose fewer",
      settings.validation, count, settings.batch);
  Division division = hold_out(count, settings.validation, settings.seed);
  std::vector<i64> test(static_cast<std::size_t>(set.test.count()));
  std::iota(test.begin(), test.end(), 0);
  return {set, std::move(division.kept), std::move(division.held), std::move(test)};
}

}  // namespace weft::vision
