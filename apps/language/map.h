// `eval --map`: attention matrices of a trained language model on a text.
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "nn/universal_transformer.h"

namespace weft {

struct MapCommand {
  std::string place = {};  // LAYER,HEADS as "2,0-3" or "0,all"; empty: no map
  std::string out = "map.png";
  std::string scale = "linear";
  std::string text = {};  // the model's input; empty: the first tokens of the split
  bool force = false;     // replace an existing file
};

// Throws for options that are wrong for every model.
void check(const MapCommand& command);

// The input of the model.
struct MapText {
  std::vector<i64> ids;
  std::vector<std::string> tokens;  // the text of each id
  std::string source;               // "the test split of text8", or "--text"
  const char* between = "";         // separator of tokens in printed text
};

// The first tokens of a split, for commands without a text: at most 64, so that single cells of the
// map are visible.
template <class Id>
std::span<const Id> first_tokens(std::span<const Id> split, const UniversalTransformer& network) {
  const auto window = static_cast<std::size_t>(network.config().length);
  return split.first(std::min({split.size(), window, std::size_t{64}}));
}

// Runs the model on the text, writes the maps, and prints the text and the file written. Returns
// the exit status. Throws if the layer or a head does not exist, or the text is longer than the
// window.
int write_map(const MapCommand& command, const UniversalTransformer& network, const MapText& text);

}  // namespace weft
