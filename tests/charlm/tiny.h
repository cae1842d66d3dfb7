// charlm as users run it, and the smallest training that uses every part of one.
#pragma once

#include "tests/program.h"

namespace weft {

inline ProgramRun charlm_program(const Words& words) { return app("charlm", words); }

// A model, its batches and the parts of the built-in corpus: some steps take milliseconds.
inline const Words tiny_model = {"--batch", "2", "--length", "16", "--width", "16", "--heads", "2",
                                 "--validation-batches", "1", "--test-batches", "1", "--split",
                                 "98/1.9/0.1"};
inline const Words tiny =
    tiny_model + Words{"--epochs", "2", "--epoch-steps", "3", "--report-steps", "1"};

}  // namespace weft
