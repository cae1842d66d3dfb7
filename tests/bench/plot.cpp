// The pictures' program, without drawing: which figures it finds in logs, and what it refuses.
#include "tests/program.h"

using namespace weft;

namespace {

ProgramRun plot(const Words& words) {
  return run_program(WEFT_SOURCE_ROOT "/bench/plot", words);
}

// A run of two epochs that logs this figure.
std::string log_of(const std::string& figure) {
  std::string text;
  for (const int epoch : {1, 2}) {
    text +=
        fmt::format(R"({{"kind": "train", "step": {0}0, "epoch": {0}, "loss": 2.5, "{1}": 4.25,)"
                    R"( "tokens_per_second": 4096}})"
                    "\n",
                    epoch, figure);
    text += fmt::format(R"({{"kind": "validation", "step": {0}0, "epoch": {0}, "loss": {2},)"
                        R"( "{1}": {2}}})"
                        "\n",
                        epoch, figure, 4.0 / epoch);
  }
  return text + fmt::format(R"({{"kind": "test", "{}": 2.125}})"
                            "\n",
                            figure);
}

TEST_SUITE("bench") {

TEST_CASE("plot: the figure that a run logs, of charlm, wordlm and vision") {
  const TemporaryFolder folder;
  for (const auto& [figure, label] : std::vector<std::pair<std::string, std::string>>{
           {"bits_per_character", "bits per character"},
           {"perplexity", "perplexity"},
           {"cross_entropy", "cross-entropy in nats"}}) {
    const ProgramRun run = plot({"table", "NAME=" + folder.file("metrics.jsonl", log_of(figure))});
    CHECK_MESSAGE(run.status == 0, run.err);
    CHECK(contains(run.out, "| run | epochs | validation, " + label + " | test, " + label));
    CHECK(contains(run.out, "| NAME | 2 | 2.000 | 2.125 |"));
  }
  const std::string vision = folder.file("vision.jsonl", log_of("cross_entropy"));
  const std::string words = folder.file("words.jsonl", log_of("perplexity"));
  check_refused(plot({"table", vision, words}), "no figure that all of them log");
  check_refused(plot({"table", vision, "--figure", "top_9"}), "does not log top_9");
}

TEST_CASE("plot: the table has the epoch that the run kept, by the count that test has, too") {
  const TemporaryFolder folder;
  const std::string vision =
      R"({"kind": "train", "step": 10, "epoch": 1, "loss": 2, "tokens_per_second": 4096}
{"kind": "validation", "step": 10, "epoch": 1, "loss": 0.9, "cross_entropy": 0.9, "top_1": 88, "best": true}
{"kind": "validation", "step": 20, "epoch": 2, "loss": null, "cross_entropy": 0.8, "top_1": 78, "best": false}
{"kind": "test", "top_1": 80.1}
)";
  const ProgramRun kept = plot({"table", "NAME=" + folder.file("vision.jsonl", vision)});
  CHECK_MESSAGE(kept.status == 0, kept.err);
  CHECK(contains(kept.out, "| NAME | 2 | 88.0 | 80.1 |"));
  const std::string words =
      R"({"kind": "train", "step": 10, "epoch": 1, "loss": 2, "tokens_per_second": 4096}
{"kind": "validation", "step": 10, "epoch": 1, "loss": 2.7, "perplexity": 16.0, "paper_perplexity": 16.3, "best": true}
{"kind": "test", "perplexity": 15.0, "paper_perplexity": 16.2}
)";
  const ProgramRun counted = plot({"table", "NAME=" + folder.file("words.jsonl", words)});
  CHECK_MESSAGE(counted.status == 0, counted.err);
  CHECK(contains(counted.out, "| NAME | 1 | 16.3 | 16.2 |"));
}

TEST_CASE("plot: curves that are none, and no matplotlib") {
  const TemporaryFolder folder;
  const std::string good =
      R"([{"device": "cpu", "processor": "p", "isa": "i", "settings": "s", "commit": "c",)"
      R"( "tests": "passed", "threads": 1, "curves": [{"name": "full", "points": [{"length": 8,)"
      R"( "ms": 1.5, "peak_bytes": null}], "faster_than_full": {"kind": "unknown"}}]}])";
  const Words output{"-o", folder.path("out.png")};
  folder.file("matplotlib.py", "raise ImportError('not here')\n");
  const auto draw = [&](const std::string& curves) {
    const std::string path = folder.file("curves.json", curves);
    ProgramRun run = run_program("env", Words{"PYTHONPATH=" + folder.path(),
                                              WEFT_SOURCE_ROOT "/bench/plot", "scaling", path} +
                                            output);
    run.program = "plot";
    return run;
  };
  check_refused(draw(good), "needs matplotlib (not here)");
  const std::size_t end = good.find("1.5");
  for (const std::string& bad :
       {std::string("{"), std::string("3"), std::string(R"([{"curves": []}])"),
        good.substr(0, end) + "0" + good.substr(end + 3), good.substr(0, end)}) {
    check_refused(draw(bad), "curves.json: is no curves.json of attention_bench");
  }
  check_refused(draw("[]"), "no rows to draw");
  check_refused(plot(Words{"scaling", folder.path("none")} + output), "cannot be read");
}

}  // TEST_SUITE("bench")

}  // namespace
