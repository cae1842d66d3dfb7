// The program that draws pictures: which figures it finds in logs, what it draws, and what it
// refuses.
#include "tests/program.h"

using namespace weft;

namespace {

ProgramRun plot(const Words& words) {
  return run_program(WEFT_SOURCE_ROOT "/bench/plot", words);
}

// Without matplotlib no picture is drawn: prints that, and returns true.
bool not_drawn(const ProgramRun& run) {
  const bool missing = run.status == 2 && contains(run.err, "needs matplotlib");
  if (missing) MESSAGE("skipped: " << run.err);
  return missing;
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
    CHECK(contains(run.out, "| run | validations | validation, " + label + " | test, " + label));
    CHECK(contains(run.out, "| NAME | 2 | 2.000 | 2.125 |"));
  }
  const std::string vision = folder.file("vision.jsonl", log_of("cross_entropy"));
  const std::string words = folder.file("words.jsonl", log_of("perplexity"));
  // The error offers what both log, and that works.
  const ProgramRun apart = plot({"table", vision, words});
  check_refused(apart, "; --figure names one that they do: loss\n");
  check_refused(plot({"curves", vision, words, "-o", folder.path("x.png")}),
                "; --figure names one that they do: loss, tokens_per_second\n");
  folder.file("topk=16/metrics.jsonl", log_of("perplexity"));
  const ProgramRun equals = plot({"table", folder.path("topk=16")});
  CHECK_MESSAGE(equals.status == 0, equals.err);
  CHECK(contains(equals.out, "| topk=16 | 2 | 2.000 | 2.125 |"));
  const ProgramRun both = plot({"table", vision, words, "--figure", "loss"});
  CHECK_MESSAGE(both.status == 0, both.err);
  CHECK(contains(both.out, "| run | validations | validation, loss | test, loss"));
  const std::string other =
      folder.file("other.jsonl", R"({"kind": "validation", "step": 10, "top_1": 88})"
                                 "\n");
  check_refused(plot({"table", vision, other}), "; nor any other figure\n");
  check_refused(plot({"table", vision, "--figure", "top_9"}), "does not log top_9");
  check_refused(plot({"table", vision, "--figure", "tokens_per_second"}),
                "does not log tokens_per_second");
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
  const std::string sequences =
      R"({"kind": "validation", "step": 10, "loss": 0.7, "cross_entropy": 0.7, "accuracy": 51.2, "best": true}
{"kind": "test", "loss": 0.8, "accuracy": 48.8, "majority": 48.8}
)";
  const ProgramRun right = plot({"table", "NAME=" + folder.file("lra.jsonl", sequences)});
  CHECK_MESSAGE(right.status == 0, right.err);
  CHECK(contains(right.out, "| NAME | 1 | 51.2 | 48.8 |"));
}

TEST_CASE("plot: the time between validations, where the log says it") {
  const TemporaryFolder folder;
  const auto table = [&](const std::string& log, const Words& more = {}) {
    const ProgramRun run = plot(Words{"table", "NAME=" + folder.file("x.jsonl", log)} + more);
    CHECK_MESSAGE(run.status == 0, run.err);
    return run.out;
  };
  const std::string validation = R"({"kind": "validation", "step": 10, "perplexity": 16.0)";
  const std::string train = R"({"kind": "train", "step": 10, "perplexity": 17.0,)"
                            R"( "tokens_per_second": 50})";
  CHECK(contains(table(validation + "}\n"), "| NAME | 1 | 16.0 | not scored | not logged |"));
  CHECK(contains(table(train + "\n" + validation + "}\n"), "not logged |"));
  CHECK(
      contains(table(train + "\n" + validation + "}\n", {"--step-tokens", "600"}), "| 2.0 min |"));
  CHECK(contains(table(train + "\n" + validation + ", \"tokens\": 1000}\n"), "| 20.0 s |"));
  check_refused(plot({"table", folder.file("x.jsonl", train + "\n")}), "has no validation yet");
}

// The big-endian 32-bit number at an offset.
std::uint32_t number_at(const std::string& bytes, std::size_t place) {
  std::uint32_t number = 0;
  for (std::size_t i = place; i < place + 4; ++i) {
    number = number << 8 | static_cast<unsigned char>(bytes.at(i));
  }
  return number;
}

TEST_CASE("plot: a picture keeps its height, wherever the curves end and by whatever they go") {
  const TemporaryFolder folder;
  const auto run = [&](const std::string& name, double figure) {
    std::string log;
    for (const int step : {100, 200, 300}) {
      const double now = figure * 300 / step;
      for (const char* kind : {"train", "validation"}) {
        log += fmt::format(R"({{"kind": "{}", "step": {}, "tokens": {}, "elapsed": {},)"
                           R"( "perplexity": {}, "bits_per_character": {}}})"
                           "\n",
                           kind, step, 32 * step, 0.5 * step, now, now);
      }
    }
    return folder.file(name + ".jsonl", log);
  };
  const std::string low = run("low", 2), high = run("high", 40);
  const std::string picture = folder.path("x.png");
  const auto height = [&](const Words& more) {
    const ProgramRun drawn = plot(Words{"curves", low, high, "-o", picture} + more);
    if (not_drawn(drawn)) return 0u;
    REQUIRE_MESSAGE(drawn.status == 0, drawn.err);
    return number_at(read_file(picture), 20);
  };
  const std::uint32_t whole = height({});
  if (whole == 0) return;
  for (const Words& more : {Words{"--figure", "perplexity"}, Words{"--x", "tokens", "--top", "3"},
                            Words{"--x", "seconds", "--top", "3", "--figure", "perplexity"}}) {
    CAPTURE(more.back());
    const std::uint32_t other = height(more);
    CHECK(other > 0.9 * whole);
    CHECK(other < 1.1 * whole);
  }
}

TEST_CASE("plot: what curves cannot be drawn against, or up to") {
  const TemporaryFolder folder;
  const std::string log = folder.file("x.jsonl", log_of("perplexity"));
  const auto curves = [&](const Words& more) {
    return plot(Words{"curves", log, "-o", folder.path("x.png")} + more);
  };
  check_refused(curves({"--x", "tokens"}), "x.jsonl:1: does not log tokens; --step-tokens N");
  check_refused(curves({"--x", "seconds"}), "wanted numbers as seconds and perplexity");
  check_refused(curves({"--figure", "kind"}), "does not log kind");
  const ProgramRun epoch = curves({"--x", "epoch"});
  CHECK(epoch.status == 2);
  CHECK(contains(epoch.err, "invalid choice: 'epoch' (choose from 'step', 'tokens', 'seconds')"));
  const ProgramRun low = curves({"--top", "1"});
  if (not_drawn(low)) return;
  check_refused(low, "--top: wanted a number above 2.000, the smallest value drawn, got 1");
}

// A file of safetensors with two layers of two heads.
std::string model_of_spans(const std::string& span, const std::string& rows) {
  std::string header = "{";
  for (const int layer : {1, 0}) {
    header += fmt::format(R"("blocks.{0}.attention.{1}": {{"dtype": "F32", "shape": [2], )"
                          R"("data_offsets": [{2}, {3}]}}, )"
                          R"("blocks.{0}.attention.{4}": {{"dtype": "F32", "shape": [100, 0], )"
                          R"("data_offsets": [16, 16]}}{5})",
                          layer, span, 8 * layer, 8 * layer + 8, rows, layer == 1 ? ", " : "}");
  }
  const float spans[] = {0.5F, 0.25F, 1, 0};
  const std::uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + header +
         std::string(reinterpret_cast<const char*>(spans), sizeof spans);
}

TEST_CASE("plot: the spans of a model, and what holds none") {
  const TemporaryFolder folder;
  const auto spans = [&](const std::string& model) {
    return plot({"spans", model, "-o", folder.path("spans.svg")});
  };
  const std::string best = folder.file("run/best.safetensors", model_of_spans("span", "key_pe"));
  for (const std::string& model : {best, folder.path("run")}) {
    const ProgramRun drawn = spans(model);
    if (not_drawn(drawn)) break;
    REQUIRE_MESSAGE(drawn.status == 0, drawn.err);
    // matplotlib writes the text of its outlined letters in comments.
    const std::string picture = read_file(folder.path("spans.svg"));
    CHECK(contains(picture, "mean 43.8 of 100 positions"));
    CHECK(picture.find("layer 1") < picture.find("layer 2"));
    std::filesystem::remove(folder.path("spans.svg"));
  }
  check_refused(spans(folder.path("none")), "cannot be read: No such file");
  check_refused(spans(folder.path()), "no model; wanted a run's folder with best.safetensors");
  check_refused(spans(folder.file("text", "no tensors at all")),
                "is neither a checkpoint nor a file of `export`");
  check_refused(spans(folder.file("other", model_of_spans("spin", "key_pe"))),
                "holds no spans; its attention is not adaptive-span");
  check_refused(spans(folder.file("bare", model_of_spans("span", "rows"))),
                "but no rows of distances beside it");
}

// A curve of attention_bench over 256 and 1,024 positions.
std::string curve(const std::string& name, double slope, double ms, double later) {
  return fmt::format(
      R"({{"name": "{}", "expected_time": {{"slope": {}}}, "faster_than_full": {{"kind": "unknown"}},)"
      R"( "points": [{{"length": 256, "ms": {}, "peak_bytes": 1024}},)"
      R"( {{"length": 1024, "ms": {}, "peak_bytes": 4096}}]}})",
      name, slope, ms, later);
}

TEST_CASE("plot: spectra without values are refused") {
  const TemporaryFolder folder;
  for (const char* models :
       {"", R"({"name": "a", "layers": []})", R"({"name": "a", "layers": [[]]})"}) {
    const std::string file = folder.file("rank.json", fmt::format(R"({{"models": [{}]}})", models));
    check_refused(plot({"spectra", file, "-o", folder.path("x.png")}),
                  "has no model, or a model without values");
  }
}

// The heights at which an SVG has this text, from above.
std::vector<double> heights_of(const std::string& svg, const std::string& text) {
  std::vector<double> heights;
  for (std::size_t at = 0; (at = svg.find(">" + text + "</text>", at)) != std::string::npos; ++at) {
    const std::string mark = " y=\"";
    heights.push_back(std::stod(svg.substr(svg.rfind(mark, at) + mark.size())));
  }
  return heights;
}

TEST_CASE(
    "plot: names of curves are in the order of the curves' ends, apart, one panel a question") {
  const TemporaryFolder folder;
  const std::string curves = folder.file(
      "curves.json",
      R"([{"device": "cpu", "processor": "p", "isa": "i", "settings": "s", "commit": "c",)"
      R"( "tests": "passed", "threads": 1, "curves": [)" +
          curve("full", 2, 1, 16) + ", " + curve("PyTorch 2 (naive)", 2, 2, 33) + ", " +
          curve("PyTorch 2 (fused)", 2, 2, 17) + ", " +
          curve("PyTorch 2 local (masked)", 2, 2, 19) + ", " + curve("close", 2, 1, 16.01) + ", " +
          curve("low", 1, 1, 4) + ", " + curve("lower", 1, 0.5, 2) + "]}]");
  const std::string picture = folder.path("scaling.svg");
  const ProgramRun drawn = plot({"scaling", curves, "-o", picture});
  if (not_drawn(drawn)) return;
  REQUIRE_MESSAGE(drawn.status == 0, drawn.err);
  const std::string svg = read_file(picture);
  const auto full = heights_of(svg, "full"), close = heights_of(svg, "close");
  const auto peer = heights_of(svg, "PyTorch 2 SDPA"), low = heights_of(svg, "low");
  const auto lower = heights_of(svg, "lower");
  REQUIRE(full.size() == 3);  // in every panel
  REQUIRE(close.size() == 2);
  REQUIRE(peer.size() == 2);
  REQUIRE(low.size() == 2);
  REQUIRE(lower.size() == 2);
  constexpr double line = 9;  // of text, at least
  CHECK(peer[0] + line < close[0]);
  CHECK(close[0] + line < full[0]);
  CHECK(full[0] < full[1]);
  CHECK(full[1] + line < low[0]);
  CHECK(low[0] + line < lower[0]);
  CHECK(!contains(svg, "(naive)"));  // PyTorch's own fused form is there
  CHECK(!contains(svg, "masked"));
}

TEST_CASE("plot: a token's time and memory are those of a call over all tokens of the batch") {
  const std::string lines =
      "import sys\n"
      "sys.path.insert(0, '" WEFT_SOURCE_ROOT
      "/bench')\n"
      "import scaling\n"
      "curve = {'points': [{'length': 8, 'ms': 4, 'peak_bytes': 320}]}\n"
      "print(scaling.per_token(curve, 'ms', 2), scaling.per_token(curve, 'peak_bytes', 2))\n";
  const ProgramRun run = run_program("python3", {"-c", lines});
  if (skipped(run)) return;
  CHECK_MESSAGE(run.out == "[(8, 250.0)] [(8, 20.0)]\n", run.err);
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
    check_refused(draw(bad), "curves.json: is not a curves.json of attention_bench");
  }
  check_refused(draw("[]"), "no rows to draw");
  check_refused(plot(Words{"scaling", folder.path("none")} + output), "cannot be read");
}

}  // TEST_SUITE("bench")

}  // namespace
