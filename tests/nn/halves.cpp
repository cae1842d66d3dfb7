// Modules in training: halves of a batch draw by their place in it what the whole batch draws.
#include "tests/halves.h"

#include "nn/sequence_classifier.h"
#include "nn/transformer.h"
#include "nn/universal_transformer.h"
#include "tests/nn/tiny_vit.h"

namespace weft {
namespace {

constexpr i64 halved_batch = 4;

// f(context, first, end) is the module's output for these halved_batch.
template <class Module, class F>
void check_halves_of(Module& module, const F& f) {
  const ThreadsOf alone(1);
  randomise(module, 3);
  const std::vector<Variable> originals = parameter_variables(module);
  std::vector<Tensor> weights;
  for (const Variable& p : originals) weights.push_back(p.value());
  check_halves(
      [&](std::span<const Variable> in, i64 first, i64 end) {
        set_parameters(module, in);
        Context context(true, 5, 1, nullptr, first);
        return f(context, first, end);
      },
      weights, halved_batch);
  set_parameters(module, originals);
}

TEST_SUITE("nn") {

TEST_CASE("halves: transformer blocks of every wiring") {
  const Tensor x = random_normal({halved_batch, 7, 6}, f64, 1).to(tested_device());
  for (const char* const wiring : {"universal", "vanilla", "prenorm"}) {
    for (const char* const attention : {"full", "biblosa", "mega"}) {
      CAPTURE(wiring);
      CAPTURE(attention);
      nn::BlockOptions options;
      options.attention = {.mechanism = attention, .width = 6, .heads = 2};
      options.attention.causal = false;
      options.attention.dropout = 0.2;
      options.attention.max_length = 7;
      options.wiring = nn::block_wiring(wiring);
      options.dropout = 0.3;
      nn::Transformer module(options, 2, f64);
      check_halves_of(module, [&](Context& context, i64 first, i64 end) {
        return module(context, Variable(x.slice(0, first, end)));
      });
    }
  }
}

TEST_CASE("halves: universal transformer") {
  const Tensor ids = random_ids({halved_batch, 9}, 5, 4);
  for (const bool shared : {true, false}) {
    for (const char* const attention : {"full", "agglomerative"}) {
      CAPTURE(shared);
      CAPTURE(attention);
      UniversalTransformer module({.vocabulary = 5,
                                   .width = 6,
                                   .depth = 3,
                                   .heads = 2,
                                   .length = 12,
                                   .attention = attention,
                                   .attention_dropout = 0.2,
                                   .residual_dropout = 0.3,
                                   .output_dropout = 0.4,
                                   .shared = shared},
                                  1, f64);
      check_halves_of(module, [&](Context& context, i64 first, i64 end) {
        return module(context, ids.slice(0, first, end)).logits;
      });
    }
  }
}

TEST_CASE("halves: vision transformer") {
  const VisionTransformerConfig config = tiny_vit("full");
  const Tensor images = images_for(config, halved_batch);
  VisionTransformer module(config, 1, f64);
  check_halves_of(module, [&](Context& context, i64 first, i64 end) {
    return module(context, images.slice(0, first, end));
  });
}

TEST_CASE("halves: sequence classifier") {
  const Tensor symbols = random_ids({halved_batch, 9}, 16, 4);
  const Tensor lengths =
      Tensor::from(std::vector<i64>{9, 3, 7, 1}, {halved_batch}).to(tested_device());
  SequenceClassifier module({.length = 9, .width = 8, .hidden = 10}, 1, f64);
  check_halves_of(module, [&](Context& context, i64 first, i64 end) {
    return module(context, symbols.slice(0, first, end), lengths.slice(0, first, end));
  });
}

}  // TEST_SUITE("nn")
}  // namespace
}  // namespace weft
