// Training with one attention and evaluating with another.
#include <algorithm>
#include <cstdint>

#include "nn/file.h"
#include "tests/json_lines.h"
#include "tests/program.h"

using namespace weft;

TEST_SUITE("bench") {

TEST_CASE("swap: a block serves itself alone, projections of q, k and v all that take them") {
  const TemporaryFolder folder;
  std::string text;
  std::uint32_t state = 1;
  for (int i = 0; i < 4000; ++i) {
    state = state * 1664525u + 1013904223u;
    text += "abcdefgh "[(state >> 24) % 9];
  }
  write_file(folder.path("text8"), text);
  const Words files{"--data", folder.path("text8"), "--out", folder.path("swap.json")};
  const Words sizes{"--seeds", "1", "--steps", "2", "--batch", "2", "--length", "32"};
  const Words trained{"--train", "full", "isab:points=4", "mega"};
  const Words evaluated{"--windows", "2", "--evaluate", "full", "linear", "isab:points=4", "mega"};
  const ProgramRun run = run_program(built("bench/swap"), files + sizes + trained + evaluated);
  REQUIRE_MESSAGE(run.status == 0, run.err);
  const auto scores = nlohmann::json::parse(read_file(folder.path("swap.json")))["scores"];
  std::vector<std::string> found;
  for (const auto& score : scores) {
    found.push_back(score["trained_with"].get<std::string>() + " " +
                    score["evaluated_with"].get<std::string>());
    const double bits = score["bits_per_masked_character"][0];
    CHECK(bits > 0);
    CHECK(bits < 8);
  }
  std::ranges::sort(found);
  CHECK(found == std::vector<std::string>{"full full", "full linear", "isab:points=4 isab:points=4",
                                          "mega mega"});
}

}  // TEST_SUITE
