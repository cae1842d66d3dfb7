// Attention matrices: read off a mechanism, and as pictures.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "ops/attention/mechanism.h"

namespace weft {

// The weights [N, S] that each of these heads of one batch item gives to the values: the output
// where the values are unit vectors. `call` has to hold every choice that is not to be made again.
// Throws where the output is not linear in the values, or there is no such head.
std::vector<Tensor> attention_maps(const AttentionSpec& spec, const AttentionCall& call,
                                   std::span<const Variable> inputs, i64 item,
                                   const std::vector<i64>& heads);

// "all", or numbers and ranges with commas: "0,2-4". Throws for what is not among the `count`
// heads.
std::vector<i64> heads_named(const std::string& text, i64 count);

struct MapPicture {
  std::string title = {};
  std::vector<i64> heads = {};  // one a map
  // How weights w become colours, from white for none to dark for the most, w_max, of all maps.
  //     linear   w / w_max
  //     sqrt     √(w / w_max)
  //     log      the logarithm from w_max / 10⁴, below which all is white, to w_max
  //     row      w over the most of its row: every query has one dark cell
  std::string scale = "linear";
  // What stands at the positions, written beside the rows where there is room; may be empty.
  std::vector<std::string> tokens = {};
};

// Throws for a scale that there is not.
void check_scale(const std::string& scale);

// Writes maps [N, S] of one size, queries down and keys across, to a file by its ending:
// .safetensors (`map` [N, S], or [maps, N, S] of several) or .png (a grid with axes, a scale and
// the title; of longer ones several cells share a pixel, which shows the largest). Throws for any
// other.
void write_maps(const std::vector<Tensor>& maps, const MapPicture& picture,
                const std::string& path);

}  // namespace weft
