// The pages (*.md): the targets of their links exist, and their quotes are in the files.
//
// A link is [words](path), relative to the folder of its page; after it, ` at ` and a text in
// backquotes name a place: that text occurs once in the file. An indented block after a line that
// ends in such a link and a colon, `… [path](path):`, quotes that file; a line of it that is `…`
// marks omitted lines.
//
// The pages of mechanisms, which begin their headers, have the parts that ops/attention/README.md
// names, in that order.
#include <algorithm>
#include <filesystem>
#include <sstream>

#include "ops/attention/mechanism.h"
#include "tests/program.h"
#include "tests/sanitized.h"

using namespace weft;

namespace {

namespace fs = std::filesystem;

// The pages of the tree.
std::vector<fs::path> pages() {
  const fs::path root = WEFT_SOURCE_ROOT;
  std::vector<fs::path> found = {root / "README.md"};
  for (const char* folder :
       {"runtime", "autograd", "ops", "nn", "apps", "tests", "bench", "third_party"}) {
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
      if (entry.path().extension() == ".md") found.push_back(entry.path());
    }
  }
  return found;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

struct Findings {
  std::vector<std::string> faults;
  int links = 0, places = 0, quotes = 0;
};

// The faults of the page `text`, whose links are relative to `folder`.
Findings findings(const fs::path& folder, const std::string& text) {
  Findings found;
  const auto file_text = [](const fs::path& file) {
    return fs::is_regular_file(file) ? read_file(file.string()) : std::string();
  };
  std::string prose;  // without indented blocks, whose lines have no links
  const std::vector<std::string> lines = lines_of(text);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].starts_with("    ")) continue;
    prose += lines[i] + "\n";
    const std::size_t open = lines[i].rfind("](");
    if (!lines[i].ends_with("):") || open == std::string::npos) continue;
    const std::string target = lines[i].substr(open + 2, lines[i].size() - open - 4);
    if (target.find(')') != std::string::npos) continue;
    const std::string whole = file_text(folder / target);
    std::vector<std::string> parts(1);  // between omitted lines
    for (std::size_t j = i + 1; j < lines.size(); ++j) {
      if (!lines[j].empty() && !lines[j].starts_with("    ")) break;
      const std::string line = lines[j].empty() ? "" : lines[j].substr(4);
      if (line == "…") {
        parts.emplace_back();
      } else if (!line.empty() || !parts.back().empty()) {
        parts.back() += line + "\n";
      }
    }
    std::size_t from = 0;
    for (std::string part : parts) {
      while (part.ends_with("\n\n")) part.pop_back();
      const std::size_t at = part.empty() ? std::string::npos : whole.find(part, from);
      if (at == std::string::npos) {
        found.faults.push_back("quoted, but not in " + target + ": " +
                               part.substr(0, part.find('\n')));
        break;
      }
      from = at + part.size();
    }
    ++found.quotes;
  }
  for (std::size_t at = prose.find("]("); at != std::string::npos; at = prose.find("](", at + 1)) {
    const std::size_t end = prose.find(')', at);
    if (end == std::string::npos) break;
    std::string target = prose.substr(at + 2, end - at - 2);
    if (target.find("://") != std::string::npos || target.starts_with("#")) continue;
    target = target.substr(0, target.find('#'));
    ++found.links;
    if (!fs::exists(folder / target)) found.faults.push_back("no such file: " + target);
    const std::string place = ") at `";
    if (prose.compare(end, place.size(), place) != 0) continue;
    const std::size_t begin = end + place.size();
    const std::string named = prose.substr(begin, prose.find('`', begin) - begin);
    if (const std::size_t count = count_of(file_text(folder / target), named); count != 1) {
      found.faults.push_back("stands " + std::to_string(count) + " times in " + target +
                             ", wanted once: " + named);
    }
    ++found.places;
  }
  return found;
}

// The first part that the page of a mechanism lacks where it belongs; empty if all are in order.
std::string missing_part(const std::string& page) {
  std::vector<std::string> paragraphs(1);
  for (const std::string& line : lines_of(page)) {
    if (line.empty()) {
      paragraphs.emplace_back();
    } else {
      paragraphs.back() += line + "\n";
    }
  }
  const auto has = [](const std::string& part) {
    return [part](const std::string& text) { return text.find(part) != std::string::npos; };
  };
  const auto begins = [](const std::string& part) {
    return [part](const std::string& text) { return text.starts_with(part); };
  };
  if (paragraphs.size() < 2 || !(has("iven up")(paragraphs[1]) || has("give up")(paragraphs[1]))) {
    return "what is given up, in the first paragraph after the title";
  }
  auto at = paragraphs.begin() + 1;
  const auto next = [&](const auto& wanted) {
    at = std::find_if(at, paragraphs.end(), wanted);
    return at != paragraphs.end();
  };
  if (!next(begins("    "))) return "equations";
  if (!next(begins("Masks: "))) return "Masks";
  if (!next(begins("Backward"))) return "Backward";
  if (!next(begins("Saved"))) return "Saved";
  const auto cost = [&](const std::string& text) {
    return begins("Cost")(text) || has("Time")(text);
  };
  if (!next(cost)) return "Time, or Cost";
  return begins("Read next: ")(paragraphs.back()) ? "" : "Read next, as the last paragraph";
}

TEST_SUITE("tools") {

TEST_CASE("pages: links lead to files, named places stand once, quotes are what the files say" *
          not_sanitized()) {
  int places = 0, quotes = 0;
  for (const fs::path& page : pages()) {
    const Findings found = findings(page.parent_path(), read_file(page.string()));
    for (const std::string& fault : found.faults) FAIL_CHECK(page.string() << ": " << fault);
    places += found.places, quotes += found.quotes;
  }
  CHECK(places >= 18);  // the tour
  CHECK(quotes >= 7);   // README.md, ops/attention/README.md
}

TEST_CASE("pages: the front page is short, and begins with the first steps" * not_sanitized()) {
  const std::string text = read_file(WEFT_SOURCE_ROOT "/README.md");
  CHECK(lines_of(text).size() <= 200);
  CHECK(text.find("\n## ") == text.find("\n## First steps\n"));
}

TEST_CASE("pages: those of mechanisms have their parts in one order" * not_sanitized()) {
  int count = 0;
  for (const Mechanism* const mechanism : mechanisms()) {
    if (mechanism->name.starts_with("toy")) continue;  // this program's own
    CAPTURE(mechanism->name);
    CHECK(missing_part(page_of(*mechanism)) == "");
    ++count;
  }
  CHECK(count >= 30);
}

TEST_CASE("pages: a part of a mechanism's page that is missing or misplaced is named" *
          not_sanitized()) {
  const std::vector<std::string> parts = {"Title.",        "For tests. Given up is sense.",
                                          "    a = b",     "Masks: none.",
                                          "Backward. da.", "Saved: a.",
                                          "Time 1.",       "Read next: b.h."};
  const std::vector<std::string> names = {
      "what is given up", "what is given up", "equations", "Masks", "Backward", "Saved",
      "Time, or Cost",    "Read next"};
  const auto joined = [](const std::vector<std::string>& some) {
    std::string page;
    for (const std::string& part : some) page += (page.empty() ? "" : "\n") + part + "\n";
    return page;
  };
  CHECK(missing_part(joined(parts)) == "");
  for (std::size_t i = 0; i < parts.size(); ++i) {
    std::vector<std::string> others = parts;
    others.erase(others.begin() + i);
    CHECK(missing_part(joined(others)).starts_with(names[i]));
    if (i < 2 || i + 1 == parts.size()) continue;
    others = parts;
    std::swap(others[i], others[i + 1]);
    CHECK(missing_part(joined(others)).starts_with(names[i + 1]));
  }
}

TEST_CASE("pages: what is wrong with one is found" * not_sanitized()) {
  const TemporaryFolder folder;
  folder.file("a.h", "one\ntwo\nthree\ntwo\n");
  const auto faults = [&](const std::string& text) { return findings(folder.path(), text).faults; };
  CHECK(faults("[a](a.h) at `one`; [w](https://weft.invalid); [a](a.h#two)\n").empty());
  CHECK(faults("[b](b.h)\n") == std::vector<std::string>{"no such file: b.h"});
  CHECK(faults("[a](a.h) at `two`\n") ==
        std::vector<std::string>{"stands 2 times in a.h, wanted once: two"});
  CHECK(faults("[a](a.h) at `four`\n").size() == 1);
  CHECK(faults("See [a](a.h):\n\n    one\n    …\n    three\n\nmore\n").empty());
  CHECK(faults("See [a](a.h):\n\n    three\n    …\n    one\n") ==
        std::vector<std::string>{"quoted, but not in a.h: one"});
  CHECK(faults("See [a](a.h):\n\n    one\n    three\n").size() == 1);
  CHECK(faults("See [a](a.h):\n\nnothing is quoted\n").size() == 1);
}

}  // TEST_SUITE("tools")

}  // namespace
