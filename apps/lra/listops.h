// ListOps: nested lists of digits with operators; the label is the digit that the expression
// evaluates to.
// N. Nangia, S. Bowman, "ListOps: a diagnostic dataset for latent tree learning", NAACL SRW 2018,
// arXiv 1804.06028; in the long form of Y. Tay et al., "Long Range Arena", ICLR 2021,
// arXiv 2011.04006, section 2.2.1.
//
//     tree(depth) = digit                        with probability ¾, and always at depth 10
//                 | [ operator tree … tree ]     2 … 10 trees of depth + 1, a uniform number
//
// from depth 1. Operators: MIN and MAX; MED, the median, rounded down between two digits; SM, the
// sum modulo 10. Operators and digits are drawn uniformly. Trees with more than 500 and fewer than
// 2,000 words are kept, without duplicates: 96,000 to train, 2,000 to validate, 2,000 to test.
//
// A sequence is the words of a tree: "[MIN", "[MAX", "[MED", "[SM", the digits and "]". The
// released files also have parentheses, one pair for each node of a binary tree; they are redundant
// and are dropped. A classifier that sees only the first word is right in about a third of all
// cases, since MIN is most often 0 and MAX most often 9; baselines() computes the exact share.
#pragma once

#include "apps/lra/sequences.h"

namespace weft::lra {

// Generated data: a function of the seed.
SequenceTask drawn_listops(std::uint64_t seed, const PartCounts& counts);
// Reads the released files of a folder: basic_train.tsv, basic_val.tsv and basic_test.tsv, each
// with a header line, then one line per tree: words, tab, digit. Throws, with file and line, for
// anything else.
SequenceTask read_listops(const std::string& folder);
Sequences read_trees(const std::string& file);  // one of its files
// Writes the files that read_listops() reads. Throws if one cannot be written.
void write_listops(const SequenceTask& task, const std::string& folder);

// The value of a tree, from its words. Throws if they are not a tree.
std::uint8_t value_of(std::span<const std::uint8_t> words);

}  // namespace weft::lra
