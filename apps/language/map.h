// `eval --map`: the attention matrices of a trained language model on a text.
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "nn/universal_transformer.h"

namespace weft {

struct MapCommand {
  std::string place = {};  // LAYER,HEADS as "2,0-3" or "0,all"; empty: no map is wanted
  std::string out = "map.png";
  std::string scale = "linear";
  std::string text = {};  // to be read by the model; empty: the first tokens of the split
  bool force = false;     // replace a file that is there
};

// Throws where it cannot be done whatever the model is.
void check(const MapCommand& command);

// What the model reads.
struct MapText {
  std::vector<i64> ids;
  std::vector<std::string> tokens;  // what the ids stand for
  std::string source;               // "the test split of text8", or "--text"
  const char* between = "";         // tokens where they are printed as text
};

// The first tokens of a split, for a command that names no text: of at most 64 each cell of the map
// can be told from the next.
template <class Id>
std::span<const Id> first_tokens(std::span<const Id> split, const UniversalTransformer& network) {
  const auto window = static_cast<std::size_t>(network.config().length);
  return split.first(std::min({split.size(), window, std::size_t{64}}));
}

// Runs the model over the text and writes the maps; says which text, and what was written. Returns
// the exit status. Throws for a layer or a head that there is not, or a text longer than the
// window.
int write_map(const MapCommand& command, const UniversalTransformer& network, const MapText& text);

}  // namespace weft
