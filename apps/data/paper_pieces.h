// The word pieces of Spellings 2019 for WikiText-2: words of word_tokens.h in lower case, numbers
// replaced by <num>, 10,000 merges of pairs that occur at least three times. The ids are
//   0 <UNK>   1 <SEQ>   2 </SEQ>   3 <PAD>
//   4 …       all pieces of the encoded training text, sorted by (count, piece), descending. Two
//             of them, <seq> and </seq>, have the number of lines as counts and are never used.
//
// save() writes, in UTF-8 with \n after each line (no symbol holds white space):
//   paper pieces 1
//   M merges
//   first second          M lines, the first learnt first
//   P pieces
//   piece                 P lines, the ids 4 …
#pragma once

#include "apps/data/byte_pairs.h"
#include "apps/data/word_pieces.h"

namespace weft {

class PaperPieces final : public WordPieces {
 public:
  static constexpr std::size_t merge_count = 10'000;
  static constexpr i64 least_pair_count = 3;
  static constexpr std::size_t longest_word = 65'536;  // bytes; a longer word is an error
  static constexpr std::string_view saved_head = "paper pieces 1\n";

  // Learns from training text (well-formed UTF-8, without split marks).
  static std::shared_ptr<const PaperPieces> learn(std::string_view text, const std::string& source);
  static std::shared_ptr<const PaperPieces> restore(const std::string& saved,
                                                    const std::string& source);

  PaperPieces(std::vector<Merge> merges, std::vector<std::string> pieces);

  const std::vector<Merge>& merges() const { return merges_; }
  const std::vector<std::string>& pieces() const { return pieces_; }  // piece i has id 4 + i

  std::string name() const override { return "paper"; }
  i64 size() const override;
  Special special() const override { return {0, 1, 2, 3}; }
  PieceIds encode(std::string_view line) const override;
  std::string decode(std::span<const std::int32_t> ids) const override;
  std::string save() const override;

 private:
  std::vector<Merge> merges_;
  std::vector<std::string> pieces_;
  MergeTable table_;
  std::unordered_map<std::string, std::int32_t> ids_;
  mutable std::unordered_map<std::string, PieceIds> known_words_;  // cache of encode()
};

}  // namespace weft
