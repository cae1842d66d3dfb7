// charlm as users run it.
#include <algorithm>
#include <filesystem>
#include <limits>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "apps/command_line/commit.h"
#include "apps/data/unicode.h"
#include "doctest/doctest.h"
#include "nn/checkpoint.h"
#include "runtime/listed.h"
#include "tests/charlm/tiny.h"
#include "tests/cuda_there.h"
#include "tests/json_lines.h"
#include "tests/sanitized.h"

using namespace weft;
using nlohmann::json;

namespace {

// A model that is small enough to be trained in seconds, and the folder of its run.
const Words small_model = {"--batch", "16", "--length", "64", "--width", "48", "--heads", "4",
                           "--validation-batches", "20", "--test-batches", "20"};

// Under the sanitizers training takes minutes, and learns little.
const int steps = sanitized ? 60 : 700;
const Words effort = {"--steps", std::to_string(steps), "--epoch-steps", std::to_string(steps / 2),
                      "--report-steps", std::to_string(steps / 2), "--split",
                      sanitized ? "90/9/1" : "60/30/10"};

const int test_characters = sanitized ? 9'999 : 99'999;

struct TrainedRun {
  TemporaryFolder folder;
  std::string path = folder.path("run");
  ProgramRun run = charlm_program(Words{"train", "--out", path} + effort + small_model);

  // What the log has of the test by these windows.
  json tested(const std::string& windows) const {
    json found;
    for (const json& line : logged(path, "test")) {
      if (line["windows"] == windows) found = line;
    }
    return found;
  }
};

const TrainedRun& trained() {
  static const TrainedRun once;
  return once;
}

// A run of a few steps.
ProgramRun train_tiny(const std::string& out, const Words& more = {}) {
  return charlm_program(Words{"--out", out} + tiny_model +
                        Words{"--epochs", "1", "--epoch-steps", "3"} + more);
}

}  // namespace

TEST_SUITE("charlm") {

TEST_CASE("charlm: learns the built-in corpus to near the best possible" * not_sanitized()) {
  const TrainedRun& t = trained();
  REQUIRE_MESSAGE(t.run.status == 0, t.run.err);
  const json test = t.tested("consecutive");
  const double score = test["bits_per_character"], least = test["best_possible"];
  const double entropy = test["entropy"];
  if (!sanitized) CHECK(score < least + 0.08);
  CHECK(score > least);
  CHECK(least > entropy);
  CHECK(contains(t.run.out, fmt::format("{:.4f} bpc is the entropy", entropy)));
  CHECK(contains(t.run.out, "sample "));
  CHECK_FALSE(contains(t.run.out, "\r"));  // plain lines where there is no terminal
  CHECK(logged(t.path, "train").back()["step"] == steps);
}

TEST_CASE("charlm: on a CUDA device, with and without a graph") {
  const TemporaryFolder folder;
  const auto losses = [&](const std::string& name, const Words& more) {
    const ProgramRun run =
        train_tiny(folder.path(name), more + Words{"--epoch-steps", "6", "--report-steps", "1"});
    REQUIRE_MESSAGE(run.status == 0, run.err);
    std::vector<double> all;
    for (const json& line : lines(read_file(folder.path(name) + "/metrics.jsonl"))) {
      if (line.contains("loss")) all.push_back(line["loss"]);
    }
    return all;
  };
  if (!cuda_is_there()) {
    return check_refused(
        train_tiny(folder.path("none"), {"--device", "cuda"}),
        std::string("--device cuda: ") + (built_for_cuda ? "cuda: " : "") + no_cuda);
  }
  const Words dropout = {"--dropout", "0.1", "--act", "--optimizer", "adadelta"};
  const std::vector<double> cpu = losses("cpu", dropout);
  const std::vector<double> plain =
      losses("plain", dropout + Words{"--device", "cuda", "--no-graph"});
  const std::vector<double> graph = losses("graph", dropout + Words{"--device", "cuda"});
  CHECK(cpu.size() == 9);  // six steps, a validation, two tests
  CHECK(graph == plain);
  REQUIRE(graph.size() == cpu.size());
  for (std::size_t i = 0; i < cpu.size(); ++i) {
    CHECK(graph[i] == doctest::Approx(cpu[i]).epsilon(1e-5));
  }
  // What is carried from step to step stays at its address.
  const Words memory = {"--attention", "transformer-xl", "--encoding", "none", "--memory", "20"};
  const std::vector<double> here = losses("memory-cpu", memory);
  const std::vector<double> there = losses("memory-graph", memory + Words{"--device", "cuda"});
  CHECK(here.size() == 8);  // without a test on random windows
  CHECK(there == losses("memory-plain", memory + Words{"--device", "cuda", "--no-graph"}));
  REQUIRE(there.size() == here.size());
  for (std::size_t i = 0; i < here.size(); ++i) {
    CHECK(there[i] == doctest::Approx(here[i]).epsilon(1e-5));
  }
  const Words eval = {"eval", "--checkpoint", folder.path("graph"), "--json"};
  CHECK(lines(charlm_program(eval + Words{"--device", "cuda"}).out)[0]["loss"] == graph[7]);
  check_refused(train_tiny(folder.path("none"), {"--device", "cuda:5"}), "there is no device 5");
}

TEST_CASE("charlm: eval gives the logged values again, bit for bit" * not_sanitized()) {
  const TrainedRun& t = trained();
  for (const std::string& checkpoint : {t.path, t.path + "/best.safetensors"}) {
    const ProgramRun test =
        charlm_program({"eval", "--checkpoint", checkpoint, "--paper", "--json"});
    REQUIRE_MESSAGE(test.status == 0, test.err);
    const std::vector<json> scores = lines(test.out);
    REQUIRE(scores.size() == 2);
    for (const json& score : scores) {
      const json tested = t.tested(score["windows"]);
      CHECK(score["bits_per_character"] == tested["bits_per_character"]);
      CHECK(score["loss"] == tested["loss"]);
    }
    CHECK(scores[0]["windows"] == "consecutive");
    CHECK(scores[0]["characters"] == test_characters);
    for (const json& score : scores) CHECK(score["characters"].is_number_integer());
    CHECK(scores[1]["windows"] == "random");
  }
  const double best = std::ranges::min(logged(t.path, "validation", "bits_per_character"));
  const Words validation = {"eval", "--checkpoint", t.path, "--split", "validation", "--paper",
                            "--json"};
  CHECK(lines(charlm_program(validation).out)[1]["bits_per_character"] == best);
  CHECK(lines(charlm_program(validation + Words{"--threads", "3"}).out)[1]["bits_per_character"] ==
        best);
  const Words seeded = validation + Words{"--seed", "2"};
  CHECK(lines(charlm_program(seeded).out)[1]["bits_per_character"] != best);
  const ProgramRun plain = charlm_program({"eval", "--checkpoint", t.path});
  CHECK(contains(plain.out, fmt::format("bits per character over {} characters", test_characters)));
}

TEST_CASE("charlm: eval with another attention, where the weights fit") {
  const TemporaryFolder folder;
  const std::string run = folder.path("run");
  REQUIRE(train_tiny(run, {"--attention", "full"}).status == 0);
  const auto score = [&](const Words& more) {
    const ProgramRun eval = charlm_program(Words{"eval", "--checkpoint", run, "--json"} + more);
    REQUIRE_MESSAGE(eval.status == 0, eval.err);
    return lines(eval.out).at(0);
  };
  const json own = score({}), all = score({"--attention", "topk:topk=16"});
  const json some = score({"--attention", "topk:topk=1"});
  CHECK(own["attention"] == "full");
  CHECK(some["attention"] == "topk:topk=1");
  // With as many keys as the window has, topk is full attention.
  CHECK(all["loss"].get<double>() == doctest::Approx(own["loss"].get<double>()).epsilon(1e-5));
  CHECK(some["loss"] != own["loss"]);
  const auto refused = [&](const char* attention, const char* part) {
    check_refused(charlm_program({"eval", "--checkpoint", run, "--attention", attention}), part);
  };
  refused("agglomerative", "that one takes q [B N H E], k [B S H E], v [B S H M], this one zq");
  refused("shared-full", "its weights are not in");
  refused("topk:topk=0", "topk is a number in [1, 4096]");
  refused("i-clustered-causal", "is not strictly causal");
  // With as many keys as the window has, nothing is excluded, and this too is full attention.
  const json leaky = score({"--attention", "i-clustered-causal:topk=16", "--allow-leaky"});
  CHECK(leaky["loss"].get<double>() == doctest::Approx(own["loss"].get<double>()).epsilon(1e-5));
}

TEST_CASE("charlm: what is not strictly causal trains only where that is asked for") {
  const TemporaryFolder folder;
  for (const char* attention :
       {"lsh:rounds=1,chunk=4,buckets=4", "i-clustered-causal:clusters=3,topk=4"}) {
    const std::string run = folder.path(std::string(attention).substr(0, 3));
    CHECK(train_tiny(run, {"--attention", attention}).status == 2);
    CHECK_FALSE(std::filesystem::exists(run));
    CHECK(train_tiny(run, {"--attention", attention, "--allow-leaky"}).status == 0);
  }
}

TEST_CASE("charlm: sample is a function of the seed" * not_sanitized()) {
  const std::string path = trained().path;
  const auto sample = [&](const Words& more) {
    return charlm_program(Words{"sample", "--checkpoint", path, "--tokens", "200"} + more);
  };
  const ProgramRun one = sample({"--prompt", "the old king", "--seed", "5"});
  REQUIRE_MESSAGE(one.status == 0, one.err);
  CHECK(one.out.size() == 12 + 200 + 1);
  CHECK(one.out.rfind("the old king", 0) == 0);
  CHECK(sample({"--prompt", "the old king", "--seed", "5"}).out == one.out);
  CHECK(sample({"--prompt", "the old king", "--seed", "6"}).out != one.out);
  CHECK(sample({"--seed", "5"}).out.size() == 201);
  CHECK(sample({"--temperature", "0"}).out == sample({"--top-k", "1", "--seed", "9"}).out);
  CHECK(contains(one.err, "tokens/s"));
  CHECK_FALSE(contains(one.err, "beyond the"));  // a convolution has no last position
}

TEST_CASE("charlm: a model with positions writes past its length and says so once") {
  const TemporaryFolder folder;
  for (const Words& order :
       {Words{"--encoding", "position", "--attention", "full"},
        Words{"--encoding", "conv", "--attention", "synthesizer:mode=dense"}}) {
    CAPTURE(order[1]);
    const std::string out = folder.path(order[1]);
    REQUIRE(train_tiny(out, order).status == 0);
    const Words sample = {"sample", "--checkpoint", out, "--tokens"};
    const ProgramRun run = charlm_program(sample + Words{"60"});
    CHECK(run.status == 0);
    CHECK(run.out.size() == 61);
    const std::size_t first = run.err.find("beyond the 16 positions");
    CHECK(first != std::string::npos);
    CHECK(run.err.find("beyond the 16", first + 1) == std::string::npos);
    // The opening and all characters but the last are read.
    CHECK_FALSE(contains(charlm_program(sample + Words{"16"}).err, "beyond the 16 positions"));
    CHECK(contains(charlm_program(sample + Words{"17"}).err, "beyond the 16 positions"));
    CHECK_FALSE(
        contains(charlm_program(sample + Words{"8", "--prompt", "the king "}).err, "beyond"));
    CHECK(contains(charlm_program(sample + Words{"9", "--prompt", "the king "}).err, "beyond"));
    const ProgramRun both =
        shell(fmt::format("{}/charlm sample --checkpoint {} --tokens 60 2>&1", built("apps"), out));
    CHECK(both.out.starts_with("charlm: beyond the 16 positions"));
  }
}

TEST_CASE("charlm: the models of the paper's table 1 have its numbers of parameters") {
  const std::pair<const char*, int> models[] = {{"text8-full-position", 64'193},
                                                {"text8-full-conv", 88'513},
                                                {"text8-agglomerative-position", 57'041},
                                                {"text8-agglomerative-conv", 81'361}};
  for (const auto& [preset, parameters] : models) {
    const ProgramRun run = charlm_program({"info", "--preset", preset, "--json"});
    CHECK(run.status == 0);
    const json info = json::parse(run.out);
    CHECK(info["parameters"] == parameters);
    i64 sum = 0;
    for (const json& tensor : info["tensors"]) sum += tensor["count"].get<i64>();
    CHECK(sum == parameters);
    const json& settings = info["configuration"];
    for (const auto& [key, value] : std::vector<std::pair<const char*, json>>{
             {"vocabulary", "text8"}, {"split", "60/30/10"}, {"width", 64}, {"depth", 5},
             {"heads", 8}, {"length", 128}, {"batch", 32}, {"attention-dropout", 0.1},
             {"residual-dropout", 0.1}, {"output-dropout", 0.6}, {"act", true}, {"shared", true},
             {"wiring", "universal"}, {"l2", 1e-6}, {"lr", 1.0}, {"clip", 0.0},
             {"optimizer", "adadelta:rho=0.95,epsilon=1e-7"}, {"schedule", "constant"},
             {"warmup", 0}, {"epochs", 256}, {"epoch-steps", 1464}, {"validation-batches", 732},
             {"test-batches", 244}, {"patience", 10}}) {
      CHECK_MESSAGE(settings[key] == value, key);
    }
    CHECK(contains(charlm_program({"info", "--preset", preset}).out, std::to_string(parameters)));
  }
}

TEST_CASE("charlm: options stand above a preset, wherever they stand") {
  const ProgramRun before =
      charlm_program({"info", "--width", "32", "--preset", "text8-full-conv", "--json"});
  const ProgramRun after =
      charlm_program({"info", "--preset", "text8-full-conv", "--width", "32", "--json"});
  CHECK(before.out == after.out);
  const json settings = json::parse(after.out)["configuration"];
  CHECK(settings["width"] == 32);
  CHECK(settings["depth"] == 5);
  const ProgramRun run = charlm_program(
      {"info", "--optimizer", "sgd", "--dropout", "0.3", "--output-dropout", "0.5", "--json"});
  const json others = json::parse(run.out)["configuration"];
  CHECK(others["lr"] == 0.01);
  CHECK(others["attention-dropout"] == 0.3);
  CHECK(others["residual-dropout"] == 0.3);
  CHECK(others["output-dropout"] == 0.5);
}

TEST_CASE("charlm: the same bits for any number of threads, and from run to run") {
  const TemporaryFolder folder;
  const Words dropout = {"--dropout", "0.2", "--act"};
  for (const auto& [run, more] : std::vector<std::pair<const char*, Words>>{
           {"a", {"--threads", "1"}}, {"b", {"--threads", "3"}}, {"c", {"--seed", "2"}}}) {
    REQUIRE(train_tiny(folder.path(run), dropout + more).status == 0);
  }
  const auto bytes = [&](const char* name) { return read_file(folder.path(name)); };
  CHECK(bytes("a/best.safetensors") == bytes("b/best.safetensors"));
  CHECK(bytes("a/last.safetensors") == bytes("b/last.safetensors"));
  CHECK(bytes("a/best.safetensors") != bytes("c/best.safetensors"));
}

TEST_CASE("charlm: a text of one's own, with the characters that occur in it") {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 400; ++i) text += fmt::format("Zeile {}: größer als zuvor.\n", i);
  const std::string file = folder.file("text", text), run = folder.path("run");
  const Words train = {"--data", file, "--split", "auto"};
  const ProgramRun trained = train_tiny(run, train);
  REQUIRE_MESSAGE(trained.status == 0, trained.err);
  CHECK(contains(trained.out, "28 different (characters)"));
  const auto configured = [&](const std::string& path) {
    return json::parse(charlm_program({"info", "--checkpoint", path, "--json"}).out);
  };
  const json info = configured(run);
  CHECK(info["configuration"]["vocabulary"] == "characters");
  CHECK(info["configuration"]["split"] == "90/5/5");
  CHECK(info["metadata"]["characters"] == "\n .0123456789:Zaegilorsuvzßö");
  CHECK(info["tensors"][0]["shape"] == json({28, 16}));
  CHECK(contains(charlm_program({"info", "--checkpoint", run}).out, "characters: \\n .0123"));
  const ProgramRun eval = charlm_program({"eval", "--checkpoint", run});
  REQUIRE_MESSAGE(eval.status == 0, eval.err);
  const ProgramRun sample =
      charlm_program({"sample", "--checkpoint", run, "--prompt", "grö", "--tokens", "20"});
  REQUIRE_MESSAGE(sample.status == 0, sample.err);
  CHECK(sample.out.starts_with("grö"));
  CHECK(is_utf8(sample.out));
  check_refused(charlm_program({"sample", "--checkpoint", run, "--prompt", "grün"}),
                "--prompt: the character 'ü' (U+00FC) at position 2 is none of the 28 of");
  check_refused(
      charlm_program({"eval", "--checkpoint", run, "--data", folder.file("other", "Wörter")}),
      "other: the character 'W' (U+0057) at position 0 is none of the 28");
  // It resumes with this text alone, and `auto` means the same.
  CHECK(charlm_program({"--resume", "--out", run, "--vocabulary", "auto"}).status == 0);
  folder.file("text", "W" + text);
  check_refused(charlm_program({"--resume", "--out", run, "--epochs", "2"}),
                "its 'characters' is not that of this run");
}

TEST_CASE("charlm: bytes of any text") {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 400; ++i) text += fmt::format("Zeile {}: gr\xf6\xdf er als zuvor.\n", i);
  const Words data = {"--data", folder.file("text", text), "--split", "60/30/10"};
  const std::string run = folder.path("run"), claimed = folder.path("claimed");
  const ProgramRun trained = train_tiny(run, data);  // Latin-1, not UTF-8
  REQUIRE_MESSAGE(trained.status == 0, trained.err);
  CHECK(contains(trained.out, "256 different (bytes)"));
  const json info = json::parse(charlm_program({"info", "--checkpoint", run, "--json"}).out);
  CHECK(info["configuration"]["vocabulary"] == "bytes");
  CHECK(info["tensors"][0]["shape"] == json({256, 16}));
  CHECK(charlm_program({"eval", "--checkpoint", run}).status == 0);
  CHECK(charlm_program({"sample", "--checkpoint", run, "--prompt", "grö"}).status == 0);
  REQUIRE(train_tiny(claimed, data + Words{"--vocabulary", "bytes"}).status == 0);
  CHECK(read_file(claimed + "/best.safetensors") == read_file(run + "/best.safetensors"));
  check_refused(train_tiny(folder.path("none"), data + Words{"--vocabulary", "characters"}),
                "text: not UTF-8");
}

TEST_CASE("charlm: bad input is one line and exit status 2, and nothing is written") {
  const TemporaryFolder folder;
  const std::string empty = folder.file("empty", ""), brief = folder.file("brief", "some words");
  const std::string plain =
      folder.file("plain", std::string(3000, 'a') + "B" + std::string(100, 'c'));
  const std::string out = folder.path("out");
  const struct {
    Words words;
    std::string part;
  } cases[] = {
      {{"--data", folder.path("missing")}, "missing: cannot be opened: No such file"},
      {{"--data", empty}, "empty: the file is empty"},
      {{"--data", folder.path()}, "wanted a file, got a folder"},
      {{"--data", "/dev/zero"}, "wanted a file, got a device"},
      {{"--data", brief}, "too short: its train part has 9 characters, a window takes 129"},
      {{"--data", plain, "--vocabulary", "text8"}, "the character 'B' at position 3000"},
      {{"--data", plain, "--preset", "text8-full-conv"}, "the character 'B' at position 3000"},
      {{"--vocabulary", "text"}, "did you mean text8?"},
      {{"--attention", "fulll"}, "did you mean full?"},
      {{"--attention", "full:clusters=3"}, "attention full: there is no option 'clusters'"},
      {{"--attention", ""}, "there is no mechanism ''"},
      {{"--attention", "conditional"}, "conditional wraps another mechanism"},
      {{"--attention", "lsh"}, "lsh: is not strictly causal"},
      {{"--attention", "i-clustered-causal"}, "--allow-leaky accepts it"},
      {{"--attention", "clustered"}, "clustered: has no causal form"},
      {{"--attention", "csp", "--allow-leaky"}, "csp: has no causal form"},
      {{"--encoding", "con"}, "did you mean conv?"},
      {{"--wiring", "vanila"}, "did you mean vanilla?"},
      {{"--wiring", "pre-norm"}, "did you mean prenorm?"},
      {{"--encoding", "rotary", "--attention", "shared-full"}, "but shared-full takes q, v"},
      {{"--schedule", "cosin"}, "did you mean cosine?"},
      {{"--optimizer", "adamax"}, "did you mean adam?"},
      {{"--optimizer", "adam:beta3=1"}, "there is no option 'beta3'"},
      {{"--preset", "text8-ful-conv"}, "did you mean text8-full-conv?"},
      {{"--widht", "3"}, "there is no option --widht; did you mean --width?"},
      {{"trian"}, "there is no command 'trian'; there are train, eval, sample, info"},
      {{"train", "fast"}, "'fast' follows no option"},
      {{"--width", "50", "--heads", "8"}, "width 50 does not divide into 8 heads"},
      {{"--width", "many"}, "--width"},
      {{"--width", "0"}, "--width: wanted a number of at least 1"},
      {{"--width", "-4"}, "--width: wanted a number of at least 1"},
      {{"--length", "0"}, "--length: wanted"},
      {{"--depth", "99999999999"}, "--depth: wanted"},
      {{"--lr", "0"}, "--lr: wanted a number above 0"},
      {{"--lr", "-1"}, "--lr: wanted a number above 0"},
      {{"--lr", "nan"}, "--lr: wanted a number above 0"},
      {{"--lr", "inf"}, "--lr: wanted a number above 0"},
      {{"--dropout", "1"}, "--dropout: wanted a number"},
      {{"--dropout", "1.5"}, "--dropout: wanted a number"},
      {{"--memory", "64", "--batch", "30000", "--attention", "transformer-xl"},
       "--memory: a text of "},
      {{"--timeout", "inf"}, "--timeout: wanted a finite number above 0, got inf"},
      {{"--residual-dropout", "-0.1"}, "--residual-dropout: wanted"},
      {{"--split", "60/30/20"}, "--split: wanted"},
      {{"--split", "a/b"}, "--split: wanted"},
      {{"--batch", "0"}, "--batch: wanted"},
      {{"--epochs", "0"}, "--epochs: wanted"},
      {{"--patience", "-1"}, "--patience: wanted"},
      {{"--report-steps", "0"}, "--report-steps"},
      {{"--threads", "0"}, "--threads"},
      {{"--seed", "-1"}, "--seed"},
      {{"--seed"}, "--seed"},
      {{"--seed", "99999999999999999999999"}, "wanted a whole number, got 99999999999999999999999"},
      {{"--batch", "010"}, "wanted a whole number, got 010"},
      {{"--lr", "abc"}, "--lr: wanted a number, got abc"},
      {{"--residual-dropout", "0.1x"}, "--residual-dropout: wanted a number, got 0.1x"},
      {{"--weight-decay", "abc"}, "--weight-decay: wanted a number, got abc"},
      {{"--data="}, "--data= needs a value"},
      {{"--optimizer", "adam:beta1=1"}, "beta1 is a number in [0, 1)"},
      {{"--steps", "4", "--epochs", "3"}, "--epochs: --steps, which is 4, decides"},
      {{"--seeds", "7", "--seed", "5"}, "--seed: --seeds are those to train with"},
      {{"--conv-width", "9", "--encoding", "none"},
       "--conv-width: is of --encoding conv, got --encoding none"},
      {{"train", "--keep", "3"}, "--keep: needs --out"},
      {{"train", "--checkpoint-steps", "3"}, "--checkpoint-steps: needs --out"},
      {{"train", "--force"}, "--force: needs --out"},
  };
  for (const auto& bad : cases) {
    CAPTURE(listed(bad.words, " ").text());
    const bool named = bad.words.front()[0] != '-';
    check_refused(charlm_program(named ? bad.words : Words{"--out", out} + bad.words), bad.part);
    CHECK_FALSE(std::filesystem::exists(out));
  }
}

TEST_CASE("charlm: a folder that holds another run is not touched") {
  const TemporaryFolder folder;
  const std::string out = folder.path("run");
  REQUIRE(train_tiny(out).status == 0);
  const std::string before = read_file(out + "/best.safetensors");
  const std::string log = read_file(out + "/metrics.jsonl");
  check_refused(train_tiny(out, {"--seed", "2"}), "holds another run (best.safetensors)");
  check_refused(train_tiny(out, {"--force", "--split", "1/2/3"}), "--split");
  CHECK(read_file(out + "/best.safetensors") == before);
  CHECK(read_file(out + "/metrics.jsonl") == log);
  CHECK(train_tiny(out, {"--seed", "2", "--force"}).status == 0);
  CHECK(read_file(out + "/best.safetensors") != before);
  check_refused(train_tiny(folder.file("file", "x")), "cannot create the folder");
}

TEST_CASE("charlm: a bad checkpoint is one line and exit status 2") {
  const TemporaryFolder folder;
  const std::string run = folder.path("run");
  REQUIRE(train_tiny(run).status == 0);
  const std::string good = run + "/best.safetensors";
  const std::string bytes = read_file(good);
  const Checkpoint whole = read_checkpoint(good);
  const auto changed = [&](const auto& change) {
    Checkpoint copy = whole;
    change(copy);
    write_checkpoint(copy, folder.path("bad"));
    return folder.path("bad");
  };
  const auto configured = [&](const char* key, const json& value) {
    return changed([&](Checkpoint& c) {
      json settings = json::parse(c.metadata["configuration"]);
      settings[key] = value;
      c.metadata["configuration"] = settings.dump();
    });
  };
  const auto refused = [&](const std::string& path, const std::string& part) {
    CAPTURE(part);
    check_refused(charlm_program({"eval", "--checkpoint", path}), part);
    check_refused(charlm_program({"sample", "--checkpoint", path}), part);
    check_refused(charlm_program({"info", "--checkpoint", path}), part);
  };
  refused(folder.path("missing"), "No such file");
  refused(folder.path(), "best.safetensors: cannot be opened");
  refused(folder.file("bad", bytes.substr(0, bytes.size() - 1)), "bad: tensor");
  refused(folder.file("bad", bytes.substr(0, 100)), "cut short");
  refused(folder.file("bad", "the quick brown fox"), "not a safetensors file");
  refused(changed([](Checkpoint& c) { c.metadata.clear(); }), "not one that charlm wrote");
  refused(changed([](Checkpoint& c) { c.metadata["charlm_format"] = "2"; }), "is of format 2");
  refused(changed([](Checkpoint& c) { c.tensors.erase("embedding.table"); }),
          "holds no 'embedding.table'");
  refused(changed([](Checkpoint& c) { c.tensors["more"] = Tensor::zeros({1}, DType::f32); }),
          "holds 'more'");
  refused(configured("attention", "full"), "of another model");
  refused(configured("conv-width", 4), "of another model");
  refused(configured("width", 16000), "needs more numbers than");
  // Parameters of pairs of positions.
  refused(changed([](Checkpoint& c) {
            json settings = json::parse(c.metadata["configuration"]);
            settings["attention"] = "synthesizer", settings["length"] = 100'000;
            c.metadata["configuration"] = settings.dump();
          }),
          "needs more numbers than");
  refused(configured("width", 1e12), "its configuration");
  refused(configured("depth", -1), "its configuration: --depth");
  refused(configured("attention", "ful"), "this program has no mechanism 'ful'");
  refused(configured("vocabulary", 3), "'vocabulary' in its configuration has the wrong type");
  refused(configured("lr", json::array({1})), "nested");
  refused(changed([](Checkpoint& c) { c.metadata["configuration"] = "{"; }), "not JSON");
  refused(changed([](Checkpoint& c) { c.metadata["configuration"] = "[]"; }), "has no 'preset'");
  refused(changed([](Checkpoint& c) { c.metadata["configuration"] = std::string(100'000, '['); }),
          "nested");
  check_refused(charlm_program({"sample", "--checkpoint", run, "--prompt", "Hello"}),
                "'H' at position 0");
  check_refused(charlm_program({"sample", "--checkpoint", run, "--temperature", "-1"}),
                "--temperature");
  check_refused(charlm_program({"eval", "--checkpoint", run, "--split", "tests"}),
                "did you mean test?");
  check_refused(charlm_program({"eval"}), "--checkpoint");
  check_refused(charlm_program({"info", "--checkpoint", run, "--width", "8"}),
                "excludes --checkpoint");
  check_refused(charlm_program({"eval", "--checkpoint", changed([](Checkpoint& c) {
                                  c.metadata["configuration"] =
                                      std::string(c.metadata["configuration"])
                                          .replace(c.metadata["configuration"].find("builtin"), 7,
                                                   "gone.txt");
                                })}),
                "gone.txt: the model's training text is not found");

  // Weights that are not finite are loaded, with a warning.
  const std::string damaged = changed([](Checkpoint& c) {
    Tensor& table = c.tensors["embedding.table"];
    table = table.clone();
    table.data<float>()[5] = std::numeric_limits<float>::quiet_NaN();
  });
  const ProgramRun info = charlm_program({"info", "--checkpoint", damaged});
  CHECK(info.status == 0);
  CHECK(contains(info.err, "'embedding.table' is not finite"));
  CHECK(charlm_program({"sample", "--checkpoint", damaged}).status == 2);
}

TEST_CASE("charlm: training that diverges ends with 4 and keeps a good model") {
  const TemporaryFolder folder;
  const ProgramRun run = train_tiny(
      folder.path("run"), {"--optimizer", "sgd", "--lr", "9e5", "--clip", "0", "--epochs", "50"});
  CHECK(run.status == 4);
  CHECK(contains(run.out, "last good model is " + folder.path("run/last.safetensors")));
  // The line that it prints resumes, and ends with the name of the first such value.
  CHECK(contains(run.out, " --resume --detect-anomaly\n"));
  const Words again = {"--out", folder.path("run"), "--resume"};
  check_refused(charlm_program(again), "--resume --detect-anomaly shows where");
  const ProgramRun found = charlm_program(again + Words{"--detect-anomaly"});
  CHECK(found.status == 4);
  CHECK(contains(found.err, "is not finite"));
  for (const auto& [name, tensor] : read_checkpoint(folder.path("run/last.safetensors")).tensors) {
    CHECK(all_finite(tensor));
  }
}

TEST_CASE("charlm: a training that ends so says it even where it is to be quiet") {
  const TemporaryFolder folder;
  const ProgramRun run =
      train_tiny(folder.path("run"),
                 {"--optimizer", "sgd", "--lr", "9e5", "--clip", "0", "--epochs", "50", "--quiet"});
  CHECK(run.status == 4);
  CHECK(run.out.empty());
  CHECK(contains(run.err, "the training diverged"));
}

TEST_CASE("charlm: the result names the commit of the program") {
  const TemporaryFolder folder;
  REQUIRE(train_tiny(folder.path("run"), {"--epochs", "1", "--epoch-steps", "2"}).status == 0);
  const json result = json::parse(read_file(folder.path("run/result.json")));
  CHECK(result.value("commit", "") == commit);
}

TEST_CASE("charlm: seeds whose folders hold runs are refused before the first is trained") {
  const TemporaryFolder folder;
  REQUIRE(train_tiny(folder.path("runs/seed-2")).status == 0);
  check_refused(train_tiny(folder.path("runs"), {"--seeds", "1,2"}), "seed-2: holds another run");
  CHECK_FALSE(std::filesystem::exists(folder.path("runs/seed-1")));
  REQUIRE(train_tiny(folder.path("runs"), {"--seeds", "3,4"}).status == 0);
  const std::string summary = read_file(folder.path("runs/replicas.json"));
  check_refused(train_tiny(folder.path("runs"), {"--seeds", "5,6"}), "replicas.json: exists");
  CHECK(read_file(folder.path("runs/replicas.json")) == summary);
}

TEST_CASE("charlm: info counts with the vocabulary that the data will have") {
  const TemporaryFolder folder;
  const std::string bytes = folder.file("bytes", std::string(9000, 'a') + "\xff");
  const ProgramRun text8 = charlm_program({"info", "--json"}),
                   other = charlm_program({"info", "--json", "--data", bytes});
  REQUIRE(text8.status == 0);
  REQUIRE_MESSAGE(other.status == 0, other.err);
  CHECK(json::parse(other.out)["parameters"] > json::parse(text8.out)["parameters"]);
}

TEST_CASE("programs: what cannot be printed is an error") {
  for (const char* line : {"charlm info --json", "charlm --print-config", "charlm train --help",
                           "zoo", "devices", "devices --help", "vision info"}) {
    CAPTURE(line);
    const std::string command = built(std::string("apps/") + line) + " >/dev/full 2>/dev/null";
    const int status = std::system(command.c_str());
    CHECK(WEXITSTATUS(status) == 2);
  }
}

TEST_CASE("charlm: version and help") {
  const ProgramRun version = charlm_program({"--version"});
  CHECK(version.status == 0);
  CHECK(version.out.rfind("charlm 0.", 0) == 0);
  const ProgramRun help = charlm_program({"--help"});
  CHECK(help.status == 0);
  for (const char* word : {"train", "eval", "sample", "info"}) CHECK(contains(help.out, word));
  CHECK(contains(charlm_program({"train", "--help"}).out, "--attention"));
}

}  // TEST_SUITE
