// attend on tensors of a file.
#include <array>
#include <cmath>
#include <filesystem>

#include "apps/data/picture.h"
#include "autograd/tape.h"
#include "nn/checkpoint.h"
#include "nn/file.h"
#include "nn/npy.h"
#include "ops/attention/mechanism.h"
#include "tests/check.h"
#include "tests/cuda_there.h"
#include "tests/program.h"
#include "tests/sanitized.h"

using namespace weft;

namespace {

using Tensors = std::map<std::string, Tensor>;

ProgramRun attend_program(const Words& words) { return app("attend", words); }

Tensor normal(const Shape& shape, std::uint64_t seed) {
  return random_normal(shape, DType::f64, seed);
}

struct Files {
  TemporaryFolder folder;
  std::string in = folder.path("in.safetensors"), out = folder.path("out.safetensors");
  explicit Files(const Tensors& tensors) { write_checkpoint({tensors, {}}, in); }

  Tensors run(const Words& more) const {
    const ProgramRun run = attend_program(Words{"--in", in, "--out", out, "--force"} + more);
    REQUIRE_MESSAGE(run.status == 0, run.err);
    return read_checkpoint(out).tensors;
  }
  void refused(const Words& more, const std::string& part) const {
    CAPTURE(part);
    check_refused(attend_program(Words{"--in", in, "--out", out} + more), part);
    CHECK_FALSE(std::filesystem::exists(out));
  }
};

const Tensors sequence{
    {"q", normal({2, 9, 3, 4}, 1)}, {"k", normal({2, 9, 3, 4}, 2)}, {"v", normal({2, 9, 3, 5}, 3)}};

Tensors with(Tensors tensors, const std::string& name, const Tensor& tensor) {
  tensors[name] = tensor;
  return tensors;
}

TEST_SUITE("tools") {

TEST_CASE("attend: the output and the gradients of the library") {
  const Tensor dout = normal({2, 9, 3, 5}, 4);
  const Tensor lengths = Tensor::from(std::vector<i64>{9, 4}, {2});
  const Files files(with(with(sequence, "dout", dout), "lengths", lengths));
  const Tensors got = files.run({"--attention", "full:temperature=0.3", "--causal", "--backward"});
  AttentionCall call;
  call.causal = true;
  call.lengths = call.query_lengths = lengths;
  std::vector<Variable> leaves;
  for (const char* name : {"q", "k", "v"}) leaves.push_back(Variable::leaf(sequence.at(name)));
  Tape tape;
  const Variable out = attend(AttentionSpec("full:temperature=0.3"), call, leaves).out;
  tape.backward(out, dout);
  CHECK(got.size() == 4);
  CHECK(same_bits(got.at("out"), out.value()));
  CHECK(same_bits(got.at("dq"), leaves[0].gradient()));
  CHECK(same_bits(got.at("dk"), leaves[1].gradient()));
  CHECK(same_bits(got.at("dv"), leaves[2].gradient()));
}

// As in self-attention: what stands beyond the lengths counts neither as a key nor as a query.
TEST_CASE("attend: with as many queries as keys lengths are those of both") {
  const Tensor lengths = Tensor::from(std::vector<i64>{9, 4}, {2});
  Tensors changed = sequence;
  for (auto& [name, tensor] : changed) {
    tensor = tensor.clone();
    tensor.slice(0, 1, 2).slice(1, 4, 9).fill(NAN);
  }
  for (const std::string spec : {"full", "clustered:clusters=2", "sinkformer", "linear"}) {
    CAPTURE(spec);
    const Tensor out =
        Files(with(sequence, "lengths", lengths)).run({"--attention", spec}).at("out");
    const Tensor same =
        Files(with(changed, "lengths", lengths)).run({"--attention", spec}).at("out");
    CHECK(same_bits(same, out));
    CHECK(same_bits(out.slice(0, 1, 2).slice(1, 4, 9), Tensor::zeros({1, 5, 3, 5}, DType::f64)));
    Tensors given = with(sequence, "lengths", lengths);
    given["query_lengths"] = Tensor::from(std::vector<i64>{9, 9}, {2});
    CHECK_FALSE(same_bits(Files(given).run({"--attention", spec}).at("out"), out));
  }
}

TEST_CASE("attend: without --backward dout is ignored") {
  const Files files(with(sequence, "dout", normal({2, 9, 3, 5}, 4)));
  const Tensors got = files.run({});
  CHECK(got.size() == 1);
  CHECK(same_bits(got.at("out"), Files(sequence).run({}).at("out")));
}

TEST_CASE("attend: the nodes of a tree, of which lengths count the leaves") {
  Tensors tree{{"q", normal({2, 11, 3, 4}, 1)},
               {"k", normal({2, 11, 3, 4}, 2)},
               {"v", normal({2, 11, 3, 5}, 3)},
               {"relative", normal({12, 4}, 4)},
               {"lengths", Tensor::from(std::vector<i64>{5, 3}, {2})},
               {"dout", normal({2, 11, 3, 5}, 5)}};
  const Tensors got = Files(tree).run({"--attention", "segtree", "--backward"});
  AttentionCall call;
  call.lengths = tree.at("lengths");
  std::vector<Variable> leaves;
  for (const char* name : {"q", "k", "v", "relative"})
    leaves.push_back(Variable::leaf(tree.at(name)));
  Tape tape;
  const Variable out = attend(AttentionSpec("segtree"), call, leaves).out;
  tape.backward(out, tree.at("dout"));
  CHECK(same_bits(got.at("out"), out.value()));
  CHECK(same_bits(got.at("drelative"), leaves[3].gradient()));
  tree.erase("dout");
  Files(with(tree, "lengths", Tensor::from(std::vector<i64>{6, 3}, {2})))
      .refused({"--attention", "segtree"}, "segtree: lengths holds 6, outside 0 … 5");
  Files(with(sequence, "relative", normal({15, 4}, 4)))
      .refused({"--attention", "segtree"},
               "segtree: no sequence has 9 rows; 4 positions have 7, 5 have 11");
}

TEST_CASE("attend: a block, with all that is learnt by its names") {
  for (const std::string spec : {"isab:norm=1", "star", "biblosa:width=3,activation=relu",
                                 "mega:attention=laplace,chunk=4"}) {
    CAPTURE(spec);
    const AttentionSizes sizes{.B = 2, .N = 7, .S = 7, .d = 8};
    const AttentionInputs sheets = attention_inputs(AttentionSpec(spec), sizes);
    Tensors tensors{{"lengths", Tensor::from(std::vector<i64>{7, 4}, {2})}};
    std::vector<Variable> leaves;
    for (const AttentionInput& sheet : sheets) {
      tensors[sheet.name] = normal(sheet.shape, 1 + leaves.size());
      leaves.push_back(Variable::leaf(tensors[sheet.name]));
    }
    AttentionCall call;
    call.lengths = tensors.at("lengths");
    Tape tape;
    const Variable out = attend(AttentionSpec(spec), call, leaves).out;
    tensors["dout"] = normal(out.shape(), 99);
    tape.backward(out, tensors.at("dout"));
    const Tensors got = Files(tensors).run({"--attention", spec, "--backward"});
    CHECK(got.size() == 1 + sheets.size());
    CHECK(same_bits(got.at("out"), out.value()));
    for (std::size_t i = 0; i < sheets.size(); ++i) {
      CAPTURE(sheets[i].name);
      CHECK(same_bits(got.at("d" + sheets[i].name), leaves[i].gradient()));
    }
  }
}

TEST_CASE("attend: what was decided comes out and can be handed in") {
  const Files files(sequence);
  const Tensors first = files.run({"--attention", "topk:topk=2"});
  CHECK(first.at("topk").shape() == Shape{2, 3, 9, 2});
  CHECK(first.at("topk").dtype() == DType::i64);
  const Files again(with(sequence, "topk", first.at("topk")));
  again.refused({"--attention", "topk:topk=3"}, "the given topk must be [2,3,9,3]");
  CHECK(same_bits(again.run({"--attention", "topk:topk=2"}).at("out"), first.at("out")));
}

TEST_CASE("attend: another element type than the file's") {
  const Files files(sequence);
  const Tensors narrow = files.run({"--dtype", "f32"}), wide = files.run({});
  CHECK(narrow.at("out").dtype() == DType::f32);
  CHECK(wide.at("out").dtype() == DType::f64);
  CHECK(relative_error(narrow.at("out").to(DType::f64), wide.at("out")) <= tolerance::forward_f32);
}

TEST_CASE("attend: on a CUDA device") {
  const Files files(with(sequence, "dout", normal({2, 9, 3, 5}, 4)));
  if (!cuda_is_there()) return files.refused({"--device", "cuda", "--backward"}, no_cuda);
  const Tensors here = files.run({"--backward"});
  const Tensors there = files.run({"--backward", "--device", "cuda"});
  REQUIRE(there.size() == 4);
  for (const auto& [name, value] : here) {
    CHECK(relative_error(there.at(name), value) <= tolerance::backward_f64);
  }
  Files(sequence).refused({"--device", "cuda:9"}, "there is no device 9");
}

TEST_CASE("attend: joined heads stand as one axis") {
  const Files files({{"zq", normal({2, 7, 3}, 1)},
                     {"zk", normal({2, 7, 3}, 2)},
                     {"y", normal({2, 7, 3, 4}, 3)},
                     {"dout", normal({2, 7, 12}, 4)}});
  const Tensors got = files.run({"--attention", "agglomerative", "--backward"});
  CHECK(got.at("out").shape() == Shape{2, 7, 12});
  CHECK(got.at("dy").shape() == Shape{2, 7, 3, 4});
}

// [B, N, H, E] and [B, H, N, E], each from the other.
Tensor other_layout(const Tensor& tensor) { return tensor.transpose(1, 2).packed(); }

TEST_CASE("attend: PyTorch's layout, in and out") {
  const Tensor dout = normal({2, 9, 3, 5}, 4);
  const Tensors whole = with(sequence, "dout", dout);
  Tensors turned;
  for (const auto& [name, tensor] : whole) turned[name] = other_layout(tensor);
  const Files files(turned);
  const Words more = {"--attention", "i-clustered:clusters=3,topk=2", "--backward"};
  const Tensors wanted = Files(whole).run(more);
  const Tensors got = files.run(more + Words{"--layout", "bhne"});
  CHECK(got.size() == wanted.size());
  for (const char* name : {"out", "dq", "dk", "dv"}) {
    CAPTURE(name);
    CHECK(same_bits(got.at(name), other_layout(wanted.at(name))));
  }
  for (const char* name : {"labels", "topk"}) CHECK(same_bits(got.at(name), wanted.at(name)));
  const std::string one = files.folder.path("one.safetensors"),
                    two = files.folder.path("2.safetensors");
  Files(whole).run({"--backward", "--map", one, "--head", "2"});
  files.run({"--backward", "--map", two, "--head", "2", "--layout", "bhne"});
  CHECK(same_bits(read_checkpoint(one).tensors.at("map"), read_checkpoint(two).tensors.at("map")));
  Files(turned).refused({"--layout", "nbhe"}, "--layout: wanted bnhe");
}

TEST_CASE("attend: PyTorch's layout of a mechanism that joins its heads") {
  const Tensors given{{"zq", normal({2, 7, 3}, 1)},
                      {"zk", normal({2, 7, 3}, 2)},
                      {"y", normal({2, 7, 3, 4}, 3)},
                      {"dout", normal({2, 7, 12}, 4)}};
  Tensors turned;
  for (const auto& [name, tensor] : given) {
    turned[name] =
        name == "dout" ? other_layout(tensor.reshape({2, 7, 3, 4})) : other_layout(tensor);
  }
  const Words more = {"--attention", "agglomerative", "--backward"};
  const Tensors wanted = Files(given).run(more);
  const Tensors got = Files(turned).run(more + Words{"--layout", "bhne"});
  CHECK(same_bits(got.at("out"), other_layout(wanted.at("out").reshape({2, 7, 3, 4}))));
  for (const char* name : {"dzq", "dzk", "dy"}) {
    CHECK(same_bits(got.at(name), other_layout(wanted.at(name))));
  }
}

TEST_CASE("attend: a pattern of a person's own, by elements and by blocks") {
  const Tensor dout = normal({2, 9, 3, 5}, 4);
  const Files files(with(sequence, "dout", dout));
  const std::string mask = files.folder.path("mask.npy"),
                    map = files.folder.path("map.safetensors");
  // Blocks of 4 see themselves and the first one.
  const Tensor blocks = Tensor::from(std::vector<double>{0.5, 0, 0, -1, 1, 0, 1, 0, 2}, {3, 3});
  const Tensor pairs = Tensor::zeros({1, 9, 9}, DType::u8);
  for (i64 i = 0; i < 9; ++i) {
    for (i64 j = 0; j < 9; ++j) {
      pairs.data<std::uint8_t>()[i * 9 + j] = j / 4 == i / 4 || j / 4 == 0;
    }
  }
  Tensors by_bias = with(sequence, "dout", dout);
  const Tensor hidden = Tensor::zeros({1, 1, 9, 9}, DType::f64);
  for (i64 pair = 0; pair < 81; ++pair) {
    if (pairs.data<std::uint8_t>()[pair] == 0) hidden.data<double>()[pair] = -INFINITY;
  }
  by_bias["bias"] = hidden;
  const Files biased(by_bias);
  for (const Words& more : {Words{"--backward"}, Words{"--backward", "--causal"}}) {
    const Tensors wanted = biased.run(more);
    for (const auto& [tensor, block] : {std::pair{pairs, "1"}, std::pair{blocks, "4"}}) {
      write_npy(tensor, mask);
      const Tensors got = files.run(more + Words{"--pattern", mask, "--pattern-block", block});
      for (const char* name : {"out", "dq", "dk", "dv"}) {
        CHECK(relative_error(got.at(name), wanted.at(name)) <= tolerance::backward_f64);
      }
    }
  }
  files.run({"--backward", "--pattern", mask, "--pattern-block", "4", "--map", map});
  const Tensor weights = read_checkpoint(map).tensors.at("map");
  for (i64 pair = 0; pair < 81; ++pair) {
    CHECK((weights.data<double>()[pair] > 0) == (pairs.data<std::uint8_t>()[pair] > 0));
  }
}

TEST_CASE("attend: a pattern that does not fit is one line") {
  const Files files(sequence);
  const std::string mask = files.folder.path("mask.npy");
  const auto refused = [&](const Shape& shape, const Words& more, const std::string& why) {
    write_npy(Tensor::zeros(shape, DType::u8), mask);
    files.refused(Words{"--pattern", mask} + more, why);
  };
  refused({9, 8}, {},
          "mask.npy: pattern: wanted a mask [9, 9], [H, 9, 9] or [B, H, 9, 9] for 9 "
          "queries and 9 keys in blocks of 1, got [9,8]; give its block size, or crop it");
  refused({9, 9}, {"--pattern-block", "2"}, "wanted a mask [5, 5]");
  refused({9, 9}, {"--pattern-block", "0"}, "--pattern-block");
  refused({2, 9, 9}, {}, "the pattern's mask has 1 batch items and 2 heads, the inputs 2 and 3");
  refused({9, 9}, {"--attention", "local"}, "--pattern: local does not take one; use full");
  files.refused({"--pattern-block", "2"}, "--pattern");
  files.refused({"--pattern", files.folder.path("none.npy")}, "No such file");
  check_refused(attend_program({"--compare", "full", "--in", files.in, "--pattern", mask}),
                "--compare excludes --pattern");
}

TEST_CASE("attend: says what it read and wrote") {
  const Tensors pytorch{{"q", normal({2, 4, 128, 16}, 1)},
                        {"k", normal({2, 4, 128, 16}, 2)},
                        {"v", normal({2, 4, 128, 16}, 3)}};
  const Files files(pytorch);
  const auto said = [&](const Words& more) {
    const ProgramRun run =
        attend_program(Words{"--in", files.in, "--out", files.out, "--force"} + more);
    CHECK(run.status == 0);
    CHECK(run.err.empty());
    return run.out;
  };
  const std::string wrong = said({});
  CHECK(contains(wrong, "read " + files.in + ": 2 items, 4 positions, 128 heads of 16, f64\n"));
  CHECK(contains(wrong, "for the other layout, use --layout bhne"));
  CHECK(contains(wrong, "wrote " + files.out + ": out [2,4,128,16]\n"));
  const std::string right = said({"--layout", "bhne", "--dtype", "f32"});
  CHECK(right == "read " + files.in + ": 2 items, 128 positions, 4 heads of 16, f32\nwrote " +
                     files.out + ": out [2,4,128,16]\n");
  const Files cross({{"q", normal({1, 2, 1, 3}, 1)},
                     {"k", normal({1, 5, 1, 3}, 2)},
                     {"v", normal({1, 5, 1, 4}, 3)}});
  const ProgramRun run = attend_program({"--in", cross.in, "--out", cross.out});
  CHECK(contains(run.out, ": 1 item, 2 queries, 5 keys, 1 head of 3 (values of 4), f64\n"));
}

TEST_CASE("attend: a folder of .npy files, and f16") {
  const TemporaryFolder folder;
  const std::string arrays = folder.path("arrays"), out = folder.path("out.safetensors");
  std::filesystem::create_directory(arrays);
  for (const auto& [name, tensor] : sequence) {
    write_npy(tensor.to(DType::f32), arrays + "/" + name + ".npy");
  }
  const Tensors wanted = Files(sequence).run({"--dtype", "f32"});
  ProgramRun run = attend_program({"--in", arrays, "--out", out});
  REQUIRE_MESSAGE(run.status == 0, run.err);
  CHECK(same_bits(read_checkpoint(out).tensors.at("out"), wanted.at("out")));
  // 1, 2, …, 6 as halves: their upper byte moves through the exponents.
  const std::string halves("\0\x3c\0\x40\0\x42\0\x44\0\x45\0\x46", 12);
  std::string dict = "{'descr': '<f2', 'fortran_order': False, 'shape': (1, 3, 1, 2), }";
  dict.resize(117, ' ');
  for (const char* name : {"q", "k", "v"}) {
    write_file(arrays + "/" + name + ".npy",
               std::string("\x93NUMPY\1\0v\0", 10) + dict + "\n" + halves);
  }
  run = attend_program({"--in", arrays, "--out", out, "--force"});
  REQUIRE_MESSAGE(run.status == 0, run.err);
  CHECK(contains(run.out, "1 item, 3 positions, 1 head of 2, f32"));
  const Tensor x = Tensor::from(std::vector<float>{1, 2, 3, 4, 5, 6}, {1, 3, 1, 2});
  const Files wide({{"q", x}, {"k", x}, {"v", x}});
  CHECK(same_bits(read_checkpoint(out).tensors.at("out"), wide.run({}).at("out")));
  std::filesystem::create_directory(folder.path("empty"));
  check_refused(attend_program({"--in", folder.path("empty"), "--out", out, "--force"}),
                "the folder has no .npy files");
}

TEST_CASE("attend: the map of a head, as numbers and as a picture") {
  const Files files(sequence);
  const std::string numbers = files.folder.path("map.safetensors");
  const std::string picture = files.folder.path("map.png");
  const Tensors got = files.run({"--causal", "--map", numbers, "--head", "2", "--item", "1"});
  const Tensor map = read_checkpoint(numbers).tensors.at("map");
  REQUIRE(map.shape() == Shape{9, 9});
  for (i64 i = 0; i < 9; ++i) {
    double row = 0;
    for (i64 m = 0; m < 5; ++m) {
      double sum = 0;
      for (i64 j = 0; j < 9; ++j) {
        const double weight = map.view<double, 2>()(i, j);
        if (m == 0) row += weight;
        if (j > i) CHECK(weight == 0);
        sum += weight * sequence.at("v").view<double, 4>()(1, j, 2, m);
      }
      CHECK(sum == doctest::Approx(got.at("out").view<double, 4>()(1, i, 2, m)).epsilon(1e-12));
    }
    CHECK(row == doctest::Approx(1).epsilon(1e-12));
  }
  files.run({"--map", picture});
  CHECK(read_file(picture).substr(1, 3) == "PNG");
}

TEST_CASE("attend: the maps of several heads") {
  const Files files(sequence);
  const std::string numbers = files.folder.path("map.safetensors");
  const auto maps = [&](const std::string& heads) {
    files.run({"--map", numbers, "--head", heads});
    return read_checkpoint(numbers).tensors.at("map");
  };
  const Tensor all = maps("all"), two = maps("0,2");
  CHECK(all.shape() == Shape{3, 9, 9});
  CHECK(two.shape() == Shape{2, 9, 9});
  CHECK(same_bits(two.slice(0, 1, 2).packed(), maps("2").reshape({1, 9, 9})));
  CHECK(same_bits(maps("0-2"), all));
  for (const char* wrong : {"3", "0,3", "-1", "2-0", "", "0,", "x", "0-9"}) {
    CAPTURE(wrong);
    Files(sequence).refused({"--map", files.folder.path("x.png"), "--head", wrong}, "--head: ");
  }
}

// Pixels of each colour, and the size.
struct Drawn {
  i64 width, height;
  std::map<std::array<int, 3>, int> colours;
};
Drawn drawn(const std::string& path) {
  const Picture picture = Picture::load(path);
  Drawn all{picture.width(), picture.height(), {}};
  for (i64 i = 0; i < picture.width() * picture.height(); ++i) {
    const Colour& c = picture.pixels()[i];
    ++all.colours[{c.red, c.green, c.blue}];
  }
  return all;
}

TEST_CASE("attend: maps are readable, and scaled as was asked") {
  // With queries of 0 all keys have the same weight: 1/i for query i if it sees i keys.
  const Files files({{"q", Tensor::zeros({1, 9, 3, 4}, DType::f64)},
                     {"k", normal({1, 9, 3, 4}, 2)},
                     {"v", normal({1, 9, 3, 5}, 3)}});
  const std::string path = files.folder.path("map.png");
  const auto with_scale = [&](const std::string& scale) {
    files.run({"--causal", "--map", path, "--scale", scale});
    return drawn(path);
  };
  const std::array<int, 3> darkest{8, 35, 85};
  const Drawn linear = with_scale("linear"), row = with_scale("row"), root = with_scale("sqrt"),
              log = with_scale("log");
  const int cell = linear.colours.at(darkest);  // the first query's alone
  CHECK(cell >= 24 * 24);
  CHECK(row.colours.at(darkest) >
        44 * cell);  // all 45 that are seen; the scale has some pixels, too
  CHECK(linear.width >= 9 * 24);
  const auto ninth = [](double share) {  // the last row's shade, by the scale's definition
    constexpr int stops[] = {255, 190, 95, 25, 8};
    const double place = 4 * share;
    const int low = std::min(3, static_cast<int>(place));
    return static_cast<int>(
        std::lround(stops[low] + (place - low) * (stops[low + 1] - stops[low])));
  };
  const auto has_red = [&](const Drawn& picture, int red) {
    int count = 0;
    for (const auto& [colour, pixels] : picture.colours) count += colour[0] == red ? pixels : 0;
    return count > 8 * cell;
  };
  CHECK(has_red(linear, ninth(1.0 / 9)));
  CHECK(has_red(root, ninth(1.0 / 3)));
  CHECK(has_red(log, ninth(1 + std::log10(1.0 / 9) / 4)));
  files.run({"--causal", "--map", path, "--head", "all"});
  const Drawn grid = drawn(path);  // two rows of two
  CHECK(grid.width > 2 * 9 * 24);
  CHECK(grid.height > 2 * 9 * 24);
  CHECK(grid.colours.at(darkest) >= 3 * 24 * 24);
  Files(sequence).refused({"--map", files.folder.path("x.png"), "--scale", "cubic"},
                          "--scale: there is no 'cubic'");
}

TEST_CASE("attend: the map of a long sequence keeps a size that can be shown" * not_sanitized()) {
  const Files files({{"q", normal({1, 3000, 1, 2}, 1)},
                     {"k", normal({1, 3000, 1, 2}, 2)},
                     {"v", normal({1, 3000, 1, 2}, 3)}});
  const std::string path = files.folder.path("map.png");
  files.run({"--map", path, "--dtype", "f32"});
  const Drawn picture = drawn(path);
  CHECK(picture.width < 1300);
  CHECK(picture.height < 1300);
  CHECK(picture.width > 700);
}

TEST_CASE("attend: bad input is one line and exit status 2, and nothing is written") {
  const Files files(sequence);
  const std::string map = files.folder.path("map.png");
  files.refused({"--attention", "fulll"}, "did you mean full?");
  files.refused({"--attention", "agglomerative"}, "agglomerative takes no tensor 'k'; there are");
  files.refused({"--backward"}, "--backward needs dout, the gradient of out, in the file");
  files.refused({"--map", files.folder.path("x.jpg")}, "wanted a name that ends with .png");
  files.refused({"--map", files.folder.path("x.png"), "--head", "3"},
                "--head: wanted heads of 0 … 2");
  files.refused({"--device", "tpu"}, "wanted cpu, cuda or cuda:N, got 'tpu'");
  files.refused({"--dtype", "f16"}, "f16");
  files.refused({"--speed"}, "--speed");
  files.refused({"--map", files.out}, "--map and --out are the same file");
  files.refused({"--map", files.folder.path("no/x.png")}, "its folder does not exist");
  for (const Words& words : {Words{"--head", "1"}, Words{"--item", "1"}, Words{"--scale", "log"}}) {
    files.refused(words, words[0] + " requires --map");
  }
  check_refused(attend_program({"--in", files.in, "--backward", "--map", map}),
                "--backward requires --out");
  CHECK_FALSE(std::filesystem::exists(map));
  Files(with(sequence, "dout", normal({2, 9, 3, 6}, 4)))
      .refused({"--backward"}, "dout is [2,9,3,6]");
  Files(with(sequence, "lengths", normal({2}, 4))).refused({}, "lengths: wanted integers, got f64");
  Files(with(sequence, "labels", normal({2}, 4))).refused({}, "takes no tensor 'labels'");
  Files(with(sequence, "k", normal({2, 9, 3, 6}, 4))).refused({}, "E = 6");
  Tensors lacking = sequence;
  lacking.erase("v");
  Files(lacking).refused({}, "has no v [B S H M], an input of full");
  check_refused(attend_program({"--in", files.folder.path("none"), "--out", files.out}),
                "cannot be opened");
  check_refused(attend_program({"--in", files.in}), "nothing to write");
  files.run({});
  check_refused(attend_program({"--in", files.in, "--out", files.out}), "--force");
}

}  // TEST_SUITE("tools")

}  // namespace
