// The main of every test program. It ends with one line that ./weft sums over all programs,
//     weft-test <area>: <passed> passed, <failed> failed
// counting test cases (cuda/<area> with --device=cuda, which puts on that device what is tested),
// and it exits with 3 where no test case was run: to doctest itself, a filter that matches nothing
// is a success. Lines of times (tests/budget.h) stand before that one.
#define DOCTEST_CONFIG_IMPLEMENT
#include <algorithm>
#include <cstdio>
#include <string>
#include <string_view>

#include "doctest/doctest.h"
#include "runtime/allocator.h"
#include "tests/budget.h"
#include "tests/check.h"

namespace {

std::string area = "unknown";
unsigned cases_run = 0;

struct ClosingLine : doctest::IReporter {
  explicit ClosingLine(const doctest::ContextOptions&) {}

  // Also called from doctest's signal handler, with the case that crashed counted as failed.
  void test_run_end(const doctest::TestRunStats& run) override {
    weft::print_times();
    const bool cuda = weft::tested_device() != weft::Device{};
    std::printf("weft-test %s%s: %u passed, %u failed\n", cuda ? "cuda/" : "", area.c_str(),
                cases_run - run.numTestCasesFailed, run.numTestCasesFailed);
    std::fflush(stdout);
  }

  void report_query(const doctest::QueryData&) override {}
  void test_run_start() override {}
  // The time of attention/i_clustered.cpp is i-clustered's; tests of all mechanisms attribute it
  // themselves.
  void test_case_start(const doctest::TestCaseData& test) override {
    ++cases_run;  // those outside --first and --last pass the filters, too
    const std::string file = test.m_file.c_str();
    const std::size_t begin = file.find_last_of('/') + 1, end = file.find_last_of('.');
    std::string name = file.substr(begin, end - begin);
    std::replace(name.begin(), name.end(), '_', '-');
    weft::work_for(area == "attention" ? name : "");
  }
  void test_case_reenter(const doctest::TestCaseData&) override {}
  void test_case_end(const doctest::CurrentTestCaseStats&) override { weft::work_for(""); }
  void test_case_exception(const doctest::TestCaseException&) override {}
  void subcase_start(const doctest::SubcaseSignature&) override {}
  void subcase_end() override {}
  void log_assert(const doctest::AssertData&) override {}
  void log_message(const doctest::MessageData&) override {}
  void test_case_skipped(const doctest::TestCaseData&) override {}
};

// build/tests/test_ops -> ops
std::string area_of(const std::string& program) {
  const std::string file = program.substr(program.find_last_of('/') + 1);
  return file.rfind("test_", 0) == 0 ? file.substr(5) : file;
}

}  // namespace

REGISTER_REPORTER("closing_line", 1, ClosingLine);  // 1: after the console's summary, which is 0

int main(int argc, char** argv) {
  constexpr int nothing_matched = 3, not_there = 77;  // 77: skipped, to meson
  area = area_of(argv[0]);
  doctest::Context context;
  context.addFilter("reporters", "console");
  context.addFilter("reporters", "closing_line");
  context.applyCommandLine(argc, argv);
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--device=cuda") {
      const weft::Device cuda{weft::DeviceType::cuda, 0};
      try {
        weft::allocator(cuda).set_poison(true);
      } catch (const weft::Error& error) {
        std::fprintf(stderr, "%s: %s\n", argv[0], error.what());
        return not_there;
      }
      weft::set_tested_device(cuda);
      weft::allocator(cuda).set_caching(!weft::tested_is_emulated());
    }
  }
  const int status = context.run();
  if (context.shouldExit()) return status;  // --help, --list-test-cases and their like
  if (cases_run == 0) {
    std::fprintf(stderr, "%s: no test case matched the filters; --list-test-cases names them\n",
                 argv[0]);
    return nothing_matched;
  }
  return status;
}
