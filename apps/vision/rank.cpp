// Singular spectra of the layers' outputs (S. Yuan, H. Xu, arXiv 2410.10914, Figure 3). A fast
// decay means that all tokens of a picture have nearly the same representation (rank collapse).
#include <filesystem>
#include <set>

#include "apps/command_line/progress.h"
#include "apps/vision/commands.h"
#include "apps/vision/evaluate.h"
#include "apps/vision/spectrum.h"
#include "nn/file.h"
#include "runtime/parallel.h"

namespace weft::vision {
namespace {

using Spectrum = std::vector<double>;

// For each layer, σ_i / σ_1 of its output tokens [N, d], averaged over the first pictures of the
// test part.
std::vector<Spectrum> spectra(const Model& model, const Pictures& pictures, i64 count,
                              const std::function<void(double)>& advance) {
  std::vector<Spectrum> means;
  for (i64 i = 0; i < count; ++i) {
    const PictureBatch batch =
        plain_batch(pictures, std::vector{i}, normalisation_of(model.settings.dataset));
    Context context = Context::evaluation();
    std::vector<Tensor> states;
    (*model.network)(context, batch.images, &states);
    means.resize(states.size());
    parallel_for(static_cast<i64>(states.size()), [&](i64 layer) {
      const auto at = static_cast<std::size_t>(layer);
      const Tensor& tokens = states[at];
      const Spectrum values = singular_values(tokens.reshape({tokens.size(1), tokens.size(2)}));
      means[at].resize(values.size());
      for (std::size_t k = 0; k < values.size(); ++k) {
        means[at][k] += values[k] / (values[0] * static_cast<double>(count));
      }
    });
    advance(static_cast<double>(i + 1) / static_cast<double>(count));
  }
  return means;
}

// Splits "name=path"; for "path" the name is the path.
std::pair<std::string, std::string> named(const std::string& text) {
  const std::size_t cut = text.find('=');
  if (cut == std::string::npos) return {text, text};
  return {text.substr(0, cut), text.substr(cut + 1)};
}

}  // namespace

int run_rank(const RankCommand& command) {
  require(command.out.empty() || !std::filesystem::exists(command.out),
          "{}: exists already; choose another --out", command.out);
  Progress progress;
  PictureSet set;
  Json report = {{"pictures", command.pictures}, {"models", Json::array()}};
  for (const std::string& text : command.models) {
    const auto [name, path] = named(text);
    const Model model = read_model(path);
    const std::string& dataset = model.settings.dataset;
    if (set.name.empty()) {
      set = load_pictures(command.data.empty() ? model.settings.data : command.data, dataset);
      require(command.pictures >= 1 && command.pictures <= set.test.count(),
              "--pictures: wanted 1 to the {} pictures of the test part, got {}", set.test.count(),
              command.pictures);
    }
    require(dataset == set.name,
            "{}: was trained on {}, the models before it on {}; compare models of "
            "one data set",
            path, dataset, set.name);
    const std::vector<Spectrum> layers = spectra(
        model, set.test, command.pictures,
        [&](double share) { progress.update(fmt::format("{} {:.0f} %", name, 100 * share)); });
    progress.clear();
    const Spectrum& last = layers.back();
    std::string shares;
    for (const std::size_t i : std::set<std::size_t>{2, 8, last.size() / 2}) {
      if (i < 2 || i > last.size()) continue;
      shares += fmt::format("{}σ{}/σ1 = {:.3g}", shares.empty() ? "" : ", ", i, last[i - 1]);
    }
    fmt::print("{}: {} attention; after the last layer {}\n", name, model.settings.model.attention,
               shares.empty() ? "σ1 alone: one token" : shares);
    report["models"].push_back(
        {{"name", name}, {"attention", model.settings.model.attention}, {"layers", layers}});
  }
  if (command.out.empty()) return 0;
  write_file(command.out, report.text() + "\n");
  return 0;
}

}  // namespace weft::vision
