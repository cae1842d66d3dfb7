// Context::recompute: blocks that keep their input alone.
#include <algorithm>

#include "autograd/tape.h"
#include "nn/sequence_classifier.h"
#include "nn/universal_transformer.h"
#include "nn/vision_transformer.h"
#include "ops/pointwise/pointwise.h"
#include "runtime/allocator.h"
#include "tests/nn/checks.h"
#include "tests/nn/tiny_vit.h"

using namespace weft;

namespace {

UniversalTransformerConfig small_text_model(const std::string& attention) {
  return {.vocabulary = 5,
          .width = 8,
          .depth = 3,
          .heads = 2,
          .length = 12,
          .attention = attention,
          .encoding = "conv",
          .conv_width = 3,
          .attention_dropout = 0.2,
          .residual_dropout = 0.3,
          .act = false,
          .l2 = 0.01};
}

struct Walked {
  std::vector<Tensor> values, gradients;
  std::size_t kept = 0;  // bytes that are live when backward begins
};

// The values of a training step and the gradients of all parameters, given random ones of values.
template <class Module, class F>
Walked walked(Module& module, bool again, const F& values_of) {
  zero_gradients(module);
  Context context(true, 5, 1);
  context.recompute = again;
  CachingAllocator& memory = allocator(tested_device());
  const std::size_t before = memory.counts().live;
  Walked found;
  {
    Tape tape;
    const std::vector<Variable> values = values_of(context);
    found.kept = memory.counts().live - before;
    std::vector<Tensor> cotangents;
    for (std::size_t i = 0; i < values.size(); ++i) {
      found.values.push_back(values[i].value());
      cotangents.push_back(
          random_normal(values[i].shape(), values[i].value().dtype(), 9 + i).to(tested_device()));
    }
    tape.backward(values, cotangents);
  }
  for (const NamedParameter& p : parameters(module)) {
    found.gradients.push_back(p.variable.gradient());
  }
  return found;
}

template <class Module, class F>
void check_same(Module& module, bool to_the_bit, const F& values_of) {
  randomise(module, 3);
  const Walked plain = walked(module, false, values_of), again = walked(module, true, values_of);
  CHECK(again.kept < plain.kept);
  for (std::size_t i = 0; i < plain.values.size(); ++i) {
    CHECK(same_bits(again.values[i], plain.values[i]));
  }
  REQUIRE(again.gradients.size() == plain.gradients.size());
  for (std::size_t i = 0; i < plain.gradients.size(); ++i) {
    REQUIRE(again.gradients[i].defined() == plain.gradients[i].defined());
    if (!plain.gradients[i].defined()) continue;
    if (to_the_bit) {
      CHECK(same_bits(again.gradients[i], plain.gradients[i]));
    } else {
      CHECK(relative_error(again.gradients[i], plain.gradients[i]) < tolerance::backward_f64);
    }
  }
}

TEST_SUITE("nn") {

TEST_CASE("recomputed blocks: the values and gradients of kept ones, with dropout and penalties") {
  for (const char* attention : {"full", "agglomerative", "adaptive-span:max_span=8,ramp=3",
                                "performer:features=8", "lsh:chunk=4,rounds=2", "mega"}) {
    for (const char* wiring : {"universal", "vanilla", "prenorm"}) {
      if (attention == std::string("mega") && wiring != std::string("prenorm")) continue;
      for (const bool shared : {true, false}) {
        for (const bool act : {false, true}) {
          CAPTURE(attention);
          CAPTURE(wiring);
          CAPTURE(shared);
          CAPTURE(act);
          UniversalTransformerConfig config = small_text_model(attention);
          config.wiring = wiring, config.shared = shared, config.act = act;
          UniversalTransformer model(config, 1, f64);
          const Tensor ids = random_ids({3, 11}, 5, 4);
          // A state that ACT reads as well gets the parts of its gradient in another order.
          check_same(model, !act, [&](Context& context) {
            const auto [logits, penalty] = model(context, ids);
            return std::vector<Variable>{logits, penalty};
          });
        }
      }
    }
  }
}

TEST_CASE("recomputed blocks: behind a memory, which the second run neither reads nor changes") {
  for (const char* attention : {"transformer-xl", "adaptive-span:max_span=8,ramp=3"}) {
    CAPTURE(attention);
    UniversalTransformerConfig config = small_text_model(attention);
    config.memory = 6;
    UniversalTransformer model(config, 1, f64);
    randomise(model, 3);
    UniversalTransformer::Memory start = model.start_of(2);
    {
      Context context = Context::evaluation();
      model(context, random_ids({2, 9}, 5, 2), &start);
    }
    std::vector<UniversalTransformer::Memory> behind;
    check_same(model, true, [&](Context& context) {
      behind.push_back(start);
      const auto [logits, penalty] = model(context, random_ids({2, 7}, 5, 4), &behind.back());
      return std::vector<Variable>{logits, penalty};
    });
    for (std::size_t t = 0; t < 3; ++t) {
      CHECK(same_bits(behind[0].steps[t].attention, behind[1].steps[t].attention));
    }
  }
}

TEST_CASE("recomputed blocks: classifiers of sequences, with lengths, and of pictures") {
  SequenceClassifier sequences({.symbols = 7,
                                .classes = 3,
                                .length = 10,
                                .width = 8,
                                .heads = 2,
                                .hidden = 12,
                                .attention = "full"},
                               1, f64);
  const Tensor lengths = Tensor::from(std::vector<i64>{10, 4, 1}, {3}).to(tested_device());
  check_same(sequences, true, [&](Context& context) {
    return std::vector<Variable>{sequences(context, random_ids({3, 10}, 7, 4), lengths)};
  });
  VisionTransformer pictures(tiny_vit("csp"), 1, f64);
  const Tensor images = images_for(pictures.config(), 2);
  check_same(pictures, true,
             [&](Context& context) { return std::vector<Variable>{pictures(context, images)}; });
}

}  // TEST_SUITE("nn")

}  // namespace
