#include "apps/charlm/model.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "apps/common/run_folder.h"
#include "ops/attention/mechanism.h"

namespace weft {
namespace {

constexpr const char* format_key = "charlm_format";
constexpr const char* format = "1";

// A model of these sizes has tensors of at least these numbers of elements; one that claims more
// than the file holds is never built.
void check_claims(const UniversalTransformerConfig& config, const Checkpoint& checkpoint,
                  const std::string& file) {
  std::int64_t held = 0;
  for (const auto& [name, tensor] : checkpoint.tensors) held += tensor.count();
  const std::int64_t d = config.width;  // all sizes are within their limits: no product overflows
  std::int64_t claimed = std::max(d * config.vocabulary, 8 * d * d);
  if (config.encoding == "conv") claimed = std::max(claimed, d * d * config.conv_width);
  if (config.encoding == "position") claimed = std::max(claimed, d * config.length);
  if (!config.shared) claimed = std::max(claimed, d * d * config.depth);
  require(claimed <= held, "{}: its configuration (width {}, length {}, depth {}) wants more "
          "numbers than the {} it holds", file, d, config.length, config.depth, held);
}

// "q [B N H E], k [B S H E]": what the weights of a layer are made for.
std::string learnt_inputs(const Mechanism& mechanism) {
  std::string text;
  for (const AttentionInput& input : mechanism.inputs) {
    if (input.optional) continue;
    text += fmt::format("{}{} [{}]{}", text.empty() ? "" : ", ", input.name, input.shape,
                        input.biased ? " with a bias" : "");
  }
  return text;
}

void swap_attention(Settings& settings, const std::string& attention, const std::string& file) {
  const AttentionSpec own(settings.model.attention), other(attention);
  const std::string learnt = learnt_inputs(own.mechanism());
  const std::string wanted = learnt_inputs(other.mechanism());
  require(learnt == wanted,
          "--attention {}: its weights are not in {}, which was trained with {}: that one takes {}, "
          "this one {}",
          other.text(), file, own.text(), learnt, wanted);
  settings.model.attention = other.text();
}

}  // namespace

Model new_model(Settings settings) {
  if (settings.vocabulary == "auto") settings.vocabulary = "text8";
  settings.model.vocabulary = size_of(vocabulary_named(settings.vocabulary));
  auto network = std::make_unique<UniversalTransformer>(settings.model, settings.seed);
  return {std::move(settings), std::move(network), {}};
}

std::map<std::string, std::string> metadata_of(const Settings& settings) {
  using Handler = nlohmann::ordered_json::error_handler_t;
  return {{format_key, format},
          {"weft_version", WEFT_VERSION},
          {"configuration", to_json(settings).dump(-1, ' ', false, Handler::replace)}};
}

Model read_model(const std::string& path, const std::string& attention) {
  const std::string file = checkpoint_file(path);
  Checkpoint checkpoint = read_checkpoint(file);
  const auto& metadata = checkpoint.metadata;
  require(metadata.contains(format_key) && metadata.contains("configuration"),
          "{}: is a safetensors file, but not one that charlm wrote", file);
  require(metadata.at(format_key) == format, "{}: is of format {}, this charlm reads format {}",
          file, metadata.at(format_key), format);
  Settings settings = settings_from_json(metadata.at("configuration"), file);
  require(settings.vocabulary != "auto", "{}: its configuration names no vocabulary", file);
  settings.model.vocabulary = size_of(vocabulary_named(settings.vocabulary));
  check_claims(settings.model, checkpoint, file);
  if (!attention.empty()) swap_attention(settings, attention, file);
  Model model = new_model(std::move(settings));
  load_parameters(model.parameters(), checkpoint.tensors, file);
  for (const auto& [name, tensor] : checkpoint.tensors) {
    if (!all_finite(tensor)) fmt::print(stderr, "charlm: {}: '{}' is not finite\n", file, name);
  }
  model.metadata = std::move(checkpoint.metadata);
  return model;
}

}  // namespace weft
