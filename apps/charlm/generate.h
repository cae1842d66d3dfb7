// Generates text with a model, one character at a time through its decoding state.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "apps/charlm/model.h"

namespace weft::charlm {

// The ids of `prompt` or, if it is empty, of the vocabulary's opening.
std::vector<i64> read_before(const Model& model, const std::string& prompt);
// Reads these, then passes `characters` generated characters to `say`.
void write_text(const Model& model, const std::string& prompt, i64 characters,
                const SamplingOptions& options, const std::function<void(const std::string&)>& say);

}  // namespace weft::charlm
