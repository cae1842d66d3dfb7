// Runs over entrants that only advance a clock: budgets, messages, interruptions, and rows of an
// earlier run.
#include "bench/curves.h"

#include <cmath>
#include <set>

#include "bench/passes.h"
#include "tests/files.h"

#include "doctest/doctest.h"

using namespace weft;
using namespace weft::bench;

namespace {

const std::vector<i64> lengths{256, 512, 1024, 2048, 4096};

// Entrants whose forward and backward take c · N^slope seconds, and as many bytes.
struct Simulation {
  double now = 0;
  int measured = 0;
  std::vector<Row> added;
  Run run;

  Simulation() {
    run.identity = {{"format", results_format},
                    {"library", "abc"},
                    {"settings", "s"},
                    {"device", "cpu"},
                    {"processor", "p"}};
    run.seconds = 0.1;
    run.clock = [this] { return now; };
    run.added = [this](const Row& row) { added.push_back(row); };
  }
  Simulation(const Simulation&) = delete;

  void add(const std::string& name, double c, double slope) {
    const auto work = [=](i64 n) { return c * std::pow(double(n), slope); };
    run.entrants.push_back(
        {name, lengths,
         [=](i64 n) {
           return Expected{
               .operations = work(n), .peak_bytes = work(n) / 4, .held_bytes = work(n) * 3 / 4};
         },
         [=, this](i64 n) {
           ++measured;
           now += 4 * work(n);
           return Row{{"forward_ms", 250 * work(n)},
                      {"backward_ms", 750 * work(n)},
                      {"peak_bytes", work(n)}};
         }});
  }
};

std::vector<std::string> told(const std::vector<Row>& lines) {
  std::vector<std::string> text;
  for (const Row& line : lines) {
    text.push_back(fmt::format("{} {} {}", line["kind"].get<std::string>(),
                               line["name"].get<std::string>(), line["length"].get<i64>()));
  }
  return text;
}

TEST_SUITE("bench") {

TEST_CASE("run: shortest first, every entrant at every length") {
  Simulation s;
  s.add("a", 1e-6, 1), s.add("b", 1e-9, 2);
  Results results;
  const Outcome outcome = run_curves(s.run, results);
  CHECK(outcome.measured == 10);
  CHECK(outcome.cut + outcome.failed + outcome.kept == 0);
  const auto lines = told(results.lines());
  CHECK(lines.front() == "row a 256");
  CHECK(lines[1] == "row b 256");
  CHECK(lines.back() == "row b 4096");
  CHECK(results.lines() == s.added);
}

TEST_CASE("run: a row that the time before says is too long is left out, with all behind it") {
  Simulation s;
  s.add("quadratic", 1e-6, 2);  // 4.2 s a pass at 2048: 16.8 s with the warm-up
  s.run.budgets.row_seconds = 10;
  Results results;
  const Outcome outcome = run_curves(s.run, results);
  CHECK(outcome.measured == 3);
  CHECK(outcome.cut == 1);
  CHECK(told(s.added).back() == "cut quadratic 2048");
  CHECK(s.added.back()["reason"] == "needs about 16.8 s, more than the 10.0 s of --row-seconds");
}

TEST_CASE("run: what the fact sheet says is too large is never tried") {
  Simulation s;
  s.add("map", 1024, 2);  // 1 GiB at 1024
  s.run.budgets.memory_bytes = 3.5 * (1 << 30);
  Results results;
  CHECK(run_curves(s.run, results).measured == 3);
  CHECK(s.measured == 3);
  CHECK(told(s.added).back() == "cut map 2048");
  CHECK(s.added.back()["reason"] == "needs about 4.0 GiB, more than the 3.5 GiB of --memory");
}

TEST_CASE("run: ends in the time of all") {
  Simulation s;
  s.add("a", 1e-3, 1), s.add("b", 1e-3, 1);  // 1 s a row at 256, 2 s at 512, …
  s.run.budgets.run_seconds = 11;
  Results results;
  const Outcome outcome = run_curves(s.run, results);
  CHECK(s.now <= 11);
  CHECK(outcome.cut == 2);
  CHECK(told(results.lines()) == std::vector<std::string>{"row a 256", "row b 256", "row a 512",
                                                          "row b 512", "row a 1024", "cut b 1024",
                                                          "cut a 2048"});
  CHECK(contains(s.added.back()["reason"], "--run-seconds"));
}

TEST_CASE("run: an entrant that throws at one length fails there alone") {
  Simulation s;
  s.add("a", 1e-6, 1), s.add("b", 1e-6, 1);
  const auto measure = s.run.entrants[0].measure;
  s.run.entrants[0].measure = [&](i64 n) {
    require(n != 1024, "a: cannot do {}", n);
    return measure(n);
  };
  Results results;
  const Outcome outcome = run_curves(s.run, results);
  CHECK(outcome.failed == 1);
  CHECK(outcome.measured == 9);
  const Row& line = results.lines()[4];
  CHECK(told({line})[0] == "error a 1024");
  CHECK(line["reason"] == "a: cannot do 1024");
}

TEST_CASE("run: interrupted twice, it has every row once, as without interruptions") {
  Simulation whole;
  whole.add("a", 1e-6, 1), whole.add("b", 1e-9, 2);
  Results expected;
  run_curves(whole.run, expected);

  const TemporaryFolder folder;
  const std::string path = folder.path("rows.jsonl");
  int measured = 0;
  for (const int stop_after : {3, 4, 100}) {
    Simulation s;
    s.add("a", 1e-6, 1), s.add("b", 1e-9, 2);
    // The first interruption comes between two rows, the second in the middle of one.
    s.run.stop = [&] { return stop_after == 3 && s.measured >= 3; };
    for (Entrant& entrant : s.run.entrants) {
      entrant.measure = [&, measure = entrant.measure](i64 n) {
        if (stop_after == 4 && s.measured >= 4) throw Interrupted{};
        return measure(n);
      };
    }
    Results results(path);
    const Outcome outcome = run_curves(s.run, results);
    CHECK(outcome.interrupted == (stop_after < 100));
    CHECK(outcome.kept == measured);
    measured += outcome.measured;
  }
  CHECK(measured == 10);
  CHECK(Results(path).lines() == expected.lines());
}

TEST_CASE("run: rows of another library or other settings are measured again") {
  Simulation first, second;
  first.add("a", 1e-6, 1), second.add("a", 1e-6, 1);
  second.run.identity["library"] = "newer";
  Results results;
  run_curves(first.run, results);
  const Outcome outcome = run_curves(second.run, results);
  CHECK(outcome.kept == 0);
  CHECK(outcome.measured == 5);
}

TEST_CASE("run: the time left is that of the rows to come") {
  Simulation s;
  s.add("a", 1e-3, 1);  // rows of 1.024, 2.048, … seconds
  std::vector<double> left;
  s.run.begins = [&](const std::string&, i64, int number, int count, double seconds) {
    CHECK(number == int(left.size()) + 1);
    CHECK(count == 5);
    left.push_back(seconds);
  };
  Results results;
  run_curves(s.run, results);
  REQUIRE(left.size() == 5);
  CHECK(left[0] == doctest::Approx(0.5));  // only the least time of a row is known
  CHECK(left[1] == doctest::Approx(1.024 * (2 + 4 + 8 + 16)));
  CHECK(left[4] == doctest::Approx(1.024 * 16));
}

TEST_CASE("expected: N × N of 65,536 is far beyond any memory, linear ones go on to 1 Mi") {
  const Settings settings;
  const Candidate full{AttentionSpec("full"), false}, naive{AttentionSpec("full"), true};
  constexpr double GiB = 1 << 30;
  CHECK(expected(naive, settings, 65536, {}).peak_bytes > 256 * GiB);
  CHECK(expected(full, settings, 65536, {}).peak_bytes < GiB);
  CHECK(expected(full, settings, 65536, {}).held_bytes == GiB / 2);  // q, k, v and dout
  CHECK(!stays_linear(full, settings, {}, 65536, 1 << 20));
  CHECK(stays_linear({AttentionSpec("agglomerative"), false}, settings, {}, 65536, 1 << 20));
}

TEST_CASE("expected: in bf16 learnt and drawn inputs keep the four bytes of f32") {
  const Settings f32, bf16{.precision = "bf16"};
  constexpr i64 length = 1024;
  const double halved = 4 * 2.0 * double(length * f32.width());  // q, k, v and dout
  for (const char* spec : {"full", "linformer:rank=3", "performer:features=6"}) {
    CAPTURE(spec);
    const Candidate candidate{AttentionSpec(spec), false};
    const auto held = [&](const Settings& settings) {
      return expected(candidate, settings, length, {}).held_bytes;
    };
    CHECK(held(f32) - held(bf16) == halved);
  }
}

TEST_CASE("subject: few queries, and keys and values as long as the length") {
  const Settings settings{.batch = 3, .heads = 2, .key_width = 4, .value_width = 5, .queries = 2};
  const Subject timed = subject({AttentionSpec("full"), false}, settings, 7, {});
  REQUIRE(timed.leaves.size() == 3);
  CHECK(timed.leaves[0].shape() == Shape{3, 2, 2, 4});
  CHECK(timed.leaves[1].shape() == Shape{3, 7, 2, 4});
  CHECK(timed.leaves[2].shape() == Shape{3, 7, 2, 5});
  CHECK(timed.forward().shape() == Shape{3, 2, 2, 5});
}

}  // TEST_SUITE("bench")

}  // namespace
