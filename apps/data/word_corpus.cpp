#include "apps/data/word_corpus.h"

#include <algorithm>
#include <filesystem>

#include "apps/data/byte_pieces.h"
#include "apps/data/corpus.h"
#include "apps/data/kept_pieces.h"
#include "apps/data/sentence_pieces.h"
#include "apps/data/unicode.h"
#include "apps/data/word_tokens.h"
#include "nn/file.h"
#include "runtime/error.h"

namespace weft {
namespace {

constexpr std::size_t builtin_corpus_characters = 500'000;
constexpr int builtin_words_a_line = 16;

struct Part {
  std::string source, text;
};

struct Texts {
  Part train, validation, test;
  bool kept_beside = false;  // the training part is a file: pieces may be cached beside it
};

// The built-in text, in lines of a fixed number of words.
std::string builtin_text() {
  std::string text = sentence_grammar().text(1, builtin_corpus_characters);
  int words = 0;
  for (char& c : text) {
    if (c == ' ' && ++words % builtin_words_a_line == 0) c = '\n';
  }
  return text;
}

// Splits after the first lines that end at or after 90 % and 95 % of the text.
Texts shared_lines(const std::string& source, const std::string& text, bool any_bytes) {
  const auto cut = [&](std::size_t percent) {
    const std::size_t last = (text.size() * percent - 1) / 100;  // addresses end below 2^57
    return std::min(text.find('\n', last), text.size() - 1) + 1;
  };
  require(!text.empty(), "{}: the file is empty", source);
  if (!any_bytes) check_utf8(text, source);  // before the split: errors name positions in the file
  const std::size_t first = cut(90), second = std::max(first, cut(95));
  return {{source, text.substr(0, first)},
          {source + " (validation)", text.substr(first, second - first)},
          {source + " (test)", text.substr(second)}};
}

// Throws for text that is not UTF-8 unless `any_bytes`.
Texts read_texts(const std::string& data, bool any_bytes) {
  if (data == "builtin") return shared_lines(data, builtin_text(), any_bytes);
  std::error_code unknown;
  Texts texts;
  if (std::filesystem::is_directory(data, unknown)) {
    const bool plain = std::filesystem::exists(data + "/train.txt", unknown);
    require(plain || std::filesystem::exists(data + "/wiki.train.tokens", unknown),
            "{}: the folder has neither wiki.train.tokens nor train.txt", data);
    const auto part = [&](const char* name) -> Part {
      const std::string file = plain ? fmt::format("{}/{}.txt", data, name)
                                     : fmt::format("{}/wiki.{}.tokens", data, name);
      Part read{file, read_file(file)};
      if (!any_bytes) check_utf8(read.text, file);
      return read;
    };
    texts = {part("train"), part("valid"), part("test")};
  } else {
    texts = shared_lines(data, read_file(data), any_bytes);
  }
  texts.kept_beside = true;
  return texts;
}

WordCounts counted(const std::string& text) {
  WordCounts counts;
  bool inside = false;  // inside a word
  bool blank = true;    // the line so far is blank
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = code_point_of_any(text, at);
    at += c.bytes;
    ++counts.characters;
    const bool space = is_space(c.value);
    if (!space && !inside) ++counts.words;
    inside = !space;
    blank = blank && space;
    if (c.value != '\n' && at < text.size()) continue;
    ++counts.words;
    if (!blank) ++counts.lines;
    blank = true;
  }
  return counts;
}

// The stream of ids of a part. `marked`: remove WikiText's split marks first.
PieceIds stream_of(const Part& part, const WordPieces& pieces, bool marked, WordCounts& counts) {
  counts = counted(part.text);
  require(counts.lines > 0,
          "{}: there is no text in this part; training, validation and test need a line each",
          part.source);
  const std::string unmarked = marked ? without_split_marks(part.text) : std::string();
  PieceIds ids = pieces.stream(marked ? unmarked : part.text, part.source);
  counts.tokens = static_cast<i64>(ids.size());
  return ids;
}

void fill(WordCorpus& corpus, const Texts& texts) {
  const WordPieces& pieces = *corpus.pieces;
  const bool marked = dynamic_cast<const PaperPieces*>(&pieces) != nullptr;
  corpus.train = stream_of(texts.train, pieces, marked, corpus.train_counts);
  corpus.validation = stream_of(texts.validation, pieces, marked, corpus.validation_counts);
  corpus.test = stream_of(texts.test, pieces, marked, corpus.test_counts);
}

}  // namespace

void check_pieces(const std::string& pieces) {
  if (pieces.starts_with("bpe") && !pieces.ends_with(".model")) BytePieces::merges_of(pieces);
  require(pieces == "paper" || pieces.starts_with("bpe") || pieces.ends_with(".model"),
          "--pieces: there are no '{}'; there are bpe, bpe:merges=N, paper, and the models of "
          "SentencePiece: files whose names end with .model",
          pieces);
}

WordCorpus load_words(const std::string& data, const std::string& pieces, bool keep) {
  check_pieces(pieces);
  if (pieces.ends_with(".model")) return load_words(data, load_sentence_pieces(pieces));
  const bool paper = pieces == "paper";
  const Texts texts = read_texts(data, !paper);
  WordCorpus corpus;
  if (!paper) {
    corpus.pieces = BytePieces::learn(texts.train.text, pieces);
  } else if (texts.kept_beside) {
    corpus.pieces = kept_or_learnt(texts.train.text, texts.train.source, keep, corpus.warnings);
  } else {
    corpus.pieces = PaperPieces::learn(texts.train.text, texts.train.source);
  }
  fill(corpus, texts);
  return corpus;
}

WordCorpus load_words(const std::string& data, std::shared_ptr<const WordPieces> pieces) {
  const Texts texts = read_texts(data, pieces->any_bytes());
  WordCorpus corpus;
  corpus.pieces = std::move(pieces);
  fill(corpus, texts);
  return corpus;
}

WordChunks::WordChunks(std::span<const std::int32_t> ids, i64 length, std::int32_t pad)
    : ids_(ids), length_(length), pad_(pad) {
  require(length > 0, "chunks: wanted a positive length, got {}", length);
  count_ = (static_cast<i64>(ids.size()) + length - 1) / length;
}

Batch WordChunks::batch(std::span<const i64> chunks) const {
  const Shape shape{static_cast<i64>(chunks.size()), length_};
  Batch batch{Tensor::empty(shape, DType::i64), Tensor::empty(shape, DType::i64)};
  i64* inputs = batch.inputs.data<i64>();
  i64* targets = batch.targets.data<i64>();
  for (const i64 chunk : chunks) {
    require(chunk >= 0 && chunk < count_, "chunks: there is no chunk {} of {}", chunk, count_);
    const auto begin = static_cast<std::size_t>(chunk * length_);
    const auto ids =
        ids_.subspan(begin, std::min(static_cast<std::size_t>(length_), ids_.size() - begin));
    std::fill(std::copy(ids.begin(), ids.end(), inputs), inputs + length_, pad_);
    std::fill(std::copy(ids.begin() + 1, ids.end(), targets), targets + length_, pad_);
    inputs += length_;
    targets += length_;
  }
  return batch;
}

}  // namespace weft
