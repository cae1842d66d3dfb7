#include "apps/language/options.h"

namespace weft {

void add_shorthands(const Options& app, UniversalTransformerConfig& network,
                    TrainingSettings& training) {
  const auto dropout = std::make_shared<double>(0);
  app.add_option("--dropout", *dropout, "all three dropout rates that are not given themselves")
      .group(settings_group);
  const std::function<void()> finish_optimizer = add_optimizer_shorthands(app, training);
  app.when_read([app, &network, dropout, finish_optimizer] {
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
                 "a mechanism to score the weights with, instead of the one that they were trained "
                 "with");
  const Option data =
      app.add_option("--data", eval.data, "text, if not what the model was trained on");
  const Option split =
      app.add_option("--split", eval.split, "train, validation or test").show_default();
  add_allow_leaky(app, eval.allow_leaky);
  app.add_option("--device", eval.device, "cpu, cuda or cuda:N").show_default();
  const Option json = app.add_flag("--json", eval.json, "print one JSON object a line");
  const Option map = app.add_option(
      "--map", eval.map.place,
      "instead of scoring: draw the attention of LAYER,HEADS, as 0,2 or 1,0-3 or 0,all");
  map.excludes(json);
  app.add_option("--map-out", eval.map.out, "where: .png, or .safetensors for the numbers")
      .show_default()
      .needs(map);
  app.add_option("--scale", eval.map.scale,
                 "of the map's colours: linear, sqrt, log, or row, each query by its own largest")
      .show_default()
      .needs(map);
  app.add_option("--text", eval.map.text,
                 "that the model reads for the map; by default the first tokens of the split")
      .needs(map)
      .excludes(data)
      .excludes(split);
  app.add_flag("--force", eval.map.force, "replace a map that is there").needs(map);
}

void add_sample(const Options& app, SampleCommand& sample) {
  app.add_option("--checkpoint", sample.checkpoint, checkpoint_help).required();
  app.add_option("--prompt", sample.prompt, "how the text begins");
  app.add_option("--tokens", sample.tokens, "tokens to write").show_default();
  app.add_option("--temperature", sample.options.temperature, "0: always the most probable")
      .show_default();
  app.add_option("--top-k", sample.options.top_k, "only among so many; 0: among all")
      .show_default();
  app.add_option("--top-p", sample.options.top_p,
                 "only among the most probable that --temperature and --top-k leave, as few as have "
                 "this probability together; 1: all")
      .show_default();
  app.add_option("--samples", sample.samples, "texts to write, each drawn anew")
      .show_default();
  app.add_option("--seed", sample.options.seed, "of the choices")
      .show_default()
      .check(plain_integer<std::uint64_t>);
}

}  // namespace weft
