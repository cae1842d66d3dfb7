// Labelled small pictures: CIFAR-10 and CIFAR-100 in their official binary layout, and a generated
// set for runs without data.
// A. Krizhevsky, "Learning multiple layers of features from tiny images", 2009.
//
//     CIFAR-10    data_batch_1.bin … data_batch_5.bin, test_batch.bin
//                 a record: 1 byte label (0 … 9), 3072 bytes pixels
//     CIFAR-100   train.bin, test.bin
//                 a record: 1 byte coarse label (0 … 19), 1 byte fine label (0 … 99), 3072 bytes
//                 pixels
//
// A file stores pixels as three planes (red, green, blue) of 32 rows of 32; Pictures stores them by
// row, column and channel. A file may hold any number of records.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/types.h"

namespace weft {

constexpr i64 picture_size = 32;  // pixels per side
constexpr i64 picture_bytes = 3 * picture_size * picture_size;

struct Pictures {
  std::vector<std::uint8_t> pixels;  // [count, 32, 32, 3]
  std::vector<std::uint8_t> labels;  // [count]

  i64 count() const { return static_cast<i64>(labels.size()); }
  const std::uint8_t* at(i64 i) const { return pixels.data() + i * picture_bytes; }
};

struct PictureSet {
  std::string name;  // "cifar-10", "cifar-100", "cifar-100-coarse" or "builtin"
  Pictures train, test;
  std::vector<std::string> classes;
};

// The names of the sets, and the class names of a set as its authors gave them.
const std::vector<std::string>& picture_sets();
const std::vector<std::string>& class_names(const std::string& set);

// Mean and standard deviation of each channel's values in [0, 1], for normalisation.
struct Normalisation {
  std::array<double, 3> mean, deviation;
};
Normalisation normalisation_of(const std::string& set);

// `data` is "builtin", the folder with the files, or the folder that the archive was unpacked in.
// `set` is a set's name, or "auto": the one that the folder holds. Class names are read from the
// files beside the pictures, if present. Throws, naming file, record and byte, for a missing file,
// a partial record, or a label out of range.
PictureSet load_pictures(const std::string& data, const std::string& set);

// Discs, rings, stripes and other bright shapes on dark backgrounds, with random colours, sizes and
// positions, and noise: a function of the seed. Mirroring and small shifts do not change the class.
Pictures drawn_pictures(std::uint64_t seed, i64 count);

}  // namespace weft
