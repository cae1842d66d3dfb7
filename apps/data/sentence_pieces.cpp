#include "apps/data/sentence_pieces.h"

#include <charconv>
#include <filesystem>

#include <sentencepiece_processor.h>

#include "apps/data/unicode.h"
#include "nn/file.h"
#include "runtime/error.h"

namespace weft {
namespace {

void check(const sentencepiece::util::Status& status, const std::string& source) {
  require(status.ok(), "{}: SentencePiece: {}", source, status.ToString());
}

class SentencePieces final : public WordPieces {
 public:
  SentencePieces(std::string name, const std::string& model, const std::string& source)
      : name_(std::move(name)) {
    const auto status = processor_.LoadFromSerializedProto(model);
    require(status.ok() && processor_.GetPieceSize() > 0,
            "{}: not a SentencePiece model: wanted PREFIX.model of spm_train; found {} bytes that "
            "SentencePiece cannot parse ({})",
            source, model.size(), status.ToString());
    size_ = processor_.GetPieceSize();
    special_.unknown = processor_.unk_id();
    require(special_.unknown >= 0 && special_.unknown < size_,
            "{}: the model has no piece for unknown text", source);
    const auto own_or_new = [&](int id) { return id >= 0 ? id : size_++; };
    special_.begin = own_or_new(processor_.bos_id());
    special_.end = own_or_new(processor_.eos_id());
    special_.pad = own_or_new(processor_.pad_id());
  }

  std::string name() const override { return name_; }
  i64 size() const override { return size_; }
  Special special() const override { return special_; }

  PieceIds encode(std::string_view line) const override {
    check_utf8(line, "text");
    require(line.size() <= longest_sentence,
            "a line of {} bytes; the limit for SentencePiece is {}: break it into shorter lines",
            line.size(), longest_sentence);
    std::vector<int> ids;
    check(processor_.Encode(line, &ids), name_);
    return {ids.begin(), ids.end()};
  }

  std::string decode(std::span<const std::int32_t> ids) const override {
    std::string text;
    std::vector<int> sentence;
    const auto end_line = [&] {
      std::string line;
      check(processor_.Decode(sentence, &line), name_);
      text += line;
      sentence.clear();
    };
    for (const std::int32_t id : ids) {
      require(id >= 0 && id < size_, "{}: there is no id {}; there are 0 to {}", name_, id,
              size_ - 1);
      if (id == special_.end) {
        end_line();
        text += '\n';
      } else if (id != special_.begin && id != special_.pad) {
        sentence.push_back(id);
      }
    }
    end_line();
    return text;
  }

  std::string save() const override {
    std::string text = fmt::format("{}{}\n", saved_sentence_pieces, name_);
    for (const char byte : processor_.serialized_model_proto()) {
      constexpr std::string_view digits = "0123456789abcdef";
      text += digits[static_cast<unsigned char>(byte) >> 4];
      text += digits[static_cast<unsigned char>(byte) & 15];
    }
    return text;
  }

 private:
  std::string name_;
  sentencepiece::SentencePieceProcessor processor_;
  std::int32_t size_ = 0;
  Special special_{};
};

}  // namespace

std::shared_ptr<const WordPieces> load_sentence_pieces(const std::string& file) {
  const std::string name = std::filesystem::path(file).filename();
  check_utf8(name, file);
  return std::make_shared<const SentencePieces>(name, read_file(file), file);
}

std::shared_ptr<const WordPieces> restore_sentence_pieces(const std::string& saved,
                                                          const std::string& source) {
  check_utf8(saved, source);
  const std::size_t line = saved.find('\n');
  const bool whole = saved.starts_with(saved_sentence_pieces) && line != saved.npos &&
                     (saved.size() - line) % 2 == 1;
  require(whole,
          "{}: damaged word pieces: wanted \"{}NAME\", a new line, and a model in hexadecimal",
          source, saved_sentence_pieces);
  std::string model((saved.size() - line - 1) / 2, '\0');
  for (std::size_t i = 0; i < model.size(); ++i) {
    const char* const digits = saved.data() + line + 1 + 2 * i;
    std::uint8_t byte = 0;
    const auto [end, status] = std::from_chars(digits, digits + 2, byte, 16);
    require(status == std::errc{} && end == digits + 2,
            "{}: damaged word pieces: not hexadecimal digits at position {}", source,
            line + 1 + 2 * i);
    model[i] = static_cast<char>(byte);
  }
  const std::string name =
      saved.substr(saved_sentence_pieces.size(), line - saved_sentence_pieces.size());
  return std::make_shared<const SentencePieces>(name, model, source);
}

}  // namespace weft
