// wordlm as a user runs it.
#include <cmath>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "doctest/doctest.h"
#include "nn/checkpoint.h"
#include "tests/json_lines.h"
#include "tests/program.h"
#include "tests/resume.h"

using namespace weft;
using nlohmann::json;

namespace {

void write_text(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

ProgramRun wordlm(const Words& words) { return app("wordlm", words); }

// A text whose next word is known: words in a cycle, a line of them at a time, each part with its
// own.
struct CircleText {
  TemporaryFolder folder;
  std::string path = folder.path("text");

  CircleText() {
    std::filesystem::create_directory(path);
    const char* const words[] = {"one", "two", "three", "four", "five", "six", "seven"};
    int word = 0;
    for (const auto& [name, count] : {std::pair{"train", 400}, {"valid", 60}, {"test", 50}}) {
      std::string text;
      for (int line = 0; line < count; ++line) {
        for (int i = 0; i < 10; ++i) text += std::string(words[word++ % 7]) + " ";
        text += "\n";
      }
      write_text(path + "/" + name + ".txt", text);
    }
  }
};

const Words small_model = {"--pieces", "paper", "--batch", "8",       "--length", "24",
                           "--width",  "16",    "--heads", "2"};

struct Trained {
  CircleText text;
  std::string path = text.folder.path("run");
  ProgramRun run = wordlm(Words{"--data", text.path, "--out", path, "--epochs", "6"} + small_model);
};

const Trained& trained() {
  static const Trained once;
  return once;
}

}  // namespace

TEST_SUITE("wordlm") {

TEST_CASE("wordlm: learns a text whose words follow from the last") {
  const Trained& t = trained();
  REQUIRE_MESSAGE(t.run.status == 0, t.run.err);
  const json test = logged(t.path, "test").back();
  CHECK(test["perplexity"].get<double>() < 1.5);
  CHECK(test["perplexity"].get<double>() > 1);
  // Ten words and the end of the line, which is two pieces of the stream.
  CHECK(std::log(test["word_perplexity"].get<double>()) * 11 * 50 ==
        doctest::Approx(test["cross_entropy"].get<double>() * test["targets"].get<double>()));
  CHECK(test["targets"] == 50 * 12 - 1);
  const auto characters = double(read_file(t.text.path + "/test.txt").size());  // ASCII
  CHECK(test["bits_per_character"].get<double>() * std::log(2) * characters ==
        doctest::Approx(test["cross_entropy"].get<double>() * test["targets"].get<double>()));
  CHECK(contains(t.run.out, "as the paper counts"));
  CHECK(contains(t.run.out, "sample "));
}

TEST_CASE("wordlm: eval gives the logged values again, bit for bit") {
  const Trained& t = trained();
  const ProgramRun run = wordlm({"eval", "--checkpoint", t.path, "--json"});
  REQUIRE_MESSAGE(run.status == 0, run.err);
  const json score = lines(run.out).at(0), test = logged(t.path, "test").back();
  for (const char* key :
       {"perplexity", "paper_perplexity", "word_perplexity", "bits_per_character", "targets"}) {
    CHECK(score[key] == test[key]);
  }
  CHECK(score["words"] == 11 * 50);
  const Words again = {"eval", "--checkpoint", t.path, "--json", "--threads", "3"};
  CHECK(lines(wordlm(again).out).at(0)["perplexity"] == test["perplexity"]);
  check_refused(wordlm({"eval", "--checkpoint", t.path, "--split", "tset"}), "there is no 'tset'");
  check_refused(wordlm({"eval", "--checkpoint", t.path, "--data", "/nowhere"}), "/nowhere");
}

TEST_CASE("wordlm: sample goes on as the text would, a function of the seed") {
  const std::string path = trained().path;
  const auto sample = [&](const Words& more) {
    return wordlm(Words{"sample", "--checkpoint", path, "--tokens", "5"} + more);
  };
  const ProgramRun run = sample({"--prompt", "One two three", "--temperature", "0"});
  REQUIRE_MESSAGE(run.status == 0, run.err);
  CHECK(run.out == "one two three four five six seven one\n");
  CHECK(sample({"--seed", "4"}).out == sample({"--seed", "4"}).out);
  check_refused(sample({"--temperature", "-1"}), "--temperature");
}

TEST_CASE("wordlm: pieces over bytes, where nothing else is asked for") {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 400; ++i) {
    text += fmt::format("Zeile {}: Gr\u00f6\u00dfer, als ZUVOR!\n", i % 10);
  }
  const std::string file = folder.file("own.txt", text), out = folder.path("run");
  const Words train = {"--data",  file, "--out",    out,  "--batch", "8",       "--length", "25",
                       "--width", "16", "--heads", "2", "--epochs", "25", "--quiet"};
  const ProgramRun run = wordlm(train);
  REQUIRE_MESSAGE(run.status == 0, run.err);
  const json info = json::parse(wordlm({"info", "--checkpoint", out, "--json"}).out);
  CHECK(info["configuration"]["pieces"] == "bpe");
  const json score = lines(wordlm({"eval", "--checkpoint", out, "--json"}).out).at(0);
  CHECK(score["perplexity"].get<double>() < 3);
  CHECK(score["words"] == 20 * 6);  // 5 % of the lines
  CHECK(score["characters"] == 20 * 28);  // of which two are no ASCII
  const ProgramRun said = wordlm({"eval", "--checkpoint", out});
  CHECK(contains(said.out, "test   perplexity"));
  CHECK(said.out.find(" per piece") < said.out.find("by the agglomerative paper's definition"));
  CHECK_FALSE(contains(said.out, "lower case"));
  const Words sample = {"sample", "--checkpoint", out, "--tokens", "12", "--temperature", "0"};
  const ProgramRun more = wordlm(sample + Words{"--prompt", "Zeile 3:"});
  REQUIRE_MESSAGE(more.status == 0, more.err);
  CHECK_MESSAGE(more.out.starts_with("Zeile 3: Gr\u00f6\u00dfer, als ZUVOR!\nZeile "), more.out);
  CHECK_MESSAGE(wordlm(sample).out.starts_with("Zeile "), wordlm(sample).out);
  const std::string odd = "a\tB  c\xff\n ";  // a prompt is printed unchanged
  const Words say = {"sample", "--checkpoint", out, "--tokens", "0", "--prompt", odd};
  CHECK(wordlm(say).out == odd + "\n");
  CHECK(wordlm({"--resume", "--out", out, "--pieces", "bpe"}).status == 0);
  check_refused(wordlm({"--resume", "--out", out, "--pieces", "paper"}), "--pieces: the run in");
  folder.file("own.txt", text + text + "other other other other\n" + text);
  check_refused(wordlm({"--resume", "--out", out, "--epochs", "26"}), "is not that of this run");

  const auto parameters = [](const Words& words) {
    return json::parse(wordlm(Words{"info", "--json"} + words).out)["parameters"];
  };
  CHECK(parameters({"--data", file, "--width", "16"}) > parameters(
        {"--data", file, "--width", "16", "--pieces", "bpe:merges=3"}));
  check_refused(wordlm({"--pieces", "bpe:merges=many"}), "--pieces: wanted bpe or bpe:merges=N");
  check_refused(wordlm({"--pieces", "papr"}), "--pieces: there are no 'papr'; there are bpe");
}

TEST_CASE("wordlm: the same training on one thread and on two") {
  const CircleText text;
  const auto weights = [&](const std::string& threads) {
    const std::string out = text.folder.path("run" + threads);
    const ProgramRun run =
        wordlm(Words{"--data", text.path, "--out", out, "--steps", "7", "--threads", threads} +
               small_model);
    REQUIRE_MESSAGE(run.status == 0, run.err);
    return read_file(out + "/last.safetensors");
  };
  CHECK(weights("1") == weights("2"));
}

TEST_CASE("wordlm: killed and resumed, the same bits as at one go") {
  const CircleText text;
  const Words words =
      Words{"--data", text.path,     "--epochs", "2", "--report-steps", "7", "--checkpoint-steps",
            "5",      "--optimizer", "adadelta"} +
      small_model;
  check_resume(built("apps/wordlm"), words, text.folder.path(), 5);
}

TEST_CASE("wordlm: with a memory, killed and resumed, the same bits as at one go") {
  const CircleText text;
  const Words words =
      Words{"--data", text.path,     "--epochs", "2", "--report-steps", "7", "--checkpoint-steps",
            "5",      "--optimizer", "adadelta"} +
      small_model + Words{"--attention", "transformer-xl", "--encoding", "none", "--memory", "9"};
  check_resume(built("apps/wordlm"), words, text.folder.path(), 5);
}

TEST_CASE("wordlm: with several seeds it says mean and standard error") {
  const CircleText text;
  const std::string out = text.folder.path("runs");
  const Words train = Words{"--data", text.path, "--steps", "6"} + small_model;
  const ProgramRun run = wordlm(train + Words{"--out", out, "--seeds", "3,4,9"});
  REQUIRE_MESSAGE(run.status == 0, run.err);
  double sum = 0, squares = 0;
  for (const char* seed : {"3", "4", "9"}) {
    const json log = lines(read_file(out + "/seed-" + seed + "/metrics.jsonl")).back();
    const double perplexity = log["perplexity"];
    sum += perplexity;
    squares += perplexity * perplexity;
  }
  const json found = json::parse(read_file(out + "/replicas.json"))["perplexity"];
  CHECK(found["mean"].get<double>() == doctest::Approx(sum / 3));
  const double variance = (squares - sum * sum / 3) / 2;
  CHECK(found["standard_error"].get<double>() == doctest::Approx(std::sqrt(variance / 3)));
  CHECK(variance > 0);
  CHECK(contains(run.out, "3 seeds: "));

  // One that has ended, one that was stopped, and one that never began.
  const std::string summary = read_file(out + "/replicas.json");
  const std::string best = read_file(out + "/seed-4/best.safetensors");
  std::filesystem::remove(out + "/replicas.json");
  std::filesystem::remove(out + "/seed-4/result.json");
  std::filesystem::remove_all(out + "/seed-9");
  const ProgramRun again = wordlm(train + Words{"--out", out, "--seeds", "3,4,9", "--resume"});
  REQUIRE_MESSAGE(again.status == 0, again.err);
  CHECK(contains(again.out, "seed-3: the training ended after step 6"));
  CHECK(read_file(out + "/replicas.json") == summary);
  CHECK(read_file(out + "/seed-4/best.safetensors") == best);
  check_refused(wordlm(train + Words{"--seeds", "3,3"}), "--seeds: a seed occurs twice");

  const std::string single = text.folder.path("single");
  const ProgramRun one = wordlm(train + Words{"--out", single, "--seeds", "3"});
  REQUIRE_MESSAGE(one.status == 0, one.err);
  CHECK(contains(one.out, "1 seed: "));
  CHECK_FALSE(contains(one.out, "±"));
  CHECK(
      json::parse(read_file(single + "/replicas.json"))["perplexity"]["standard_error"].is_null());
}

TEST_CASE("wordlm: the models of the paper's table 2 have its numbers of parameters") {
  const std::pair<const char*, int> models[] = {{"wikitext2-full-position", 1'500'289},
                                                {"wikitext2-full-conv", 1'614'465},
                                                {"wikitext2-agglomerative-position", 1'469'585},
                                                {"wikitext2-agglomerative-conv", 1'583'761}};
  for (const auto& [preset, count] : models) {
    const ProgramRun run = wordlm({"info", "--preset", preset, "--json"});
    REQUIRE_MESSAGE(run.status == 0, run.err);
    CHECK(lines(run.out).at(0)["parameters"] == count);
  }
}

TEST_CASE("wordlm: a file of options, a dry run, and the log on standard output") {
  const CircleText text;
  const std::string file = text.folder.file(
      "tiny.toml", fmt::format("data = '{}'\nbatch = 8\nlength = 24\nwidth = 16\nheads = 2\n"
                               "epochs = 1\ndetect-anomaly = true\n",
                               text.path));
  const std::string out = text.folder.path("run");
  const Words words = {"--config", file, "--out", out, "--json-lines"};
  const ProgramRun dry = wordlm(words + Words{"--dry-run"});
  REQUIRE_MESSAGE(dry.status == 0, dry.err);
  CHECK_FALSE(std::filesystem::exists(out));
  CHECK_FALSE(std::filesystem::exists(text.path + "/train.txt.pieces"));
  const ProgramRun run = wordlm(words);
  REQUIRE_MESSAGE(run.status == 0, run.err);
  CHECK(run.out == read_file(out + "/metrics.jsonl"));
  const json info = json::parse(wordlm({"info", "--checkpoint", out, "--json"}).out);
  CHECK(json::parse(dry.out)["parameters"] == info["parameters"]);
  CHECK(json::parse(dry.out)["targets"] == 8 * 24);
  check_refused(wordlm({"--config", text.folder.file("bad.toml", "\npieses = \"paper\"")}),
                "bad.toml:2: there is no option \"pieses\"; did you mean pieces?");
}

TEST_CASE("wordlm: bad input is refused in a line") {
  const CircleText text;
  const Words train = Words{"train", "--data", text.path} + small_model;
  check_refused(wordlm({"--data", "/nowhere"}), "/nowhere");
  check_refused(wordlm(train + Words{"--pieces", "/nowhere.model"}), "/nowhere.model");
  check_refused(wordlm(train + Words{"--preset", "wikitext3"}), "there is no 'wikitext3'");
  check_refused(wordlm(train + Words{"--attention", "clustered"}), "has no causal form");
  check_refused(wordlm(train + Words{"--out", trained().path}), "holds another run");
  const std::string out = text.folder.path("moved");
  REQUIRE(wordlm(train + Words{"--out", out, "--steps", "1", "--quiet"}).status == 0);
  std::filesystem::rename(text.path, text.path + "-away");
  check_refused(wordlm({"eval", "--checkpoint", out}),
                "the model's training text is not found; name it with --data");
  std::filesystem::rename(text.path + "-away", text.path);
  write_text(text.path + "/valid.txt", " \n\n");
  check_refused(wordlm(train), "valid.txt");
  write_text(text.path + "/valid.txt", "fine\nbr\xc3ken");
  check_refused(wordlm(train), "valid.txt");
}

TEST_CASE("wordlm: a checkpoint whose vocabulary does not fit it is refused") {
  const Trained& t = trained();
  Checkpoint checkpoint = read_checkpoint(t.path + "/best.safetensors");
  const auto refused = [&](const char* part) {
    const std::string file = t.text.folder.path("changed.safetensors");
    write_checkpoint(checkpoint, file);
    check_refused(wordlm({"eval", "--checkpoint", file}), part);
  };
  const std::map<std::string, std::string> metadata = checkpoint.metadata;
  checkpoint.metadata["pieces"] = "nothing";
  refused("changed.safetensors");
  checkpoint.metadata = metadata;
  checkpoint.metadata.erase("pieces");
  refused("not one that wordlm wrote");
  checkpoint.metadata = metadata;
  for (auto& [name, tensor] : checkpoint.tensors) {
    if (name == "embedding.table") tensor = Tensor::zeros({3, 16}, DType::f32);
  }
  refused("which its embedding does not fit");
}

}  // TEST_SUITE("wordlm")
