#include "nn/checkpoint.h"

#include <cmath>
#include <cstring>
#include <limits>

#include <sys/stat.h>

#include "doctest/doctest.h"
#include "nn/layers.h"
#include "runtime/allocator.h"
#include "tests/files.h"

using namespace weft;

namespace {

// A file with this header and `data` bytes of data.
std::string safetensors(const std::string& header, std::size_t data = 0) {
  const std::uint64_t length = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes + header + std::string(data, '\1');
}

std::string with_length(std::uint64_t length, const std::string& rest) {
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes + rest;
}

std::string entry(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return "{\"dtype\":" + dtype + ",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}";
}

std::string one(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return "{\"w\":" + entry(dtype, shape, offsets) + "}";
}

std::string repeated(const std::string& text, std::size_t times) {
  std::string all;
  all.reserve(text.size() * times);
  for (std::size_t i = 0; i < times; ++i) all += text;
  return all;
}

struct Malformed {
  std::string what;
  std::string bytes;
  const char* message;  // a part of it
};

Checkpoint sample_checkpoint() {
  Checkpoint checkpoint;
  checkpoint.tensors["b"] = Tensor::from(std::vector<float>{1, 2, 3, 4, 5, 6}, {2, 3});
  checkpoint.tensors["a"] = Tensor::from(std::vector<double>{0.5, -1.5}, {2});
  checkpoint.tensors["c"] = Tensor::from(std::vector<i64>{-1}, {1});
  checkpoint.tensors["u"] = Tensor::from(std::vector<std::uint8_t>{7, 8, 9}, {3});
  checkpoint.tensors["i"] = Tensor::from(std::vector<std::int32_t>{5}, {1});
  checkpoint.tensors["s"] = Tensor::from(std::vector<float>{2}, {});
  checkpoint.tensors["z"] = Tensor::empty({0, 3}, DType::f32);
  checkpoint.metadata["k"] = "v";
  return checkpoint;
}

}  // namespace

TEST_SUITE("nn") {

TEST_CASE("checkpoint: the bytes are those of the format's own writer") {
  // The output of safetensors 0.8.0 for the same tensors.
  const std::string header =
      "{\"__metadata__\":{\"k\":\"v\"},"
      "\"c\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[0,8]},"
      "\"a\":{\"dtype\":\"F64\",\"shape\":[2],\"data_offsets\":[8,24]},"
      "\"b\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[24,48]},"
      "\"s\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[48,52]},"
      "\"z\":{\"dtype\":\"F32\",\"shape\":[0,3],\"data_offsets\":[52,52]},"
      "\"i\":{\"dtype\":\"I32\",\"shape\":[1],\"data_offsets\":[52,56]},"
      "\"u\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[56,59]}}      ";
  const unsigned char data[] = {
      0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0xe0, 0x3f,
      0, 0, 0, 0, 0, 0, 0xf8, 0xbf, 0, 0, 0x80, 0x3f, 0, 0, 0, 0x40, 0, 0, 0x40, 0x40,
      0, 0, 0x80, 0x40, 0, 0, 0xa0, 0x40, 0, 0, 0xc0, 0x40, 0, 0, 0, 0x40, 5, 0, 0, 0, 7, 8, 9};
  const TemporaryFolder folder;
  write_checkpoint(sample_checkpoint(), folder.path("x"));
  const std::string wanted =
      safetensors(header) + std::string(reinterpret_cast<const char*>(data), sizeof data);
  CHECK(read_file(folder.path("x")) == wanted);
  CHECK_FALSE(std::filesystem::exists(folder.path("x.partial")));
}

TEST_CASE("checkpoint: what is written is read again, bit for bit") {
  const TemporaryFolder folder;
  Checkpoint written = sample_checkpoint();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinite = std::numeric_limits<float>::infinity();
  written.tensors["odd"] = Tensor::from(std::vector<float>{nan, infinite, -0.0f}, {3});
  written.tensors["half"] = Tensor::from(std::vector<float>{1.5f, -3}, {2}).to(DType::bf16);
  written.tensors["turned"] = written.tensors["b"].transpose(0, 1);  // not contiguous
  written.metadata["\"quoted\" and ünïcode"] = "line\nfeed";
  write_checkpoint(written, folder.path("x"));
  const Checkpoint read = read_checkpoint(folder.path("x"));
  CHECK(read.metadata == written.metadata);
  REQUIRE(read.tensors.size() == written.tensors.size());
  for (const auto& [name, tensor] : written.tensors) {
    const Tensor& same = read.tensors.at(name);
    const Tensor packed = tensor.packed();
    CHECK(same.shape() == tensor.shape());
    CHECK(same.dtype() == tensor.dtype());
    CHECK(std::memcmp(same.bytes(), packed.bytes(), packed.byte_count()) == 0);
  }
  CHECK_FALSE(all_finite(read.tensors.at("odd")));
  CHECK(all_finite(read.tensors.at("half")));
  write_checkpoint(Checkpoint{}, folder.path("empty"));
  CHECK(read_checkpoint(folder.path("empty")).tensors.empty());
}

TEST_CASE("checkpoint: a malformed file is a named error and asks for no memory") {
  const std::string good = one("\"F32\"", "[2]", "[0,8]");
  const std::string pair_of = "{\"a\":" + entry("\"U8\"", "[4]", "[0,4]") + ",\"b\":";
  const Malformed files[] = {
      {"empty", "", "has 0 bytes"},
      {"one byte", "x", "has 1 bytes"},
      {"seven bytes", "1234567", "has 7 bytes"},
      {"no header", with_length(0, ""), "claims a header of 0 bytes"},
      {"header of one byte", with_length(1, "{"), "claims a header of 1 bytes"},
      {"header of 2^63", with_length(std::uint64_t{1} << 63, "{}"), "claims a header"},
      {"header of 2^64-1", with_length(~std::uint64_t{0}, "{}"), "claims a header"},
      {"header whose end wraps", with_length(~std::uint64_t{0} - 6, "{}"), "claims a header"},
      {"header past 100 MB", with_length(100'000'001, "{}"), "claims a header"},
      {"header past the file", with_length(100, "{}"), "2 follow"},
      {"not UTF-8", safetensors("{\"\xff\xfe\":1}"), "not valid JSON"},
      {"byte order mark", safetensors("\xef\xbb\xbf{}"), "does not begin with '{'"},
      {"leading space", safetensors(" {}"), "does not begin with '{'"},
      {"NUL bytes", safetensors(std::string("{\0}", 3)), "not valid JSON"},
      {"NUL padding", safetensors(std::string("{}\0\0", 4)), "not valid JSON"},
      {"unterminated", safetensors("{\"w\":{\"dtype\":\"F32\""), "not valid JSON"},
      {"garbage behind", safetensors("{} x"), "not valid JSON"},
      {"a second object", safetensors("{}{}"), "not valid JSON"},
      {"a list", safetensors("[1,2]"), "does not begin with '{'"},
      {"10^5 lists", safetensors("{\"w\":" + repeated("[", 100'000)), "wanted an object"},
      {"10^5 lists inside a shape", safetensors("{\"w\":{\"shape\":" + repeated("[", 100'000)),
       "got a list"},
      {"10^5 objects", safetensors(repeated("{\"w\":", 100'000)), "got an object"},
      {"50 MB of space inside", safetensors("{" + std::string(50'000'000, ' ') + "x}"),
       "not valid JSON"},
      {"lone surrogate", safetensors("{\"\\ud800\":1}"), "not valid JSON"},
      {"1e400", safetensors(one("\"F32\"", "[1e400]", "[0,8]"), 8), "not valid JSON"},
      {"minus zero", safetensors(one("\"F32\"", "[-0]", "[0,0]")), "got a negative number"},
      {"float", safetensors(one("\"F32\"", "[2.0]", "[0,8]"), 8), "whole"},
      {"negative", safetensors(one("\"F32\"", "[-2]", "[0,8]"), 8), "got a negative number"},
      {"2^64", safetensors(one("\"F32\"", "[18446744073709551616]", "[0,8]"), 8), "below 2^64"},
      {"leading zero", safetensors(one("\"F32\"", "[02]", "[0,8]"), 8), "not valid JSON"},
      {"string as size", safetensors(one("\"F32\"", "[\"2\"]", "[0,8]"), 8), "got a string"},
      {"null", safetensors(one("null", "[2]", "[0,8]"), 8), "got null"},
      {"boolean", safetensors(one("\"F32\"", "[true]", "[0,8]"), 8), "got a boolean"},
      {"the field is the tensor's own", safetensors("{\"__metadata__\":{\"k\":\"v\"},\"b\":3}"),
       "header: b: wanted an object, got a number"},
      {"tensor twice", safetensors(good.substr(0, good.size() - 1) + "," + good.substr(1), 8),
       "'w' occurs twice"},
      {"dtype twice", safetensors("{\"w\":{\"dtype\":\"F32\",\"dtype\":\"F32\"}}"), "twice"},
      {"metadata twice", safetensors("{\"__metadata__\":{},\"__metadata__\":{}}"), "twice"},
      {"metadata key twice", safetensors("{\"__metadata__\":{\"a\":\"\",\"a\":\"\"}}"), "twice"},
      {"metadata with a number", safetensors("{\"__metadata__\":{\"a\":1}}"), "wanted a string"},
      {"metadata with an object", safetensors("{\"__metadata__\":{\"a\":{}}}"), "wanted a string"},
      {"metadata as text", safetensors("{\"__metadata__\":\"a\"}"), "wanted an object"},
      {"empty name", safetensors("{\"\":" + entry("\"U8\"", "[4]", "[0,4]") + "}", 4),
       "'' is not a tensor's name"},
      {"name with ..", safetensors("{\"../w\":" + entry("\"U8\"", "[4]", "[0,4]") + "}", 4),
       "is not a tensor's name"},
      {"name /", safetensors("{\"/\":" + entry("\"U8\"", "[4]", "[0,4]") + "}", 4),
       "is not a tensor's name"},
      {"name of 1 MB",
       safetensors(
           "{\"" + std::string(1'000'000, 'n') + "\":" + entry("\"U8\"", "[4]", "[0,4]") + "}", 4),
       "is not a tensor's name"},
      {"no dtype", safetensors("{\"w\":{\"shape\":[2],\"data_offsets\":[0,8]}}", 8),
       "has no dtype"},
      {"no shape", safetensors("{\"w\":{\"dtype\":\"F32\",\"data_offsets\":[0,8]}}", 8),
       "has no shape"},
      {"no offsets", safetensors("{\"w\":{\"dtype\":\"F32\",\"shape\":[2]}}", 8),
       "has no data_offsets"},
      {"unknown field", safetensors("{\"w\":{\"dtype\":\"F32\",\"kind\":\"x\"}}"), "got a string"},
      {"unknown dtype", safetensors(one("\"Q4_K\"", "[2]", "[0,8]"), 8), "dtype 'Q4_K'"},
      {"dtype that is not held", safetensors(one("\"F8_E4M3\"", "[8]", "[0,8]"), 8), "'F8_E4M3'"},
      {"half of 6 bytes", safetensors(one("\"F16\"", "[4]", "[0,6]"), 6), "of f16 [4] takes 8 bytes"},
      {"rank 10^6", safetensors(one("\"F32\"", "[1" + repeated(",1", 999'999) + "]", "[0,4]"), 4),
       "more than 6 axes"},
      {"product that wraps", safetensors(one("\"F32\"", "[4294967296,4294967296,2]", "[0,8]"), 8),
       "does not fit"},
      {"strides that wrap", safetensors(one("\"U8\"", "[0,1099511627776,1099511627776]", "[0,0]")),
       "does not fit"},
      {"size of 2^63", safetensors(one("\"U8\"", "[9223372036854775808]", "[0,8]"), 8),
       "does not fit"},
      {"more than the file", safetensors(one("\"F32\"", "[1000000000000]", "[0,4000000000000]"), 8),
       "claims the bytes 0 to 4000000000000 of 8"},
      {"end before begin", safetensors(one("\"F32\"", "[2]", "[8,0]"), 8),
       "claims the bytes 8 to 0"},
      {"end past the data", safetensors(one("\"F32\"", "[2]", "[0,8]"), 4), "cut short"},
      {"three offsets", safetensors(one("\"F32\"", "[2]", "[0,8,8]"), 8), "two numbers"},
      {"one offset", safetensors(one("\"F32\"", "[2]", "[0]"), 8), "two numbers"},
      {"too few bytes for the shape", safetensors(one("\"F32\"", "[3]", "[0,8]"), 8),
       "takes 12 bytes, but 8"},
      {"zero axis with bytes", safetensors(one("\"F32\"", "[0]", "[0,8]"), 8), "takes 0 bytes"},
      {"overlap", safetensors(pair_of + entry("\"U8\"", "[4]", "[2,6]") + "}", 6),
       "begins at byte 2"},
      {"hole", safetensors(pair_of + entry("\"U8\"", "[4]", "[6,10]") + "}", 10),
       "begins at byte 6"},
      {"hole at the start", safetensors(one("\"U8\"", "[4]", "[4,8]"), 8), "begins at byte 4"},
      {"bytes left over", safetensors(good, 12), "4 bytes follow the last tensor"},
      {"too many tensors",
       [] {
         std::string header = "{";
         for (int i = 0; i < 65'537; ++i) {
           header += fmt::format("{}\"t{}\":{}", i ? "," : "", i, entry("\"U8\"", "[0]", "[0,0]"));
         }
         return safetensors(header + "}");
       }(),
       "more than 65536 tensors"},
  };
  const TemporaryFolder folder;
  const std::size_t live = allocator().counts().live;
  allocator().reset_peak();
  for (const Malformed& malformed : files) {
    CAPTURE(malformed.what);
    const std::string path = folder.file("bad", malformed.bytes);
    const std::string message = error_of([&] { read_checkpoint(path); });
    CHECK_MESSAGE(message.rfind(path + ": ", 0) == 0, message);
    CHECK_MESSAGE(contains(message, malformed.message), message);
    CHECK(message.size() < 400);
  }
  CHECK(allocator().counts().peak <= live + 4096);
}

TEST_CASE("checkpoint: what the format allows is read") {
  const TemporaryFolder folder;
  std::string header = "{";
  for (int i = 0; i < 5000; ++i) {
    header += fmt::format("\"t{}\":{},", i, entry("\"F32\"", "[3,0]", "[0,0]"));
  }
  header += "\"last\":" + entry("\"F32\"", "[]", "[0,4]") + "}  \n ";
  const Checkpoint many = read_checkpoint(folder.file("many", safetensors(header, 4)));
  CHECK(many.tensors.size() == 5001);
  CHECK(many.tensors.at("t7").shape() == Shape{3, 0});
  // Not in the order of their offsets.
  const std::string turned = "{\"a\":" + entry("\"U8\"", "[4]", "[8,12]") + ",\"b\":" +
                             entry("\"F32\"", "[2]", "[0,8]") + "}";
  CHECK(read_checkpoint(folder.file("turned", safetensors(turned, 12))).tensors.size() == 2);
}

TEST_CASE("checkpoint: only regular files are read") {
  const TemporaryFolder folder;
  const auto error = [](const std::string& path) {
    return error_of([&] { read_checkpoint(path); });
  };
  CHECK(contains(error(folder.path("none")), "No such file"));
  CHECK(contains(error(folder.path()), "wanted a file, got a folder"));
  CHECK(contains(error("/dev/zero"), "wanted a file, got a device"));
  REQUIRE(::mkfifo(folder.path("pipe").c_str(), 0600) == 0);
  CHECK(contains(error(folder.path("pipe")), "wanted a file, got a pipe"));
  std::filesystem::create_symlink(folder.path("loop"), folder.path("loop"));
  CHECK(contains(error(folder.path("loop")), "symbolic links"));
}

TEST_CASE("checkpoint: every file that was cut short is an error") {
  const TemporaryFolder folder;
  write_checkpoint(sample_checkpoint(), folder.path("whole"));
  const std::string whole = read_file(folder.path("whole"));
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const std::string path = folder.file("cut", whole.substr(0, size));
    CHECK_THROWS_AS(read_checkpoint(path), Error);
  }
}

TEST_CASE("checkpoint: a disk that is full leaves the old file as it was") {
  const TemporaryFolder folder;
  write_checkpoint(sample_checkpoint(), folder.path("x"));
  const std::string before = read_file(folder.path("x"));
  std::filesystem::create_symlink("/dev/full", folder.path("x.partial"));
  const std::string message =
      error_of([&] { write_checkpoint(sample_checkpoint(), folder.path("x")); });
  CHECK(contains(message, "No space left"));
  CHECK(read_file(folder.path("x")) == before);
  CHECK_FALSE(std::filesystem::exists(std::filesystem::symlink_status(folder.path("x.partial"))));
  CHECK_THROWS_AS(write_checkpoint({}, folder.path("no/such/folder")), Error);
}

TEST_CASE("checkpoint: what could not be read again is not written") {
  const TemporaryFolder folder;
  const Tensor x = Tensor::zeros({2}, DType::f32);
  const auto error = [&](const Checkpoint& checkpoint) {
    return error_of([&] { write_checkpoint(checkpoint, folder.path("x")); });
  };
  CHECK(contains(error({{{"a b", x}}, {}}), "'a b' is not a tensor's name"));
  CHECK(contains(error({{{"__metadata__", x}}, {}}), "'__metadata__' is not a tensor's name"));
  CHECK(contains(error({{{"a", x}}, {{"note", "\xff\xfe"}}}), "is not UTF-8"));
  CHECK_FALSE(std::filesystem::exists(folder.path("x")));
}

TEST_CASE("checkpoint: a model takes the tensors of the same model only") {
  nn::Linear layer(3, 2);
  const std::vector<NamedTensor> list = tensors(layer);
  for (const NamedTensor& own : list) own.value.fill(1);
  const Tensor weight = Tensor::from(std::vector<float>{1, 2, 3, 4, 5, 6}, {3, 2});
  const Tensor bias = Tensor::from(std::vector<float>{7, 8}, {2});
  const auto error = [&](const std::map<std::string, Tensor>& others) {
    return error_of([&] { load_tensors(list, others, "file"); });
  };
  CHECK(contains(error({{"weight", weight}}), "file: holds no 'bias'"));
  CHECK(contains(error({{"weight", weight}, {"bias", bias}, {"more", bias}}), "holds 'more'"));
  CHECK(contains(error({{"weight", weight}, {"shift", bias}}), "holds no 'bias'"));
  CHECK(contains(error({{"weight", weight.transpose(0, 1)}, {"bias", bias}}),
                 "'weight' is f32 [2,3], but the model's is f32 [3,2]"));
  CHECK(contains(error({{"weight", weight}, {"bias", bias.to(DType::f64)}}), "'bias' is f64"));
  // Nothing was copied.
  CHECK(layer.weight.value().to_vector<float>() == std::vector<float>(6, 1));
  load_tensors(list, {{"weight", weight}, {"bias", bias}}, "file");
  CHECK(layer.weight.value().to_vector<float>() == weight.to_vector<float>());
  CHECK(layer.bias.value().to_vector<float>() == bias.to_vector<float>());
}

}  // TEST_SUITE("nn")
