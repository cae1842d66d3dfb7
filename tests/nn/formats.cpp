// The files of tests/formats, which Python's packages wrote (formats.py).
#include <cmath>
#include <limits>

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
  for (i64 i = 0; i < shape.count(); ++i) {
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
    bool rewritten = true;  // by the same bytes: weft writes version 1.0, row-major
  };
  const Given files[] = {{"f2.npy", {2, 3}, DType::f32, false},  // weft has no f16
                         {"f4.npy", {2, 3}, DType::f32},
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

TEST_CASE("formats: every f16 is read as the f32 of its value, from both formats") {
  // Each bit pattern once, its value by the definition, in double.
  std::string bits;
  std::vector<double> wanted;
  for (int half = 0; half < 1 << 16; ++half) {
    bits += {static_cast<char>(half & 255), static_cast<char>(half >> 8)};
    const int exponent = half >> 10 & 31, mantissa = half & 1023;
    const double size = exponent == 0    ? std::ldexp(mantissa, -24)
                        : exponent < 31  ? std::ldexp(1024 + mantissa, exponent - 25)
                        : mantissa == 0 ? std::numeric_limits<double>::infinity()
                                        : std::numeric_limits<double>::quiet_NaN();
    wanted.push_back(half >> 15 != 0 ? -size : size);
  }
  const TemporaryFolder folder;
  const std::string header =
      R"({"after":{"dtype":"U8","shape":[2],"data_offsets":[131072,131074]},)"
      R"("halves":{"dtype":"F16","shape":[256,256],"data_offsets":[0,131072]}})";
  const std::uint64_t length = header.size();
  const std::string size(reinterpret_cast<const char*>(&length), sizeof length);
  const Checkpoint read = read_checkpoint(folder.file("x", size + header + bits + "\7\11"));
  CHECK(read.tensors.at("after").to_vector<std::uint8_t>() == std::vector<std::uint8_t>{7, 9});
  std::string dict = "{'descr': '<f2', 'fortran_order': True, 'shape': (256, 256), }";
  dict.resize(117, ' ');
  const Tensor npy =
      read_npy(folder.file("x.npy", std::string("\x93NUMPY\1\0v\0", 10) + dict + "\n" + bits));
  for (const Tensor& got : {read.tensors.at("halves"), npy.transpose(0, 1)}) {
    REQUIRE(got.shape() == Shape{256, 256});
    CHECK(got.dtype() == DType::f32);
    const std::vector<float> values = got.packed().to_vector<float>();
    int wrong = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const bool same =
          std::isnan(wanted[i])
              ? std::isnan(values[i])
              : values[i] == wanted[i] && std::signbit(values[i]) == std::signbit(wanted[i]);
      wrong += same ? 0 : 1;
    }
    CHECK(wrong == 0);
  }
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
