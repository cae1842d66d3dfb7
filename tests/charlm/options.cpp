// The options of training commands, and their output: option files, --print-config, --dry-run,
// --json-lines. What all apps share is tested on charlm.
#include <filesystem>
#include <fstream>

#include <fmt/core.h>

#include "apps/command_line/progress.h"
#include "apps/training/saved_training.h"
#include "doctest/doctest.h"
#include "nn/checkpoint.h"
#include "ops/attention/mechanism.h"
#include "runtime/listed.h"
#include "runtime/types.h"
#include "tests/charlm/configuration.h"
#include "tests/json_lines.h"
#include "tests/program.h"
#include "tests/sanitized.h"

using namespace weft;
using nlohmann::json;

namespace {

// tiny as a file.
constexpr const char* tiny_file = R"(
batch = 2
length = 16
width = 16   # of the model
heads = 2
validation-batches = 1
test-batches = 1
split = "98/1.9/0.1"
epochs = 2
epoch-steps = 3
report-steps = 1
)";

std::vector<std::string> presets_of(const std::string& name) {
  const std::string help = app(name, {"--preset", "?"}).err;
  const std::size_t begin = help.find("there are ") + 10;
  std::vector<std::string> all;
  std::istringstream stream(help.substr(begin, help.find(';', begin) - begin));
  for (std::string word; stream >> word;) all.push_back(word.substr(0, word.find(',')));
  return all;
}

}  // namespace

TEST_SUITE("charlm") {

TEST_CASE("config: a file says what a command line says") {
  const TemporaryFolder folder;
  const std::string file = folder.file("tiny.toml", tiny_file);
  CHECK(configuration({"--config", file}) == configuration(tiny));
  const ProgramRun run = charlm_program({"--config", file, "--out", folder.path("file")});
  REQUIRE_MESSAGE(run.status == 0, run.err);
  REQUIRE(charlm_program(tiny + Words{"--out", folder.path("line")}).status == 0);
  CHECK(read_file(folder.path("file/best.safetensors")) ==
        read_file(folder.path("line/best.safetensors")));
  const ProgramRun more =
      charlm_program({"--config", file, "--out", folder.path("file"), "--resume", "--epochs", "3"});
  REQUIRE_MESSAGE(more.status == 0, more.err);
  CHECK(contains(more.out, "resume after step 6 of 9"));
}

TEST_CASE("config: every type of value") {
  const TemporaryFolder folder;
  const std::string all = folder.file("all.toml", R"(
    # a comment
    "lr" = 5e-1
    clip = 2              # an integer, where a number is wanted
    act = true
    graph = false
    data = 'a "b" \c'
    split = """
80/10/10"""
    seed = 0xff
    seeds = [
      3,
      1_000,
    ]
    threads = 2
    out = ""
    dropout = 0.25
    residual-dropout = 0
    quiet = true
  )");
  const json found = configuration({"--config", all});
  const json wanted = {{"lr", 0.5},
                       {"clip", 2},
                       {"act", true},
                       {"graph", false},
                       {"data", "a \"b\" \\c"},
                       {"split", "80/10/10"},
                       {"seed", 255},
                       {"seeds", {3, 1000}},
                       {"threads", 2},
                       {"attention-dropout", 0.25},
                       {"residual-dropout", 0},
                       {"output-dropout", 0.25},
                       {"quiet", true}};
  for (const auto& [key, value] : wanted.items()) CHECK_MESSAGE(found.at(key) == value, key);
  CHECK_FALSE(found.contains("out"));
}

TEST_CASE("config: later files stand above earlier ones, and the command line above all") {
  const TemporaryFolder folder;
  const std::string a = folder.file("a.toml",
                                    "width = 16\ndepth = 3\nact = true\nseeds = [1, 2]\n"
                                    "attention-dropout = 0.5\nquiet = true");
  const std::string b = folder.file("b.toml", "width = 24\noptimizer = \"sgd\"\ndropout = 0.125");
  const json both = configuration({"--config", a, "--config", b, "--depth", "4"});
  CHECK(both["width"] == 24);
  CHECK(both["depth"] == 4);
  CHECK(both["act"] == true);
  CHECK(both["lr"] == 0.01);                  // sgd's own
  CHECK(both["attention-dropout"] == 0.125);  // a later file's --dropout overrides it
  CHECK(configuration({"--depth", "4", "--config", a, "--config", b}) == both);
  CHECK(configuration({"--config", b, "--config", a})["width"] == 16);
  CHECK(configuration({"--config", b, "--optimizer", "adam"})["lr"] == 0.001);
  const json line =
      configuration({"--config", a, "--width", "32", "--no-act", "--seeds", "7", "--no-quiet"});
  CHECK(line["width"] == 32);
  CHECK(line["act"] == false);
  CHECK(line["seeds"] == json({7}));
  CHECK(line["quiet"] == false);
}

TEST_CASE("config: --attention-dropout and mechanisms that drop no weights") {
  const Words paper = {"--preset", "text8-full-conv"};
  CHECK(configuration(paper)["attention-dropout"] == 0.1);
  for (const char* mechanism :
       {"linear", "cosformer", "performer:features=8", "conditional/linear"}) {
    CAPTURE(mechanism);
    const Words words = paper + Words{"--attention", mechanism};
    CHECK(configuration(words)["attention-dropout"] == 0);  // the preset's
    CHECK(configuration(words)["residual-dropout"] == 0.1);
    CHECK(configuration(words + Words{"--attention-dropout", "0"})["attention-dropout"] == 0);
    const json shared = configuration(words + Words{"--dropout", "0.3"});
    CHECK(shared["attention-dropout"] == 0);
    CHECK(shared["residual-dropout"] == 0.3);
    const ProgramRun refused =
        charlm_program(words + Words{"--attention-dropout", "0.2", "--print-config"});
    CHECK(refused.status == 2);
    CHECK(
        contains(refused.err, fmt::format("--attention-dropout: {} computes no weights that could "
                                          "be dropped, got 0.2; leave it out",
                                          mechanism)));
  }
  const TemporaryFolder folder;
  const std::string file = folder.file("a.toml", "attention-dropout = 0.2");
  const std::string linear = folder.file("b.toml", "attention = \"linear\"");
  CHECK(charlm_program({"--config", linear, "--config", file, "--print-config"}).status == 2);
  CHECK(configuration({"--config", file, "--attention", "linear"})["attention-dropout"] == 0);
  const json above = configuration({"--config", file, "--preset", "text8-long-linear"});
  CHECK(above["attention-dropout"] == 0);
}

TEST_CASE("config: a preset in a file, and what stands above it") {
  const TemporaryFolder folder;
  const std::string file =
      folder.file("a.toml", "width = 32\npreset = \"text8-full-conv\"\ndevice = \"cpu\"\nkeep = 5");
  const json wanted =
      configuration({"--preset", "text8-full-conv", "--width", "32", "--keep", "5"});
  CHECK(configuration({"--config", file}) == wanted);
  const std::string wide = folder.file("b.toml", "width = 48");
  CHECK(configuration({"--config", file, "--config", wide})["width"] == 48);
  CHECK(configuration({"--config", file, "--width", "8"})["width"] == 8);
  // A later preset replaces all settings before it, but not the run's options.
  const json other = configuration({"--config", file, "--preset", "text8-agglomerative-conv"});
  CHECK(other == configuration({"--preset", "text8-agglomerative-conv", "--keep", "5"}));
  CHECK(other["width"] == 64);
}

TEST_CASE(
    "config: what --print-config prints gives the same again, for every preset of every app") {
  const TemporaryFolder folder;
  for (const char* name : {"charlm", "wordlm", "vision"}) {
    std::vector<Words> all = {{}};
    for (const std::string& preset : presets_of(name)) all.push_back({"--preset", preset});
    CHECK(all.size() > 4);
    if (few_here()) all.resize(3);
    check_refused(app(name, {"--print-config", "--seeds", "1,1"}), "--seeds: a seed occurs twice");
    check_refused(app(name, {"--print-config", "--keep", "0"}), "--keep: wanted 1 or more, got 0");
    for (const Words& words : all) {
      CAPTURE(fmt::format("{} {}", name, listed(words, " ")));
      const ProgramRun printed = app(name, words + Words{"--print-config", "--seeds", "1,9"});
      REQUIRE_MESSAGE(printed.status == 0, printed.err);
      CHECK(contains(printed.out, "seeds = [1,9]"));
      const std::string file = folder.file("printed.toml", printed.out);
      const ProgramRun again = app(name, {"--config", file, "--print-config"});
      CHECK_MESSAGE(again.status == 0, again.err);
      CHECK(again.out == printed.out);
    }
  }
  const Words odd = {"--data", "a\tb\n\"'\\ü\x7f#", "--lr", "0.30000000000000004", "--l2",
                     "1.2345678901234567e-300", "--seed", "9223372036854775807", "--threads", "3"};
  const std::string file =
      folder.file("odd.toml", charlm_program(odd + Words{"--print-config"}).out);
  CHECK(configuration({"--config", file}) == configuration(odd));
  check_refused(charlm_program({"--print-config", "--seed", "9223372036854775808"}),
                "--seed: integers");
  check_refused(charlm_program({"--print-config", "--data", "\xff"}), "--data");
}

TEST_CASE("config: what is wrong with a file is said with its place") {
  const TemporaryFolder folder;
  const std::string path = folder.path("a.toml");
  const auto refused = [&](const std::string& text, const std::string& part) {
    CAPTURE(text.substr(0, 100));
    folder.file("a.toml", text);
    check_refused(charlm_program({"--config", path, "--out", folder.path("run")}), path + part);
    CHECK_FALSE(std::filesystem::exists(folder.path("run")));
  };
  refused("\nwidht = 3", ":2: there is no option \"widht\"; did you mean width?");
  refused("conv_width = 3", ":1: there is no option \"conv_width\"; did you mean conv-width?");
  refused("no-graph = true", ":1: there is no option \"no-graph\"; did you mean graph?");
  refused("\"a\\nb\" = 1", ":1: there is no option \"a\\nb\"; ");
  refused("\n\nwidth = \"3\"", ":3: width: wanted an integer, got a string");
  refused("width = 3.0", ":1: width: wanted an integer, got a floating-point number");
  refused("lr = true", ":1: lr: wanted a number, got true or false");
  refused("data = 3", ":1: data: wanted a string, got an integer");
  refused("act = 1", ":1: act: wanted true or false, got an integer");
  refused("act = 1979-05-27", ":1: act: wanted true or false, got a date or time");
  refused("seeds = 1", ":1: seeds: wanted an array of integers, got an integer");
  refused("seeds = [1, \"2\"]",
          ":1: seeds: wanted an array of integers, got one that holds a string");
  refused("seeds = [1.5]",
          ":1: seeds: wanted an array of integers, got one that holds a floating-");
  refused("seeds = []", ":1: seeds: wanted an array of integers, got an empty one");
  refused("[model]\nwidth = 3", ":1: tables are not allowed");
  refused("model.width = 3", ":1: tables are not allowed");
  refused("width = { is = 3 }", ":1: tables are not allowed");
  refused("width = 3\nwidth = 4", ":2: is not TOML: ");
  refused("width 3", ":1: is not TOML: ");
  refused("\nwidth = ", ":2: is not TOML: ");
  refused("data = \"\xff\"", ":1: is not TOML: ");
  refused("depth = 99999999999999999999", ":1: is not TOML: ");
  for (const char* once : {"config", "print-config", "dry-run", "force", "resume", "help"}) {
    refused(fmt::format("{} = true", once),
            fmt::format(":1: --{} is for the command line, not for a file", once));
  }
  // Values that the command line would refuse, too.
  refused("depth = 2\nwidth = 0", ":2: --width: wanted a number of at least 1");
  refused("lr = nan", ":1: --lr: wanted a number above 0");
  refused("seed = -1", ":1: --seed: wanted 0 or more, got -1");
  refused("threads = 0", ":1: --threads");
  refused("report-steps = 0", ":1: --report-steps: wanted 1 or more");
  refused("attention = \"ful\"", ":1: attention: there is no mechanism 'ful'");
  refused("preset = \"text8\"", ":1: --preset: there is no 'text8'");
  // Input that would take long, or much memory.
  refused(std::string(40'000, '\n'), ": wanted at most 32768 bytes of options, got 40000");
  std::string deep;
  for (int i = 0; i < 16'000; ++i) deep += "a.";
  refused(deep + "b = 1", ":1: tables are not allowed");
  refused("lr = " + std::string(30'000, '['), ":1: is not TOML");
  refused(std::string(30'000, 'x') + " = 1", ":1: there is no option key; charlm train --help");

  check_refused(charlm_program({"--config", folder.path("b.toml")}),
                "b.toml: cannot be opened: No such");
  check_refused(charlm_program({"--config", folder.path()}), "wanted a file, got a folder");
  check_refused(charlm_program({"--config", "/dev/zero"}), "wanted a file, got a device");
  check_refused(charlm_program({"--config"}), "--config");
  check_refused(charlm_program({"--config", path, "b.toml"}), "'b.toml' follows no option");
  check_refused(charlm_program({"eval", "--checkpoint", path, "--config", path}),
                "no option --config");
}

TEST_CASE("dry run: what a step takes, and nothing is written" * not_sanitized()) {
  const TemporaryFolder folder;
  const std::string out = folder.path("run");
  constexpr i64 batch = 4;
  const auto dry = [&](const Words& more) {
    const ProgramRun run = charlm_program(Words{"--preset", "text8-full-conv", "--dry-run", "--out",
                                                out, "--batch", std::to_string(batch)} +
                                          more);
    REQUIRE_MESSAGE(run.status == 0, run.err);
    CHECK_FALSE(std::filesystem::exists(out));
    return run.out;
  };
  json cost = json::parse(dry({"--json-lines"}));
  constexpr i64 length = 128, width = 64, depth = 5, parameters = 88'513;
  CHECK(cost["parameters"] == parameters);
  CHECK(cost["weight_bytes"] == 4 * parameters);
  CHECK(cost["gradient_bytes"] == 4 * parameters);
  CHECK(cost["optimizer_bytes"] == 8 * parameters + 8);  // two numbers each, and the step
  CHECK(cost["steps"] == 256 * 1464);
  CHECK(cost["epoch_steps"] == 1464);
  CHECK(cost["commit"].is_string());
  // The block's four matrices and the convolution at every depth, the output's two once; and the 2
  // + 5 products of attention, half of which the causal mask skips.
  constexpr i64 matrices = depth * (4 * width * width + 2 * 4 * width * width + 8 * width * width) +
                           width * width + 28 * width;
  const i64 attention = 7 * batch * depth * length * length * width;
  CHECK(cost["operations"] == 3 * 2 * matrices * batch * length + attention);
  // One convolution is applied at every depth even where each has a block of its own.
  CHECK(json::parse(dry({"--json-lines", "--no-shared"}))["operations"] == cost["operations"]);
  // With a memory, attention has more keys, and keys and values are projected from more positions.
  const auto with_memory = [&](i64 memory) {
    const AttentionSizes sizes{.N = length,
                               .S = length + memory,
                               .H = 8,
                               .E = width / 8,
                               .M = width / 8,
                               .d = width,
                               .N_max = length};
    const AttentionCost once =
        attention_cost(AttentionSpec("transformer-xl"), sizes, true, DType::f32);
    const json told = json::parse(dry({"--json-lines", "--attention", "transformer-xl", "--heads",
                                       "8", "--memory", std::to_string(memory)}));
    return told["operations"].get<double>() -
           double(batch * depth) * (once.forward_operations + once.backward_operations);
  };
  CHECK(with_memory(32) - with_memory(0) ==
        doctest::Approx(double(3 * 2 * batch * depth * 32 * 2 * width * width)));
  CHECK(cost["peak_bytes"] >= cost["activation_bytes"].get<i64>() + 20 * parameters);
  const json twice = json::parse(dry({"--json-lines", "--batch", std::to_string(2 * batch)}));
  const double ratio =
      twice["activation_bytes"].get<double>() / cost["activation_bytes"].get<double>();
  CHECK(ratio == doctest::Approx(2).epsilon(0.05));
  CHECK(twice["weight_bytes"] == cost["weight_bytes"]);

  const std::string words = dry({});
  CHECK(contains(words, "88,513 parameters"));
  CHECK(contains(words, "0.34 MiB"));
  CHECK(contains(words, "374,784 in 256 rounds of 1,464"));
  json first_seed = json::parse(dry({"--seeds", "1,2", "--json-lines"}));
  for (json* const found : {&cost, &first_seed}) {
    CHECK((found->erase("process_bytes") == 1 && found->erase("step_seconds") == 1));  // measured
  }
  CHECK(first_seed == cost);
}

TEST_CASE("dry run: a run that is there stays as it is") {
  const TemporaryFolder folder;
  const std::string out = folder.path("run");
  REQUIRE(charlm_program(tiny + Words{"--out", out}).status == 0);
  const std::string log = read_file(out + "/metrics.jsonl");
  for (const char* start : {"--force", "--resume"}) {
    CHECK(charlm_program(tiny + Words{"--out", out, "--dry-run", start}).status == 0);
  }
  CHECK(read_file(out + "/metrics.jsonl") == log);
  CHECK(std::filesystem::exists(out + "/best.safetensors"));
}

TEST_CASE("resume: what was computed by other libraries is said") {
  const TemporaryFolder folder;
  const std::string out = folder.path("run");
  REQUIRE(charlm_program(tiny + Words{"--out", out}).status == 0);
  const std::string path = out + "/" + saved_trainings(out).at(0) + "/manifest.json";
  json manifest = json::parse(read_file(path));
  CHECK(contains(manifest["computed_by"].get<std::string>(), "products by "));
  CHECK(manifest.contains("commit"));
  const auto resumed = [&](const std::string& epochs) {
    const ProgramRun run =
        charlm_program(tiny + Words{"--out", out, "--resume", "--epochs", epochs});
    REQUIRE_MESSAGE(run.status == 0, run.err);
    return run.err;
  };
  manifest["computed_by"] = "an abacus";
  std::ofstream(path) << manifest.dump();
  CHECK(contains(resumed("20"), "was computed by an abacus, and this run is by "));
  CHECK_FALSE(contains(resumed("21"), "warning"));
}

TEST_CASE("precision: in bf16 weights stay f32, and a run may change it when it resumes") {
  const TemporaryFolder folder;
  const std::string out = folder.path("run");
  const ProgramRun first = charlm_program(tiny + Words{"--precision", "bf16", "--out", out});
  REQUIRE_MESSAGE(first.status == 0, first.err);
  CHECK(contains(first.out, "\nstore  activations in bf16; "));
  for (const auto& [name, value] : read_checkpoint(out + "/last.safetensors").tensors) {
    CAPTURE(name);
    CHECK(value.dtype() == DType::f32);
  }
  CHECK(charlm_program({"eval", "--checkpoint", out}).status == 0);
  CHECK(charlm_program({"sample", "--checkpoint", out, "--tokens", "5"}).status == 0);

  const ProgramRun same = charlm_program(tiny + Words{"--out", out, "--resume", "--epochs", "3"});
  REQUIRE_MESSAGE(same.status == 0, same.err);
  CHECK_FALSE(contains(same.out, "from here on"));
  const ProgramRun other =
      charlm_program(tiny + Words{"--out", out, "--resume", "--epochs", "4", "--precision", "f32"});
  REQUIRE_MESSAGE(other.status == 0, other.err);
  CHECK(contains(other.out, "train  in f32 from here on, in bf16 before"));
  CHECK_FALSE(contains(other.out, "store  activations"));
  const std::string none = folder.path("tf32");
  check_refused(charlm_program(tiny + Words{"--precision", "tf32", "--out", none}),
                "--precision tf32 is of CUDA devices, got --device cpu; use f32 or bf16");
  CHECK_FALSE(std::filesystem::exists(none));
  check_refused(charlm_program(tiny + Words{"--precision", "f16"}),
                "the precision is f32, tf32 or bf16, got 'f16'");
  // With a memory, whose type is that of the activations.
  const Words memory =
      tiny + Words{"--attention", "transformer-xl", "--encoding",         "conv", "--memory",
                   "8",           "--out",          folder.path("memory")};
  REQUIRE(charlm_program(memory + Words{"--precision", "bf16"}).status == 0);
  for (const char* precision : {"f32", "bf16"}) {
    const std::string epochs = precision == std::string("f32") ? "3" : "4";
    const ProgramRun resumed =
        charlm_program(memory + Words{"--resume", "--epochs", epochs, "--precision", precision});
    CHECK_MESSAGE(resumed.status == 0, resumed.err);
  }
}

TEST_CASE("json lines: standard output is the log, byte for byte") {
  const TemporaryFolder folder;
  const Words words = tiny + Words{"--json-lines"};
  for (const char* name : {"plain", "quiet"}) {
    const std::string out = folder.path(name);
    const ProgramRun run = charlm_program(
        words + Words{"--out", out, name == std::string("quiet") ? "--quiet" : "--no-quiet"});
    REQUIRE_MESSAGE(run.status == 0, run.err);
    CHECK(run.err.empty());
    CHECK(run.out == read_file(out + "/metrics.jsonl"));
    CHECK(lines(run.out).size() == 6 + 2 + 2);  // steps, validations, tests
  }
  const std::vector<json> kept = lines(charlm_program(words).out);  // no folder
  CHECK(kept.size() == 10);
  const std::string out = folder.path("plain");
  const ProgramRun more = charlm_program(words + Words{"--out", out, "--resume", "--epochs", "3"});
  REQUIRE_MESSAGE(more.status == 0, more.err);
  CHECK(lines(more.out).size() == 3 + 1 + 2);  // what is new
  CHECK(read_file(out + "/metrics.jsonl").ends_with(more.out));

  const std::string seeds = folder.path("seeds");
  const ProgramRun both = charlm_program(words + Words{"--out", seeds, "--seeds", "1,2"});
  const std::vector<json> all = lines(both.out);
  REQUIRE(all.size() == 10 + 10 + 1);
  CHECK(all.back() == json::parse(read_file(seeds + "/replicas.json")));
}

TEST_CASE("quiet: nothing is printed but errors") {
  const ProgramRun run = charlm_program(tiny + Words{"--quiet"});
  CHECK(run.status == 0);
  CHECK(run.out.empty());
  CHECK(run.err.empty());
}

TEST_CASE("colours: none, on a terminal or elsewhere") {
  const ProgramRun piped = charlm_program(tiny);
  CHECK_FALSE(contains(piped.out + piped.err, "\x1b"));
  std::string command = "NO_COLOR=1 " + quoted(built("apps/charlm"));
  for (const std::string& word : tiny) command += " " + quoted(word);
  const ProgramRun shown = run_program("script", {"-qec", command, "/dev/null"});
  CHECK(shown.status == 0);
  CHECK(contains(shown.out, "\r"));  // a line that is redrawn
  std::string rest = shown.out;
  for (std::size_t at; (at = rest.find("\x1b[K")) != std::string::npos;) rest.erase(at, 3);
  CHECK_FALSE(contains(rest, "\x1b"));
}

TEST_CASE("progress: of a line that is too wide whole fields are left") {
  const std::string line = "step 7/40  lr 9.6e-05  gradient 2.1";
  CHECK(fields_within(line, line.size()) == line);
  CHECK(fields_within(line, line.size() - 1) == "step 7/40  lr 9.6e-05");
  CHECK(fields_within(line, 21) == "step 7/40  lr 9.6e-05");
  CHECK(fields_within(line, 20) == "step 7/40");
  CHECK(fields_within(line, 4) == "step");
}

}  // TEST_SUITE("charlm")
