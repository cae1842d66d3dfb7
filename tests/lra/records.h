// Small files of the tasks' data, as they are released.
#pragma once

#include <filesystem>
#include <string>

#include "tests/files.h"

namespace weft {

inline std::string picture_record(int label, int red, int green, int blue) {
  std::string record(1, static_cast<char>(label));
  for (const int value : {red, green, blue}) record += std::string(1024, static_cast<char>(value));
  return record;
}

// Writes `each` records into every training file, and `test` into the other: record i of file k
// (6: the test file) has the grey 10 k + i, 200 + i in the test file, and the label (k + i) mod 10.
inline void write_records(const TemporaryFolder& folder, int each, int test) {
  for (int k = 1; k <= 6; ++k) {
    std::string records;
    for (int i = 0; i < (k == 6 ? test : each); ++i) {
      const int grey = (k == 6 ? 200 : 10 * k) + i;
      records += picture_record((k + i) % 10, grey, grey, grey);
    }
    folder.file(k == 6 ? "test_batch.bin" : "data_batch_" + std::to_string(k) + ".bin", records);
  }
}

// Writes `train` reviews of each class, and `test` to test: review i is CLASS_NAME 100 + i.
inline void write_reviews(const TemporaryFolder& folder, int train, int test) {
  for (const std::string part : {"train", "test"}) {
    for (const std::string name : {"neg", "pos"}) {
      for (int i = 0; i < (part == "train" ? train : test); ++i) {
        const std::string number = std::to_string(100 + i);
        folder.file(part + "/" + name + "/" + number + "_9.txt", name + " " + number);
      }
    }
  }
}

// Writes `each` pairs of texts into every file; pair i has the label i mod 2.
inline void write_pairs(const TemporaryFolder& folder, int each) {
  for (const std::string part : {"train", "eval", "test"}) {
    std::string lines;
    for (int i = 0; i < each; ++i) {
      const std::string n = std::to_string(i);
      lines += std::to_string(i % 2) + ".0\tA" + n + "\tB" + n + "\tfirst " + n + "\tsecond text " +
               n + "\n";
    }
    folder.file("new_aan_pairs." + part + ".tsv", lines);
  }
}

}  // namespace weft
