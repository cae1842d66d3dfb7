// The table of mechanisms, and single fact sheets.
#include <map>
#include <sstream>

#include <nlohmann/json.hpp>

#include "ops/attention/mechanism.h"
#include "tests/program.h"
#include "tests/sanitized.h"

using namespace weft;

namespace {

ProgramRun zoo(const Words& words) { return app("zoo", words); }

// All mechanisms that programs know: the tests' own come from plugins.
std::vector<const Mechanism*> known() {
  std::vector<const Mechanism*> list = mechanisms();
  std::erase_if(list,
                [](const Mechanism* mechanism) { return mechanism->name.starts_with("toy"); });
  return list;
}

TEST_SUITE("tools") {

TEST_CASE("zoo: the table of ops/attention/README.md is its output in Markdown" * not_sanitized()) {
  const ProgramRun run = zoo({"--markdown"});
  REQUIRE(run.status == 0);
  const std::string page = read_file(WEFT_SOURCE_ROOT "/ops/attention/README.md");
  CHECK_MESSAGE(contains(page, run.out),
                "replace the table of ops/attention/README.md by the output of zoo --markdown");
  for (const Mechanism* mechanism : known()) {
    CHECK(contains(run.out, "| `" + mechanism->name + (mechanism->wrapper ? "/…`" : "`")));
  }
}

// The cells of a row in Markdown.
std::vector<std::string> cells_of(const std::string& row) {
  std::vector<std::string> cells;
  for (std::size_t begin = 2, end; (end = row.find(" |", begin)) != std::string::npos;) {
    cells.push_back(row.substr(begin, end - begin));
    begin = end + 3;
  }
  return cells;
}

// The rows of a table in Markdown, below the line that begins with `head`.
std::vector<std::string> rows_below(const std::string& text, const std::string& head) {
  std::istringstream lines(text);
  std::string line;
  while (std::getline(lines, line) && !line.starts_with(head)) {
  }
  std::getline(lines, line);  // | --- |
  std::vector<std::string> rows;
  while (std::getline(lines, line) && line.starts_with("| ")) rows.push_back(line);
  return rows;
}

TEST_CASE("zoo: README.md has a row for each mechanism, with a link to its page" *
          not_sanitized()) {
  const auto all = rows_below(zoo({"--markdown"}).out, "| mechanism |");
  const auto rows = rows_below(read_file(WEFT_SOURCE_ROOT "/README.md"), "| mechanism |");
  REQUIRE(all.size() == known().size());
  CHECK(rows.size() == all.size());
  for (std::size_t i = 0; i < std::min(rows.size(), all.size()); ++i) {
    const Mechanism& mechanism = *known()[i];
    std::string folder = mechanism.page.empty() ? mechanism.name : mechanism.page;
    std::replace(folder.begin(), folder.end(), '-', '_');
    if (!mechanism.wrapper) folder += "/" + folder + ".h";
    const std::vector<std::string> cells = cells_of(all[i]);
    constexpr std::size_t name = 0, what = 1, time = 4, causal = 7;
    CHECK(rows[i] == "| [" + cells[name] + "](ops/attention/" + folder + ") | " + cells[what] +
                         " | " + cells[time] + " | " + cells[causal] + " |");
  }
}

// Characters: bytes of UTF-8 but those that continue one.
std::ptrdiff_t characters(const std::string& line) {
  return std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xc0) != 0x80; });
}

TEST_CASE("zoo: the table for a terminal fits 100 columns" * not_sanitized()) {
  const ProgramRun run = zoo({});
  REQUIRE(run.status == 0);
  std::istringstream lines(run.out);
  std::string line, words;
  std::map<std::string, std::string> starts;
  for (bool first = true; std::getline(lines, line); first = false) {
    CAPTURE(line);
    CHECK(characters(line) <= 100);
    if (first) {
      for (const char* column : {"mechanism", "what", "causal", "time", "memory"}) {
        CHECK(contains(line, column));
      }
    }
    starts[line.substr(0, line.find(' '))] = line;
    std::istringstream cells(line);
    for (std::string word; cells >> word;) words += word + " ";
  }
  CHECK_FALSE(contains(run.out, "|"));
  for (const Mechanism* mechanism : known()) {
    CAPTURE(mechanism->name);
    const std::string row = starts[mechanism->name + (mechanism->wrapper ? "/…" : "")];
    CHECK_FALSE(row.empty());
    const std::string title = mechanism->title.substr(0, mechanism->title.find(' '));
    CHECK(contains(row, title));
    CHECK(contains(row, mechanism->wrapper ? "as inner" : mechanism->scaling));
    if (!mechanism->wrapper && !mechanism->masks.causal) CHECK(contains(row, " no "));
    const std::string last = mechanism->title.substr(mechanism->title.rfind(' ') + 1);
    CHECK(contains(words, last));  // no title is cut
  }
}

TEST_CASE("zoo: a specification shows its options as it sets them") {
  const ProgramRun plain = zoo({"topk"}), set = zoo({"topk:topk=16"});
  REQUIRE(set.status == 0);
  CHECK(contains(plain.out, "topk: "));
  CHECK(contains(set.out, "topk:topk=16: "));
  CHECK(contains(set.out, "default 32"));
  CHECK_FALSE(contains(plain.out, "default 32"));
  CHECK(contains(set.out, page_of(mechanism("topk"))));
  const ProgramRun wrapped = zoo({"conditional/topk:topk=7"});
  REQUIRE(wrapped.status == 0);
  CHECK(contains(wrapped.out, "options of topk"));
  CHECK(contains(wrapped.out, "default 32"));
  CHECK(contains(wrapped.out, "[B N H E]"));
  check_refused(zoo({"topk:topk=0"}), "topk is a number in");
  check_refused(zoo({"topk:tokp=3"}), "did you mean topk?");
}

TEST_CASE("zoo: facts that depend on options are those of the specification") {
  struct Case {
    std::string text, causal, decoding;
    std::vector<std::string> decided;
  };
  for (const Case& c : std::vector<Case>{
           {"mega",
            "yes, with attention!=csp",
            "step by step, with attention!=csp",
            {"src", "shifts"}},
           {"mega:attention=laplace", "yes", "step by step", {}},
           {"mega:attention=csp", "no", "no", {"src", "shifts"}},
           {"sinkhorn", "yes, with sort=attention, iterations=7", "no", {"noise", "picked"}},
           {"sinkhorn:block=4", "yes", "no", {"noise", "picked"}},
           {"sinkhorn:sort=simple", "no", "no", {"noise"}},
           {"cosformer", "yes", "step by step, with max_length!=0", {}},
           {"cosformer:max_length=0", "yes", "no", {}},
           {"cosformer:max_length=9", "yes", "step by step", {}},
           {"csp", "no", "no", {"src", "shifts"}},
           {"csp:sinkhorn=2", "no", "no", {"shifts"}},
           {"conditional/topk", "yes", "no", {"topk"}}}) {
    CAPTURE(c.text);
    const std::string text = zoo({c.text}).out;
    CHECK_MESSAGE(contains(text, "causal     " + c.causal + "\n"), text);
    CHECK_MESSAGE(contains(text, "decoding   " + c.decoding + "\n"), text);
    const auto sheet = nlohmann::json::parse(zoo({c.text, "--json"}).out);
    CHECK(sheet["causal"] == c.causal);
    CHECK(sheet["decoding"] == (c.decoding != "no"));
    std::vector<std::string> decided;
    for (const auto& choice : sheet["choices"]) decided.push_back(choice["name"]);
    CHECK(decided == c.decided);
    CHECK(contains(text, "drawn or decided") == !decided.empty());
  }
  CHECK(contains(zoo({"mega"}).out, "can be given, with other options"));
  CHECK_FALSE(contains(zoo({"mega:attention=csp"}).out, "with other options"));
  const auto mega = nlohmann::json::parse(zoo({"mega", "--json"}).out);
  CHECK(mega["choices"][0]["decided"] == false);
  const auto cosformer = nlohmann::json::parse(zoo({"cosformer", "--json"}).out);
  CHECK(cosformer["decoding_wants"] == "max_length!=0");
}

TEST_CASE("zoo: the fact sheets as JSON") {
  const auto all = nlohmann::json::parse(zoo({"--json"}).out);
  REQUIRE(all.size() == known().size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Mechanism& mechanism = *known()[i];
    CAPTURE(mechanism.name);
    CHECK(all[i]["name"] == mechanism.name);
    CHECK(all[i]["title"] == mechanism.title);
    CHECK(all[i]["time"] == mechanism.scaling);
    CHECK(all[i]["options"].size() == mechanism.options.size());
    const std::size_t inputs =
        mechanism.wrapper ? 0 : attention_inputs(AttentionSpec(mechanism.name)).size();
    CHECK(all[i]["inputs"].size() == inputs);
    CHECK(all[i].contains("causal") == !mechanism.wrapper);
  }
  const auto one = nlohmann::json::parse(zoo({"topk:topk=16", "--json"}).out);
  CHECK(one["specification"] == "topk:topk=16");
  CHECK(one["options"][0]["value"] == "16");
  CHECK(one["options"][0]["default"] == "32");
  CHECK(one["inputs"][0]["shape"] == "B N H E");
}

TEST_CASE("zoo: one fact sheet with its page" * not_sanitized()) {
  for (const Mechanism* mechanism : known()) {
    CAPTURE(mechanism->name);
    const ProgramRun run = zoo({mechanism->name});
    CHECK(run.status == 0);
    CHECK(contains(run.out, mechanism->paper));
    CHECK(contains(run.out, page_of(*mechanism)));
    CHECK(page_of(*mechanism).size() > 200);
    for (const OptionSheet& option : mechanism->options) CHECK(contains(run.out, option.help));
  }
}

TEST_CASE("zoo: bad words") {
  check_refused(zoo({"fulll"}), "did you mean full?");
  check_refused(zoo({"full", "topk"}), "'topk' follows no option");
  check_refused(zoo({"--full"}), "there is no option --full");
  check_refused(zoo({"--json", "--markdown"}), "--markdown");
  check_refused(zoo({"full", "--markdown"}), "--markdown is for the table");
}

}  // TEST_SUITE("tools")

}  // namespace
