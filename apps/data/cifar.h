// Small pictures with a class each: CIFAR-10 and CIFAR-100 in their official binary layout, and a
// set that is drawn here, for runs without data.
// A. Krizhevsky, "Learning multiple layers of features from tiny images", 2009.
//
//     CIFAR-10    data_batch_1.bin … data_batch_5.bin, test_batch.bin
//                 a record: 1 byte label (0 … 9), 3072 bytes pixels
//     CIFAR-100   train.bin, test.bin
//                 a record: 1 byte coarse label (0 … 19), 1 byte fine label (0 … 99), 3072 bytes
//                 pixels
//
// The pixels are three planes, red, green, blue, of 32 rows of 32. Here they stand by row, column
// and channel. A file may hold any number of records.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/types.h"

namespace weft {

constexpr i64 picture_size = 32;  // pixels of a side
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

// The names of sets, and the classes of one by the names that its authors gave them.
const std::vector<std::string>& picture_sets();
const std::vector<std::string>& class_names(const std::string& set);

// What a channel's values 0 … 1 are brought to mean 0 and deviation 1 by.
struct Normalisation {
  std::array<double, 3> mean, deviation;
};
Normalisation normalisation_of(const std::string& set);

// `data` is "builtin" or the folder that the files are in (or were unpacked into, under their own
// folder's name). `set` is one of those names, or "auto": what the folder holds. Class names come
// from the files beside the pictures where those are there. Throws, naming file, record and byte,
// where a file is missing, has no whole number of records, or a label that there is not.
PictureSet load_pictures(const std::string& data, const std::string& set);

// Discs, rings, stripes and other light figures on dark grounds, in random colours, sizes and
// places, under noise: a function of the seed. Flips and small shifts leave each class what it is.
Pictures drawn_pictures(std::uint64_t seed, i64 count);

}  // namespace weft
