#include "apps/training/metrics_csv.h"

#include <cmath>

#include "doctest/doctest.h"
#include "tests/files.h"

using namespace weft;

TEST_SUITE("charlm") {

TEST_CASE("metrics.csv: a header, then a cell for every column") {
  const TemporaryFolder folder;
  MetricsCsv csv(folder.path("x"), {"kind", "step", "loss", "best", "what"});
  CHECK(read_file(folder.path("x")) == "kind,step,loss,best,what\n");
  csv.add({{"kind", "train"}, {"loss", 0.1}, {"step", 3}});
  csv.add({{"kind", "validation"}, {"step", 12345678901}, {"loss", 1e-30}, {"best", true}});
  csv.add({{"kind", "skipped"}, {"loss", std::nan("")}, {"what", "a \"b\", c\nd"}});
  csv.add({{"loss", nullptr}});
  CHECK(read_file(folder.path("x")) ==
        "kind,step,loss,best,what\n"
        "train,3,0.1,,\n"
        "validation,12345678901,1e-30,true,\n"
        "skipped,,nan,,\"a \"\"b\"\", c\nd\"\n"
        ",,nan,,\n");
  const std::string error = error_of([&] { csv.add({{"kind", "train"}, {"speed", 1}}); });
  CHECK(contains(error, "x: there is no column 'speed'"));
  CHECK(contains(error_of([&] { MetricsCsv(folder.path("no/x"), {"a"}); }), "cannot be written"));
  CHECK(contains(error_of([&] { MetricsCsv("/dev/full", {"a"}); }), "No space left"));
}

TEST_CASE("metrics.csv: the columns of an app stand between those of all") {
  const std::vector<std::string> columns =
      metric_columns("round", "bits_per_character", {"windows"});
  CHECK(columns.front() == "kind");
  CHECK(columns[2] == "round");
  CHECK(columns[5] == "bits_per_character");
  CHECK(columns[6] == "windows");
  CHECK(columns[8] == "train_bits_per_character");
  CHECK(columns.back() == "what");
}

}  // TEST_SUITE
