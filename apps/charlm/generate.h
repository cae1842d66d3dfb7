// Generates text with a model, one character at a time through its decoding state.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "apps/charlm/model.h"

namespace weft::charlm {

// Reads `prompt` (or, if empty, the vocabulary's opening), then passes `characters` generated
// characters to `say`. Calls `restarted` at the generator's first restart.
void write_text(const Model& model, const std::string& prompt, i64 characters,
                const SamplingOptions& options, const std::function<void(const std::string&)>& say,
                const std::function<void()>& restarted = {});

}  // namespace weft::charlm
