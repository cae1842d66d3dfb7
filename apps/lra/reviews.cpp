#include "apps/lra/reviews.h"

#include <algorithm>
#include <filesystem>

#include "nn/file.h"
#include "runtime/error.h"

namespace weft::lra {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> reviews_in(const fs::path& folder) {
  require(fs::is_directory(folder),
          "{}: there is no such folder; wanted the reviews of IMDb in train/neg, train/pos, "
          "test/neg and test/pos (https://ai.stanford.edu/~amaas/data/sentiment)",
          folder.string());
  std::vector<std::string> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".txt") files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  require(!files.empty(), "{}: has no reviews, NUMBER_STARS.txt", folder.string());
  return files;
}

void add_review(const std::string& file, std::uint8_t label, Sequences& part) {
  const std::string text = read_file(file);
  require(!text.empty(), "{}: is empty; wanted a review", file);
  const std::span<const char> start(text.data(), std::min(text.size(), std::size_t{longest_text}));
  part.add({reinterpret_cast<const std::uint8_t*>(start.data()), start.size()}, label);
}

}  // namespace

SequenceTask read_reviews(const std::string& folder) {
  const fs::path unpacked = fs::path(folder) / "aclImdb";
  const fs::path place = fs::is_directory(unpacked) ? unpacked : fs::path(folder);
  SequenceTask task;
  task.source = folder;
  task.classes = {"neg", "pos"};
  task.longest = longest_text;
  for (std::uint8_t label = 0; label < 2; ++label) {
    const std::vector<std::string> train = reviews_in(place / "train" / task.classes[label]);
    require(train.size() >= 10, "{}: has {} reviews; wanted at least 10",
            (place / "train" / task.classes[label]).string(), train.size());
    for (std::size_t i = 0; i < train.size(); ++i) {
      add_review(train[i], label, i % 10 == 9 ? task.validation : task.train);
    }
    for (const std::string& file : reviews_in(place / "test" / task.classes[label])) {
      add_review(file, label, task.test);
    }
  }
  return task;
}

}  // namespace weft::lra
