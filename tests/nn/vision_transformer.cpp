#include "nn/vision_transformer.h"

#include <cmath>

#include "tests/nn/reference.h"
#include "tests/nn/tiny_vit.h"

using namespace weft;

namespace {

std::vector<VisionTransformerConfig> vit_forms() {
  return {tiny_vit("full"),
          tiny_vit("full", 10),
          tiny_vit("csp:group=3"),
          tiny_vit("csp:shift=power", 8),
          tiny_vit("csp-shift:shift=head"),
          tiny_vit("csp-sort:order=ascending,groups=1")};
}

// The definition, of one picture; tokens are mixed by the mechanism's own definition.
class Definition : reference::Weights {
 public:
  using Rows = reference::Rows;

  explicit Definition(VisionTransformer& model) : Weights(model), c_(model.config()) {}

  std::vector<double> operator()(const std::vector<double>& picture) const {
    Rows h = reference::sum(linear(patches(picture), "patch"), weights.at("position"));
    for (i64 i = 0; i < c_.layers; ++i) {
      const std::string block = fmt::format("blocks.{}.", i);
      h = reference::sum(h, linear(mixed(i, norm(h, block + "norm1")), block + "attention.output"));
      Rows inner = linear(norm(h, block + "norm2"), block + "up");
      for (auto& row : inner) {
        for (double& z : row) z *= 0.5 * (1 + std::erf(z / std::sqrt(2.0)));
      }
      h = reference::sum(h, linear(inner, block + "down"));
    }
    return linear(norm({reference::mean(h)}, "norm"), "head")[0];
  }

 private:
  // Patches from the top left, row by row; in one, (row, column, channel).
  Rows patches(const std::vector<double>& picture) const {
    Rows rows;
    for (i64 top = 0; top < c_.size; top += c_.patch) {
      for (i64 left = 0; left < c_.size; left += c_.patch) {
        rows.emplace_back();
        for (i64 y = top; y < top + c_.patch; ++y) {
          for (i64 x = left; x < left + c_.patch; ++x) {
            for (i64 k = 0; k < c_.channels; ++k) {
              rows.back().push_back(picture[std::size_t((y * c_.size + x) * c_.channels + k)]);
            }
          }
        }
      }
    }
    return rows;
  }

  // The input of the output map: all projections concatenated, split into the mechanism's inputs.
  Rows mixed(i64 layer, const Rows& x) const {
    const AttentionSpec spec(c_.attention);
    const std::string block = fmt::format("blocks.{}.attention.", layer);
    const bool full = spec.mechanism().name == "full";
    const Rows projected = linear(x, block + (full ? "qkv" : "v"));
    const i64 N = c_.tokens(), H = c_.heads, E = c_.width / H;
    const i64 M = c_.value_width > 0 ? c_.value_width / H : E;
    std::vector<Variable> inputs;
    std::size_t at = 0;
    const auto next = [&](i64 width) {
      std::vector<double> values;
      for (const auto& row : projected) {
        const auto first = row.begin() + std::ptrdiff_t(at);
        values.insert(values.end(), first, first + H * width);
      }
      at += static_cast<std::size_t>(H * width);
      inputs.emplace_back(Tensor::from(values, {1, N, H, width}));
    };
    if (full) next(E), next(E);
    next(M);
    AttentionCall call;
    call.layer = static_cast<int>(layer);
    call.layers = static_cast<int>(c_.layers);
    const std::vector<double> out =
        spec.mechanism().reference(spec, call, inputs).out.value().to_vector<double>();
    Rows rows;
    for (i64 n = 0; n < N; ++n) {
      rows.emplace_back(out.begin() + n * H * M, out.begin() + (n + 1) * H * M);
    }
    return rows;
  }

  VisionTransformerConfig c_;
};

}  // namespace

TEST_SUITE("nn") {

TEST_CASE("vision transformer: logits are those of the definition") {
  for (const VisionTransformerConfig& config : vit_forms()) {
    CAPTURE(config.attention);
    VisionTransformer model(config, 1, f64);
    randomise(model, 3);
    const Tensor images = images_for(config, 3);
    Context context = Context::evaluation();
    const Tensor logits = model(context, images).value();
    const Definition definition(model);
    for (i64 b = 0; b < 3; ++b) {
      const std::vector<double> wanted = definition(images.slice(0, b, b + 1).to_vector<double>());
      const Tensor expected = Tensor::from(wanted, {1, config.classes});
      CHECK(relative_error(logits.slice(0, b, b + 1), expected) < tolerance::backward_f64);
    }
  }
}

TEST_CASE("vision transformer: gradients by every parameter, with dropout") {
  for (const VisionTransformerConfig& config : vit_forms()) {
    CAPTURE(config.attention);
    VisionTransformer model(config, 1, f64);
    randomise(model, 3);
    const Tensor images = images_for(config, 2);
    check_gradients_of(
        model,
        [&](std::span<const Variable>) {
          Context context(true, 5, 1);
          return std::vector<Variable>{model(context, images)};
        },
        {}, 20);
  }
}

TEST_CASE("vision transformer: each rate of dropout counts in training only") {
  for (const bool on_the_map : {false, true}) {
    VisionTransformerConfig config = tiny_vit("full");
    (on_the_map ? config.dropout : config.attention_dropout) = 0;
    VisionTransformer model(config, 1);
    put_on_tested_device(model);
    const Tensor images = images_for(config, 2).to(DType::f32);
    const auto logits = [&](bool training, std::uint32_t step) {
      Context context(training, 5, step);
      return model(context, images).value();
    };
    CHECK(same_bits(logits(false, 1), logits(false, 2)));
    CHECK(same_bits(logits(true, 1), logits(true, 1)));
    CHECK_FALSE(same_bits(logits(true, 1), logits(true, 2)));
    CHECK_FALSE(same_bits(logits(true, 1), logits(false, 1)));
  }
}

TEST_CASE("vision transformer: linear maps start as PyTorch's, positions as N(0, 1)") {
  VisionTransformerConfig config = tiny_vit("full", 96);
  config.width = 64;
  config.heads = 4;
  config.hidden = 128;
  VisionTransformer model(config, 7);
  std::map<std::string, double> limits = {{"patch.weight", std::sqrt(8)},
                                          {"patch.bias", std::sqrt(8)},
                                          {"blocks.0.attention.qkv.weight", 8},
                                          {"blocks.1.attention.output.bias", std::sqrt(96)},
                                          {"blocks.1.up.weight", 8},
                                          {"blocks.0.down.weight", std::sqrt(128)},
                                          {"head.weight", 8}};
  for (const NamedParameter& p : parameters(model)) {
    const std::vector<float> values = p.variable.value().to_vector<float>();
    double largest = 0, squares = 0;
    for (const float v : values) {
      largest = std::max(largest, double(std::abs(v)));
      squares += double(v) * v / double(values.size());
    }
    if (limits.contains(p.name)) {
      CAPTURE(p.name);
      const double limit = 1 / limits.at(p.name);
      CHECK(largest <= limit);
      CHECK(largest > 0.9 * limit);
      limits.erase(p.name);
    }
    if (p.name == "position") {  // 640 numbers, whose squares deviate by √2
      CHECK(std::abs(squares - 1) < tolerance::standard_errors * std::sqrt(2 / 640.0));
    }
  }
  CHECK(limits.empty());
}

TEST_CASE("vision transformer: the tokens behind every layer") {
  const VisionTransformerConfig config = tiny_vit("csp");
  VisionTransformer model(config, 1);
  put_on_tested_device(model);
  Context context = Context::evaluation();
  std::vector<Tensor> states;
  model(context, images_for(config, 2).to(DType::f32), &states);
  REQUIRE(states.size() == 2);
  CHECK(states[1].shape() == Shape{2, 9, 6});
  CHECK_FALSE(same_bits(states[0], states[1]));
}

TEST_CASE("vision transformer: settings out of range and pictures of another size") {
  const auto made = [](auto change) {
    VisionTransformerConfig config = tiny_vit("full");
    change(config);
    VisionTransformer model(config, 1);
    Context context = Context::evaluation();
    return model(context, Tensor::zeros({1, 6, 6, 3}, DType::f32));
  };
  CHECK_ERROR(made([](auto& c) { c.patch = 4; }),
              "patches of 4 pixels do not divide a picture of 6");
  CHECK_ERROR(made([](auto& c) { c.layers = 0; }), "layers must be at least 1, got 0");
  CHECK_ERROR(made([](auto& c) { c.value_width = 7; }),
              "value width 7 does not divide into 2 heads");
  CHECK_ERROR(made([](auto& c) { c.dropout = 1; }),
              "vision transformer: the dropout rate must be in [0, 1), in steps of 1/65536, got 1");
  CHECK_ERROR(made([](auto& c) { c.attention_dropout = 0.999999; }),
              "vision transformer: the dropout rate must be in [0, 1)");
  CHECK_ERROR(made([](auto&) {}), "wanted images [B, 6, 6, 2], got [1,6,6,3]");
}

}  // TEST_SUITE("nn")
