// attend --compare: several mechanisms on one file.
#include <cmath>
#include <filesystem>
#include <sstream>

#include "apps/data/picture.h"
#include "nn/checkpoint.h"
#include "tests/check.h"
#include "tests/program.h"

using namespace weft;

namespace {

using Tensors = std::map<std::string, Tensor>;

const Tensors long_sequence{{"q", random_normal({2, 40, 3, 4}, DType::f64, 1)},
                            {"k", random_normal({2, 40, 3, 4}, DType::f64, 2)},
                            {"v", random_normal({2, 40, 3, 5}, DType::f64, 3)}};

struct File {
  TemporaryFolder folder;
  std::string in = folder.path("in.safetensors");
  explicit File(const Tensors& tensors) { write_checkpoint({tensors, {}}, in); }

  ProgramRun compare(const std::string& list, const Words& more = {}) const {
    return app("attend", Words{"--in", in, "--compare", list} + more);
  }
  std::string said(const std::string& list, const Words& more = {}) const {
    const ProgramRun run = compare(list, more);
    REQUIRE_MESSAGE(run.status == 0, run.err);
    return run.out;
  }
  Tensor out(const Words& words) const {
    const std::string path = folder.path("out.safetensors");
    const ProgramRun run = app("attend", Words{"--in", in, "--out", path, "--force"} + words);
    REQUIRE_MESSAGE(run.status == 0, run.err);
    return read_checkpoint(path).tensors.at("out");
  }
};

// The cells of the row that begins with this specification.
Words row(const std::string& table, const std::string& specification) {
  std::istringstream lines(table.substr(table.find("\n\n")));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    Words cells;
    for (std::string word; words >> word;) cells.push_back(word);
    if (!cells.empty() && cells[0] == specification) return cells;
  }
  FAIL(specification << " has no row in\n" << table);
  return {};
}

TEST_SUITE("tools") {

TEST_CASE("attend --compare: errors, times and memory of each") {
  const File file(long_sequence);
  const std::string said =
      file.said("full,topk:topk=5,full:temperature=0.5,clustered:clusters=6,bits=16");
  CHECK(contains(said,
                 "read " + file.in + ": 2 items, 40 positions, 3 heads of 4 (values of 5), f64"));
  const Tensor first = file.out({"--attention", "full"});
  for (const char* text : {"topk:topk=5", "full:temperature=0.5", "clustered:clusters=6,bits=16"}) {
    CAPTURE(text);
    const Words cells = row(said, text);
    REQUIRE(cells.size() == 5);
    const double error = relative_error(file.out({"--attention", text}), first);
    CHECK(std::stod(cells[1]) == doctest::Approx(error).epsilon(0.01));
    CHECK(std::stod(cells[2]) > 0);
    CHECK(std::stod(cells[3]) > 0);
    CHECK(std::stod(cells[4]) >= 0.008);  // the output alone
  }
  CHECK(row(said, "full")[1] == "–");
  CHECK(row(said, "full")[3] == "1.00");
  CHECK_FALSE(contains(said, "not read"));
}

TEST_CASE("attend --compare: what a family lacks is derived, and said") {
  const File file(long_sequence);
  const std::string said =
      file.said("full,agglomerative,csp,shared-full,lsh:rounds=1", {"--seed", "3"});
  CHECK(contains(said,
                 "agglomerative: zq is q W[12,3], W drawn; zk is k W[12,3], W drawn; y is v "
                 "(--seed 3)"));
  for (const char* name : {"csp", "shared-full", "lsh:rounds=1"}) {
    CHECK_FALSE(contains(said, std::string("\n") + name + ": "));
    CHECK(row(said, name).size() == 5);
  }
  CHECK(file.said("full,agglomerative", {"--seed", "4"}) != said);
  // The inverse: queries, keys and values from logits.
  const File logits({{"zq", random_normal({1, 20, 3}, DType::f64, 1)},
                     {"zk", random_normal({1, 20, 3}, DType::f64, 2)},
                     {"y", random_normal({1, 20, 3, 4}, DType::f64, 3)}});
  const std::string other = logits.said("agglomerative,full,csp");
  CHECK(contains(other, "full: q is y W[12,12], W drawn; k is y W[12,12], W drawn; v is y"));
  CHECK(contains(other, "csp: v is y"));
  CHECK(row(other, "full").size() == 5);
}

TEST_CASE("attend --compare: inputs of causal calls alone are left out of others") {
  const File file(long_sequence);
  CHECK(row(file.said("full,sinkhorn:block=8"), "sinkhorn:block=8").size() == 5);
  CHECK(row(file.said("full,sinkhorn:block=8", {"--causal"}), "sinkhorn:block=8").size() == 5);
}

TEST_CASE("attend --compare: derived inputs are those of a call that names them") {
  const File file(long_sequence);
  const double error = std::stod(row(file.said("csp,full"), "full")[1]);
  const Tensor csp = File({{"v", long_sequence.at("v")}}).out({"--attention", "csp"});
  const Tensor full = file.out({"--attention", "full"}).reshape({2, 40, 15});
  CHECK(error == doctest::Approx(relative_error(full, csp)).epsilon(0.01));
}

TEST_CASE("attend --compare: PyTorch's layout, masks, and what is not read") {
  Tensors tensors;
  for (const auto& [name, tensor] : long_sequence) tensors[name] = tensor.transpose(1, 2).packed();
  tensors["lengths"] = Tensor::from(std::vector<i64>{40, 7}, {2});
  tensors["dout"] = random_normal({1}, DType::f64, 1);
  tensors["loss"] = random_normal({3, 3}, DType::f64, 1);
  const File file(tensors);
  const std::string said =
      file.said("full,topk:topk=5,lsh", {"--layout", "bhne", "--causal", "--dtype", "f32"});
  CHECK(contains(said, "2 items, 40 positions, 3 heads of 4 (values of 5), f32, causal"));
  CHECK(contains(said, "not read: dout, loss\n"));
  Tensors straight = long_sequence;
  straight["lengths"] = tensors["lengths"];
  const std::string same = File(straight).said("full,topk:topk=5", {"--causal", "--dtype", "f32"});
  CHECK(row(same, "topk:topk=5")[1] == row(said, "topk:topk=5")[1]);
}

TEST_CASE("attend --compare: lengths of a padded batch are those of queries, too") {
  Tensors tensors = long_sequence;
  tensors["lengths"] = Tensor::from(std::vector<i64>{40, 7}, {2});
  const std::string list = "full,local:context=100,topk:topk=40,topk:topk=3";
  const std::string said = File(tensors).said(list);
  // A window of all positions and all keys as the largest are full attention.
  CHECK(std::stod(row(said, "local:context=100")[1]) < 1e-12);
  CHECK(std::stod(row(said, "topk:topk=40")[1]) < 1e-12);
  tensors["query_lengths"] = tensors["lengths"];
  const std::string both = File(tensors).said(list);
  const auto out = [&](const char* text) { return File(tensors).out({"--attention", text}); };
  const double error = relative_error(out("topk:topk=3"), out("full"));
  for (const std::string& table : {said, both}) {
    CHECK(row(table, "local:context=100").size() == 5);
    CHECK(std::stod(row(table, "topk:topk=3")[1]) == doctest::Approx(error).epsilon(0.01));
  }
  tensors["query_lengths"] = Tensor::from(std::vector<i64>{9, 40}, {2});
  const std::string apart = File(tensors).said(list);
  CHECK(contains(apart, "local:context=100 "));
  CHECK(contains(apart, "does not take query lengths; use full"));
  CHECK(row(apart, "topk:topk=3").size() == 5);
}

TEST_CASE("attend --compare: one that cannot run says why, the others run") {
  const File file({{"q", random_normal({1, 4, 2, 4}, DType::f64, 1)},
                   {"k", random_normal({1, 6, 2, 4}, DType::f64, 2)},
                   {"v", random_normal({1, 6, 2, 4}, DType::f64, 3)}});
  const std::string said = file.said("full,lsh,topk:topk=2", {"--out", file.folder.path("x.png")});
  CHECK(contains(said, "cannot attend across two sequences"));
  CHECK(row(said, "topk:topk=2").size() == 5);
  check_refused(file.compare("lsh,full"), "cannot attend across two sequences");
  check_refused(File({{"x", random_normal({2}, DType::f64, 1)}}).compare("full"),
                "nor anything to derive it from");
}

TEST_CASE("attend --compare: the picture") {
  const File file(long_sequence);
  const std::string path = file.folder.path("table.png");
  CHECK(contains(file.said("full,topk:topk=2,csp", {"--out", path}), "wrote " + path));
  const Picture picture = Picture::load(path);
  std::map<std::tuple<int, int, int>, int> pixels;
  for (i64 i = 0; i < picture.width() * picture.height(); ++i) {
    const Colour& colour = picture.pixels()[i];
    ++pixels[{colour.red, colour.green, colour.blue}];
  }
  // The longest bar of each column is 220 pixels of 16.
  for (const auto& colour : {std::tuple{200, 90, 60}, {60, 120, 180}, {90, 150, 90}}) {
    CHECK(pixels[colour] >= 220 * 16);
  }
  ::setenv("WEFT_FONT", file.in.c_str(), 1);
  const ProgramRun run = file.compare("full", {"--out", path, "--force"});
  ::unsetenv("WEFT_FONT");
  CHECK(run.status == 2);
  CHECK_MESSAGE(contains(run.err, file.in + " is not a font file that can be read"), run.err);
  check_refused(file.compare("full", {"--out", path}), "--force");
  check_refused(file.compare("full", {"--out", file.folder.path("x.safetensors")}), ".png");
}

TEST_CASE("attend --compare: bad lists and words that do not go with it") {
  const File file(long_sequence);
  check_refused(file.compare("full,,csp"), "single commas");
  check_refused(file.compare("topk=3,full"), "the option topk=3 comes before any mechanism");
  check_refused(file.compare("full,fulll"), "did you mean full?");
  check_refused(file.compare("full,topk:topk=x"), "topk is a number");
  check_refused(file.compare("full", {"--attention", "csp"}), "--compare");
  check_refused(file.compare("full", {"--backward"}), "--compare excludes --backward");
  check_refused(file.compare("full", {"--map", file.folder.path("x.png")}),
                "--compare excludes --map");
  check_refused(file.compare("full", {"--scale", "log"}), "--scale requires --map");
}

}  // TEST_SUITE("tools")

}  // namespace
