#include "apps/language/options.h"

namespace weft {
namespace {

// A check for Option::check().
std::string not_empty(const std::string& text) { return text.empty() ? "wanted a text" : ""; }

}  // namespace

void add_shorthands(const Options& app, UniversalTransformerConfig& network,
                    TrainingSettings& training) {
  const auto dropout = std::make_shared<double>(0);
  app.add_option("--dropout", *dropout,
                 "sets each dropout rate that has no option of its own on the line")
      .group(settings_group);
  const std::function<void()> finish_optimizer = add_optimizer_shorthands(app, training);
  app.when_read([app, &network, dropout, finish_optimizer] {
    check_limits("dropout", *dropout, dropout_rates);
    const auto share = [&](const std::string& name, double& rate) {
      if (app.given("--dropout") && !app.given(name)) rate = *dropout;
    };
    share("--attention-dropout", network.attention_dropout);
    share("--residual-dropout", network.residual_dropout);
    share("--output-dropout", network.output_dropout);
    finish_optimizer();
  });
}

void add_allow_leaky(const Options& app, bool& allow_leaky) {
  app.add_flag("--allow-leaky", allow_leaky, allow_leaky_help);
}

void add_eval(const Options& app, LanguageEvalCommand& eval) {
  app.add_option("--checkpoint", eval.checkpoint, checkpoint_help).required();
  app.add_option("--attention", eval.attention,
                 "mechanism to evaluate with, instead of the model's own");
  const Option data =
      app.add_option("--data", eval.data, "text; default: the model's training data");
  const Option split =
      app.add_option("--split", eval.split, "train, validation or test").show_default();
  add_allow_leaky(app, eval.allow_leaky);
  app.add_option("--device", eval.device, "cpu, cuda or cuda:N").show_default();
  const Option json = app.add_flag("--json", eval.json, "print one JSON object per line");
  const Option map = app.add_option(
      "--map", eval.map.place,
      "draw attention matrices of LAYER,HEADS (0,2 or 1,0-3 or 0,all) instead of scoring");
  map.excludes(json);
  app.add_option("--map-out", eval.map.out,
                 "output file of --map: .png, or .safetensors with the weights")
      .show_default()
      .needs(map);
  app.add_option("--scale", eval.map.scale,
                 "colour scale of --map: linear, sqrt, log, or row (relative to each query's "
                 "largest weight)")
      .show_default()
      .needs(map);
  app.add_option("--text", eval.map.text, "text for --map; default: the first tokens of the split")
      .check(not_empty)
      .needs(map)
      .excludes(data)
      .excludes(split);
  app.add_flag("--force", eval.map.force, "replace an existing file").needs(map);
}

void add_sample(const Options& app, SampleCommand& sample) {
  app.add_option("--checkpoint", sample.checkpoint, checkpoint_help).required();
  app.add_option("--prompt", sample.prompt, "beginning of the text");
  app.add_option("--tokens", sample.tokens, "number of tokens to write").show_default();
  app.add_option("--temperature", sample.options.temperature,
                 "sampling temperature; 0: always the most probable token")
      .show_default();
  app.add_option("--top-k", sample.options.top_k,
                 "sample from this many most probable tokens; 0: from all")
      .show_default();
  app.add_option("--top-p", sample.options.top_p,
                 "sample from the fewest most probable tokens, after --temperature and --top-k, "
                 "with this total probability; 1: all")
      .show_default();
  app.add_option("--samples", sample.samples, "number of texts to write").show_default();
  app.add_option("--seed", sample.options.seed, "random seed").show_default();
}

}  // namespace weft
