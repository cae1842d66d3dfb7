#include "apps/charlm/generate.h"

namespace weft::charlm {

std::vector<i64> read_before(const Model& model, const std::string& prompt) {
  if (prompt.empty()) return {model.vocabulary.opening()};
  const std::vector<CharacterId> ids = model.vocabulary.encode(prompt, "--prompt");
  return {ids.begin(), ids.end()};
}

void write_text(const Model& model, const std::string& prompt, i64 characters,
                const SamplingOptions& options,
                const std::function<void(const std::string&)>& say) {
  const Vocabulary& vocabulary = model.vocabulary;
  Generator generator(*model.network);
  Tensor logits = generator.read(read_before(model, prompt));
  for (i64 i = 0; i < characters; ++i) {
    const i64 id = draw(logits, options, vocabulary.first(), static_cast<std::uint64_t>(i));
    say(vocabulary.character(id));
    if (i + 1 < characters) logits = generator.read(id);
  }
}

}  // namespace weft::charlm
