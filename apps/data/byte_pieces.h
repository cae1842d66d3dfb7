// Byte-level word pieces for any text, with byte-pair encoding (byte_pairs.h) learnt from the text,
// as in GPT-2 (A. Radford et al., "Language models are unsupervised multitask learners", 2019,
// section 2.2). The encoding is lossless: decode() inverts encode() for all bytes.
//
// The text is split into words. At each position the first of these patterns that matches is a
// word:
//
//   's  't  're  've  'm  'll  'd
//   a run of letters, or of digits and other numbers, or of anything else except white space, with
//   the space (U+0020) before it, if there is one
//   a run of white space without its last character if other text follows; a run of one character,
//   or at the end of the text, whole
//
// Letters and numbers are Unicode's categories L and N, white space is that of is_space(); a byte
// that is not part of a UTF-8 character is "anything else". A run longer than longest_word is split
// into several words. Bytes of words are written as in GPT-2: printable Latin-1 characters as
// themselves, the others, in order, as U+0100, U+0101, … (the space is Ġ).
//
// The ids: 0 … 255 are the bytes; then come the merged pieces in the order of learning; the last id
// marks the end of a text. It also pads chunks, and sampling never draws it.
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
  static constexpr std::size_t merge_count = 8'000;  // default
  static constexpr std::size_t most_merges = 1'000'000;
  static constexpr i64 least_pair_count = 3;
  static constexpr std::size_t longest_word = 256;  // bytes
  static constexpr std::string_view saved_head = "byte pieces 1\n";

  // Parses the number of merges of "bpe" or "bpe:merges=N"; throws for other options after "bpe".
  static std::size_t merges_of(const std::string& name);
  // Learns from arbitrary bytes.
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
  std::vector<std::string> bytes_;                                 // by id
  std::unordered_map<std::string, std::int32_t> ids_;              // by the written form of pieces
  mutable std::unordered_map<std::string, PieceIds> known_words_;  // cache of encode()
};

// Calls f(word) for the words of a text, as defined above. Concatenated they are the text.
void for_each_byte_word(std::string_view text, const std::function<void(std::string_view)>& f);

}  // namespace weft
