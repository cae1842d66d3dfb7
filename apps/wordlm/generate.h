// Generates text with a word-level model, one piece at a time through its decoding state.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "apps/wordlm/model.h"

namespace weft::wordlm {

// Bytes of a line that is being written which no further piece changes: those before the last
// space. A piece can join the word before, and take its space: "the king ' s" becomes "the king's".
std::size_t settled(std::string_view text);

// The ids of the pieces' opening and of `prompt`.
std::vector<i64> read_before(const Model& model, const std::string& prompt);
// Reads these, then draws `tokens` pieces and passes the text to `say`,
// part by part, with a line end for the model's end piece. Other special pieces are never
// drawn.
void write_text(const Model& model, const std::string& prompt, i64 tokens,
                const SamplingOptions& options, const std::function<void(const std::string&)>& say);

}  // namespace weft::wordlm
