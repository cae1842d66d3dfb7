// Models with activations in bf16 beside the same models in f32.
#include <algorithm>
#include <cmath>

#include "autograd/tape.h"
#include "nn/precision.h"
#include "nn/sequence_classifier.h"
#include "nn/universal_transformer.h"
#include "ops/cross_entropy/cross_entropy.h"
#include "tests/nn/checks.h"
#include "tests/nn/tiny_vit.h"
#include "tests/threads.h"

namespace weft {
namespace {

constexpr double half_unit = tolerance::half_unit_bf16;

struct Learned {
  double loss = 0;
  std::vector<double> gradient;  // of all parameters
};

template <class Model, class F>
Learned pass_of(Model& model, const F& loss_of) {
  put_on_tested_device(model);
  Context context(true, 1, 1);
  Tape tape;
  const Variable loss = loss_of(context);
  CHECK(loss.value().dtype() == DType::f32);
  tape.backward(loss);
  Learned pass{loss.value().to(Device{}).to_vector<float>()[0], {}};
  for (const NamedParameter& parameter : parameters(model)) {
    const Tensor gradient = parameter.variable.gradient();
    if (!gradient.defined()) continue;
    CAPTURE(parameter.name);
    CHECK(gradient.dtype() == DType::f32);
    for (const double x : gradient.to(Device{}).to(DType::f64).to_vector<double>()) {
      pass.gradient.push_back(x);
    }
  }
  return pass;
}

double difference_of(const Learned& one, const Learned& other) {
  REQUIRE(one.gradient.size() == other.gradient.size());
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < other.gradient.size(); ++i) {
    difference += std::pow(one.gradient[i] - other.gradient[i], 2);
    size += std::pow(other.gradient[i], 2);
  }
  return std::sqrt(difference / size);
}

// A rounding changes a number by 2⁻⁸ at most. Those of some dozens of ops, one after the other, are
// independent, so that their sum is far below ten of the largest ones. What these change in a
// gradient may be more: `sensitivity` is what f32 changes for such changes of its parameters.
void check_near(const Learned& bf16, const Learned& f32, double sensitivity = 0) {
  const double bound = 10 * half_unit;
  CHECK(bf16.loss != f32.loss);
  CHECK(std::abs(bf16.loss - f32.loss) <= bound * f32.loss);
  CHECK(difference_of(bf16, f32) <= std::max(bound, 2 * sensitivity));
}

// Each parameter times a number of its own within 2⁻⁸ of 1.
template <class Model>
void change_parameters(Model& model, std::uint64_t seed) {
  for (const NamedParameter& parameter : parameters(model)) {
    const Tensor x = parameter.variable.value();
    const Tensor by = random_uniform(x.shape(), DType::f32, seed++, 1 - half_unit, 1 + half_unit);
    for (i64 i = 0; i < x.count(); ++i) x.data<float>()[i] *= by.data<float>()[i];
  }
}

TEST_SUITE("nn") {

TEST_CASE("bf16: universal transformers learn from nearly the gradients of f32") {
  const ThreadsOf one(1);
  for (const std::string attention : {"full", "agglomerative", "linear", "mega"}) {
    for (const std::string encoding : {"conv", "position", "rotary"}) {
      if (encoding == "rotary" && attention != "full") continue;
      CAPTURE(attention);
      CAPTURE(encoding);
      const auto pass = [&](const char* precision, std::uint64_t change = 0) {
        UniversalTransformerConfig config{.vocabulary = 11,
                                          .width = 16,
                                          .depth = 3,
                                          .heads = 2,
                                          .length = 12,
                                          .attention = attention,
                                          .encoding = encoding};
        config.precision = precision;
        UniversalTransformer model(config, 1);
        if (change > 0) change_parameters(model, 100 * change);
        const Tensor ids = random_ids({3, 12}, 11, 2), targets = random_ids({3, 12}, 11, 3);
        return pass_of(model, [&](Context& context) {
          const auto [nats, penalty] = model.loss(context, ids, targets);
          return add(nats, penalty);
        });
      };
      // Layer norms of convolutions with small variances, and the steps where a character halts,
      // make some of these models sensitive.
      const Learned f32 = pass("f32");
      double sensitivity = 0;
      for (std::uint64_t change = 1; change <= 8; ++change) {
        sensitivity = std::max(sensitivity, difference_of(pass("f32", change), f32));
      }
      check_near(pass("bf16"), f32, sensitivity);
    }
  }
}

TEST_CASE("bf16: a memory holds what the steps before stored") {
  const auto losses = [](const char* precision) {
    UniversalTransformerConfig config{.vocabulary = 11,
                                      .width = 16,
                                      .depth = 2,
                                      .heads = 2,
                                      .length = 8,
                                      .attention = "transformer-xl",
                                      .encoding = "conv",
                                      .memory = 8};
    config.precision = precision;
    UniversalTransformer model(config, 1);
    put_on_tested_device(model);
    auto memory = model.start_of(2);
    std::vector<double> all;
    for (std::uint64_t segment = 0; segment < 3; ++segment) {
      Context context = Context::evaluation();
      const Tensor ids = random_ids({2, 8}, 11, segment), next = random_ids({2, 8}, 11, 9);
      const Tensor loss = model.loss(context, ids, next, &memory).cross_entropy.value();
      all.push_back(loss.to(Device{}).to_vector<float>()[0]);
    }
    return all;
  };
  const std::vector<double> bf16 = losses("bf16"), f32 = losses("f32");
  for (std::size_t i = 0; i < f32.size(); ++i) {
    CHECK(bf16[i] != f32[i]);
    CHECK(std::abs(bf16[i] - f32[i]) <= 0.04 * f32[i]);
  }
}

TEST_CASE("bf16: vision transformers and sequence classifiers") {
  const ThreadsOf one(1);
  for (const char* attention : {"full", "csp", "star", "linear"}) {
    CAPTURE(attention);
    const auto pass = [&](const char* precision) {
      VisionTransformerConfig config = tiny_vit(attention);
      config.attention_dropout = config.dropout = 0;
      config.precision = precision;
      VisionTransformer model(config, 1);
      const Tensor images = images_for(config, 3).to(DType::f32);
      const Tensor labels = random_ids({3}, config.classes, 5);
      return pass_of(
          model, [&](Context& context) { return cross_entropy(model(context, images), labels); });
    };
    check_near(pass("bf16"), pass("f32"));
  }
  const auto pass = [](const char* precision) {
    SequenceClassifierConfig config{.symbols = 9, .classes = 3, .length = 14, .width = 8};
    config.precision = precision;
    SequenceClassifier model(config, 1);
    const Tensor symbols = random_ids({4, 14}, 9, 2), labels = random_ids({4}, 3, 3);
    return pass_of(model, [&](Context& context) {
      return cross_entropy(model(context, symbols, {}), labels);
    });
  };
  check_near(pass("bf16"), pass("f32"));
}

TEST_CASE("bf16: another word is refused by its name") {
  UniversalTransformerConfig text;
  text.precision = "f16";
  CHECK_ERROR(UniversalTransformer(text, 1),
              "universal transformer: the precision is f32, tf32 or bf16, got 'f16'");
  VisionTransformerConfig vision = tiny_vit("full");
  vision.precision = "half";
  CHECK_ERROR(VisionTransformer(vision, 1),
              "vision transformer: the precision is f32, tf32 or bf16");
}

}  // TEST_SUITE("nn")

}  // namespace
}  // namespace weft
