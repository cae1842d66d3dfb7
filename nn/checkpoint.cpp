#include "nn/checkpoint.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <set>
#include <vector>

#include <nlohmann/json.hpp>

#include "nn/file.h"
#include "nn/half.h"

namespace weft {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors data is little endian");

constexpr std::uint64_t longest_header = 100'000'000;  // the format's own limit
constexpr std::size_t longest_name = 256;
constexpr const char* metadata_key = "__metadata__";
constexpr std::size_t most_tensors = 65'536;

// In the order in which the format's own writer sorts tensors.
constexpr struct {
  const char* name;
  DType dtype;
} dtypes[] = {{"I64", DType::i64}, {"F64", DType::f64},   {"F32", DType::f32},
              {"I32", DType::i32}, {"BF16", DType::bf16}, {"U8", DType::u8}};

std::size_t place_of(DType dtype) {
  std::size_t place = 0;
  while (dtypes[place].dtype != dtype) ++place;
  return place;
}

struct Entry {
  std::string name;
  StoredType type = {};
  Shape shape = {};
  std::uint64_t begin = 0, end = 0;  // bytes in the data
};

// Names come from the file: a message shortens a long one.
std::string shown(const std::string& name) {
  return name.size() <= 64 ? name : name.substr(0, 61) + "...";
}

void check_name(const std::string& file, const std::string& name) {
  const auto printable = [](unsigned char c) { return c > ' ' && c != 127 && c != '/'; };
  require(
      !name.empty() && name.size() <= longest_name && name != metadata_key &&
          std::all_of(name.begin(), name.end(), printable),
      "{}: '{}' is not a tensor's name: wanted 1 to {} bytes without spaces and slashes, not {}",
      file, shown(name), longest_name, metadata_key);
}

// Parses the header event by event, so that no tree of an untrusted shape is ever built. Anything
// unexpected ends the reading.
class HeaderReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  HeaderReader(const std::string& file, Checkpoint& checkpoint)
      : file_(file), metadata_(checkpoint.metadata) {}

  std::vector<Entry> take() { return std::move(entries_); }

  bool start_object(std::size_t) override {
    if (place_ == Place::nothing) {
      place_ = Place::header;
    } else if (place_ == Place::header) {
      place_ = key_ == metadata_key ? Place::metadata : Place::tensor;
      if (place_ == Place::tensor) start_tensor();
    } else {
      refuse("an object");
    }
    return true;
  }

  bool end_object() override {
    if (place_ == Place::tensor) finish_tensor();
    place_ = place_ == Place::header ? Place::nothing : Place::header;
    return true;
  }

  bool key(string_t& key) override {
    std::set<std::string>& seen = place_ == Place::header ? names_ : fields_;
    require(seen.insert(key).second, "{}: header: '{}' occurs twice", file_, shown(key));
    if (place_ == Place::header) {
      key_ = key;
      field_.clear();
      fields_.clear();
    } else {
      field_ = key;
    }
    return true;
  }

  bool string(string_t& value) override {
    if (place_ == Place::metadata) {
      metadata_.emplace(field_, value);
    } else if (place_ == Place::tensor && field_ == "dtype") {
      set_dtype(value);
    } else {
      refuse("a string");
    }
    return true;
  }

  bool start_array(std::size_t) override {
    if (place_ != Place::tensor || (field_ != "shape" && field_ != "data_offsets")) {
      refuse("a list");
    }
    place_ = Place::sizes;
    sizes_.clear();
    return true;
  }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ != Place::sizes) refuse("a number");
    require(field_ != "shape" || sizes_.size() < std::size_t{Shape::max_rank},
            "{}: tensor '{}' has more than {} axes, the most that is supported", file_,
            shown(key_), Shape::max_rank);
    require(field_ == "shape" || sizes_.size() < 2, "{}: tensor '{}': data_offsets must hold two "
            "numbers", file_, shown(key_));
    sizes_.push_back(value);
    return true;
  }

  bool end_array() override {
    place_ = Place::tensor;
    if (field_ == "shape") {
      set_shape();
    } else {
      require(sizes_.size() == 2, "{}: tensor '{}': data_offsets must hold two numbers", file_,
              shown(key_));
      entries_.back().begin = sizes_[0];
      entries_.back().end = sizes_[1];
    }
    return true;
  }

  bool null() override { refuse("null"); }
  bool boolean(bool) override { refuse("a boolean"); }
  bool number_integer(number_integer_t) override { refuse("a negative number"); }
  bool number_float(number_float_t, const string_t&) override {
    refuse("a number that is not an integer below 2^64");
  }
  bool binary(binary_t&) override { refuse("binary data"); }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    fail("{}: the header is not valid JSON at its byte {}", file_, position);
  }

 private:
  enum class Place { nothing, header, metadata, tensor, sizes };

  [[noreturn]] void refuse(const char* got) const {
    const char* wanted = "an object";
    if (place_ == Place::metadata) wanted = "a string";
    if (place_ == Place::sizes) wanted = "a whole number that is not negative";
    if (place_ == Place::tensor) {
      wanted = field_ == "dtype" ? "a string"
               : field_ == "shape" || field_ == "data_offsets"
                   ? "a list of sizes"
                   : "dtype, shape and data_offsets alone";
    }
    fail("{}: header: {}{}{}: wanted {}, got {}", file_, shown(key_), field_.empty() ? "" : ", ",
         shown(field_), wanted, got);
  }

  void start_tensor() {
    check_name(file_, key_);
    require(entries_.size() < most_tensors, "{}: holds more than {} tensors", file_, most_tensors);
    entries_.push_back({key_});
    field_.clear();
  }

  void finish_tensor() {
    for (const char* field : {"dtype", "shape", "data_offsets"}) {
      require(fields_.contains(field), "{}: tensor '{}' has no {}", file_, shown(key_), field);
    }
    require(fields_.size() == 3, "{}: tensor '{}' has more than dtype, shape and data_offsets",
            file_, shown(key_));
  }

  void set_dtype(const std::string& name) {
    for (const auto& known : dtypes) {
      if (name == known.name) {
        entries_.back().type.dtype = known.dtype;
        return;
      }
    }
    entries_.back().type.half = name == "F16";
    require(entries_.back().type.half,
            "{}: tensor '{}': dtype '{}' is not among those that can be read: F32, F64, BF16, F16, "
            "I32, I64, U8", file_, shown(key_), shown(name));
  }

  // An axis of size 0 counts as 1: strides are products of the other sizes.
  void set_shape() {
    std::uint64_t product = 1;
    for (const std::uint64_t size : sizes_) {
      const bool wraps =
          __builtin_mul_overflow(product, std::max<std::uint64_t>(size, 1), &product);
      require(!wraps && product <= most_elements,
              "{}: tensor '{}': the number of its elements does not fit 60 bits", file_,
              shown(key_));
      entries_.back().shape.push_back(static_cast<i64>(size));
    }
  }

  const std::string& file_;
  std::map<std::string, std::string>& metadata_;
  std::vector<Entry> entries_;
  std::set<std::string> names_, fields_;
  std::string key_, field_;  // of the header's object, and of the object inside it
  std::vector<std::uint64_t> sizes_;
  Place place_ = Place::nothing;
};

// The length of the header, checked against the file size before memory of that size is allocated.
std::uint64_t header_length(InputFile& file) {
  require(file.size() >= 8, "{}: is not a safetensors file: it has {} bytes, fewer than 8",
          file.path(), file.size());
  std::uint64_t length = 0;
  file.read(std::as_writable_bytes(std::span(&length, 1)));
  require(length >= 2 && length <= longest_header && length <= file.size() - 8,
          "{}: is not a safetensors file, or was cut short: it claims a header of {} bytes, and "
          "{} follow", file.path(), length, file.size() - 8);
  return length;
}

// Sorts by offset and checks that the tensors tile `bytes` bytes of data.
void check_tiling(const std::string& file, std::vector<Entry>& entries, std::uint64_t bytes) {
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  });
  std::uint64_t reached = 0;
  for (const Entry& entry : entries) {
    require(entry.end >= entry.begin && entry.end <= bytes,
            "{}: tensor '{}' claims the bytes {} to {} of {}; the file was cut short or is "
            "damaged", file, entry.name, entry.begin, entry.end, bytes);
    require(entry.end - entry.begin == entry.type.bytes(entry.shape),
            "{}: tensor '{}' of {} {} takes {} bytes, but {} are claimed for it", file, entry.name,
            entry.type.name(), entry.shape, entry.type.bytes(entry.shape), entry.end - entry.begin);
    require(entry.begin == reached, "{}: tensor '{}' begins at byte {} of the data, but the one "
            "before it ends at {}", file, entry.name, entry.begin, reached);
    reached = entry.end;
  }
  require(reached == bytes, "{}: {} bytes follow the last tensor; wanted none", file,
          bytes - reached);
}

// The tensors by name, on whatever device.
std::map<std::string, Tensor> places_of(std::span<const NamedTensor> tensors) {
  std::map<std::string, Tensor> places;
  for (const NamedTensor& tensor : tensors) {
    const bool fresh = places.emplace(tensor.name, tensor.value).second;
    require(fresh, "checkpoint: two tensors are named '{}'", tensor.name);
  }
  return places;
}

}  // namespace

Checkpoint read_checkpoint(const std::string& path) {
  InputFile file(path);
  const std::uint64_t length = header_length(file);
  std::string header(length, '\0');
  file.read(std::as_writable_bytes(std::span(header)));
  require(header.front() == '{', "{}: is not a safetensors file: its header does not begin with "
          "'{{'", path);
  // The parser would take a NUL for the end of the text and ignore what follows.
  require(header.find('\0') == std::string::npos,
          "{}: the header is not valid JSON: it holds a NUL", path);
  Checkpoint checkpoint;
  HeaderReader reader(path, checkpoint);
  nlohmann::json::sax_parse(header, &reader);
  std::vector<Entry> entries = reader.take();
  check_tiling(path, entries, file.size() - 8 - length);
  for (Entry& entry : entries) {
    Tensor tensor = Tensor::empty(entry.shape, entry.type.dtype);
    entry.type.read(file, tensor);
    checkpoint.tensors.emplace(std::move(entry.name), std::move(tensor));
  }
  file.check_unchanged();
  return checkpoint;
}

void write_checkpoint(const Checkpoint& checkpoint, const std::string& path) {
  std::vector<std::pair<std::string, Tensor>> tensors(checkpoint.tensors.begin(),
                                                      checkpoint.tensors.end());
  std::stable_sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
    return place_of(a.second.dtype()) < place_of(b.second.dtype());
  });
  nlohmann::ordered_json header;
  if (!checkpoint.metadata.empty()) header[metadata_key] = checkpoint.metadata;
  std::uint64_t offset = 0;
  for (auto& [name, tensor] : tensors) {
    check_name(path, name);
    tensor = tensor.packed();
    const std::uint64_t end = offset + tensor.byte_count();
    header[name] = {{"dtype", dtypes[place_of(tensor.dtype())].name},
                    {"shape", std::vector(tensor.shape().begin(), tensor.shape().end())},
                    {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = "{}";
  try {
    if (!header.empty()) text = header.dump();
  } catch (const nlohmann::json::exception&) {
    fail("{}: a name or a text of the metadata is not UTF-8", path);
  }
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const std::uint64_t length = text.size();

  OutputFile file(path);
  file.write(std::as_bytes(std::span(&length, 1)));
  file.write(std::as_bytes(std::span(text)));
  for (const auto& [name, tensor] : tensors) {
    file.write({tensor.bytes(), tensor.byte_count()});
  }
  file.commit();
}

std::map<std::string, Tensor> tensors_of(std::span<const NamedTensor> tensors) {
  std::map<std::string, Tensor> copies;
  for (const auto& [name, tensor] : places_of(tensors)) copies[name] = tensor.to(Device{});
  return copies;
}

std::map<std::string, Tensor> in_types_of(std::span<const NamedTensor> places,
                                          std::map<std::string, Tensor> tensors) {
  for (const auto& [name, place] : places_of(places)) {
    const auto found = tensors.find(name);
    if (found != tensors.end()) found->second = found->second.to(place.dtype());
  }
  return tensors;
}

void load_tensors(const std::map<std::string, Tensor>& own,
                  const std::map<std::string, Tensor>& tensors, const std::string& source) {
  for (const auto& [name, place] : own) {
    const auto found = tensors.find(name);
    require(found != tensors.end(),
            "{}: holds no '{}', which the model has; it is of another model", source, name);
    const Tensor& tensor = found->second;
    require(tensor.shape() == place.shape() && tensor.dtype() == place.dtype(),
            "{}: '{}' is {} {}, but the model's is {} {}; it is of another model", source, name,
            name_of(tensor.dtype()), tensor.shape(), name_of(place.dtype()), place.shape());
  }
  for (const auto& [name, tensor] : tensors) {
    require(own.contains(name),
            "{}: holds '{}', which the model does not have; it is of another model", source, name);
  }
  for (const auto& [name, place] : own) place.copy_from(tensors.at(name));
}

void load_tensors(std::span<const NamedTensor> own, const std::map<std::string, Tensor>& tensors,
                  const std::string& source) {
  for (const auto& [name, place, bounds] : own) {
    const auto found = tensors.find(name);
    if (bounds == Bounds{} || found == tensors.end()) continue;
    for (const double value : found->second.to(Device{}).to(DType::f64).to_vector<double>()) {
      require(!(value < bounds.least || value > bounds.most), "{}: '{}' holds {}, outside [{}, {}]",
              source, name, value, bounds.least, bounds.most);
    }
  }
  load_tensors(places_of(own), tensors, source);
}

bool all_finite(const Tensor& tensor) {
  const Tensor packed = tensor.packed();
  const auto finite = [&]<class T, class Wide>(T, Wide) {
    const std::span values(packed.data<T>(), static_cast<std::size_t>(packed.count()));
    return std::all_of(values.begin(), values.end(),
                       [](T x) { return std::isfinite(static_cast<Wide>(x)); });
  };
  if (tensor.dtype() == DType::f32) return finite(float{}, float{});
  if (tensor.dtype() == DType::f64) return finite(double{}, double{});
  return tensor.dtype() != DType::bf16 || finite(bf16{}, float{});
}

}  // namespace weft
