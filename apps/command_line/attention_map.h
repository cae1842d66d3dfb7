// Attention matrices: computed from a mechanism, and drawn.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "ops/attention/mechanism.h"

namespace weft {

// The weights [N, S] that these heads of one batch item give to the values, computed as the output
// for unit vectors as values. `call` must hold every random choice that is to be reused. Throws if
// the output is not linear in the values, or a head does not exist.
std::vector<Tensor> attention_maps(const AttentionSpec& spec, const AttentionCall& call,
                                   std::span<const Variable> inputs, i64 item,
                                   const std::vector<i64>& heads);

// Parses "all", or comma-separated numbers and ranges: "0,2-4". Throws, naming `option`, for
// anything but numbers below `count`.
std::vector<i64> heads_named(const std::string& text, i64 count, const char* option);

struct MapPicture {
  std::string title = {};
  std::vector<i64> heads = {};  // one per map
  // How a weight w becomes a colour, from white (0) to dark (w_max, the largest of all maps):
  //     linear   w / w_max
  //     sqrt     √(w / w_max)
  //     log      log w, from w_max / 10⁴ (white, as is all below) to w_max
  //     row      w / the largest weight of its row: every query has one dark cell
  std::string scale = "linear";
  // The tokens at the positions, written beside the rows if they fit; may be empty.
  std::vector<std::string> tokens = {};
};

// Throws for an unknown scale.
void check_scale(const std::string& scale);

// Writes maps [N, S] of one size, a row per query. The file's extension gives the format:
// .safetensors (`map` [N, S], or [maps, N, S] for several) or .png (a grid with axes, a colour
// scale and the title; in long maps several cells share a pixel, which shows the largest). Throws
// for other extensions.
void write_maps(const std::vector<Tensor>& maps, const MapPicture& picture,
                const std::string& path);

}  // namespace weft
