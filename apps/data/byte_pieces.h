// Word pieces over bytes, for any text: byte-pair encoding (byte_pairs.h) learnt from the text, as
// GPT-2's (A. Radford et al., "Language models are unsupervised multitask learners", 2019, section
// 2.2). Nothing is changed or lost: decode() gives every text of encode() back, byte by byte.
//
// The text is cut into words; at each place the first of these that matches is one:
//
//   's  't  're  've  'm  'll  'd
//   a run of letters, or of digits and other numbers, or of anything else but white space, with the
//   one space (U+0020) before it, if there is one
//   white space up to its last character before what is none; a single one, or one at the end of
//   the text, whole
//
// Letters and numbers are Unicode's categories L and N, white space as is_space() has it; a byte
// that begins no character of UTF-8 is "anything else". No word is longer than longest_word: a run
// goes on in a new one. Bytes inside words are written as GPT-2 writes them: those that print in
// Latin-1 as they are, the others, in order, as U+0100 and its successors (the space is Ġ).
//
// The ids: 0 … 255 the bytes; then the pieces that merges make, in the order in which they were
// learnt; then one for the end of a text, which also fills up chunks and is never drawn.
//
// save() writes, in UTF-8 with \n after each line:
//   byte pieces 1
//   NAME
//   M merges
//   first second          M lines, the first learnt first
#pragma once

#include "apps/data/byte_pairs.h"
#include "apps/data/word_pieces.h"

namespace weft {

class BytePieces final : public WordPieces {
 public:
  static constexpr std::size_t merge_count = 8'000;  // where nothing else is asked for
  static constexpr std::size_t most_merges = 1'000'000;
  static constexpr i64 least_pair_count = 3;
  static constexpr std::size_t longest_word = 256;  // bytes
  static constexpr std::string_view saved_head = "byte pieces 1\n";

  // The number of merges that "bpe" or "bpe:merges=N" asks for; throws where `name` begins like
  // these and goes on otherwise.
  static std::size_t merges_of(const std::string& name);
  // From any bytes.
  static std::shared_ptr<const BytePieces> learn(std::string_view text, const std::string& name);
  static std::shared_ptr<const BytePieces> restore(const std::string& saved,
                                                   const std::string& source);

  BytePieces(std::string name, std::vector<Merge> merges);

  const std::vector<Merge>& merges() const { return merges_; }

  std::string name() const override { return name_; }  // "bpe" or "bpe:merges=N"
  i64 size() const override { return static_cast<i64>(bytes_.size()) + 1; }
  Special special() const override;
  bool any_bytes() const override { return true; }
  PieceIds opening() const override { return {'\n'}; }
  PieceIds encode(std::string_view text) const override;
  PieceIds stream(std::string_view text, const std::string& source) const override;
  std::string decode(std::span<const std::int32_t> ids) const override;
  std::string save() const override;

 private:
  std::string name_;
  std::vector<Merge> merges_;
  MergeTable table_;
  std::vector<std::string> bytes_;  // of each id
  std::unordered_map<std::string, std::int32_t> ids_;  // by the pieces as they are written
  mutable std::unordered_map<std::string, PieceIds> known_words_;  // encoded so far
};

// Calls f(word) for the words of a text, as above; they tile it.
void for_each_byte_word(std::string_view text, const std::function<void(std::string_view)>& f);

}  // namespace weft
