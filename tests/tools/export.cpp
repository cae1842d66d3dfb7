// `export` of charlm, wordlm and vision.
#include "doctest/doctest.h"
#include "nn/checkpoint.h"
#include "nn/npy.h"
#include "nn/universal_transformer.h"
#include "tests/check.h"
#include "tests/json_lines.h"
#include "tests/program.h"

using namespace weft;

namespace {

ProgramRun app(const std::string& name, const Words& words) {
  return run_program(WEFT_PROGRAMS "/" + name, words);
}

void require_done(const ProgramRun& run) { REQUIRE_MESSAGE(run.status == 0, run.err); }

const Words charlm_train = {"train", "--steps", "2", "--width", "16", "--heads", "2", "--length",
                            "12", "--test-batches", "1", "--validation-batches", "1"};

}  // namespace

TEST_SUITE("tools") {

TEST_CASE("export: the parameters of each app, in either format") {
  const std::pair<const char*, Words> trainings[] = {
      {"charlm", charlm_train},
      {"wordlm", {"train", "--steps", "2", "--width", "16", "--heads", "2", "--length", "12"}},
      {"vision", {"train", "--steps", "2", "--width", "16", "--heads", "2", "--layers", "1"}}};
  for (const auto& [name, words] : trainings) {
    CAPTURE(name);
    const TemporaryFolder folder;
    const std::string file = folder.path("out.safetensors"), arrays = folder.path("out");
    const Words exported = {"export", "--checkpoint", folder.path("run"), "--out"};
    require_done(app(name, words + Words{"--out", folder.path("run"), "--quiet"}));
    require_done(app(name, exported + Words{file}));
    require_done(app(name, exported + Words{arrays, "--format", "npy", "--example"}));
    // What training needs besides, and says about itself, is no part of it.
    const Checkpoint trained = read_checkpoint(folder.path("run/best.safetensors"));
    const Checkpoint alone = read_checkpoint(file);
    CHECK(alone.metadata.at("configuration") == trained.metadata.at("configuration"));
    CHECK_FALSE(alone.metadata.contains("step"));
    CHECK(nlohmann::json::parse(read_file(arrays + "/metadata.json")) == alone.metadata);
    REQUIRE(alone.tensors.size() > 10);
    for (const auto& [parameter, tensor] : alone.tensors) {
      CAPTURE(parameter);
      REQUIRE(trained.tensors.contains(parameter));
      CHECK(same_bits(tensor, trained.tensors.at(parameter)));
      CHECK(same_bits(tensor, read_npy(arrays + "/" + parameter + ".npy")));
    }
    // The file is a checkpoint again.
    const ProgramRun info = app(name, {"info", "--checkpoint", file, "--json"});
    require_done(info);
    CHECK(lines(info.out)[0]["parameters"] ==
          lines(app(name, {"info", "--checkpoint", folder.path("run"), "--json"}).out)[0]
               ["parameters"]);
    CHECK(read_npy(arrays + "/example.logits.npy").size(0) == 2);
  }
}

TEST_CASE("export: the example is what the weights give") {
  const TemporaryFolder folder;
  require_done(app("charlm", charlm_train + Words{"--out", folder.path("run"), "--quiet"}));
  require_done(app("charlm", {"export", "--checkpoint", folder.path("run"), "--example", "--out",
                              folder.path("x")}));
  Checkpoint exported = read_checkpoint(folder.path("x"));
  const Tensor input = exported.tensors.at("example.input");
  const Tensor logits = exported.tensors.at("example.logits");
  exported.tensors.erase("example.input"), exported.tensors.erase("example.logits");
  const auto settings = nlohmann::json::parse(exported.metadata.at("configuration"));
  UniversalTransformer network({.width = 16,
                                .depth = settings["depth"],
                                .heads = 2,
                                .length = 12,
                                .attention = settings["attention"],
                                .encoding = settings["encoding"],
                                .conv_width = settings["conv-width"],
                                .act = settings["act"],
                                .wiring = settings["wiring"],
                                .shared = settings["shared"]},
                               7);
  load_parameters(parameters(network), exported.tensors, "x");
  Context context = Context::evaluation();
  CHECK(input.shape() == Shape{2, 12});
  CHECK(same_bits(network(context, input).logits.value(), logits));
}

TEST_CASE("export: bad input is refused in a line, and nothing is overwritten") {
  const TemporaryFolder folder;
  require_done(app("charlm", charlm_train + Words{"--out", folder.path("run"), "--quiet"}));
  const Words exported = {"export", "--checkpoint", folder.path("run"), "--out"};
  const std::string there = folder.file("there", "kept");
  check_refused(app("charlm", exported + Words{there}), "there: is there already");
  CHECK(read_file(there) == "kept");
  check_refused(app("charlm", exported + Words{folder.path("run"), "--format", "npy"}),
                "is there already");
  check_refused(app("charlm", exported + Words{folder.path("x"), "--format", "pickle"}),
                "there is no 'pickle'");
  check_refused(app("charlm", exported + Words{folder.path("no/such/x")}), "cannot be created");
  check_refused(app("charlm", {"export", "--checkpoint", "/nowhere", "--out", folder.path("x")}),
                "/nowhere: cannot be opened");
  CHECK_FALSE(std::filesystem::exists(folder.path("x")));
}

}  // TEST_SUITE
