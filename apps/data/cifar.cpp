#include "apps/data/cifar.h"

#include <algorithm>
#include <filesystem>

#include "nn/file.h"
#include "runtime/error.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

// One of the official data sets, and which of its labels is the class.
struct Layout {
  const char* set;
  const char* folder;  // top-level folder of the archive
  std::vector<const char*> train;
  const char* test;
  std::vector<i64> labels;  // number of values of each label in a record
  std::size_t label;        // index of the label to use
  const char* names;        // file with the class names
};

const std::vector<Layout>& layouts() {
  static const std::vector<Layout> list = {
      {"cifar-10",
       "cifar-10-batches-bin",
       {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin",
        "data_batch_5.bin"},
       "test_batch.bin",
       {10},
       0,
       "batches.meta.txt"},
      {"cifar-100",
       "cifar-100-binary",
       {"train.bin"},
       "test.bin",
       {20, 100},
       1,
       "fine_label_names.txt"},
      {"cifar-100-coarse",
       "cifar-100-binary",
       {"train.bin"},
       "test.bin",
       {20, 100},
       0,
       "coarse_label_names.txt"}};
  return list;
}

// Appends the records of a file.
void read_records(const std::string& path, const Layout& layout, Pictures& pictures) {
  InputFile file(path);
  const std::size_t labels = layout.labels.size(), record = labels + picture_bytes;
  const std::uint64_t count = file.size() / record;
  require(
      count > 0 && file.size() % record == 0,
      "{}: has {} bytes; wanted a multiple of {}, records of {} label and {} pixel bytes; fetch "
      "the binary version of the set again",
      path, file.size(), record, labels, picture_bytes);
  std::vector<std::uint8_t> bytes(record);
  constexpr i64 plane = picture_size * picture_size;
  std::size_t at = pictures.pixels.size();
  pictures.pixels.resize(at + count * picture_bytes);
  for (std::uint64_t i = 0; i < count; ++i) {
    file.read(std::as_writable_bytes(std::span(bytes)));
    for (std::size_t k = 0; k < labels; ++k) {
      require(bytes[k] < layout.labels[k],
              "{}: record {} (byte {}): label {}, wanted 0 to {}; this is not a {} file", path, i,
              i * record + k, bytes[k], layout.labels[k] - 1, layout.set);
    }
    pictures.labels.push_back(bytes[layout.label]);
    const std::uint8_t* const planes = bytes.data() + labels;
    for (i64 p = 0; p < plane; ++p) {
      for (i64 c = 0; c < 3; ++c) pictures.pixels[at++] = planes[c * plane + p];
    }
  }
  file.check_unchanged();
}

// The lines of the file of class names; the standard names if there is no file.
std::vector<std::string> read_names(const std::string& path, const std::string& set) {
  const std::vector<std::string>& standard = class_names(set);
  if (!fs::exists(path)) return standard;
  std::vector<std::string> names;
  const std::string text = read_file(path);
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string name = text.substr(begin, end - begin);
    if (name.ends_with('\r')) name.pop_back();
    begin = end + 1;
    if (name.empty()) continue;
    const bool plain = name.size() <= 64 && std::all_of(name.begin(), name.end(), [](char c) {
                         return c >= ' ' && c <= '~';
                       });
    require(plain, "{}: line {} is not a class name: wanted at most 64 printable ASCII letters",
            path, names.size() + 1);
    names.push_back(name);
  }
  require(names.size() == standard.size(), "{}: wanted {} class names, one a line, got {}", path,
          standard.size(), names.size());
  return names;
}

// The folder with the files of a layout: `folder` itself, or the archive's top-level folder in it.
std::string place_of(const std::string& folder, const Layout& layout) {
  for (const fs::path& place : {fs::path(folder), fs::path(folder) / layout.folder}) {
    if (fs::exists(place / layout.train[0]) || fs::exists(place / layout.test)) {
      return place.string();
    }
  }
  return {};
}

PictureSet read_set(const std::string& place, const Layout& layout) {
  PictureSet set{layout.set, {}, {}, {}};
  const auto file = [&](const char* name) { return (fs::path(place) / name).string(); };
  for (const char* name : layout.train) read_records(file(name), layout, set.train);
  read_records(file(layout.test), layout, set.test);
  set.classes = read_names(file(layout.names), layout.set);
  return set;
}

}  // namespace

const std::vector<std::string>& picture_sets() {
  static const std::vector<std::string> names = {"cifar-10", "cifar-100", "cifar-100-coarse",
                                                 "builtin"};
  return names;
}

Normalisation normalisation_of(const std::string& set) {
  if (set == "cifar-10") return {{.4914, .4822, .4465}, {.2023, .1994, .2010}};
  if (set == "builtin") return {{.5, .5, .5}, {.25, .25, .25}};
  return {{.5071, .4867, .4408}, {.2675, .2565, .2761}};
}

PictureSet load_pictures(const std::string& data, const std::string& set) {
  if (data == "builtin") {
    require(set == "auto" || set == "builtin",
            "--dataset {}: needs --data, the folder with its files", set);
    return {"builtin", drawn_pictures(1, 8000), drawn_pictures(2, 2000), class_names("builtin")};
  }
  require(set != "builtin", "--dataset builtin: needs --data builtin, got --data {}", data);
  require(fs::is_directory(data),
          "{}: there is no such folder; wanted one with the binary version of "
          "CIFAR-10 or CIFAR-100 (https://www.cs.toronto.edu/~kriz/cifar.html)",
          data);
  for (const Layout& layout : layouts()) {
    if (set != "auto" && set != layout.set) continue;
    const std::string place = place_of(data, layout);
    if (!place.empty()) return read_set(place, layout);
  }
  fail(
      "{}: holds no pictures{}; wanted data_batch_1.bin … and test_batch.bin of CIFAR-10, or "
      "train.bin and test.bin of CIFAR-100 (the binary versions)",
      data, set == "auto" ? "" : " of " + set);
}

}  // namespace weft
