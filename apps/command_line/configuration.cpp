#include "apps/command_line/configuration.h"

#include <optional>

#include "apps/command_line/output.h"

namespace weft {

std::string text_of(const Configuration& configuration) { return Json(configuration).text(); }

Configuration parse_configuration(const std::string& text, const std::string& source) {
  const std::optional<Json> values = parse_json(text);
  require(values.has_value(), "{}: its configuration is not JSON, or is nested too deeply", source);
  if (!values->is<Json::Object>()) return {};
  for (const auto& [name, value] : values->members()) {
    require(!value.is<Json::Array>() && !value.is<Json::Object>(),
            "{}: its configuration is nested", source);
  }
  return values->members();
}

std::map<std::string, std::string> checkpoint_metadata(const CheckpointFormat& format,
                                                       const Configuration& configuration) {
  return {{format.app + "_format", format.version},
          {"weft_version", WEFT_VERSION},
          {"configuration", text_of(configuration)}};
}

Checkpoint read_checkpoint(const std::string& file, const CheckpointFormat& format) {
  Checkpoint checkpoint = read_checkpoint(file);
  const auto& metadata = checkpoint.metadata;
  const std::string format_key = format.app + "_format";
  std::vector<std::string> wanted = format.more;
  wanted.insert(wanted.end(), {format_key, "configuration"});
  for (const std::string& key : wanted) {
    require(metadata.contains(key), "{}: is a safetensors file, but not one that {} wrote", file,
            format.app);
  }
  require(metadata.at(format_key) == format.version, "{}: is of format {}, this {} reads format {}",
          file, metadata.at(format_key), format.app, format.version);
  std::erase_if(checkpoint.tensors,
                [](const auto& named) { return named.first.starts_with("example."); });
  return checkpoint;
}

i64 numbers_in(const Checkpoint& checkpoint) {
  i64 numbers = 0;
  for (const auto& [name, tensor] : checkpoint.tensors) numbers += tensor.count();
  return numbers;
}

void check_claims(i64 claimed, const Checkpoint& checkpoint, const std::string& file,
                  const std::string& sizes) {
  const i64 held = numbers_in(checkpoint);
  require(claimed <= held, "{}: its configuration ({}) needs more numbers than the {} in the file",
          file, sizes, held);
}

void load_weights(const std::vector<NamedTensor>& own, const Checkpoint& checkpoint,
                  const std::string& app, const std::string& file) {
  load_tensors(own, checkpoint.tensors, file);
  for (const auto& [name, tensor] : checkpoint.tensors) {
    if (!all_finite(tensor)) print_stderr("{}: {}: '{}' is not finite", app, file, name);
  }
}

std::string on_one_line(const std::string& text) {
  std::string line;
  for (const char c : text) {
    const bool plain = static_cast<unsigned char>(c) >= ' ' && c != 0x7f;
    line += plain ? std::string(1, c) : c == '\n' ? "\\n" : fmt::format("\\u{:04x}", c);
  }
  return line;
}

std::string name_of_preset(const Configuration& now, const Configuration& preset,
                           const std::vector<std::string>& names, Progress& progress) {
  const auto shown = [](const Json& value) {
    std::string text;
    return value.take(text) ? text : value.text();
  };
  std::string changes;
  for (const std::string& name : names) {
    const Json &own = *find(now, name), &usual = *find(preset, name);
    if (own == usual) continue;
    changes += fmt::format("{}{} {} (preset: {})", changes.empty() ? "" : ", ", name, shown(own),
                           shown(usual));
  }
  const std::string name = shown(*find(preset, "preset"));
  if (changes.empty()) return name;
  progress.note(fmt::format("the model differs from preset {}: {}", name, changes));
  return name + ", changed";
}

void print_information(const std::string& preset, const Configuration& configuration,
                       const std::vector<NamedParameter>& parameters,
                       const std::map<std::string, std::string>& metadata) {
  Json tensors = Json::array();
  i64 count = 0;
  for (const NamedParameter& parameter : parameters) {
    const Shape& shape = parameter.variable.shape();
    count += shape.count();
    tensors.push_back({{"name", parameter.name},
                       {"shape", std::vector(shape.begin(), shape.end())},
                       {"count", shape.count()}});
  }
  Json line = {{"preset", preset},
               {"parameters", count},
               {"configuration", configuration},
               {"tensors", tensors}};
  if (!metadata.empty()) line["metadata"] = metadata;
  print_json(line);
}

}  // namespace weft
