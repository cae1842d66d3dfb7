// Pictures of a task whose sequences are pixels.
#pragma once

#include "apps/lra/sequences.h"

namespace weft::lra {

// Writes train.png, validation.png and test.png into the folder: a row for each class, with its
// first 16 pictures. Sequences are the 1,024 grey pixels of 32 × 32. Throws if one cannot be
// written.
void write_sheets(const SequenceTask& task, const std::string& folder);

}  // namespace weft::lra
