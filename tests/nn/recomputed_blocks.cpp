// Context::recompute: blocks that keep their input alone.
#include "nn/sequence_classifier.h"
#include "runtime/allocator.h"
#include "tests/nn/tiny_text_model.h"
#include "tests/nn/tiny_vit.h"

using namespace weft;

namespace {

UniversalTransformerConfig small_text_model(const std::string& attention) {
  UniversalTransformerConfig config = tiny_text_model(attention, "conv");
  config.width = 8;
  config.act = false;
  return config;
}

// The values and the gradients by all parameters are those without recomputing, and less is live
// when backward begins.
template <class Module, class F>
void check_same(Module& module, bool to_the_bit, const F& values_of) {
  randomise(module, 3);
  const std::vector<Variable> parameters = parameter_variables(module);
  std::vector<Tensor> inputs;
  for (const Variable& p : parameters) inputs.push_back(p.value());
  const CachingAllocator& memory = allocator(tested_device());
  std::size_t kept[2];
  const auto trained = [&](bool again) {
    const auto values = [&](std::span<const Variable> variables) {
      set_parameters(module, variables);
      Context context(true, 5, 1);
      context.recompute = again;
      const std::size_t before = memory.counts().live;
      const std::vector<Variable> found = values_of(context);
      kept[again] = memory.counts().live - before;
      return found;
    };
    return run(values, inputs);
  };
  const Run plain = trained(false), again = trained(true);
  set_parameters(module, parameters);
  CHECK(kept[true] < kept[false]);
  if (to_the_bit) return check_same_bits(again, plain);
  for (std::size_t i = 0; i < plain.outputs.size(); ++i) {
    CHECK(same_bits(again.outputs[i], plain.outputs[i]));
  }
  REQUIRE(again.gradients.size() == plain.gradients.size());
  for (std::size_t i = 0; i < plain.gradients.size(); ++i) {
    REQUIRE(again.gradients[i].defined() == plain.gradients[i].defined());
    if (!plain.gradients[i].defined()) continue;
    CHECK(relative_error(again.gradients[i], plain.gradients[i]) < tolerance::backward_f64);
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
