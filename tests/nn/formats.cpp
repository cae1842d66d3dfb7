// The files of tests/formats, which Python's packages wrote: formats.py there says so.
#include "doctest/doctest.h"
#include "nn/checkpoint.h"
#include "nn/npy.h"
#include "tests/check.h"
#include "tests/program.h"

using namespace weft;

namespace {

std::string given(const std::string& name) {
  return std::string(WEFT_SOURCE_ROOT) + "/tests/formats/" + name;
}

// values() of formats.py.
Tensor values(const Shape& shape, DType dtype) {
  std::vector<double> numbers;
  for (std::int64_t i = 0; i < shape.count(); ++i) {
    const auto counted = static_cast<double>(i * 37 % 101);
    numbers.push_back(is_floating(dtype) ? counted / 4 - 12 : counted);
  }
  return Tensor::from(numbers, shape).to(dtype);
}

}  // namespace

TEST_SUITE("nn") {

TEST_CASE("formats: NumPy's files are read, and written with the same bytes") {
  struct Given {
    const char* name;
    Shape shape;
    DType dtype;
    bool rewritten = true;  // weft writes version 1.0, row-major
  };
  const Given files[] = {{"f4.npy", {2, 3}, DType::f32},
                         {"f8.npy", {3, 1, 2}, DType::f64},
                         {"i4.npy", {7}, DType::i32},
                         {"i8.npy", {}, DType::i64},
                         {"u1.npy", {0, 3}, DType::u8},
                         {"six.npy", {1, 2, 1, 2, 3, 1}, DType::f32},
                         {"version2.npy", {2, 3}, DType::f32, false},
                         {"version3.npy", {2, 3}, DType::f32, false},
                         {"fortran.npy", {2, 3, 4}, DType::f64, false}};
  const TemporaryFolder folder;
  for (const Given& file : files) {
    CAPTURE(file.name);
    const Tensor tensor = read_npy(given(file.name));
    CHECK(tensor.dtype() == file.dtype);
    REQUIRE(tensor.shape() == file.shape);
    CHECK(same_bits(tensor, values(file.shape, file.dtype)));
    write_npy(tensor, folder.path("x.npy"));
    if (file.rewritten) CHECK(read_file(folder.path("x.npy")) == read_file(given(file.name)));
    CHECK(same_bits(read_npy(folder.path("x.npy")), values(file.shape, file.dtype)));
  }
}

TEST_CASE("formats: the package safetensors and weft write the same bytes") {
  const Checkpoint read = read_checkpoint(given("python.safetensors"));
  const std::map<std::string, std::string> metadata = {{"made by", "the package safetensors"}};
  CHECK(read.metadata == metadata);
  const std::map<std::string, Tensor> wanted = {
      {"matrix", values({2, 3}, DType::f32)}, {"double", values({3, 1, 2}, DType::f64)},
      {"half", values({5}, DType::bf16)},     {"count", values({}, DType::i64)},
      {"index", values({2, 2}, DType::i32)},  {"bytes", values({5}, DType::u8)},
      {"nothing", values({0, 3}, DType::f32)}};
  REQUIRE(read.tensors.size() == wanted.size());
  for (const auto& [name, tensor] : wanted) {
    CAPTURE(name);
    REQUIRE(read.tensors.contains(name));
    CHECK(read.tensors.at(name).dtype() == tensor.dtype());
    CHECK(same_bits(read.tensors.at(name), tensor));
  }
  const TemporaryFolder folder;
  write_checkpoint({wanted, metadata}, folder.path("x"));
  CHECK(read_file(folder.path("x")) == read_file(given("python.safetensors")));
}

TEST_CASE("formats: Python's packages, as far as they are here, agree") {
  constexpr int skipped = 77, no_python = 127;
  const ProgramRun run = run_program("python3", {given("formats.py"), "check"});
  if (run.status == skipped || run.status == no_python) {
    MESSAGE("skipped, in part:\n" << run.out << run.err);
  } else {
    CHECK_MESSAGE(run.status == 0, run.out << run.err);
  }
}

}  // TEST_SUITE
