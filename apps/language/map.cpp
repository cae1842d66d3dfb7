#include "apps/language/map.h"

#include <charconv>
#include <cstdio>
#include <filesystem>

#include <fmt/core.h>

#include "apps/command_line/attention_map.h"
#include "apps/command_line/output.h"
#include "apps/command_line/printable.h"
#include "autograd/tape.h"
#include "runtime/listed.h"

namespace weft {
namespace {

// A recorded call of an attention layer.
struct Seen {
  const AttentionSpec* spec = nullptr;
  AttentionCall call;
  std::vector<Variable> inputs;
};

Seen call_of_layer(const UniversalTransformer& network, const std::vector<i64>& ids, i64 layer) {
  Seen seen;
  Context context = Context::evaluation();
  context.attending = [&](const AttentionSpec& spec, const AttentionCall& call,
                          std::span<const Variable> inputs) {
    if (call.layer + call.depth != layer) return;  // the layers of a shared block are its depths
    seen = {&spec, call, {inputs.begin(), inputs.end()}};
  };
  const Tape::Pause pause;
  const Tensor row = Tensor::from(ids, {1, std::ssize(ids)});
  network(context, row.to(network.device()));
  require(seen.spec != nullptr, "--map: layer {} has no attention", layer);
  return seen;
}

}  // namespace

void check(const MapCommand& command) {
  if (command.place.empty()) return;
  check_scale(command.scale);
  require(command.out.ends_with(".png") || command.out.ends_with(".safetensors"),
          "--map-out {}: wanted a name that ends with .png or .safetensors", command.out);
  require(command.force || !std::filesystem::exists(command.out),
          "{}: exists already; --force replaces it", command.out);
  require_folder_for(command.out);
}

int write_map(const MapCommand& command, const UniversalTransformer& network, const MapText& text) {
  const UniversalTransformerConfig& config = network.config();
  const std::size_t comma = command.place.find(',');
  i64 layer = -1;
  const char *const begin = command.place.data(), *const end =
                                                      begin + std::min(comma, command.place.size());
  const auto [stop, status] = std::from_chars(begin, end, layer);
  require(status == std::errc{} && stop == end && comma != std::string::npos && layer >= 0 &&
              layer < config.depth,
          "--map: wanted LAYER,HEADS with a layer of 0 … {} and heads as 0,2-3, or all; got {}",
          config.depth - 1, command.place);
  MapPicture picture{.heads = heads_named(command.place.substr(comma + 1), config.heads, "--map"),
                     .scale = command.scale,
                     .tokens = text.tokens};
  require(!text.ids.empty(), "{}: holds no tokens", text.source);
  require(std::ssize(text.ids) <= config.length,
          "{}: has {} tokens, but the model's window has {}; use a shorter one", text.source,
          text.ids.size(), config.length);
  const Seen seen = call_of_layer(network, text.ids, layer);
  picture.title = fmt::format("{}, layer {}, {}", seen.spec->text(), layer, text.source);
  write_maps(attention_maps(*seen.spec, seen.call, seen.inputs, 0, picture.heads), picture,
             command.out);
  std::string line = listed(text.tokens, text.between).text();
  std::replace(line.begin(), line.end(), '\n', ' ');
  fmt::print("text   {}, {} tokens: {}\n", text.source, text.ids.size(), printable(line));
  fmt::print("wrote  {}: {}, layer {}, heads {}\n", command.out, seen.spec->text(), layer,
             command.place.substr(comma + 1));
  return 0;
}

}  // namespace weft
