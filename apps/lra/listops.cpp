#include "apps/lra/listops.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <numeric>
#include <unordered_set>

#include "apps/data/digest.h"
#include "apps/lra/lines.h"
#include "nn/file.h"
#include "runtime/error.h"
#include "runtime/random.h"

namespace weft::lra {
namespace {

constexpr i64 deepest = 10, most_arguments = 10, shortest = 501, longest = 1999;
enum Word : std::uint8_t { minimum = 1, maximum, median, sum, first_digit, end = first_digit + 10 };
const std::array<const char*, 3> files = {"basic_train.tsv", "basic_val.tsv", "basic_test.tsv"};

std::uint8_t applied(std::uint8_t operation, std::vector<std::uint8_t>& values) {
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  switch (operation) {
    case minimum:
      return values.front();
    case maximum:
      return values.back();
    case median:
      return static_cast<std::uint8_t>((values[(n - 1) / 2] + values[n / 2]) / 2);
    default:
      return static_cast<std::uint8_t>(std::accumulate(values.begin(), values.end(), 0) % 10);
  }
}

// Draws one tree; each tree has a random key of its own.
class Tree {
 public:
  Tree(std::uint64_t seed, std::uint64_t number)
      : key_{seed, static_cast<std::uint32_t>(number), static_cast<std::uint32_t>(number >> 32)} {}

  // Draws the tree; returns whether its length is in the accepted range.
  bool grow() {
    words_.clear();
    value_ = grown(1);
    return length() >= shortest && length() <= longest;
  }
  const std::vector<std::uint8_t>& words() const { return words_; }
  std::uint8_t value() const { return value_; }

 private:
  i64 length() const { return static_cast<i64>(words_.size()); }

  std::uint32_t draw(std::uint32_t bound) {
    if (taken_ % 4 == 0) drawn_ = key_.words(taken_ / 4);
    return below(drawn_.word[taken_++ % 4], bound);
  }

  // Draws a subtree and returns its value. Stops early once the tree is too long; the value is then
  // not used.
  std::uint8_t grown(i64 depth) {
    if (length() > longest) return 0;
    if (depth == deepest || draw(4) != 0) {
      const auto digit = static_cast<std::uint8_t>(draw(10));
      words_.push_back(static_cast<std::uint8_t>(first_digit + digit));
      return digit;
    }
    const auto operation = static_cast<std::uint8_t>(minimum + draw(4));
    const i64 count = 2 + draw(most_arguments - 1);
    words_.push_back(operation);
    std::vector<std::uint8_t> values;
    for (i64 i = 0; i < count; ++i) values.push_back(grown(depth + 1));
    words_.push_back(end);
    return applied(operation, values);
  }

  RandomKey key_;
  std::uint64_t taken_ = 0;
  Philox drawn_ = {};
  std::vector<std::uint8_t> words_;
  std::uint8_t value_ = 0;
};

SequenceTask empty_task(const std::string& source) {
  SequenceTask task;
  task.source = source;
  task.symbols = {"[MIN", "[MAX", "[MED", "[SM"};
  for (char digit = '0'; digit <= '9'; ++digit) task.symbols.emplace_back(1, digit);
  task.symbols.emplace_back("]");
  for (char digit = '0'; digit <= '9'; ++digit) task.classes.emplace_back(1, digit);
  task.longest = longest + 1;
  task.first_tells = true;
  return task;
}

std::array<Sequences*, 3> parts_of(SequenceTask& task) {
  return {&task.train, &task.validation, &task.test};
}

std::uint8_t symbol_of(const SequenceTask& task, const std::string& word,
                       const std::string& place) {
  const auto found = std::find(task.symbols.begin(), task.symbols.end(), word);
  require(found != task.symbols.end(),
          "{}: '{}' is not a word of ListOps; wanted [MIN, [MAX, [MED, [SM, ], a digit or a "
          "parenthesis",
          place, word);
  return static_cast<std::uint8_t>(1 + (found - task.symbols.begin()));
}

}  // namespace

Sequences read_trees(const std::string& file) {
  const SequenceTask task = empty_task(file);
  Sequences part;
  bool heading = true;
  const auto add = [&](const std::string& line, const std::string& place) {
    const std::size_t tab = line.find('\t');
    if (heading) {
      require(tab != std::string::npos, "{}: wanted two headings with a tab between", place);
      heading = false;
      return;
    }
    const bool digit = tab != std::string::npos && tab + 2 == line.size() && line[tab + 1] >= '0' &&
                       line[tab + 1] <= '9';
    require(digit, "{}: wanted words, a tab and a digit", place);
    std::vector<std::uint8_t> words;
    for (std::size_t at = 0; at < tab;) {
      const std::size_t stop = std::min(line.find(' ', at), tab);
      const std::string word = line.substr(at, stop - at);
      if (!word.empty() && word != "(" && word != ")")
        words.push_back(symbol_of(task, word, place));
      at = stop + 1;
    }
    require(!words.empty() && static_cast<i64>(words.size()) <= task.longest,
            "{}: has {} words; wanted 1 … {}", place, words.size(), task.longest);
    part.add(words, static_cast<std::uint8_t>(line[tab + 1] - '0'));
  };
  each_line(file, "ListOps as Long Range Arena releases it", add);
  require(part.count() > 0, "{}: has no trees", file);
  return part;
}

namespace {

// The value of the tree that begins at `at`. Moves `at` past the tree.
std::uint8_t value_from(std::span<const std::uint8_t> words, std::size_t& at) {
  require(at < words.size(), "ListOps: the words end within a list");
  const std::uint8_t word = words[at++];
  if (word >= first_digit && word < end) return static_cast<std::uint8_t>(word - first_digit);
  require(word >= minimum && word <= sum, "ListOps: wanted an operator or a digit at word {}",
          at - 1);
  std::vector<std::uint8_t> values;
  while (at < words.size() && words[at] != end) values.push_back(value_from(words, at));
  require(at < words.size() && !values.empty(), "ListOps: the list that ends at word {} is {}", at,
          values.empty() ? "empty" : "not closed");
  ++at;
  return applied(word, values);
}

}  // namespace

SequenceTask drawn_listops(std::uint64_t seed, const PartCounts& counts) {
  SequenceTask task = empty_task("builtin");
  std::unordered_set<std::string> known;
  std::uint64_t number = 0;
  const std::array<i64, 3> wanted = {counts.train, counts.validation, counts.test};
  for (std::size_t part = 0; part < 3; ++part) {
    Sequences& to = *parts_of(task)[part];
    while (to.count() < wanted[part]) {
      Tree tree(seed, number++);
      if (!tree.grow()) continue;
      if (known.insert(digest(std::as_bytes(std::span(tree.words())))).second) {
        to.add(tree.words(), tree.value());
      }
    }
  }
  return task;
}

SequenceTask read_listops(const std::string& folder) {
  SequenceTask task = empty_task(folder);
  for (std::size_t part = 0; part < 3; ++part) {
    *parts_of(task)[part] = read_trees(folder + "/" + files[part]);
  }
  return task;
}

void write_listops(const SequenceTask& task, const std::string& folder) {
  std::filesystem::create_directories(folder);
  const std::array<const Sequences*, 3> parts = {&task.train, &task.validation, &task.test};
  for (std::size_t part = 0; part < 3; ++part) {
    OutputFile file(folder + "/" + files[part]);
    std::string text = "Source\tTarget\n";
    for (i64 i = 0; i < parts[part]->count(); ++i) {
      const char* between = "";
      for (const std::uint8_t symbol : parts[part]->at(i)) {
        text += between + task.symbols[symbol - 1u];
        between = " ";
      }
      const int label = parts[part]->labels[static_cast<std::size_t>(i)];
      text += '\t' + std::to_string(label) + '\n';
      file.write(std::as_bytes(std::span(text)));
      text.clear();
    }
    file.commit();
  }
}

std::uint8_t value_of(std::span<const std::uint8_t> words) {
  std::size_t at = 0;
  const std::uint8_t value = value_from(words, at);
  require(at == words.size(), "ListOps: the tree ends at word {} of {}", at, words.size());
  return value;
}

}  // namespace weft::lra
