// attend on tensors of a file.
#include <cmath>
#include <filesystem>

#include "autograd/tape.h"
#include "nn/checkpoint.h"
#include "ops/attention/mechanism.h"
#include "tests/check.h"
#include "tests/cuda_there.h"
#include "tests/program.h"

using namespace weft;

namespace {

using Tensors = std::map<std::string, Tensor>;

ProgramRun attend_program(const Words& words) {
  return run_program(WEFT_PROGRAMS "/attend", words);
}

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

const Tensors sequence{{"q", normal({2, 9, 3, 4}, 1)}, {"k", normal({2, 9, 3, 4}, 2)},
                       {"v", normal({2, 9, 3, 5}, 3)}};

Tensors with(Tensors tensors, const std::string& name, const Tensor& tensor) {
  tensors[name] = tensor;
  return tensors;
}

TEST_SUITE("tools") {

TEST_CASE("attend: the output and the gradients of the library") {
  const Tensor dout = normal({2, 9, 3, 5}, 4);
  const Tensor lengths = Tensor::from(std::vector<std::int64_t>{9, 4}, {2});
  const Files files(with(with(sequence, "dout", dout), "lengths", lengths));
  const Tensors got = files.run({"--attention", "full:temperature=0.3", "--causal", "--backward"});
  AttentionCall call;
  call.causal = true;
  call.lengths = lengths;
  std::vector<Variable> leaves;
  for (const char* name : {"q", "k", "v"}) leaves.push_back(Variable::leaf(sequence.at(name)));
  Tape tape;
  const Variable out = attend(AttentionSpec("full:temperature=0.3"), call, leaves);
  tape.backward(out, dout);
  CHECK(got.size() == 4);
  CHECK(same_bits(got.at("out"), out.value()));
  CHECK(same_bits(got.at("dq"), leaves[0].gradient()));
  CHECK(same_bits(got.at("dk"), leaves[1].gradient()));
  CHECK(same_bits(got.at("dv"), leaves[2].gradient()));
}

TEST_CASE("attend: what was decided comes out and can be handed in") {
  const Files files(sequence);
  const Tensors first = files.run({"--attention", "topk:topk=2"});
  CHECK(first.at("topk").shape() == Shape{2, 3, 9, 2});
  CHECK(first.at("topk").dtype() == DType::i64);
  const Files again(with(sequence, "topk", first.at("topk")));
  again.refused({"--attention", "topk:topk=3"}, "topk handed in must be [2,3,9,3]");
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
  const Files files({{"zq", normal({2, 7, 3}, 1)}, {"zk", normal({2, 7, 3}, 2)},
                     {"y", normal({2, 7, 3, 4}, 3)}, {"dout", normal({2, 7, 12}, 4)}});
  const Tensors got = files.run({"--attention", "agglomerative", "--backward"});
  CHECK(got.at("out").shape() == Shape{2, 7, 12});
  CHECK(got.at("dy").shape() == Shape{2, 7, 3, 4});
}

TEST_CASE("attend: the map of a head, as numbers and as a picture") {
  const Files files(sequence);
  const std::string numbers = files.folder.path("map.safetensors");
  const std::string picture = files.folder.path("map.png");
  const Tensors got = files.run({"--causal", "--map", numbers, "--head", "2", "--item", "1"});
  const Tensor map = read_checkpoint(numbers).tensors.at("map");
  REQUIRE(map.shape() == Shape{9, 9});
  for (std::int64_t i = 0; i < 9; ++i) {
    double row = 0;
    for (std::int64_t m = 0; m < 5; ++m) {
      double sum = 0;
      for (std::int64_t j = 0; j < 9; ++j) {
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

TEST_CASE("attend: bad input is one line and exit status 2, and nothing is written") {
  const Files files(sequence);
  files.refused({"--attention", "fulll"}, "did you mean full?");
  files.refused({"--attention", "agglomerative"}, "agglomerative takes no tensor 'k'; there are");
  files.refused({"--backward"}, "--backward wants the gradient of out there, as dout");
  files.refused({"--map", files.folder.path("x.jpg")}, "wanted a name that ends with .png");
  files.refused({"--map", files.folder.path("x.png"), "--head", "3"}, "--head: wanted 0 … 2");
  files.refused({"--device", "tpu"}, "wanted cpu, cuda or cuda:N, got 'tpu'");
  files.refused({"--dtype", "f16"}, "f16");
  files.refused({"--speed"}, "--speed");
  files.refused({"--map", files.out}, "--map and --out are the same file");
  files.refused({"--map", files.folder.path("no/x.png")}, "there is no folder for it");
  Files(with(sequence, "dout", normal({2, 9, 3, 5}, 4))).refused({}, "which only --backward reads");
  Files(with(sequence, "dout", normal({2, 9, 3, 6}, 4))).refused({"--backward"}, "dout is [2,9,3,6]");
  Files(with(sequence, "lengths", normal({2}, 4))).refused({}, "lengths: wanted integers, got f64");
  Files(with(sequence, "labels", normal({2}, 4))).refused({}, "takes no tensor 'labels'");
  Files(with(sequence, "k", normal({2, 9, 3, 6}, 4))).refused({}, "E = 6");
  Tensors lacking = sequence;
  lacking.erase("v");
  Files(lacking).refused({}, "v [B S H M], an input of full, is not there");
  check_refused(attend_program({"--in", files.folder.path("none"), "--out", files.out}),
                "cannot be opened");
  check_refused(attend_program({"--in", files.in}), "nothing to write");
  files.run({});
  check_refused(attend_program({"--in", files.in, "--out", files.out}), "--force");
}

}  // TEST_SUITE("tools")

}  // namespace
