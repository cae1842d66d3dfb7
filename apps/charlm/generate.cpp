#include "apps/charlm/generate.h"

namespace weft::charlm {

void write_text(const Model& model, const std::string& prompt, std::int64_t characters,
                const SamplingOptions& options, const std::function<void(char)>& say,
                const std::function<void()>& restarted) {
  const Vocabulary vocabulary = model.vocabulary();
  const std::int64_t first = vocabulary == Vocabulary::text8 ? 1 : 0;  // text8's 0 is no character
  Generator generator(*model.network, restarted);
  Tensor logits;
  for (const std::uint8_t id : encode(vocabulary, prompt.empty() ? " " : prompt, "--prompt")) {
    logits = generator.read(id);
  }
  for (std::int64_t i = 0; i < characters; ++i) {
    const std::int64_t id = draw(logits, options, first, static_cast<std::uint64_t>(i));
    say(character_of(vocabulary, id));
    if (i + 1 < characters) logits = generator.read(id);
  }
}

}  // namespace weft::charlm
