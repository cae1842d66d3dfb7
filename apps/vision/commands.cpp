#include "apps/vision/commands.h"

#include <algorithm>
#include <filesystem>
#include <numeric>

#include "apps/command_line/attention_json.h"
#include "apps/command_line/configuration.h"
#include "apps/command_line/device_option.h"
#include "apps/command_line/output.h"
#include "apps/data/picture.h"
#include "apps/vision/evaluate.h"
#include "ops/softmax/softmax.h"

namespace weft::vision {
namespace {

const std::vector<i64>& part_named(const Parts& parts, const std::string& name) {
  check_word("split", name, {"train", "validation", "test"});
  return name == "train" ? parts.train : name == "validation" ? parts.validation : parts.test;
}

struct Guess {
  std::size_t label;
  double probability;
};

// The classes of one picture of 32 × 32, most probable first.
std::vector<Guess> guesses(const Model& model, const Picture& picture) {
  const Normalisation normalisation = normalisation_of(model.settings.dataset);
  const Tensor image = Tensor::empty({1, picture_size, picture_size, 3}, DType::f32);
  std::vector<std::uint8_t> pixels;
  for (i64 i = 0; i < picture_size * picture_size; ++i) {
    const Colour& pixel = picture.pixels()[i];
    pixels.insert(pixels.end(), {pixel.red, pixel.green, pixel.blue});
  }
  cut_picture(pixels.data(), {}, normalisation, image.data<float>());
  Context context = Context::evaluation();
  const std::vector<float> shares =
      softmax((*model.network)(context, image)).value().to_vector<float>();
  std::vector<Guess> all;
  for (std::size_t i = 0; i < shares.size(); ++i) all.push_back({i, shares[i]});
  std::stable_sort(all.begin(), all.end(),
                   [](const Guess& a, const Guess& b) { return a.probability > b.probability; });
  return all;
}

void print_guesses(const Model& model, const std::string& file, const std::vector<Guess>& all,
                   bool json) {
  const std::size_t shown = std::min<std::size_t>(5, all.size());
  Json line = {{"file", file}, {"classes", Json::array()}};
  if (!json) fmt::print("{}\n", file);
  for (const Guess& guess : std::span(all).first(shown)) {
    const std::string& name = model.classes[guess.label];
    if (!json) fmt::print("  {:5.1f} %  {}\n", 100 * guess.probability, name);
    line["classes"].push_back({{"class", name}, {"probability", guess.probability}});
  }
  if (json) print_json(line);
}

}  // namespace

int run_eval(const EvalCommand& command) {
  const Device device = device_named(command.device);
  const Model model = read_model(command.checkpoint);
  move_to(*model.network, device);
  const Settings& s = model.settings;
  const std::string data = command.data.empty() ? s.data : command.data;
  require(data != s.data || data == "builtin" || std::filesystem::exists(data),
          "{}: the model's training pictures are not found; name their folder with --data", data);
  const PictureSet set = load_pictures(data, s.dataset);
  const Parts parts = divide(set, s);
  const std::vector<i64>& which = part_named(parts, command.split);
  Progress progress;
  const Stopwatch watch;
  const Pictures& pictures = command.split == "test" ? set.test : set.train;
  const Measure measured = measure(model, pictures, which, [&](double share) {
    if (!command.json) progress.update(fmt::format("{} {:.0f} %", command.split, 100 * share));
  });
  const double rate = static_cast<double>(which.size()) / watch.seconds();
  progress.clear();
  if (!command.json) {
    fmt::print(
        "{} split: {:.2f} % top-1, {:.2f} % top-5, loss {:.6f} over {} pictures, {} a second\n",
        command.split, figure_of(measured, "top_1"), figure_of(measured, "top_5"), measured.loss,
        which.size(), short_number(rate));
    return 0;
  }
  Json line = {{"checkpoint", command.checkpoint},
               {"attention", s.model.attention},
               {"data", data},
               {"dataset", s.dataset},
               {"split", command.split},
               {"parameters", parameter_count(*model.network)},
               {"pictures", which.size()},
               {"loss", measured.loss},
               {"pictures_per_second", rate}};
  for (const Figure& figure : measured.figures) line[figure.key] = figure.value;
  print_json(line);
  return 0;
}

int run_predict(const PredictCommand& command) {
  const Model model = read_model(command.checkpoint);
  for (const std::string& file : command.images) {
    Picture picture = Picture::load(file);
    if (picture.width() != picture_size || picture.height() != picture_size) {
      print_stderr("vision: {}: has {} x {} pixels; resized to {} x {}", file, picture.width(),
                   picture.height(), picture_size, picture_size);
      picture = picture.resized(picture_size, picture_size);
    }
    print_guesses(model, file, guesses(model, picture), command.json);
  }
  return 0;
}

int run_info(const InfoCommand& command) {
  if (command.checkpoint.empty()) check(command.settings);
  const Model model =
      command.checkpoint.empty() ? new_model(command.settings) : read_model(command.checkpoint);
  return print_information(model, command.json);
}

// The example input is two pictures of noise.
int run_export(const ExportCommand& command) {
  const Model model = read_model(command.checkpoint);
  const VisionTransformerConfig& m = model.network->config();
  const bool own_residual = AttentionSpec(m.attention).mechanism().owns_residual;
  const Json architecture = {{"model", "vision transformer"},
                             {"size", m.size},
                             {"channels", m.channels},
                             {"patch", m.patch},
                             {"classes", m.classes},
                             {"width", m.width},
                             {"layers", m.layers},
                             {"heads", m.heads},
                             {"value_width", m.value_width > 0 ? m.value_width : m.width},
                             {"attention", to_json(AttentionSpec(m.attention))},
                             {"causal", false},
                             {"hidden", m.hidden},
                             {"activation", own_residual ? "silu" : "gelu_erf"},
                             {"norm_epsilon", weft::LayerNorm{}.epsilon}};
  return export_model(command, model.tensors(), metadata_of(model), architecture, [&] {
    const Tensor images = Tensor::empty({2, picture_size, picture_size, 3}, DType::f32);
    for (i64 i = 0; i < images.count(); ++i) {
      const Philox words = RandomKey{}.words(static_cast<std::uint64_t>(i));
      images.data<float>()[i] = static_cast<float>(normal(words.word[0], words.word[1]));
    }
    return example_of<VisionTransformer>(
        m, model.tensors(), images,
        [&](const VisionTransformer& network, Context& context, DType dtype) {
          return network(context, images.to(dtype)).value();
        });
  });
}

}  // namespace weft::vision
