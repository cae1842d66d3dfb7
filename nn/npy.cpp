#include "nn/npy.h"

#include <algorithm>
#include <bit>
#include <set>
#include <string_view>

#include "nn/file.h"
#include "nn/half.h"

namespace weft {
namespace {

static_assert(std::endian::native == std::endian::little, "the elements are little endian");

constexpr std::string_view magic = "\x93NUMPY";
constexpr std::uint64_t longest_npy_header = 10'000;  // NumPy's own limit

constexpr struct {
  const char* descr;
  DType dtype;
} npy_types[] = {{"<f4", DType::f32},
              {"<f8", DType::f64},
              {"<i4", DType::i32},
              {"<i8", DType::i64},
              {"|u1", DType::u8},
              {"|b1", DType::u8}};

struct Header {
  StoredType type;
  bool fortran_order = false;
  Shape shape = {};
};

// Parses the dict from left to right; anything unexpected ends the reading.
class NpyHeader {
 public:
  NpyHeader(const std::string& file, std::string_view text) : file_(file), text_(text) {}

  Header read() {
    Header header;
    std::set<std::string_view> seen;
    expect('{');
    while (!next_is('}')) {
      const std::string_view key = string();
      require(seen.insert(key).second, "{}: header: '{}' occurs twice", file_, key);
      expect(':');
      if (key == "descr") {
        const std::string_view descr = string();
        header.type.half = descr == "<f2";
        if (!header.type.half) header.type.dtype = dtype_of(descr);
      } else if (key == "fortran_order") {
        header.fortran_order = boolean();
      } else if (key == "shape") {
        header.shape = shape();
      } else {
        fail("{}: header: the key '{}'; wanted descr, fortran_order and shape alone", file_, key);
      }
      if (!next_is('}')) expect(',');
    }
    expect('}');
    for (const char* key : {"descr", "fortran_order", "shape"}) {
      require(seen.contains(key), "{}: header: there is no '{}'", file_, key);
    }
    skip_space();
    if (place_ != text_.size()) refuse("nothing more");
    return header;
  }

 private:
  [[noreturn]] void refuse(std::string_view wanted) const {
    std::string found = "its end";
    if (place_ < text_.size()) {
      const auto byte = static_cast<unsigned char>(text_[place_]);
      found = byte > ' ' && byte < 127 ? fmt::format("'{}'", text_[place_])
                                       : fmt::format("the byte {}", byte);
    }
    fail("{}: header, at its byte {}: wanted {}, got {}", file_, place_, wanted, found);
  }

  void skip_space() {
    while (place_ < text_.size() && (text_[place_] == ' ' || text_[place_] == '\n')) ++place_;
  }
  bool next_is(char c) {
    skip_space();
    return place_ < text_.size() && text_[place_] == c;
  }
  void expect(char c) {
    if (!next_is(c)) refuse(fmt::format("'{}'", c));
    ++place_;
  }

  // Letters, digits and a few signs between two quotes; a .npy header needs no other Python
  // strings.
  std::string_view string() {
    const char quote = next_is('"') ? '"' : '\'';
    if (!next_is(quote)) refuse("a quoted word");
    const std::size_t begin = ++place_;
    const auto plain = [&](char c) { return c > ' ' && c < 127 && c != '\\' && c != quote; };
    while (place_ < text_.size() && place_ - begin < 32 && plain(text_[place_])) ++place_;
    if (place_ == text_.size() || text_[place_] != quote) refuse("a word of at most 32 letters");
    return text_.substr(begin, place_++ - begin);
  }

  DType dtype_of(std::string_view descr) const {
    for (const auto& known : npy_types) {
      if (descr == known.descr) return known.dtype;
    }
    fail("{}: descr '{}' is not among those that can be read: <f2, <f4, <f8, <i4, <i8, |u1, |b1",
         file_, descr);
  }

  bool boolean() {
    skip_space();
    for (const std::string_view word : {"True", "False"}) {
      if (text_.substr(place_).starts_with(word)) {
        place_ += word.size();
        return word == "True";
      }
    }
    refuse("True or False");
  }

  std::uint64_t size() {
    skip_space();
    const auto digit = [&] {
      return place_ < text_.size() && text_[place_] >= '0' && text_[place_] <= '9';
    };
    if (!digit()) refuse("a whole number that is not negative");
    std::uint64_t value = 0;
    for (; digit(); ++place_) {
      value = 10 * value + static_cast<std::uint64_t>(text_[place_] - '0');
      require(value <= most_elements, "{}: shape: a size does not fit 60 bits", file_);
    }
    return value;
  }

  // An axis of size 0 counts as 1: strides are products of the other sizes.
  Shape shape() {
    Shape shape;
    std::uint64_t product = 1;
    expect('(');
    while (!next_is(')')) {
      const std::uint64_t axis = size();
      require(shape.rank() < Shape::max_rank,
              "{}: shape: more than {} axes, the most that is supported", file_, Shape::max_rank);
      const bool wraps =
          __builtin_mul_overflow(product, std::max<std::uint64_t>(axis, 1), &product);
      require(!wraps && product <= most_elements,
              "{}: shape: the number of its elements does not fit 60 bits", file_);
      shape.push_back(static_cast<i64>(axis));
      // (3) is a number to Python, and (3,) the shape.
      if (shape.rank() == 1 || !next_is(')')) expect(',');
    }
    expect(')');
    return shape;
  }

  const std::string& file_;
  std::string_view text_;
  std::size_t place_ = 0;
};

struct Start {
  std::string header;
  std::uint64_t data = 0;  // bytes that follow it
};

// Reads up to the elements; the header's length is checked against the file size before memory of
// that size is allocated.
Start read_start(InputFile& file) {
  std::string head(std::min<std::uint64_t>(file.size(), 8), '\0');
  file.read(std::as_writable_bytes(std::span(head)));
  require(head.starts_with(magic), "{}: is not a .npy file: it does not begin with \\x93NUMPY",
          file.path());
  const auto byte = [&](std::size_t i) {
    return i < head.size() ? int{static_cast<unsigned char>(head[i])} : 0;
  };
  const int major = byte(6), minor = byte(7);
  require(major >= 1 && major <= 3 && minor == 0,
          "{}: is a .npy file of version {}.{}; 1.0, 2.0 and 3.0 can be read", file.path(), major,
          minor);
  const std::size_t width = major == 1 ? 2 : 4;
  require(file.size() >= 8 + width, "{}: was cut short: it has {} bytes", file.path(), file.size());
  std::uint32_t length = 0;
  file.read(std::as_writable_bytes(std::span(&length, 1)).first(width));
  const std::uint64_t left = file.size() - 8 - width;
  require(length <= left && length <= longest_npy_header,
          "{}: claims a header of {} bytes; {} follow, and {} is the most that is read",
          file.path(), length, left, longest_npy_header);
  Start start{std::string(length, '\0'), left - length};
  file.read(std::as_writable_bytes(std::span(start.header)));
  return start;
}

Shape reversed(const Shape& shape) {
  Shape turned;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) turned.push_back(shape[axis]);
  return turned;
}

// The same axes in reverse order, as a view.
Tensor turned(Tensor tensor) {
  for (int a = 0, b = tensor.rank() - 1; a < b; ++a, --b) tensor = tensor.transpose(a, b);
  return tensor;
}

std::string python_text(const Shape& shape) {
  std::string text = "(";
  for (const i64 size : shape) {
    text += fmt::format("{}{}", text.size() > 1 ? ", " : "", size);
  }
  return text + (shape.rank() == 1 ? ",)" : ")");
}

}  // namespace

Tensor read_npy(const std::string& path) {
  InputFile file(path);
  const Start start = read_start(file);
  const Header header = NpyHeader(path, start.header).read();
  const std::uint64_t bytes = header.type.bytes(header.shape);
  require(bytes == start.data, "{}: {} {} takes {} bytes, but {} follow the header", path,
          header.type.name(), header.shape, bytes, start.data);
  const Shape stored = header.fortran_order ? reversed(header.shape) : header.shape;
  const Tensor tensor = Tensor::empty(stored, header.type.dtype);
  header.type.read(file, tensor);
  file.check_unchanged();
  return header.fortran_order ? turned(tensor) : tensor;
}

void write_npy(const Tensor& tensor, const std::string& path) {
  const auto known = std::find_if(std::begin(npy_types), std::end(npy_types),
                                  [&](const auto& entry) { return entry.dtype == tensor.dtype(); });
  require(known != std::end(npy_types), "{}: NumPy has no {}; convert the tensor to f32 first",
          path, name_of(tensor.dtype()));
  const Shape& shape = tensor.shape();
  std::string header = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': {}, }}",
                                   known->descr, python_text(shape));
  // As np.save: padded for a first axis of 21 digits.
  if (shape.rank() > 0) header += std::string(21 - std::to_string(shape[0]).size(), ' ');
  const std::size_t start = magic.size() + 4;
  header += std::string(63 - (start + header.size()) % 64, ' ') + '\n';
  const std::string length = {static_cast<char>(header.size() & 255),
                              static_cast<char>(header.size() >> 8)};
  const std::string head = std::string(magic) + '\1' + '\0' + length + header;

  const Tensor elements = tensor.to(Device{}).packed();
  OutputFile file(path);
  file.write(std::as_bytes(std::span(head)));
  file.write({elements.bytes(), elements.byte_count()});
  file.commit();
}

}  // namespace weft
