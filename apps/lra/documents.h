// Retrieval of Long Range Arena: pairs of papers as bytes; the label is 1 where one cites the
// other. D. Radev, P. Muthukrishnan, V. Qazvinian, A. Abu-Jbara, "The ACL anthology network
// corpus", 2013; in the form of Y. Tay et al., ICLR 2021, arXiv 2011.04006, section 2.2.3.
//
//     new_aan_pairs.train.tsv, new_aan_pairs.eval.tsv, new_aan_pairs.test.tsv
//     a line: label (0, 0.0, 1 or 1.0), two names, two texts, with tabs between; no heading
//
// A sequence is the first 4,000 bytes of a text; a pair is two sequences (Sequences::together).
// 147,086 pairs to train, 18,090 to validate, 17,437 to test. A paper is held once for each of its
// pairs: at most 1.5 GB.
#pragma once

#include "apps/lra/sequences.h"

namespace weft::lra {

// Reads the released files of a folder. Throws, with file and line, for anything else.
SequenceTask read_documents(const std::string& folder);
Sequences read_pairs(const std::string& file);  // one of its files

}  // namespace weft::lra
