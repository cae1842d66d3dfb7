// ListOps: nested lists of digits, each with an operator, and the digit that the whole comes to.
// N. Nangia, S. Bowman, "ListOps: a diagnostic dataset for latent tree learning", NAACL SRW 2018,
// arXiv 1804.06028; in the long form of Y. Tay et al., "Long Range Arena", ICLR 2021,
// arXiv 2011.04006, section 2.2.1.
//
//     tree(depth) = digit                        with probability ¾, and always at depth 10
//                 | [ operator tree … tree ]     2 … 10 trees of depth + 1, all counts alike
//
// from depth 1. Operators: MIN and MAX; MED, the median, rounded down where it lies between two
// digits; SM, the sum modulo 10. All four and all ten digits are alike. Of the trees those are kept
// that have more than 500 and fewer than 2,000 words, and no tree twice: 96,000 to train, 2,000 to
// validate, 2,000 to test.
//
// A sequence is the words of a tree: "[MIN", "[MAX", "[MED", "[SM", the digits and "]". The
// released files have parentheses, too, one pair for each step of a binary tree; they say nothing
// more and are left out. A classifier that sees the first word alone is right in a third of all
// cases, since MIN is most often 0 and MAX 9: baselines() says how often.
#pragma once

#include "apps/lra/sequences.h"

namespace weft::lra {

struct ListOpsCounts {
  i64 train = 96000, validation = 2000, test = 2000;
};

// Drawn here: a function of the seed.
SequenceTask drawn_listops(std::uint64_t seed, const ListOpsCounts& counts = {});
// The released files of a folder: basic_train.tsv, basic_val.tsv and basic_test.tsv, each with a
// line of headings, then a line a tree: words, tab, digit. Throws, with file and line, for any
// other.
SequenceTask read_listops(const std::string& folder);
// The same files, as read_listops() reads them. Throws where one cannot be written.
void write_listops(const SequenceTask& task, const std::string& folder);

// The digit of a tree by its words; throws where they are none.
std::uint8_t value_of(std::span<const std::uint8_t> words);

// How often one is right on a part, in percent, that always says the most frequent class of the
// training part; and that says, of each first word, the most frequent class behind it there.
struct Baselines {
  double majority = 0, first_word = 0;
};
Baselines baselines(const SequenceTask& task, const Sequences& part);

}  // namespace weft::lra
