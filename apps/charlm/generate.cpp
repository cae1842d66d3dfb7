#include "apps/charlm/generate.h"

namespace weft::charlm {

void write_text(const Model& model, const std::string& prompt, i64 characters,
                const SamplingOptions& options, const std::function<void(const std::string&)>& say,
                const std::function<void()>& restarted) {
  const Vocabulary& vocabulary = model.vocabulary;
  Generator generator(*model.network, restarted);
  std::vector<i64> read;
  if (prompt.empty()) read.push_back(vocabulary.opening());
  for (const CharacterId id : vocabulary.encode(prompt, "--prompt")) read.push_back(id);
  Tensor logits = generator.read(read);
  for (i64 i = 0; i < characters; ++i) {
    const i64 id = draw(logits, options, vocabulary.first(), static_cast<std::uint64_t>(i));
    say(vocabulary.character(id));
    if (i + 1 < characters) logits = generator.read(id);
  }
}

}  // namespace weft::charlm
