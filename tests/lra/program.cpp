// lra as people run it, and its model.
#include <nlohmann/json.hpp>

#include "apps/lra/settings.h"
#include "tests/check.h"
#include "tests/json_lines.h"
#include "tests/lra/records.h"
#include "tests/program.h"
#include "tests/resume.h"

using namespace weft;
using nlohmann::json;

namespace {

ProgramRun lra_program(const Words& words) { return app("lra", words); }

const Words tiny_model = {"--width",  "8", "--layers",      "1", "--heads",     "2",
                          "--hidden", "8", "--batch",       "4", "--steps",     "4",
                          "--warmup", "1", "--round-steps", "2", "--attention", "linear"};
const Words tiny = tiny_model + Words{"--examples", "60", "--held-out", "8"};

// A preset, made small, for two steps.
Words two_steps(const std::string& preset, const std::string& out) {
  return {"train", "--preset", preset, "--out",         out, "--width",
          "8",     "--hidden", "8",    "--batch",       "4", "--steps",
          "2",     "--warmup", "1",    "--round-steps", "2"};
}

}  // namespace

TEST_SUITE("lra") {

TEST_CASE("lra: presets are the rows of the table, each a mechanism that takes lengths") {
  CHECK(lra::presets().size() == 8 * lra::all_tasks().size());
  for (const std::string& name : lra::presets()) {
    CAPTURE(name);
    const lra::Settings s = lra::preset(name);
    CHECK(AttentionSpec(s.model.attention).mechanism().masks.lengths);
    CHECK(name.starts_with(s.task + "-"));
    CHECK(s.steps == lra::facts_of(s.task).steps);
    CHECK(s.batch == lra::facts_of(s.task).batch);
    CHECK(s.model.width == 64);
  }
  CHECK_ERROR(lra::preset("listops-ful"), "listops-full");
}

TEST_CASE("lra: trains, logs both baselines beside the test, and eval gives it again") {
  const TemporaryFolder folder;
  const std::string out = folder.path("run");
  const ProgramRun run = lra_program(Words{"train", "--out", out} + tiny);
  REQUIRE_MESSAGE(run.status == 0, run.err);
  CHECK(contains(run.out, "60 sequences to train, 8 to validate, 8 to test"));
  const json test = lines(read_file(out + "/metrics.jsonl")).back();
  CHECK(test["kind"] == "test");
  const json facts =
      lines(lra_program({"data", "--examples", "60", "--held-out", "8", "--json"}).out).at(0);
  CHECK(test["majority"] == facts["majority"]);
  CHECK(test["first_word"] == facts["first_word"]);
  const json again = lines(lra_program({"eval", "--checkpoint", out, "--json"}).out).at(0);
  CHECK(again["loss"] == test["loss"]);
  CHECK(again["accuracy"] == test["accuracy"]);
  check_refused(lra_program({"eval", "--checkpoint", out, "--split", "tset"}),
                "there is no 'tset'");
}

TEST_CASE("lra: an entry of a file may need another one of it") {
  const TemporaryFolder folder;
  for (const char* text :
       {"optimizer = 'adamw'\nweight-decay = 0.5", "weight-decay = 0.5\noptimizer = 'adamw'"}) {
    const ProgramRun run = lra_program({"--config", folder.file("a.toml", text), "--print-config"});
    REQUIRE_MESSAGE(run.status == 0, run.err);
    CHECK(contains(run.out, "decay=0.5"));
  }
  check_refused(lra_program({"--config", folder.file("b.toml", "batch = 4\nweight-decay = 0.5")}),
                "b.toml:2: --weight-decay: adam has none");
}

TEST_CASE("lra: killed and resumed, the same bits as at one go") {
  const TemporaryFolder folder;
  check_resume(built("apps/lra"),
               tiny + Words{"--steps", "48", "--checkpoint-steps", "3", "--report-steps", "3"},
               folder.path(), 3);
}

TEST_CASE("lra: data writes the files, from which a training gives the same losses") {
  const TemporaryFolder folder;
  const ProgramRun data = lra_program(
      {"data", "--examples", "60", "--held-out", "8", "--out", folder.path("files"), "--json"});
  REQUIRE_MESSAGE(data.status == 0, data.err);
  CHECK(lines(data.out).at(0)["train"] == 60);
  check_refused(lra_program({"data", "--examples", "9", "--out", folder.path("files")}),
                "exists already; choose another --out");
  const auto losses = [&](const std::string& name, const Words& more) {
    const ProgramRun run =
        lra_program(Words{"train", "--out", folder.path(name)} + tiny_model + more);
    REQUIRE_MESSAGE(run.status == 0, run.err);
    return lines(read_file(folder.path(name) + "/metrics.jsonl")).back()["loss"].dump();
  };
  const Words files = {"--data", folder.path("files")};
  CHECK(losses("drawn", {"--examples", "60", "--held-out", "8"}) == losses("read", files));
  check_refused(lra_program(Words{"train"} + tiny + files),
                "--examples, --held-out and --data-seed are of built-in data, and --data is");
  check_refused(lra_program(Words{"train"} + tiny_model + Words{"--data", folder.path("none")}),
                "basic_train.tsv: cannot be read");
  check_refused(lra_program({"train", "--task", "imgae"}), "there is no 'imgae'");
  check_refused(lra_program({"train", "--examples", "8", "--batch", "9"}),
                "--batch: wanted no more");
}

TEST_CASE("lra: image trains on files of CIFAR-10, and draws sheets of them") {
  const TemporaryFolder folder;
  write_records(folder, 4, 3);
  const Words data = {"--data", folder.path()};
  const std::string out = folder.path("run");
  const Words words = two_steps("image-csp", out);
  const ProgramRun run = lra_program(words + data);
  REQUIRE_MESSAGE(run.status == 0, run.err);
  CHECK(contains(run.out, "18 sequences to train, 2 to validate, 3 to test; mean length 1024"));
  const json test = lines(read_file(out + "/metrics.jsonl")).back();
  CHECK(test["kind"] == "test");
  CHECK(test.contains("majority"));
  CHECK_FALSE(test.contains("first_word"));
  const json again = lines(lra_program({"eval", "--checkpoint", out, "--json"}).out).at(0);
  CHECK(again["loss"] == test["loss"]);
  const ProgramRun sheets =
      lra_program(Words{"data", "--task", "image", "--out", folder.path("sheets")} + data);
  REQUIRE_MESSAGE(sheets.status == 0, sheets.err);
  CHECK(std::filesystem::exists(folder.path("sheets/validation.png")));
  const Words task = {"train", "--task", "image"};
  check_refused(lra_program(task),
                "--data: image has no built-in data; wanted the folder of CIFAR");
  for (const std::string option : {"--examples", "--held-out", "--data-seed"}) {
    check_refused(lra_program(task + data + Words{option, "7"}), "are of built-in data");
  }
}

TEST_CASE("lra: pathfinder trains on pictures that it draws, and refuses files") {
  const TemporaryFolder folder;
  const std::string out = folder.path("run");
  const Words few = {"--examples", "40", "--held-out", "6"};
  const Words words = two_steps("pathfinder-linear", out);
  const ProgramRun run = lra_program(words + few);
  REQUIRE_MESSAGE(run.status == 0, run.err);
  CHECK(contains(run.out, "40 sequences to train, 6 to validate, 6 to test; mean length 1024"));
  const json test = lines(read_file(out + "/metrics.jsonl")).back();
  const json again = lines(lra_program({"eval", "--checkpoint", out, "--json"}).out).at(0);
  CHECK(again["accuracy"] == test["accuracy"]);
  CHECK(again["majority"] == test["majority"]);
  const Words task = {"--task", "pathfinder", "--out", folder.path("sheets")};
  REQUIRE(lra_program(Words{"data"} + task + few).status == 0);
  CHECK(std::filesystem::exists(folder.path("sheets/train.png")));
  check_refused(lra_program({"data", "--data", "files", "--task", "pathfinder"}),
                "--data: pathfinder has built-in data alone; wanted builtin, got files");
}

TEST_CASE("lra: the dry run counts a matrix of the mechanism as part of attention") {
  const Words words = two_steps("pathfinder-linformer", "unwritten");
  const ProgramRun run = lra_program(
      words + Words{"--examples", "40", "--held-out", "6", "--dry-run", "--json-lines"});
  REQUIRE_MESSAGE(run.status == 0, run.err);
  // The layers' matrices and the classes; the 2 products that mix keys and values, three times, and
  // the 2 + 5 products of attention with the mixtures.
  constexpr i64 batch = 4, layers = 2, length = 1024, width = 8, hidden = 8, classes = 2,
                rank = 256;
  constexpr i64 matrices = 4 * width * width + 2 * width * hidden;
  constexpr i64 attention = (3 * 4 + 14) * length * rank * width;
  CHECK(json::parse(run.out)["operations"] ==
        batch * (6 * (layers * length * matrices + width * classes) + layers * attention));
}

TEST_CASE("lra: text trains on reviews, and has no files or pictures to write") {
  const TemporaryFolder folder;
  write_reviews(folder, 10, 2);
  const Words data = {"--data", folder.path()};
  const std::string out = folder.path("run");
  const Words words = two_steps("text-cosformer", out);
  const ProgramRun run = lra_program(words + data);
  REQUIRE_MESSAGE(run.status == 0, run.err);
  CHECK(contains(run.out, "18 sequences to train, 2 to validate, 4 to test; mean length 7"));
  const json test = lines(read_file(out + "/metrics.jsonl")).back();
  CHECK(test["majority"] == 50);
  check_refused(lra_program({"train", "--task", "text"}),
                "--data: text has no built-in data; wanted the folder of the reviews of IMDb");
  check_refused(lra_program(Words{"data", "--task", "text", "--out", folder.path("files")} + data),
                "--out: text is written nowhere");
}

TEST_CASE("lra: retrieval trains on pairs, the same whether its batch is cut or not") {
  const TemporaryFolder folder;
  write_pairs(folder, 8);
  const auto train = [&](const std::string& name, const Words& more) {
    const Words words = two_steps("retrieval-linear", folder.path(name)) +
                        Words{"--data", folder.path(), "--lr", "0.05"};
    const ProgramRun run = lra_program(words + more);
    REQUIRE_MESSAGE(run.status == 0, run.err);
    CHECK(contains(run.out, "8 pairs to train, 8 to validate, 8 to test; mean length 10"));
    return lines(read_file(folder.path(name) + "/metrics.jsonl")).back();
  };
  const json whole = train("whole", {}), cut = train("cut", {"--shards", "2"});
  CHECK(whole["majority"] == 50);
  CHECK(cut["loss"].get<double>() == doctest::Approx(whole["loss"].get<double>()).epsilon(1e-6));
  const json again =
      lines(lra_program({"eval", "--checkpoint", folder.path("whole"), "--json"}).out).at(0);
  CHECK(again["loss"] == whole["loss"]);
  check_refused(lra_program({"train", "--task", "retrieval"}),
                "--data: retrieval has no built-in data; wanted the folder of the released files");
}

}  // TEST_SUITE("lra")
