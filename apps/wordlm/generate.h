// Text from a model of words, one piece at a time through its decoding state.
#pragma once

#include <functional>
#include <string>

#include "apps/wordlm/model.h"

namespace weft::wordlm {

// Reads the pieces' opening and `prompt`, then draws `tokens` pieces and hands the text that each adds to `say`; a line
// ends where the model ends one. Pieces that stand for no text are never drawn. `restarted` is
// called at the first restart.
void write_text(const Model& model, const std::string& prompt, i64 tokens,
                const SamplingOptions& options, const std::function<void(const std::string&)>& say,
                const std::function<void()>& restarted = {});

}  // namespace weft::wordlm
