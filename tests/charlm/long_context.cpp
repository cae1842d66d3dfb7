// The presets of long windows (apps/language/long_context.h), from the options to generated text.
#include <nlohmann/json.hpp>

#include "apps/language/long_context.h"
#include "ops/attention/mechanism.h"
#include "tests/charlm/tiny.h"
#include "tests/sanitized.h"

namespace weft {
namespace {

using nlohmann::json;

json settings_of(const char* name, const Words& words) {
  const ProgramRun run = app(name, Words{"info", "--json"} + words);
  REQUIRE_MESSAGE(run.status == 0, run.err);
  return json::parse(run.out)["configuration"];
}

TEST_SUITE("charlm") {

TEST_CASE("long context: a preset for each strictly causal mechanism, alike but for the attention" *
          not_sanitized()) {
  const json plain = settings_of("charlm", {"--preset", "text8-long"});
  for (const auto& [key, value] : std::vector<std::pair<const char*, json>>{
           {"attention", "full"}, {"encoding", "conv"}, {"width", 128}, {"heads", 4}, {"depth", 4},
           {"length", 2048}, {"batch", 2}, {"shared", false}, {"act", true}, {"wiring", "prenorm"},
           {"optimizer", "adam"}, {"vocabulary", "text8"}}) {
    CHECK_MESSAGE(plain[key] == value, key);
  }
  const std::vector<std::string> names = long_presets("text8");
  for (const Mechanism* m : mechanisms()) {
    const std::string name = "text8-long-" + m->name;
    const bool wanted = m->strictly_causal && !m->wrapper && m->rows.count == nullptr;
    CHECK_MESSAGE((std::ranges::find(names, name) != names.end()) == wanted, name);
  }
  for (const char* mechanism : {"linear", "cosformer", "performer", "local", "sparse", "topk",
                                "adaptive-span", "transformer-xl", "mega"}) {
    json own = settings_of("charlm", {"--preset", std::string("text8-long-") + mechanism});
    const AttentionSpec spec(own["attention"].get<std::string>());
    CHECK(spec.mechanism().name == mechanism);
    CHECK((spec.mechanism().decode == nullptr || can_decode(spec)));
    json other = settings_of("charlm", {"--preset", "text8-long", "--attention", own["attention"]});
    other["preset"] = own["preset"];
    CHECK(own == other);
  }
  CHECK(settings_of("wordlm", {"--preset", "wikitext2-long-linear"})["length"] == 1024);
  // The same number of positions a step, in segments with a memory.
  json own = settings_of("charlm", {"--preset", "text8-memory-transformer-xl"});
  json other = settings_of("charlm", {"--preset", "text8-long-transformer-xl", "--length", "512",
                                      "--memory", "512", "--batch", "8"});
  other["preset"] = own["preset"];
  CHECK(own == other);
}

TEST_CASE(
    "long context: a model of windows of 2,048 characters is trained, scored, and writes text") {
  if (few_here()) return;
  const TemporaryFolder folder;
  const Words small = {"--data",
                       "builtin",
                       "--width",
                       "16",
                       "--depth",
                       "1",
                       "--batch",
                       "1",
                       "--steps",
                       "2",
                       "--validation-batches",
                       "1",
                       "--test-batches",
                       "1",
                       "--threads",
                       "1"};
  for (const char* preset :
       {"text8-long-linear", "text8-long-performer", "text8-long-cosformer",
        "text8-long-adaptive-span", "text8-memory-transformer-xl", "text8-long-mega"}) {
    CAPTURE(preset);
    const std::string out = folder.path(preset);
    const ProgramRun trained = charlm_program(Words{"--preset", preset, "--out", out} + small);
    REQUIRE_MESSAGE(trained.status == 0, trained.err);
    const ProgramRun scored =
        charlm_program({"eval", "--checkpoint", out, "--split", "test", "--json"});
    CHECK_MESSAGE(scored.status == 0, scored.err);
    const ProgramRun written = charlm_program({"sample", "--checkpoint", out, "--tokens", "2100"});
    REQUIRE_MESSAGE(written.status == 0, written.err);
    CHECK(written.out.size() == 2101);
  }
}
}

}  // namespace
}  // namespace weft
