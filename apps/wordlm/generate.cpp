#include "apps/wordlm/generate.h"

#include <algorithm>

namespace weft::wordlm {
namespace {

constexpr float never = -1e30f;  // logit of a token never to draw; finite, as draw() requires

}  // namespace

std::size_t settled(std::string_view text) {
  const std::size_t space = text.find_last_of(" \n");
  return space == std::string_view::npos ? 0 : space;
}

std::vector<i64> read_before(const Model& model, const std::string& prompt) {
  const PieceIds opening = model.pieces->opening(), text = model.pieces->encode(prompt);
  std::vector<i64> ids(opening.begin(), opening.end());
  ids.insert(ids.end(), text.begin(), text.end());
  return ids;
}

void write_text(const Model& model, const std::string& prompt, i64 tokens,
                const SamplingOptions& options,
                const std::function<void(const std::string&)>& say) {
  const auto [unknown, begin, end, pad] = model.pieces->special();
  Generator generator(*model.network);
  PieceIds text = model.pieces->encode(prompt);  // without the opening
  Tensor logits = generator.read(read_before(model, prompt));
  std::string now;
  std::size_t said = 0;  // bytes of it
  const auto say_until = [&](std::size_t end) {
    if (end > said) say(now.substr(said, end - said));
    said = std::max(said, end);
  };
  const auto tell = [&] {
    now = model.pieces->decode(text);
    say_until(settled(now));
  };
  tell();
  for (i64 i = 0; i < tokens; ++i) {
    float* const values = logits.data<float>();
    values[unknown] = values[pad] = never;
    const bool ended = !text.empty() && text.back() == end;
    values[ended ? end : begin] = never;  // begin is drawn only after an end, and end never then
    const i64 id = draw(logits, options, 0, static_cast<std::uint64_t>(i));
    if (i + 1 < tokens) logits = generator.read(id);
    text.push_back(static_cast<std::int32_t>(id));
    tell();
  }
  say_until(now.size());
}

}  // namespace weft::wordlm
