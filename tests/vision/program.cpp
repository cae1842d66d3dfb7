// vision as users run it.
#include <algorithm>

#include <nlohmann/json.hpp>

#include "apps/data/cifar.h"
#include "apps/data/picture.h"
#include "nn/checkpoint.h"
#include "tests/cuda_there.h"
#include "tests/json_lines.h"
#include "tests/program.h"
#include "tests/resume.h"
#include "tests/sanitized.h"

using namespace weft;
using nlohmann::json;

namespace {

ProgramRun vision_program(const Words& words) { return app("vision", words); }

void refused(const Words& words, const std::string& part) {
  check_refused(vision_program(words), part);
}

const Words tiny = {"--width", "8", "--layers",     "1",    "--heads", "2", "--hidden", "8",
                    "--patch", "8", "--validation", "7000", "--steps", "3"};

// Under the sanitizers training takes minutes, and learns next to nothing.
const Words effort = sanitized ? Words{"--steps", "8"} : Words{"--epochs", "2"};

// A model that is trained in seconds, and the folder of its run.
struct TrainedRun {
  TemporaryFolder folder;
  std::string path = folder.path("run");
  ProgramRun run = vision_program(
      Words{"train", "--out", path, "--test-epochs", "--report-steps", "50"} + effort);
};

const TrainedRun& trained() {
  static const TrainedRun once;
  return once;
}

Picture picture_of(const Pictures& pictures, i64 which) {
  Picture picture(32, 32);
  for (i64 i = 0; i < 32 * 32; ++i) {
    const std::uint8_t* const p = pictures.at(which) + 3 * i;
    picture.at(i % 32, i / 32) = {p[0], p[1], p[2]};
  }
  return picture;
}

// A folder of CIFAR-10 with eight pictures a file.
std::string few_pictures(const TemporaryFolder& folder) {
  for (const char* name : {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                           "data_batch_4.bin", "data_batch_5.bin", "test_batch.bin"}) {
    const Pictures pictures = drawn_pictures(static_cast<std::uint64_t>(name[11]), 8);
    std::string bytes;
    for (i64 i = 0; i < 8; ++i) {
      bytes += static_cast<char>(pictures.labels[static_cast<std::size_t>(i)]);
      bytes.append(pictures.at(i), pictures.at(i) + picture_bytes);
    }
    folder.file(name, bytes);
  }
  return folder.path();
}

}  // namespace

TEST_SUITE("vision") {

TEST_CASE("vision: learns the built-in pictures far beyond chance" * not_sanitized()) {
  const TrainedRun& t = trained();
  REQUIRE_MESSAGE(t.run.status == 0, t.run.err);
  const std::vector<json> tests = logged(t.path, "test"), epochs = logged(t.path, "test_epoch");
  REQUIRE(tests.size() == 1);
  if (!sanitized) {
    CHECK(tests[0]["top_1"].get<double>() > 70);  // by chance 10
    CHECK(tests[0]["top_5"].get<double>() > 95);  // by chance 50
  }
  REQUIRE(epochs.size() == (sanitized ? 1 : 2));
  double most = 0;
  for (const json& line : epochs) most = std::max(most, line["top_1"].get<double>());
  CHECK(tests[0]["most_top_1"] == most);
  CHECK(contains(t.run.out, "of that epoch"));
  CHECK(contains(t.run.out, "are the best of any epoch"));
  CHECK_FALSE(contains(t.run.out, "\r"));
}

TEST_CASE("vision: the best epoch is that of the most validation pictures right" *
          not_sanitized()) {
  const TrainedRun& t = trained();
  json best;
  for (const json& line : logged(t.path, "validation")) {
    if (best.is_null() || line["top_1"] > best["top_1"]) best = line;
  }
  CHECK(logged(t.path, "test")[0]["epoch"] == best["epoch"]);
  const Checkpoint saved = read_checkpoint(t.path + "/best.safetensors");
  CHECK(saved.metadata.at("epoch") == best["epoch"].dump());
  CHECK(std::stod(saved.metadata.at("validation_top_1")) == best["top_1"].get<double>());
}

TEST_CASE("vision: eval gives the logged values again, bit for bit" * not_sanitized()) {
  const TrainedRun& t = trained();
  const auto eval = [&](const std::string& split) {
    return lines(vision_program({"eval", "--checkpoint", t.path, "--split", split, "--json"}).out)
        .at(0);
  };
  const json tested = eval("test"), line = logged(t.path, "test")[0];
  CHECK(tested["loss"] == line["loss"]);
  CHECK(tested["top_1"] == line["top_1"]);
  CHECK(tested["top_5"] == line["top_5"]);
  CHECK(tested["pictures"] == 2000);
  const json validated = eval("validation");
  CHECK(validated["loss"].dump() ==
        json::parse(read_checkpoint(t.path + "/best.safetensors").metadata.at("validation_loss"))
            .dump());
  refused({"eval", "--checkpoint", t.path, "--split", "tset"}, "there is no 'tset'");
}

TEST_CASE("vision: the same seed gives the same bits, on any number of threads" * not_sanitized()) {
  const TemporaryFolder folder;
  const auto weights = [&](const std::string& name, const Words& more) {
    const ProgramRun run = vision_program(Words{"--out", folder.path(name)} + tiny + more);
    REQUIRE_MESSAGE(run.status == 0, run.err);
    return read_file(folder.path(name) + "/last.safetensors");
  };
  const std::string one = weights("one", {"--threads", "1", "--dropout", "0.1"});
  CHECK(one == weights("three", {"--threads", "3", "--dropout", "0.1"}));
  CHECK(one != weights("other", {"--seed", "2", "--dropout", "0.1"}));
  const std::string narrow = weights("bf16", {"--threads", "1", "--precision", "bf16"});
  CHECK(narrow == weights("bf16-three", {"--threads", "3", "--precision", "bf16"}));
  CHECK(narrow != weights("f32", {"--threads", "1"}));
}

TEST_CASE("vision: killed and resumed, the same bits as at one go") {
  const TemporaryFolder folder, data;
  const Words words = {"--data",
                       few_pictures(data),
                       "--width",
                       "8",
                       "--layers",
                       "1",
                       "--heads",
                       "2",
                       "--hidden",
                       "8",
                       "--patch",
                       "8",
                       "--validation",
                       "8",
                       "--batch",
                       "4",
                       "--epochs",
                       "4",
                       "--checkpoint-steps",
                       "3",
                       "--report-steps",
                       "3",
                       "--dropout",
                       "0.1",
                       "--test-epochs",
                       "--optimizer",
                       "sgd:momentum=0.9"};
  check_resume(built("apps/vision"), words, folder.path(), 5);
}

TEST_CASE("vision: trains on files, and eval finds them again or says that they are gone") {
  const TemporaryFolder folder, run;
  const std::string data = few_pictures(folder), out = run.path("run");
  const ProgramRun train = vision_program(
      Words{"--out", out} + tiny + Words{"--data", data, "--batch", "4", "--validation", "8"});
  REQUIRE_MESSAGE(train.status == 0, train.err);
  CHECK(
      contains(train.out, "cifar-10: 10 classes; 32 pictures to train, 8 to validate, 8 to test"));
  const json test = lines(read_file(out + "/metrics.jsonl")).back();
  const json eval = lines(vision_program({"eval", "--checkpoint", out, "--json"}).out).at(0);
  CHECK(eval["loss"] == test["loss"]);
  std::filesystem::rename(data, data + "-moved");
  refused({"eval", "--checkpoint", out}, "are not found; name their folder with --data");
  const ProgramRun again = vision_program({"eval", "--checkpoint", out, "--data", data + "-moved"});
  CHECK(again.status == 0);
  std::filesystem::rename(data + "-moved", data);
}

TEST_CASE("vision: replicas are trained with each seed") {
  const TemporaryFolder folder;
  const ProgramRun run =
      vision_program(Words{"--out", folder.path("runs"), "--seeds", "4,7"} + tiny);
  REQUIRE_MESSAGE(run.status == 0, run.err);
  const json summary = json::parse(read_file(folder.path("runs/replicas.json")));
  CHECK(summary["seeds"] == json{4, 7});
  double sum = 0;
  for (const char* name : {"seed-4", "seed-7"}) {
    sum += lines(read_file(folder.path("runs") + "/" + name + "/metrics.jsonl"))
               .back()["top_1"]
               .get<double>();
  }
  CHECK(summary["top_1"]["mean"].get<double>() == doctest::Approx(sum / 2));
}

TEST_CASE("vision: predict on pictures of the set, and on one of another size") {
  const TrainedRun& t = trained();
  const TemporaryFolder folder;
  const Pictures pictures = drawn_pictures(99, 40);
  Words words = {"predict", "--checkpoint", t.path, "--json"};
  for (i64 i = 0; i < 40; ++i) {
    words.push_back(folder.path(fmt::format("{}.png", i)));
    picture_of(pictures, i).save(words.back());
  }
  const ProgramRun run = vision_program(words);
  REQUIRE_MESSAGE(run.status == 0, run.err);
  const std::vector<json> said = lines(run.out);
  REQUIRE(said.size() == 40);
  int among = 0;
  for (std::size_t i = 0; i < 40; ++i) {
    const json& classes = said[i]["classes"];
    REQUIRE(classes.size() == 5);
    double sum = 0, before = 1;
    for (const json& guess : classes) {
      const double p = guess["probability"];
      CHECK(p <= before);
      sum += before = p;
      among += guess["class"] == class_names("builtin")[pictures.labels[i]];
    }
    CHECK(sum <= 1.000001);
  }
  if (!sanitized) CHECK(among > 35);  // of 40; by chance 20
  CHECK(run.err.empty());
  picture_of(pictures, 0).resized(50, 20).save(folder.path("wide.png"));
  const ProgramRun wide =
      vision_program({"predict", "--checkpoint", t.path, folder.path("wide.png")});
  CHECK(wide.status == 0);
  CHECK(contains(wide.err, "wide.png: has 50 x 20 pixels; resized to 32 x 32"));
  CHECK(std::count(wide.out.begin(), wide.out.end(), '%') == 5);
}

TEST_CASE("vision: predict refuses what is no picture") {
  const TrainedRun& t = trained();
  const TemporaryFolder folder;
  const Words predict = {"predict", "--checkpoint", t.path};
  refused(predict + Words{folder.path("none.png")}, "none.png: cannot be opened");
  refused(predict + Words{folder.file("text.png", "no picture")}, "text.png: is not a PNG picture");
  refused(predict + Words{folder.path()}, "wanted a file, got a folder");
}

TEST_CASE("vision: rank writes falling spectra of every layer") {
  const TrainedRun& t = trained();
  const TemporaryFolder folder;
  const std::string out = folder.path("spectra.json");
  const ProgramRun run = vision_program({"rank", "one=" + t.path, "--pictures", "2", "--out", out});
  REQUIRE_MESSAGE(run.status == 0, run.err);
  CHECK(contains(run.out, "one: csp attention; after the last layer"));
  const json report = json::parse(read_file(out));
  REQUIRE(report["models"][0]["layers"].size() == 2);
  for (const json& layer : report["models"][0]["layers"]) {
    REQUIRE(layer.size() == 64);  // 64 tokens of width 64
    CHECK(layer[0].get<double>() == doctest::Approx(1));
    for (std::size_t i = 1; i < layer.size(); ++i) CHECK(layer[i] <= layer[i - 1]);
  }
  refused({"rank", t.path, "--pictures", "0"}, "--pictures: wanted 1 to the 2000 pictures");
}

TEST_CASE("vision: info counts a preset's parameters") {
  const json info = lines(vision_program({"info", "--preset", "cifar10-csp", "--json"}).out).at(0);
  CHECK(info["parameters"] == 6'377'994);
  CHECK(info["configuration"]["lr"] == 1e-4);
  CHECK(contains(vision_program({"info", "--checkpoint", trained().path}).out, "classes: disc\\n"));
}

TEST_CASE("vision: a file of options, a dry run, and the log on standard output" *
          not_sanitized()) {
  const TemporaryFolder folder;
  const std::string file = folder.file("tiny.toml", R"(
    width = 8
    layers = 1
    heads = 2
    hidden = 8
    patch = 8
    validation = 7000
    epochs = 1
    steps = 3
    report-steps = 1
    augment = false
    detect-anomaly = true
  )");
  const std::string out = folder.path("run");
  for (const char* attention : {"csp", "csp-shift", "csp-sort", "full"}) {
    CAPTURE(attention);
    const ProgramRun run = vision_program(
        {"--config", file, "--out", out, "--json-lines", "--attention", attention, "--force"});
    REQUIRE_MESSAGE(run.status == 0, run.err);
    CHECK(run.out == read_file(out + "/metrics.jsonl"));
  }
  refused({"--config", file, "--augmnt"}, "did you mean --augment?");
  refused({"--config", folder.file("bad.toml", "layers = 1.5")},
          "bad.toml:1: layers: wanted an int");

  const ProgramRun dry = vision_program({"--config", file, "--attention", "full", "--dry-run",
                                         "--json-lines", "--out", folder.path("dry")});
  REQUIRE_MESSAGE(dry.status == 0, dry.err);
  CHECK_FALSE(std::filesystem::exists(folder.path("dry")));
  const json cost = json::parse(dry.out);
  CHECK(cost["parameters"] ==
        json::parse(vision_program({"info", "--checkpoint", out, "--json"}).out)["parameters"]);
  // The patches, the layer's matrices and the classes, and the 2 + 5 products of attention.
  constexpr i64 batch = 64, tokens = 16, width = 8, hidden = 8, classes = 10;
  constexpr i64 matrices = 8 * 8 * 3 * width + 4 * width * width + 2 * width * hidden;
  CHECK(cost["operations"] ==
        6 * batch * (tokens * matrices + width * classes) + 14 * batch * tokens * tokens * width);
}

TEST_CASE("vision: refusals") {
  const TemporaryFolder folder;
  refused({"--attention", "fulll"}, "did you mean full?");
  refused({"--patch", "5"}, "patches of 5 pixels do not divide a picture of 32");
  refused({"--width", "66"}, "the width 66 does not divide into 4 heads");
  refused({"--lr", "-1"}, "--lr: wanted a number above 0");
  refused({"--validation", "8000"}, "--validation: holding out 8000 of 8000");
  refused({"--data", folder.path("none")}, "none: there is no such folder");
  refused({"--preset", "cifar10"}, "--preset: there is no 'cifar10'");
  refused({"tarin"}, "there is no command 'tarin'");
  refused({"--atention", "full"}, "did you mean --attention?");
  if (!cuda_is_there()) refused({"--device", "cuda"}, no_cuda);
}

TEST_CASE("vision: checkpoints are not trusted") {
  const TemporaryFolder folder;
  Checkpoint good = read_checkpoint(trained().path + "/best.safetensors");
  const auto refusal = [&](auto change, const std::string& part) {
    Checkpoint changed = good;
    change(changed);
    const std::string file = folder.path("changed.safetensors");
    write_checkpoint(changed, file);
    refused({"eval", "--checkpoint", file}, part);
  };
  const auto with = [](Checkpoint& c, const std::string& key, const json& value) {
    json configuration = json::parse(c.metadata["configuration"]);
    configuration[key] = value;
    c.metadata["configuration"] = configuration.dump();
  };
  refusal([](Checkpoint& c) { c.metadata.erase("vision_format"); }, "not one that vision wrote");
  refusal([](Checkpoint& c) { c.metadata["vision_format"] = "2"; }, "is of format 2");
  refusal([](Checkpoint& c) { c.metadata["classes"] = "a\nb"; }, "names 2 classes; builtin has 10");
  refusal([&](Checkpoint& c) { with(c, "layers", 1000); }, "needs more numbers than");
  refusal([&](Checkpoint& c) { with(c, "hidden", 65536); }, "needs more numbers than");
  refusal([&](Checkpoint& c) { with(c, "width", 1000000000); }, "its configuration: --width");
  refusal([&](Checkpoint& c) { with(c, "width", "48"); },
          "'width' in its configuration has the wrong");
  refusal([&](Checkpoint& c) { with(c, "dataset", "auto"); }, "names no data set");
  refusal([&](Checkpoint& c) { with(c, "patch", 8); }, "patch.weight");
  refusal([](Checkpoint& c) { c.tensors.erase("head.bias"); }, "head.bias");
  refused({"eval", "--checkpoint", folder.file("x.safetensors", "x")}, "x.safetensors");
}

TEST_CASE("vision: on a CUDA device, with and without a graph") {
  if (!cuda_is_there()) {
    MESSAGE("skipped: there is no CUDA device");
    return;
  }
  const TemporaryFolder folder;
  const std::string data = few_pictures(folder);
  const auto losses = [&](const std::string& name, const Words& more) {
    const ProgramRun run = vision_program(Words{"--out", folder.path(name)} + tiny + more +
                                          Words{"--data", data, "--report-steps", "1", "--batch",
                                                "4", "--validation", "8", "--dropout", "0.1"});
    REQUIRE_MESSAGE(run.status == 0, run.err);
    return logged(folder.path(name), "train", "loss");
  };
  const std::vector<double> cpu = losses("cpu", {});
  const std::vector<double> plain = losses("plain", {"--device", "cuda", "--no-graph"});
  CHECK(losses("graph", {"--device", "cuda"}) == plain);
  REQUIRE(cpu.size() == plain.size());
  for (std::size_t i = 0; i < cpu.size(); ++i) {
    CHECK(plain[i] == doctest::Approx(cpu[i]).epsilon(1e-4));
  }
}

}  // TEST_SUITE("vision")
