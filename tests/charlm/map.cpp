// `eval --map`: the attention of a trained model on a text.
#include <filesystem>

#include "apps/command_line/attention_map.h"
#include "apps/data/picture.h"
#include "nn/checkpoint.h"
#include "tests/charlm/tiny.h"
#include "tests/check.h"
#include "tests/program.h"

using namespace weft;

namespace {

const Words small{
    "--quiet", "--width", "16", "--heads", "2",  "--depth",       "3",  "--length",
    "24",      "--batch", "4",  "--steps", "20", "--epoch-steps", "10", "--validation-batches",
    "1",       "--test-batches", "1", "--split", "98/1.9/0.1"};

// A run of charlm with this attention.
struct MappedModel {
  TemporaryFolder folder;
  std::string run = folder.path("run");
  explicit MappedModel(const std::string& attention, const Words& more = {}) {
    const ProgramRun made =
        app("charlm", Words{"train", "--out", run, "--attention", attention} + small + more);
    REQUIRE_MESSAGE(made.status == 0, made.err);
  }
  ProgramRun eval(const Words& more) const {
    return app("charlm", Words{"eval", "--checkpoint", run} + more);
  }
  Tensor map(const std::string& place, const Words& more = {}) const {
    const std::string path = folder.path("map.safetensors");
    const ProgramRun made = eval(Words{"--map", place, "--map-out", path, "--force"} + more);
    REQUIRE_MESSAGE(made.status == 0, made.err);
    return read_checkpoint(path).tensors.at("map");
  }
};

TEST_SUITE("charlm") {

TEST_CASE("eval --map: rows of softmax attention sum to 1 and see no future") {
  const MappedModel model("full", {"--encoding", "position"});
  const Words text = {"--text", "the thread that a loom"};
  const Tensor all = model.map("1,all", text);
  REQUIRE(all.shape() == Shape{2, 22, 22});
  const View<float, 3> w = all.view<float, 3>();
  for (i64 h = 0; h < 2; ++h) {
    for (i64 i = 0; i < 22; ++i) {
      double sum = 0;
      for (i64 j = 0; j < 22; ++j) {
        sum += w(h, i, j);
        if (j > i) CHECK(w(h, i, j) == 0);
      }
      CHECK(sum == doctest::Approx(1).epsilon(1e-5));
    }
  }
  CHECK(same_bits(model.map("1,1", text), all.slice(0, 1, 2).packed().reshape({22, 22})));
  // Another layer sees another sequence, and the past does not depend on what follows.
  CHECK_FALSE(same_bits(model.map("0,1", text), model.map("1,1", text)));
  const Tensor shorter = model.map("1,0", {"--text", "the thread"});
  for (i64 i = 0; i < 10; ++i) {
    for (i64 j = 0; j < 10; ++j) {
      CHECK(shorter.view<float, 2>()(i, j) == doctest::Approx(w(0, i, j)).epsilon(1e-4));
    }
  }
}

TEST_CASE("eval --map: blocks that are not shared are layers, too") {
  const MappedModel model("agglomerative", {"--no-shared"});
  const Tensor first = model.map("0,0"), last = model.map("2,0");
  CHECK(first.shape() == Shape{24, 24});
  CHECK_FALSE(same_bits(first, last));
}

TEST_CASE("eval --map: says which text, and draws it") {
  const MappedModel model("agglomerative");
  const std::string path = model.folder.path("map.png");
  const ProgramRun run = model.eval({"--map", "2,all", "--map-out", path, "--scale", "row"});
  REQUIRE_MESSAGE(run.status == 0, run.err);
  CHECK(contains(run.out, "the test split of builtin, 24 tokens: "));
  CHECK(contains(run.out, "wrote  " + path + ": agglomerative, layer 2, heads all"));
  CHECK_FALSE(contains(run.out, "bits per character"));
  const Picture picture = Picture::load(path);
  CHECK(picture.width() > 24 * 15);
  CHECK(picture.width() < 1300);
  const ProgramRun own =
      model.eval({"--map", "0,0", "--map-out", path, "--force", "--text", "a loom"});
  CHECK(contains(own.out, "--text, 6 tokens: a loom\n"));
}

TEST_CASE("eval --map: a character of a token is one letter of its label") {
  const TemporaryFolder folder;
  const std::string path = folder.path("map.png");
  const auto drawn = [&](const std::string& token) {
    write_maps({Tensor::zeros({2, 2}, DType::f32)},
               {.title = "title", .heads = {0}, .tokens = {token, "a"}}, path);
    const Picture picture = Picture::load(path);
    std::vector<int> pixels = {static_cast<int>(picture.width())};
    for (i64 i = 0; i < picture.width() * picture.height(); ++i) {
      const auto [red, green, blue] = picture.pixels()[i];
      pixels.insert(pixels.end(), {red, green, blue});
    }
    return pixels;
  };
  const std::string u_umlaut = "\xc3\xbc", unassigned = "\xcd\xb8";  // U+0378 is in no font
  CHECK(drawn(unassigned) == drawn("?"));
  CHECK(drawn("\xbc") == drawn("?"));  // a byte of a character
  CHECK(drawn(u_umlaut) != drawn("?"));
  CHECK(drawn(u_umlaut) != drawn("u"));
  std::string twelve;
  for (int i = 0; i < 12; ++i) twelve += unassigned;
  CHECK(drawn(twelve) == drawn("????????????"));
  CHECK(drawn(twelve + u_umlaut) == drawn("???????????~"));
}

TEST_CASE("eval --map: what does not go is one line") {
  const MappedModel model("full");
  const auto refused = [&](const Words& words, const std::string& part) {
    CAPTURE(part);
    check_refused(model.eval(words), part);
  };
  const std::string path = model.folder.path("x.png");
  const auto to = [&](const std::string& place) {
    return Words{"--map", place, "--map-out", path};
  };
  refused(to("3,0"), "--map: wanted LAYER,HEADS with a layer of 0 … 2");
  refused(to("1"), "--map: wanted LAYER,HEADS");
  refused(to("1,2"), "--map: wanted heads of 0 … 1");
  refused(to("1,1-0"), "--map: the heads 1-0 run backwards");
  refused(to("0,0") + Words{"--text", ""}, "--text: wanted a text");
  refused(to("x,0"), "--map: wanted LAYER,HEADS");
  refused(to("0,0") + Words{"--scale", "cubic"}, "--scale: there is no 'cubic'");
  refused(to("0,0") + Words{"--text", "longer than the window of the model"}, "has 24");
  refused(to("0,0") + Words{"--text", "CAPITALS"}, "--text");
  refused({"--map", "0,0", "--map-out", model.folder.path("x.jpg")}, "--map-out");
  refused({"--text", "a"}, "--map");
  refused(to("0,0") + Words{"--json"}, "--map");
  refused(to("0,0") + Words{"--paper"}, "--map excludes --paper");
  refused(to("0,0") + Words{"--text", "a", "--split", "train"}, "--text");
  CHECK_FALSE(std::filesystem::exists(path));
  write_checkpoint({}, path);
  refused(to("0,0"), "--force");
}

TEST_CASE("eval --map: word pieces") {
  const TemporaryFolder folder;
  const std::string run = folder.path("run"), path = folder.path("map.safetensors");
  const Words train = {"train",   "--attention", "full", "--width", "16", "--heads", "2",
                       "--depth", "2",           "--steps", "4",    "--quiet"};
  const ProgramRun made = app("wordlm", train + Words{"--out", run, "--pieces", "paper"});
  REQUIRE_MESSAGE(made.status == 0, made.err);
  const ProgramRun split =
      app("wordlm", {"eval", "--checkpoint", run, "--map", "1,all", "--map-out", path});
  REQUIRE_MESSAGE(split.status == 0, split.err);
  CHECK(contains(split.out, "the test split of builtin, "));
  CHECK(read_checkpoint(path).tensors.at("map").rank() == 3);
  const ProgramRun own = app("wordlm", {"eval", "--checkpoint", run, "--map", "0,0", "--map-out",
                                        folder.path("map.png"), "--text", "the river"});
  REQUIRE_MESSAGE(own.status == 0, own.err);
  CHECK(contains(own.out, "--text, "));
  CHECK(contains(own.out, "<begin>"));
  const std::string bytes = folder.path("bytes");
  REQUIRE(app("wordlm", train + Words{"--out", bytes}).status == 0);
  const Words map = {"eval",  "--checkpoint", bytes,    "--map",    "0,0", "--map-out",
                     folder.path("exact.png"), "--text", "the River"};
  const ProgramRun exact = app("wordlm", map);
  REQUIRE_MESSAGE(exact.status == 0, exact.err);
  CHECK(contains(exact.out, "the River"));
}

}  // TEST_SUITE("charlm")

}  // namespace
