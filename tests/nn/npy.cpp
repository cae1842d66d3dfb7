#include "nn/npy.h"

#include <limits>

#include <sys/stat.h>

#include "doctest/doctest.h"
#include "runtime/allocator.h"
#include "tests/check.h"
#include "tests/files.h"

using namespace weft;

namespace {

std::string file_of(const std::string& version, const std::string& length,
                    const std::string& rest) {
  return "\x93NUMPY" + version + length + rest;
}

const std::string version1{"\1\0", 2};

// Version 1.0, with so many bytes of data.
std::string npy(const std::string& header, std::size_t data = 0) {
  const std::string length = {static_cast<char>(header.size() & 255),
                              static_cast<char>(header.size() >> 8)};
  return file_of(version1, length, header + std::string(data, '\1'));
}

std::string dict(const std::string& descr, const std::string& shape,
                 const std::string& fortran_order = "False") {
  return "{'descr': " + descr + ", 'fortran_order': " + fortran_order + ", 'shape': " + shape +
         ", }\n";
}

struct Malformed {
  const char* what;
  std::string bytes;
  const char* message;  // a part of it
};

}  // namespace

TEST_SUITE("nn") {

TEST_CASE("npy: what is written is read again, bit for bit") {
  const TemporaryFolder folder;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor odd = Tensor::from(std::vector<float>{nan, -0.0f, 1e-42f, 4, 5, 6}, {2, 3});
  const std::vector<Tensor> tensors = {odd,
                                       odd.transpose(0, 1),
                                       odd.slice(1, 1, 2),
                                       odd.to(DType::f64),
                                       Tensor::full({1, 2, 3, 4, 5, 6}, -7, DType::i32),
                                       Tensor::full({}, -9e15, DType::i64),
                                       Tensor::full({1000}, 255, DType::u8),
                                       Tensor::empty({3, 0}, DType::f32)};
  for (const Tensor& tensor : tensors) {
    CAPTURE(fmt::format("{}", tensor.shape()));
    write_npy(tensor, folder.path("x"));
    const Tensor again = read_npy(folder.path("x"));
    CHECK(again.dtype() == tensor.dtype());
    CHECK(again.shape() == tensor.shape());
    CHECK(same_bits(again.packed(), tensor.packed()));
  }
  CHECK_ERROR(write_npy(odd.to(DType::bf16), folder.path("half")),
              "half: NumPy has no bf16; convert the tensor to f32 first");
  CHECK_FALSE(std::filesystem::exists(folder.path("half")));
}

TEST_CASE("npy: a header may stand in any order and form that NumPy reads") {
  const TemporaryFolder folder;
  const std::string headers[] = {
      "{'descr':'<f4','fortran_order':False,'shape':(2,)}",
      "{\"shape\": (2 ,), \"fortran_order\": True, \"descr\": \"<f4\"}   \n",
      "  {  'descr' : '<f4' , 'shape' : ( 2, ) , 'fortran_order' : False , }  "};
  for (const std::string& header : headers) {
    CAPTURE(header);
    CHECK(read_npy(folder.file("x", npy(header, 8))).shape() == Shape{2});
  }
  const std::string elements = npy(dict("'<i4'", "(2, 2)", "True")) + std::string("\1\0\0\0", 4) +
                               std::string("\2\0\0\0", 4) + std::string("\3\0\0\0", 4) +
                               std::string("\4\0\0\0", 4);
  CHECK(read_npy(folder.file("x", elements)).to_vector<std::int32_t>() ==
        std::vector<std::int32_t>{1, 3, 2, 4});
  const std::string truths = npy(dict("'|b1'", "(3,)")) + std::string("\1\0\1", 3);
  CHECK(read_npy(folder.file("x", truths)).to_vector<std::uint8_t>() ==
        std::vector<std::uint8_t>{1, 0, 1});
}

TEST_CASE("npy: a malformed file is a named error and asks for no memory") {
  const std::string good = dict("'<f4'", "(2,)");
  const Malformed files[] = {
      {"empty", "", "does not begin with"},
      {"one byte", "\x93", "does not begin with"},
      {"bad magic", "\x93NUMPZ" + npy(good, 8).substr(6), "does not begin with"},
      {"text", "{'descr': '<f4'}", "does not begin with"},
      {"magic alone", "\x93NUMPY", "of version 0.0"},
      {"version 9", file_of(std::string("\11\0", 2), "", good), "of version 9.0"},
      {"version 1.1", file_of("\1\1", "", good), "of version 1.1"},
      {"no length", file_of(version1, "", ""), "cut short: it has 8 bytes"},
      {"half a length", file_of(std::string("\2\0", 2), "\1\1\1", ""), "cut short: it has 11"},
      {"header past the end", file_of(version1, "\x10\x27", good), "claims a header of 10000"},
      {"header of 64 KB", file_of(version1, "\xff\xff", std::string(65'535, ' ')),
       "claims a header of 65535"},
      {"header of 2^32-1", file_of(std::string("\2\0", 2), "\xff\xff\xff\xff", good),
       "claims a header of 4294967295"},
      {"empty header", npy(""), "wanted '{', got its end"},
      {"spaces", npy(std::string(10'000, ' ')), "wanted '{', got its end"},
      {"NUL bytes", npy(std::string(100, '\0')), "wanted '{', got the byte 0"},
      {"unterminated", npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2,"), "its end"},
      {"unterminated word", npy("{'descr"), "a word of at most 32 letters, got its end"},
      {"garbage behind", npy(good + "x", 8), "wanted nothing more, got 'x'"},
      {"a second dict", npy(good + good, 8), "wanted nothing more, got '{'"},
      {"10^4 braces", npy(std::string(10'000, '{')), "wanted a quoted word, got '{'"},
      {"object array", npy(dict("'|O'", "(2,)"), 8), "descr '|O'"},
      {"big endian", npy(dict("'>f4'", "(2,)"), 8), "descr '>f4' is not among"},
      {"half of 3 bytes", npy(dict("'<f2'", "(2,)"), 3), "f16 [2] takes 4 bytes, but 3 follow"},
      {"complex", npy(dict("'<c8'", "(2,)"), 16), "descr '<c8' is not among"},
      {"bf16", npy(dict("'<V2'", "(2,)"), 4), "descr '<V2'"},
      {"structured", npy(dict("[('a', '<f4')]", "(2,)"), 8), "wanted a quoted word, got '['"},
      {"an expression", npy(dict("__import__('os')", "(2,)"), 8), "a quoted word, got '_'"},
      {"an escape", npy(dict("'<f4\\x00'", "(2,)"), 8), "a word of at most 32 letters, got '\\'"},
      {"long word", npy(dict("'" + std::string(1000, 'f') + "'", "(2,)"), 8), "at most 32"},
      {"no descr", npy("{'fortran_order': False, 'shape': (2,)}", 8), "there is no 'descr'"},
      {"no order", npy("{'descr': '<f4', 'shape': (2,)}", 8), "there is no 'fortran_order'"},
      {"no shape", npy("{'descr': '<f4', 'fortran_order': False}", 8), "there is no 'shape'"},
      {"twice", npy("{'descr': '<f4', 'descr': '<f4'}", 8), "'descr' occurs twice"},
      {"unknown key", npy("{'dtype': '<f4'}", 8), "the key 'dtype'"},
      {"order 1", npy(dict("'<f4'", "(2,)", "1"), 8), "wanted True or False, got '1'"},
      {"a list", npy(dict("'<f4'", "[2]"), 8), "wanted '(', got '['"},
      {"a number", npy(dict("'<f4'", "(2)"), 8), "wanted ',', got ')'"},
      {"negative", npy(dict("'<f4'", "(-2,)"), 8), "not negative, got '-'"},
      {"a fraction", npy(dict("'<f4'", "(2.0,)"), 8), "wanted ',', got '.'"},
      {"nested", npy(dict("'<f4'", "((2,),)"), 8), "not negative, got '('"},
      {"size of 2^63", npy(dict("'<f4'", "(9223372036854775808,)"), 8), "does not fit"},
      {"100 digits", npy(dict("'<f4'", "(" + std::string(100, '9') + ",)"), 8), "does not fit"},
      {"product that wraps", npy(dict("'<f4'", "(4294967296, 4294967296, 4)"), 8), "does not fit"},
      {"strides that wrap", npy(dict("'<f4'", "(0, 1099511627776, 1099511627776)")),
       "does not fit"},
      {"seven axes", npy(dict("'<f4'", "(1, 1, 1, 1, 1, 1, 1)"), 4), "more than 6 axes"},
      {"more than the file", npy(dict("'<f8'", "(1000000000000,)"), 8),
       "takes 8000000000000 bytes, but 8 follow"},
      {"one byte short", npy(good, 7), "takes 8 bytes, but 7 follow"},
      {"one byte more", npy(good, 9), "takes 8 bytes, but 9 follow"},
  };
  const TemporaryFolder folder;
  const std::size_t live = allocator().counts().live;
  allocator().reset_peak();
  for (const Malformed& malformed : files) {
    CAPTURE(malformed.what);
    const std::string path = folder.file("bad", malformed.bytes);
    const std::string message = error_of([&] { read_npy(path); });
    CHECK_MESSAGE(message.rfind(path + ": ", 0) == 0, message);
    CHECK_MESSAGE(contains(message, malformed.message), message);
    CHECK(message.size() < 400);
  }
  CHECK(allocator().counts().peak <= live + 4096);
}

TEST_CASE("npy: every file that was cut short is an error, and only regular files are read") {
  const TemporaryFolder folder;
  write_npy(Tensor::full({3, 5}, 1, DType::f64), folder.path("whole"));
  const std::string whole = read_file(folder.path("whole"));
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const std::string path = folder.file("cut", whole.substr(0, size));
    CHECK_THROWS_AS(read_npy(path), Error);
  }
  CHECK_ERROR(read_npy(folder.path("none")), "No such file");
  CHECK_ERROR(read_npy(folder.path()), "wanted a file, got a folder");
  CHECK_ERROR(read_npy("/dev/zero"), "wanted a file, got a device");
  REQUIRE(::mkfifo(folder.path("pipe").c_str(), 0600) == 0);
  CHECK_ERROR(read_npy(folder.path("pipe")), "wanted a file, got a pipe");
}

}  // TEST_SUITE
