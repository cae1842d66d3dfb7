// Options of model and training with other names elsewhere, and what older checkpoints lack.
#include <fmt/core.h>

#include "apps/command_line/options.h"
#include "doctest/doctest.h"
#include "nn/checkpoint.h"
#include "nn/optimizer.h"
#include "runtime/listed.h"
#include "tests/charlm/configuration.h"
#include "tests/json_lines.h"
#include "tests/program.h"

using namespace weft;
using nlohmann::json;

TEST_SUITE("charlm") {

TEST_CASE("options: the words of nanoGPT and llm.c are known, and nothing is guessed wildly") {
  const auto answered = [](const std::string& name, const Words& words, const std::string& part) {
    CAPTURE(fmt::format("{} {}", name, listed(words, " ")));
    check_refused(app(name, words), part);
  };
  const std::pair<const char*, const char*> meant[] = {
      {"n_layer", "depth"},           {"n_embd", "width"},
      {"n_head", "heads"},            {"block_size", "length"},
      {"sequence_length", "length"},  {"learning_rate", "lr"},
      {"max_iters", "steps"},         {"num_iterations", "steps"},
      {"lr_decay_iters", "steps"},    {"batch_size", "batch"},
      {"eval_interval", "epoch-steps"}, {"eval_iters", "validation-batches"},
      {"warmup_iters", "warmup"},     {"weight_decay", "weight-decay"},
      {"min_lr", "min-lr"},           {"grad_clip", "clip"},
      {"out_dir", "out"},             {"dataset", "data"},
      {"LEARNING-RATE", "lr"},        {"log_interval", "report-steps"}};
  for (const auto& [word, ours] : meant) {
    answered("charlm", {fmt::format("--{}", word), "1"},
             fmt::format("no option --{}; did you mean --{}? charlm train --help", word, ours));
  }
  answered("charlm", {"--grad_accum=4"}, "no option --grad_accum; did you mean --shards?");
  answered("charlm", {"--gradient_accumulation_steps=4"}, "did you mean --shards?");
  answered("charlm", {"--gradient_checkpointing"}, "did you mean --recompute?");
  answered("charlm", {"--dtype", "bfloat16"}, "no option --dtype; did you mean --precision?");
  answered("charlm", {"--flash"}, "no option --flash: attention matrices are never stored;");
  answered("charlm", {"--beta1", "0.9"}, "as in --optimizer adamw:beta1=0.9");
  answered("charlm", {"sample", "--checkpoint", "x", "--top_k", "3"}, "did you mean --top-k?");
  answered("charlm", {"sample", "--checkpoint", "x", "--max_new_tokens", "3"}, "mean --tokens?");
  answered("charlm", {"sample", "--checkpoint", "x", "--num_samples", "3"}, "mean --samples?");
  answered("vision", {"--n_layer", "3"}, "did you mean --layers?");
  answered("wordlm", {"--n_embd", "3"}, "did you mean --width?");
  for (const char* far : {"--zebra", "-z", "--x", "--block_sizes_of_all", "--eval_interval"}) {
    const ProgramRun run = app(far == std::string("--eval_interval") ? "wordlm" : "charlm", {far});
    check_refused(run, fmt::format("there is no option {}; ", far));
    CHECK_FALSE(contains(run.err, "did you mean"));
  }
  const TemporaryFolder folder;
  answered("charlm", {"--config", folder.file("a.toml", "n_layer = 3")},
           "a.toml:1: there is no option \"n_layer\"; did you mean depth?");
  answered("charlm", {"--config", folder.file("a.toml", "dtype = 'f64'")},
           "there is no option \"dtype\"; did you mean precision?");
}

// Words with one space between them.
std::string on_one_line(const std::string& text) {
  std::istringstream words(text);
  std::string line;
  for (std::string word; words >> word;) line += (line.empty() ? "" : " ") + word;
  return line;
}

TEST_CASE("options: --help names the presets") {
  for (const char* name : {"charlm", "wordlm", "vision"}) {
    const std::string refusal = app(name, {"--preset", "?"}).err;
    const std::size_t begin = refusal.find("there are ") + 10;
    const std::string presets = refusal.substr(begin, refusal.find_first_of(";\n", begin) - begin);
    CHECK(contains(presets, ", "));
    for (const char* command : {"train", "info"}) {
      CHECK(contains(on_one_line(app(name, {command, "--help"}).out), presets));
    }
    const std::string all = app(name, {"--help"}).out;
    const std::size_t heading = all.find("Presets, for --preset:\n");
    REQUIRE(heading != std::string::npos);
    std::istringstream words(presets);
    for (std::string preset; std::getline(words >> std::ws, preset, ',');) {
      CAPTURE(preset);
      CHECK(contains(all.substr(heading), "\n  " + preset + "\n"));
    }
    CHECK_FALSE(contains(app(name, {"eval", "--help"}).out, "Presets"));
  }
}

TEST_CASE("options: --weight-decay is the optimizer's own") {
  CHECK(configuration({"--weight-decay", "0.1"})["optimizer"] == "adamw:decay=0.1");
  const Words both = {"--optimizer", "adamw:beta2=0.95", "--weight-decay", "0.25"};
  CHECK(configuration(both)["optimizer"] == "adamw:beta2=0.95,decay=0.25");
  CHECK(configuration({"--optimizer", "adamw", "--weight-decay", "0.5"})["lr"] == 0.001);
  const TemporaryFolder folder;
  const std::string file = folder.file("a.toml", "weight-decay = 0.1\nlr = 0.02");
  CHECK(configuration({"--config", file})["optimizer"] == "adamw:decay=0.1");
  CHECK(configuration({"--config", file, "--weight-decay", "0.2"})["optimizer"] ==
        "adamw:decay=0.2");
  check_refused(charlm_program({"--optimizer", "adamw:decay=0.2", "--weight-decay", "0.1"}),
                "--weight-decay: --optimizer adamw:decay=0.2 sets it already");
  for (const char* other : {"adam", "sgd:momentum=0.9", "adadelta"}) {
    check_refused(charlm_program({"--optimizer", other, "--weight-decay", "0.1"}), "has none");
  }
  check_refused(charlm_program({"--preset", "text8-full-conv", "--weight-decay", "0.1"}),
                "has none");
  check_refused(charlm_program({"--weight-decay", "2"}), "decay is a number in [0, 1]");
  check_refused(charlm_program({"--weight-decay", "much"}), "--weight-decay");

  REQUIRE(charlm_program(tiny + Words{"--weight-decay", "0.1", "--out", folder.path("a")}).status ==
          0);
  REQUIRE(charlm_program(tiny + Words{"--optimizer", "adamw:decay=0.1", "--lr", "0.01", "--out",
                                      folder.path("b")})
              .status == 0);
  CHECK(read_file(folder.path("a/last.safetensors")) ==
        read_file(folder.path("b/last.safetensors")));
  CHECK(charlm_program({"--resume", "--out", folder.path("a"), "--weight-decay", "0.1"}).status ==
        0);
  check_refused(charlm_program({"--resume", "--out", folder.path("a"), "--weight-decay", "0.2"}),
                "--optimizer: the run in");
}

TEST_CASE("options: an option of an optimizer said anew") {
  CHECK(with_option("adamw", "decay", 0.5) == "adamw:decay=0.5");
  CHECK(with_option("adamw:decay=0.1,beta1=0.5", "decay", 0.25) == "adamw:beta1=0.5,decay=0.25");
  CHECK(gives_option("adamw:beta1=0.5,decay=0.25", "decay"));
  CHECK_FALSE(gives_option("adamw:beta1=0.5", "decay"));
  CHECK(contains(error_of([] { with_option("sgd", "decay", 0.5); }), "there is no option 'decay'"));
}

TEST_CASE("options: --min-lr is where cosine and linear end") {
  for (const char* schedule : {"cosine", "linear"}) {
    const ProgramRun run =
        charlm_program(tiny + Words{"--schedule", schedule, "--warmup", "2", "--lr", "0.01",
                                    "--min-lr", "0.004", "--json-lines"});
    REQUIRE_MESSAGE(run.status == 0, run.err);
    std::vector<double> rates;
    for (const json& line : lines(run.out)) {
      if (line["kind"] == "train") rates.push_back(line["learning_rate"]);
    }
    REQUIRE(rates.size() == 6);
    CHECK(rates[0] == doctest::Approx(0.005));  // the warm-up begins below it, or where it likes
    CHECK(rates[1] == doctest::Approx(0.01));
    CHECK(rates[4] == doctest::Approx(0.007));  // half way
    CHECK(rates[5] > 0.004);
    CHECK(rates[5] < 0.006);
  }
  check_refused(charlm_program({"--min-lr", "0.1"}), "--min-lr: 0.1 is above --lr, which is 0.01");
  check_refused(charlm_program({"--min-lr", "0.001", "--schedule", "constant"}),
                "--min-lr: a constant");
  check_refused(charlm_program({"--min-lr", "-1"}), "--min-lr: wanted a number of at least 0");
  const TemporaryFolder folder;  // what stands further below in a file counts
  const std::string file = folder.file("a.toml", "min-lr = 0.05\nlr = 0.1");
  CHECK(configuration({"--config", file})["min-lr"] == 0.05);
}

TEST_CASE("options: --hidden is the width inside the feed-forward layer") {
  const auto shapes = [](const std::string& name, const Words& words) {
    const ProgramRun run = app(name, Words{"info", "--json"} + words);
    REQUIRE_MESSAGE(run.status == 0, run.err);
    std::map<std::string, json> all;
    const json info = json::parse(run.out);
    for (const json& tensor : info["tensors"]) all[tensor["name"]] = tensor["shape"];
    return all;
  };
  for (const char* name : {"charlm", "wordlm"}) {
    CHECK(shapes(name, {"--width", "16"})["block.feed_forward.weight1"] == json({16, 64}));
    const auto wide = shapes(name, {"--width", "16", "--hidden", "24"});
    CHECK(wide.at("block.feed_forward.weight1") == json({16, 24}));
    CHECK(wide.at("block.feed_forward.weight2") == json({24, 16}));
  }
  const TemporaryFolder folder;
  const std::string out = folder.path("run");
  REQUIRE(charlm_program(tiny + Words{"--hidden", "24", "--out", out}).status == 0);
  CHECK(charlm_program({"eval", "--checkpoint", out}).status == 0);
  const ProgramRun dry =
      charlm_program(tiny + Words{"--hidden", "24", "--dry-run", "--json-lines"});
  const json info = json::parse(charlm_program({"info", "--checkpoint", out, "--json"}).out);
  CHECK(info["configuration"]["hidden"] == 24);
  CHECK(json::parse(dry.out)["parameters"] == info["parameters"]);
  check_refused(charlm_program({"--hidden", "-1"}), "--hidden: wanted a number of at least 0");
}

TEST_CASE("options: pre-norm wiring and rotary positions, from training to sampling and export") {
  const TemporaryFolder folder;
  for (const char* name : {"charlm", "wordlm"}) {
    for (const char* wiring : {"universal", "prenorm"}) {
      CAPTURE(fmt::format("{} {}", name, wiring));
      const std::string out = folder.path(std::string(name) + wiring);
      const Words model = {"--attention", "full", "--encoding", "rotary", "--wiring", wiring,
                           "--batch", "2", "--length", "16", "--width", "16", "--heads", "2"};
      const bool characters = name == std::string("charlm");
      const Words run = characters ? Words{"--epochs", "1", "--epoch-steps", "4",
                                           "--validation-batches", "1", "--test-batches", "1"}
                                   : Words{"--steps", "4"};
      const ProgramRun trained = app(name, model + run + Words{"--out", out});
      REQUIRE_MESSAGE(trained.status == 0, trained.err);
      CHECK(contains(trained.out, "full attention, rotary positions"));
      const ProgramRun dry = app(name, model + run + Words{"--dry-run", "--json-lines"});
      const json info = json::parse(app(name, {"info", "--checkpoint", out, "--json"}).out);
      CHECK(info["configuration"]["encoding"] == "rotary");
      CHECK(info["configuration"]["wiring"] == wiring);
      CHECK(json::parse(dry.out)["parameters"] == info["parameters"]);
      CHECK(app(name, {"eval", "--checkpoint", out}).status == 0);
      const ProgramRun sample = app(name, {"sample", "--checkpoint", out, "--tokens", "40"});
      CHECK(sample.status == 0);  // past the 16 positions, of which it has no table
      CHECK_FALSE(contains(sample.err, "starts again"));
      const std::string file = out + ".safetensors";
      CHECK(app(name, {"export", "--checkpoint", out, "--out", file, "--example"}).status == 0);
      const json exported = json::parse(read_checkpoint(file).metadata.at("configuration"));
      CHECK(exported == info["configuration"]);
    }
  }
  check_refused(charlm_program({"--encoding", "rotary"}),
                "--encoding rotary: attention: rotary positions rotate the inputs q and k, but "
                "agglomerative takes zq, zk, y");
  const std::string file = folder.file("a.toml", "encoding = 'rotary'\nattention = 'full'");
  CHECK(configuration({"--config", file})["encoding"] == "rotary");
}

TEST_CASE("options: checkpoints from before these are read as they were meant") {
  const TemporaryFolder folder;
  const std::string out = folder.path("run");
  REQUIRE(charlm_program(tiny + Words{"--out", out}).status == 0);
  Checkpoint checkpoint = read_checkpoint(out + "/best.safetensors");
  json settings = json::parse(checkpoint.metadata["configuration"]);
  for (const char* later : {"hidden", "min-lr"}) CHECK(settings.erase(later) == 1);
  checkpoint.metadata["configuration"] = settings.dump();
  write_checkpoint(checkpoint, folder.path("old.safetensors"));
  const auto loss = [&](const std::string& path) {
    const ProgramRun run = charlm_program({"eval", "--checkpoint", path, "--json"});
    REQUIRE_MESSAGE(run.status == 0, run.err);
    return lines(run.out).at(0)["loss"];
  };
  CHECK(loss(folder.path("old.safetensors")) == loss(out));
  settings.erase("width");
  checkpoint.metadata["configuration"] = settings.dump();
  write_checkpoint(checkpoint, folder.path("odd.safetensors"));
  check_refused(charlm_program({"eval", "--checkpoint", folder.path("odd.safetensors")}),
                "has no 'width'");
}

TEST_CASE("options: one letter stands for those that are typed most") {
  CHECK(with_long_names({"-o", "runs/a", "-fq", "-n7", "-b=4", "sample"}) ==
        Words{"--out", "runs/a", "--force", "--quiet", "--steps=7", "--batch=4", "sample"});
  CHECK(with_long_names({"-h", "-5", "-fz", "--out=-f", "-", ""}) ==
        Words{"-h", "-5", "-fz", "--out=-f", "-", ""});
  const json found =
      configuration({"-p", "text8-full-conv", "-a", "linear", "-b3", "-s5", "-n", "9", "-t", "1"});
  CHECK(found["attention"] == "linear");
  CHECK(found["batch"] == 3);
  CHECK(found["seed"] == 5);
  CHECK(found["steps"] == 9);
  CHECK(found["depth"] == 5);
  const TemporaryFolder folder;
  const std::string out = folder.path("run");
  const Words words = tiny_model + Words{"-t1", "-o", out};
  const ProgramRun quiet = charlm_program(words + Words{"-q", "-n3"});
  REQUIRE_MESSAGE(quiet.status == 0, quiet.err);
  CHECK(quiet.out.empty());
  check_refused(charlm_program(words + Words{"-n3"}), "holds another run");
  CHECK(charlm_program(words + Words{"-qr", "-n4"}).status == 0);
  CHECK(charlm_program(words + Words{"-qf", "-n2"}).status == 0);
  CHECK(contains(charlm_program({"--help"}).out + charlm_program({"train", "-h"}).out,
                 "\n  -o,--out TEXT "));
  for (const ShortOption& option : short_options) {
    CHECK(contains(charlm_program({"train", "--help"}).out,
                   fmt::format("\n  -{},{}", option.letter, option.name)));
  }
}

TEST_CASE("options: --overfit-batch learns one batch by heart, and --recompute changes no bit") {
  const auto last_training_loss = [](const Words& more) {
    const ProgramRun run = charlm_program(
        tiny_model + Words{"--attention", "full", "--steps", "150", "--json-lines"} + more);
    REQUIRE_MESSAGE(run.status == 0, run.err);
    double loss = 0;
    for (const json& line : lines(run.out)) {
      if (line["kind"] == "train") loss = line["loss"];
    }
    return loss;
  };
  const double plain = last_training_loss({}), by_heart = last_training_loss({"--overfit-batch"});
  CHECK(plain > 2);  // of ln 28 = 3.3
  CHECK(by_heart < 0.5);
  CHECK(last_training_loss({"--overfit-batch", "--recompute"}) == by_heart);
}

}  // TEST_SUITE("charlm")
