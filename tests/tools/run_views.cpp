// The files of a run for other programs: metrics.csv and an event file beside metrics.jsonl.
#include <cstring>

#include "apps/training/metrics_views.h"
#include "doctest/doctest.h"
#include "tests/json_lines.h"
#include "tests/program.h"

using namespace weft;

namespace {

const Words small = {"train",   "--steps", "5",       "--report-steps", "2",
                     "--width", "16",      "--heads", "2",              "--quiet"};

// The table of the log by the columns of its first line.
std::string table_of(const std::string& log, const std::string& header) {
  std::string table = header + "\n";
  for (const nlohmann::json& line : lines(log)) {
    std::istringstream columns(header);
    std::string row;
    for (std::string column; std::getline(columns, column, ',');) {
      row += row.empty() && column == "kind" ? "" : ",";
      if (!line.contains(column)) continue;
      row += line[column].is_string() ? line[column].get<std::string>() : line[column].dump();
    }
    table += row + "\n";
  }
  return table;
}

std::vector<std::string> event_files(const std::string& folder) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (contains(entry.path(), "tfevents")) files.push_back(entry.path());
  }
  return files;
}

// The messages between the checksums.
std::vector<std::string> records(const std::string& bytes) {
  std::vector<std::string> messages;
  for (std::size_t place = 0; place < bytes.size();) {
    std::uint64_t length = 0;
    std::memcpy(&length, bytes.data() + place, sizeof length);
    messages.push_back(bytes.substr(place + 12, length));
    place += 16 + length;
  }
  return messages;
}

}  // namespace

TEST_SUITE("tools") {

TEST_CASE("views: every line of a run is in the table and, but for its words, in the events") {
  const std::tuple<const char*, Words, const char*> apps[] = {
      {"charlm",
       {"--epoch-steps", "4", "--validation-batches", "1", "--test-batches", "1"},
       "kind,step,round,tokens,loss,bits_per_character,windows,entropy,best_possible,"
       "train_loss,train_bits_per_character,best,tokens_per_second,learning_rate,gradient_norm,"
       "elapsed,remaining,what"},
      {"wordlm",
       {},
       "kind,step,epoch,tokens,loss,perplexity,paper_perplexity,word_perplexity,"
       "bits_per_character,cross_entropy,targets,train_loss,train_perplexity,best,tokens_per_"
       "second,learning_rate,gradient_norm,"
       "elapsed,remaining,what"},
      {"vision",
       {"--layers", "1"},
       "kind,step,epoch,tokens,loss,cross_entropy,top_1,top_5,most_top_1,most_top_5,train_loss,"
       "train_cross_entropy,best,tokens_per_second,learning_rate,gradient_norm,elapsed,remaining,"
       "what"}};
  for (const auto& [name, more, header] : apps) {
    CAPTURE(name);
    const TemporaryFolder folder;
    const std::string run = folder.path("run");
    const ProgramRun trained = app(name, small + more + Words{"--out", run});
    REQUIRE_MESSAGE(trained.status == 0, trained.err);
    const std::string log = read_file(run + "/metrics.jsonl");
    CHECK(read_file(run + "/metrics.csv") == table_of(log, header));
    REQUIRE(event_files(run).size() == 1);
    const std::vector<std::string> events = records(read_file(event_files(run)[0]));
    const bool writes = name != std::string("vision");
    REQUIRE(events.size() == 2 + lines(log).size() + writes);  // no step was skipped
    CHECK(contains(events[1], "| width | 16 |"));
    CHECK(contains(events[2], "train/loss"));
    for (const std::string& event : events) CHECK_FALSE(contains(event, "/elapsed"));
    CHECK(contains(events[1 + lines(log).size()], "test/"));
    CHECK(contains(events.back(), "sample") == writes);
  }
}

TEST_CASE("views: a run that goes on has one table and a second event file") {
  const TemporaryFolder folder;
  folder.file("metrics.jsonl", "{\"kind\":\"train\",\"step\":3,\"loss\":0.5}\n");
  const std::vector<std::string> columns = {"kind", "step", "loss"};
  MetricsViews(folder.path(), columns);
  MetricsViews again(folder.path(), columns);
  again.add({{"kind", "test"}, {"loss", 0.25}});
  CHECK(read_file(folder.path("metrics.csv")) == "kind,step,loss\ntrain,3,0.5\ntest,,0.25\n");
  std::vector<std::string> files = event_files(folder.path());
  REQUIRE(files.size() == 2);
  std::sort(files.begin(), files.end());
  const std::vector<std::string> events = records(read_file(files.back()));
  REQUIRE(events.size() == 2);
  CHECK(events[1].substr(9, 2) == "\x10\x03");  // the last step that there was
  folder.file("metrics.jsonl", "{\"kind\":\"train\"}\nx\n");
  CHECK(contains(error_of([&] { MetricsViews(folder.path(), columns); }),
                 "metrics.jsonl: line 2 is not a JSON object"));
  folder.file("events.out.tfevents.1.other", "kept");
  remove_event_files(folder.path());
  CHECK(event_files(folder.path()) == std::vector{folder.path("events.out.tfevents.1.other")});
}

TEST_CASE("views: a run of charlm goes on whose log calls its rounds epochs") {
  const TemporaryFolder folder;
  folder.file("metrics.jsonl", "{\"kind\":\"train\",\"step\":3,\"epoch\":2}\n");
  MetricsViews(folder.path(), {"kind", "step", "round"});
  CHECK(read_file(folder.path("metrics.csv")) == "kind,step,round\ntrain,3,2\n");
}

TEST_CASE("views: --force replaces them with the run") {
  const TemporaryFolder folder;
  const Words train = small + Words{"--validation-batches", "1", "--test-batches", "1", "--out",
                                    folder.path("run")};
  const std::string charlm = built("apps/charlm");
  REQUIRE(run_program(charlm, train).status == 0);
  const std::vector<std::string> first = event_files(folder.path("run"));
  check_refused(run_program(charlm, train), "holds another run");
  REQUIRE(run_program(charlm, train + Words{"--force"}).status == 0);
  const std::vector<std::string> second = event_files(folder.path("run"));
  CHECK(second.size() == 1);
  CHECK(second != first);
}

}  // TEST_SUITE
