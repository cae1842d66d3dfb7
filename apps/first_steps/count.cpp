// A model that learns to count to ten, again and again: a model, a tape, an optimizer.
#include <cstdio>

#include "autograd/tape.h"
#include "nn/initializer.h"
#include "nn/optimizer.h"
#include "nn/transformer.h"
#include "ops/cross_entropy/cross_entropy.h"

using namespace weft;

struct Model {
  nn::Embedding embedding{10, 32};
  nn::Transformer body{{.attention = {.mechanism = "agglomerative", .width = 32, .heads = 4}}, 2};
  nn::Linear output{32, 10};

  Variable operator()(Context& context, const Tensor& ids) const {
    return output(body(context, embedding(ids)));
  }
  void each(const auto& visit) {
    visit("embedding", embedding), visit("body", body), visit("output", output);
  }
};

int main() {
  Model model;
  initialize(model, 1);  // 1 is the seed
  const auto adam = make_optimizer("adam", parameters(model));
  std::vector<std::int64_t> digits(8 * 17);
  for (std::size_t i = 0; i < digits.size(); ++i) digits[i] = static_cast<std::int64_t>(i % 10);
  const Tensor text = Tensor::from(digits, {8, 17});
  const Tensor ids = text.slice(1, 0, 16), next = text.slice(1, 1, 17);
  for (std::uint32_t step = 1; step <= 60; ++step) {
    zero_gradients(model);
    Context context(true, 1, step);
    Tape tape;
    const Variable loss = cross_entropy(model(context, ids), next);
    tape.backward(loss);
    adam->step(0.01);
    if (step % 20 == 0) std::printf("step %u  loss %.4f\n", step, loss.value().item());
  }
}
