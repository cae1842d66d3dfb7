// The benchmark of training steps as users run it.
#include "tests/json_lines.h"
#include "tests/program.h"
#include "tests/ranks/started.h"

using namespace weft;

namespace {

const std::string steps_program = built("bench/train_bench");

// Whether this build has it; says so where it has not.
bool steps_are_measured() {
  const bool there = std::filesystem::exists(steps_program);
  if (!there) MESSAGE("skipped: this build has no train_bench; -Dbench=true builds it");
  return there;
}

ProgramRun steps(const Words& words) { return run_program(steps_program, words); }

TEST_SUITE("bench") {

TEST_CASE("train_bench: ranks run the step that the line describes") {
  if (!steps_are_measured()) return;
  const Words pair{"--ranks", "2", "--preset", "text8-full-position", "--runs", "1"};
  check_refused(steps(pair), "--ranks: wants --batch");
  check_refused(steps(pair + Words{"--batch", "3", "--shards", "3"}),
                "--shards: 2 ranks want a number of shards that they divide evenly, got 3");
  check_refused(steps(pair + Words{"--batch", "2", "--seconds", "1"}), "--seconds");
  check_refused(steps(pair + Words{"--batch", "2", "--device", "cpu"}), "--device");
  if (!mpi_is_there()) return;
  const ProgramRun run =
      steps(pair + Words{"--batch", "4", "--shards", "4", "--attention", "linear", "--precision",
                         "bf16", "--threads", "2", "--json"});
  REQUIRE_MESSAGE(run.status == 0, run.err);
  const auto row = nlohmann::json::parse(run.out);
  CHECK(row["ranks"] == 2);
  CHECK(row["batch"] == 8);
  CHECK(row["shards"] == 4);
  CHECK(row["attention"] == "linear");
  CHECK(row["precision"] == "bf16");
  CHECK(row["threads"] == 2);
  CHECK(row["bare"] == true);
  const auto number = [&](const char* name) { return row[name].get<double>(); };
  CHECK(number("ceiling_tokens_per_second") ==
        doctest::Approx(2 * 2 * 1e9 * number("gemm_gflops") / number("products_per_token")));
}

TEST_CASE("train_bench: the peak is that of the row's steps, allocations those behind the third") {
  if (!steps_are_measured()) return;
  const auto row = [](const std::string& runs) {
    const ProgramRun run = steps({"--preset", "text8-full-position", "--bare", "--batch", "1",
                                  "--runs", runs, "--seconds", "0", "--json"});
    REQUIRE_MESSAGE(run.status == 0, run.err);
    return nlohmann::json::parse(run.out);
  };
  const auto two_steps = row("1"), four_steps = row("3");  // with those to warm up
  CHECK(two_steps["system_allocations_after_step_3"].is_null());
  CHECK(four_steps["system_allocations_after_step_3"].is_number());
  // Less than the matrices of the product that the ceiling is measured by.
  CHECK(four_steps["peak_bytes"] < 3 * 4 * 2048 * 2048);
}

TEST_CASE("train_bench: what it cannot measure") {
  if (!steps_are_measured()) return;
  check_refused(steps({"--preset", "text8-ful-conv"}), "did you mean text8-full-conv?");
  check_refused(steps({"--preset", "text8-ful-conv", "--ranks", "2", "--batch", "2"}),
                "did you mean text8-full-conv?");
  check_refused(steps({"--preset", "cifar10-full", "--bare"}),
                "--bare: is of language models, got --preset cifar10-full");
  check_refused(steps({"--preset", "text8-full-position", "--batch", "3", "--shards", "2"}),
                "--shards: 2 do not divide the 3 examples of --batch evenly");
}

}  // TEST_SUITE("bench")

}  // namespace
