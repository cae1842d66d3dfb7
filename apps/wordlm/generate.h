// Generates text with a word-level model, one piece at a time through its decoding state.
#pragma once

#include <functional>
#include <string>

#include "apps/wordlm/model.h"

namespace weft::wordlm {

// Reads the pieces' opening and `prompt`, then draws `tokens` pieces and passes the text that each
// one adds to `say`, with a line end for the model's end piece. Other special pieces are never
// drawn. Calls `restarted` at the generator's first restart.
void write_text(const Model& model, const std::string& prompt, i64 tokens,
                const SamplingOptions& options, const std::function<void(const std::string&)>& say,
                const std::function<void()>& restarted = {});

}  // namespace weft::wordlm
