// Optimizers on the emulated device under other orders of threads.
#include "tests/orders.h"

#include "nn/optimizer.h"
#include "tests/nn/checks.h"

namespace weft {
namespace {

struct Weights {
  Parameter matrix, vector;

  Weights() : matrix({31, 13}, {}, DType::f32), vector({5000}, {}, DType::f32) {
    randomise(*this, 3);
    move_to(*this, tested_device());
  }
  void each(const auto& visit) { visit("matrix", matrix), visit("vector", vector); }
};

// The weights after three steps that are clipped.
std::vector<Tensor> trained(const std::string& optimizer) {
  Weights weights;
  const auto rule = make_optimizer(optimizer, parameters(weights));
  for (std::uint64_t step = 1; step <= 3; ++step) {
    zero_gradients(weights);
    for (Parameter* p : {&weights.matrix, &weights.vector}) {
      const Tensor gradient = random_normal(p->value().shape(), DType::f32, step);
      p->variable.place()->accumulate(gradient.to(tested_device()));
    }
    rule->step(0.1, 1);
  }
  return {weights.matrix.value(), weights.vector.value()};
}

TEST_SUITE("nn") {

TEST_CASE("optimizers: the same bits in any order of threads") {
  if (tested_device() == Device{}) return;
  for (const char* optimizer : {"sgd:momentum=0.8", "adadelta", "adam", "adamw:decay=0.1"}) {
    CAPTURE(optimizer);
    const std::vector<Tensor> usual = trained(optimizer);
    under_other_orders([&] {
      const std::vector<Tensor> found = trained(optimizer);
      for (std::size_t i = 0; i < usual.size(); ++i) CHECK(same_bits(found[i], usual[i]));
    });
  }
}

}  // TEST_SUITE("nn")

}  // namespace
}  // namespace weft
