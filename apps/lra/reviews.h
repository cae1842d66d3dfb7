// Text of Long Range Arena: films' reviews as bytes; the label is 1 where the review is favourable.
// A. Maas, R. Daly, P. Pham, D. Huang, A. Ng, C. Potts, "Learning word vectors for sentiment
// analysis", ACL 2011, whose set (IMDb) is released as one file a review; in the form of Y. Tay et
// al., ICLR 2021, arXiv 2011.04006, section 2.2.2.
//
//     FOLDER/train/neg/*.txt   FOLDER/train/pos/*.txt   FOLDER/test/neg/*.txt FOLDER/test/pos/*.txt
//
// A sequence is the first 4,000 bytes of a review. 25,000 reviews to train and 25,000 to test. The
// published program takes the test part for validation too. Here every tenth training review of
// each class, in the order of the files' names, is held out for it: 22,500, 2,500, 25,000.
#pragma once

#include "apps/lra/sequences.h"

namespace weft::lra {

constexpr i64 longest_text = 4000;

// Reads the folder aclImdb, or the folder that the archive was unpacked in. Throws, naming the
// folder or file, where something is missing or empty.
SequenceTask read_reviews(const std::string& folder);

}  // namespace weft::lra
