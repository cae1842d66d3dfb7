#include "apps/wordlm/generate.h"

namespace weft::wordlm {
namespace {

constexpr float never = -1e30f;  // logit of a token never to draw; finite, as draw() requires

}  // namespace

void write_text(const Model& model, const std::string& prompt, i64 tokens,
                const SamplingOptions& options, const std::function<void(const std::string&)>& say,
                const std::function<void()>& restarted) {
  const auto [unknown, begin, end, pad] = model.pieces->special();
  Generator generator(*model.network, restarted);
  PieceIds text = model.pieces->encode(prompt);  // without the opening
  std::string said;
  const PieceIds opening = model.pieces->opening();
  std::vector<i64> read(opening.begin(), opening.end());
  read.insert(read.end(), text.begin(), text.end());
  Tensor logits = generator.read(read);
  const auto tell = [&] {  // decodes the whole line: a piece can join the one before
    const std::string now = model.pieces->decode(text);
    if (now.starts_with(said)) say(now.substr(said.size()));
    said = now;
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
}

}  // namespace weft::wordlm
