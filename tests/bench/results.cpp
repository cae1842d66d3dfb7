// The file of rows: what is kept, what is refused, and the handling of a partial line and of a full
// disk. And the stamp that says whether the library was tested.
#include "bench/results.h"

#include "bench/stamp.h"
#include "bench/summary.h"
#include "tests/files.h"

#include "doctest/doctest.h"

using namespace weft;
using namespace weft::bench;

namespace {

Row row_of(const std::string& name, i64 length, double ms, const char* kind = "row") {
  return {{"format", results_format},
          {"library", "abc"},
          {"settings", "batch 1, f32"},
          {"device", "cpu"},
          {"processor", "p"},
          {"kind", kind},
          {"name", name},
          {"length", length},
          {"forward_ms", ms},
          {"backward_ms", 2 * ms},
          {"peak_bytes", 100 * length}};
}

std::string text_of(const std::vector<Row>& rows) {
  std::string text;
  for (const Row& row : rows) text += row.dump() + "\n";
  return text;
}

TEST_SUITE("bench") {

TEST_CASE("results: rows come back, and new ones stand behind them") {
  const TemporaryFolder folder;
  const std::string path = folder.path("rows.jsonl");
  {
    Results results(path);
    CHECK(results.lines().empty());
    results.add(row_of("full", 256, 1));
    CHECK(read_file(path) == text_of(results.lines()));  // flushed row by row
    results.add(row_of("csp", 256, 2));
  }
  Results again(path);
  CHECK(!again.torn());
  REQUIRE(again.lines().size() == 2);
  CHECK(again.lines()[1] == row_of("csp", 256, 2));
  again.add(row_of("full", 512, 4));
  again.add(row_of("full", 512, 4));  // known
  CHECK(read_file(path) ==
        text_of({row_of("full", 256, 1), row_of("csp", 256, 2), row_of("full", 512, 4)}));
}

TEST_CASE("results: a row is found by library, settings, device, processor, name and length") {
  Results results;
  results.add(row_of("full", 256, 1));
  const Key key = key_of(row_of("full", 256, 7));
  REQUIRE(results.find(key) != nullptr);
  CHECK(*results.find(key) == row_of("full", 256, 1));
  for (const char* part : {"library", "settings", "device", "processor", "name"}) {
    Row other = row_of("full", 256, 1);
    other[part] = "other";
    CHECK(results.find(key_of(other)) == nullptr);
  }
  CHECK(results.find(key_of(row_of("full", 512, 1))) == nullptr);
  results.add(row_of("topk", 256, 1, "cut"));  // a skipped row is measured when budgets allow
  CHECK(results.find(key_of(row_of("topk", 256, 1))) == nullptr);
}

TEST_CASE("results: a repeated run adds nothing, another reason or outcome a line") {
  const TemporaryFolder folder;
  Results results(folder.path("rows.jsonl"));
  const auto lines_with = [&](const char* kind, const char* reason, const char* date) {
    Row line = row_of("topk", 256, 1, kind);
    line.update({{"reason", reason}, {"date", date}});
    results.add(line);
    return results.lines().size();
  };
  CHECK(lines_with("cut", "needs 2 GiB", "2026-11-01") == 1);
  CHECK(lines_with("cut", "needs 2 GiB", "2026-11-02") == 1);
  CHECK(lines_with("error", "no memory", "2026-11-03") == 2);
  CHECK(lines_with("error", "no memory", "2026-11-04") == 2);
  CHECK(lines_with("cut", "needs 2 GiB", "2026-11-05") == 3);
  CHECK(lines_with("cut", "needs 3 GiB", "2026-11-06") == 4);
}

TEST_CASE("results: a torn last line is taken off") {
  const TemporaryFolder folder;
  const std::string whole = text_of({row_of("full", 256, 1), row_of("csp", 256, 2)});
  for (const std::size_t cut : {whole.size() - 1, whole.size() - 2, whole.find('\n') + 2}) {
    const std::string path = folder.file("rows.jsonl", whole.substr(0, cut));
    {
      Results results(path);
      CHECK(results.torn());
      CHECK(results.lines().size() == 1);
      results.add(row_of("csp", 256, 2));
    }
    CHECK(read_file(path) == whole);
  }
}

TEST_CASE("results: another format, another file, a damaged one, a folder") {
  const TemporaryFolder folder;
  const auto refused = [&](const std::string& text) {
    const std::string path = folder.file("rows.jsonl", text);
    const std::string error = error_of([&] { Results results(path); });
    CHECK(contains(error, path + ":"));
    CHECK(!contains(error, "\n"));
    CHECK(read_file(path) == text);  // untouched
    return error;
  };
  Row later = row_of("full", 512, 1);
  later["format"] = results_format + 1;
  CHECK(contains(refused(text_of({row_of("full", 256, 1), later})), ":2: rows of format 2"));
  CHECK(contains(refused("{\"kind\": \"train\", \"step\": 3}\n"), ":1: wanted a row"));
  CHECK(contains(refused("[1]\n"), ":1: wanted a row"));
  CHECK(contains(refused("{\"format\": 1\n"), ":1: is not JSON"));
  for (const char* part :
       {"library", "processor", "kind", "name", "length", "forward_ms", "peak_bytes"}) {
    Row without = row_of("full", 256, 1);
    without.erase(part);
    CHECK(contains(refused(text_of({without})), "that lacks fields"));
    without[part] = Row::array();
    CHECK(contains(refused(text_of({without})), "that lacks fields"));
  }
  CHECK(contains(error_of([&] { Results results(folder.path()); }), "cannot be opened"));
  CHECK(contains(error_of([&] { Results results(folder.path("none/rows.jsonl")); }), "cannot be"));
}

TEST_CASE("results: one run at a time") {
  const TemporaryFolder folder;
  const std::string path = folder.path("rows.jsonl");
  const Results first(path);
  CHECK(contains(error_of([&] { Results second(path); }), "another run is writing"));
}

TEST_CASE("results: a full disk is told, and whole lines stay") {
  const TemporaryFolder folder;
  const std::string path = folder.path("rows.jsonl");
  const std::string one = text_of({row_of("full", 256, 1)});
  {
    Results results(path);
    results.add(row_of("full", 256, 1));
    const FullDisk full(one.size() + 10);
    const std::string error = error_of([&] { results.add(row_of("csp", 256, 2)); });
    CHECK(contains(error, path + ": cannot be written: "));
    CHECK(contains(error, "run the same command again"));
  }
  CHECK(read_file(path) == one);
  Results again(path);
  CHECK(!again.torn());
  CHECK(again.lines().size() == 1);
}

TEST_CASE("csv: every key a column, commas and quotes kept") {
  const std::vector<Row> rows{{{"a", 1}, {"b", "x, \"y\""}}, {{"a", nullptr}, {"c", 0.5}}};
  CHECK(csv(rows) == "a,b,c\n1,\"x, \"\"y\"\"\",\n,,0.5\n");
  CHECK(csv({}).empty());
}

TEST_CASE("rows of a run: its own, the last of each length, by name and length") {
  Row other = row_of("full", 256, 9);
  other["library"] = "older";
  const auto rows =
      rows_of_run({other, row_of("full", 512, 1), row_of("csp", 256, 2), row_of("full", 256, 3),
                   row_of("full", 512, 4), row_of("csp", 512, 5, "error")},
                  row_of("any", 1, 1));
  CHECK(rows ==
        std::vector<Row>{row_of("full", 256, 3), row_of("full", 512, 4), row_of("csp", 256, 2)});
}

TEST_CASE("summary: exponents, the fact sheet's, and crossovers") {
  std::vector<Row> rows;
  const auto add = [&](const std::string& name, double c, double slope, double operations) {
    for (const i64 n : {256, 512, 1024, 2048, 4096, 8192}) {
      rows.push_back(row_of(name, n, c * std::pow(double(n), slope)));
      rows.back()["operations"] = std::pow(double(n), operations);
      rows.back()["expected_peak_bytes"] = n;
    }
  };
  add("full", 1e-6, 2, 2);
  add("linear", 1e-3, 1, 1);
  add("boastful", 1e-9, 1.5, 1);
  const auto curves = curves_of(rows);
  REQUIRE(curves.size() == 3);
  for (const Curve& curve : curves) {
    REQUIRE(curve.time);
    CHECK(curve.time->points == 3);
    CHECK(curve.memory->slope == doctest::Approx(1));
    CHECK(!curve.memory_disagrees);
    CHECK(curve.time_disagrees == (curve.name == "boastful"));
  }
  CHECK(curves[0].time->slope == doctest::Approx(2));
  CHECK(curves[2].time->slope == doctest::Approx(1.5));
  CHECK(curves[0].both.kind == Crossover::Kind::unknown);
  CHECK(curves[1].both.length == doctest::Approx(1000));
  CHECK(curves[1].forward.length == doctest::Approx(1000));
  CHECK(curves[2].both.kind == Crossover::Kind::always);
  const std::string table = table_of(curves);
  CHECK(contains(table, "from 1,000"));
  CHECK(contains(table, "! boastful: measured time and fact sheet disagree"));
  CHECK(!contains(table, "! linear"));
}

TEST_CASE("stamp: passed or failed for the same library, untested otherwise") {
  const TemporaryFolder folder;
  const auto says = [&](const std::string& text) {
    return tests_of("0123456789abcdef", folder.file("stamp", text));
  };
  CHECK(says("0123456789abcdef passed\n") == "passed");
  CHECK(says("0123456789abcdef failed\n") == "failed");
  CHECK(says("fedcba9876543210 passed\n") == "untested");
  CHECK(says("0123456789abcdef\n") == "untested");
  CHECK(says("0123456789abcdef maybe\n") == "untested");
  CHECK(says("") == "untested");
  CHECK(tests_of("0123456789abcdef", folder.path("none")) == "untested");
  CHECK(std::string(library_hash).size() == 16);
}

}  // TEST_SUITE("bench")

}  // namespace
