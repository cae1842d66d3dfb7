#include "apps/training/run_folder.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "apps/command_line/commit.h"
#include "apps/command_line/output.h"
#include "nn/file.h"
#include "runtime/error.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

constexpr const char* best_file = "best.safetensors";
constexpr const char* last_file = "last.safetensors";
constexpr const char* log_file = "metrics.jsonl";
constexpr const char* result_file = "result.json";
constexpr const char* table_file = "metrics.csv";

// Opens and locks the folder. Closing the descriptor, or the end of the process, unlocks it.
int locked_folder(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  require(descriptor >= 0, "{}: cannot be opened as a folder: {}", path, std::strerror(errno));
  if (::flock(descriptor, LOCK_EX | LOCK_NB) == 0) return descriptor;
  ::close(descriptor);
  fail("{}: another process trains in it; choose another --out", path);
}

std::vector<std::string> files_of_run(const std::string& path) {
  std::vector<std::string> names = saved_trainings(path);
  for (const char* name : {result_file, table_file, log_file, last_file, best_file}) {
    if (fs::exists(fs::symlink_status(fs::path(path) / name))) names.insert(names.begin(), name);
  }
  return names;
}

void remove_run(const std::string& path, bool asked) {
  if (!asked) require_no_run(path);
  for (const std::string& name : files_of_run(path)) {
    std::error_code error;
    fs::remove_all(fs::path(path) / name, error);
    require(!error, "{}/{}: cannot be removed: {}", path, name, error.message());
  }
  if (asked) remove_event_files(path);
}

}  // namespace

void require_no_run(const std::string& path) {
  const std::vector<std::string> names = files_of_run(path);
  const char* const resuming = saved_trainings(path).empty() ? "" : "--resume continues it, ";
  require(names.empty(),
          "{}: holds another run ({}); {}--force replaces it, or choose another --out", path,
          names.empty() ? "" : names.front(), resuming);
}

RunFolder::RunFolder(const std::string& path, Start start, i64 keep) : path_(path), keep_(keep) {
  std::error_code error;
  if (start != Start::resume) fs::create_directories(path, error);
  require(!error || fs::is_directory(path), "{}: cannot create the folder: {}", path,
          error.message());
  folder_ = locked_folder(path);
  try {
    if (start == Start::resume) {
      MetricsCsv::check_place(path + "/" + table_file);
      resumed_ = read_last_training(
          path, [](const std::string& what) { print_stderr("warning: {}; it is skipped", what); });
      last_ = name_of(*resumed_);
    } else {
      remove_run(path, start == Start::replace);
      open_log();
    }
  } catch (...) {
    ::close(folder_);
    throw;
  }
}

RunFolder::~RunFolder() {
  if (log_ >= 0) ::close(log_);
  if (folder_ >= 0) ::close(folder_);
}

void RunFolder::open_log() {
  const std::string path = path_ + "/" + log_file;
  log_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  require(log_ >= 0, "{}: cannot be written: {}", path, std::strerror(errno));
}

void RunFolder::go_on() {
  if (!resumed_) return;
  open_log();
  for (const std::string& name : saved_trainings(path_)) {
    if (name > last_) remove_training(path_, name);
  }
  remove_old_trainings(path_, keep_);
  ::unlink((path_ + "/" + result_file).c_str());
  link_model(last_, last_file);
  if (!resumed_->best.empty()) link_model(resumed_->best, best_file);
  cut_log(static_cast<i64>(resumed_->log_bytes));
  resumed_.reset();
}

void RunFolder::cut_log(i64 bytes) const {
  struct stat status {};
  require(::fstat(log_, &status) == 0, "{}/{}: its size cannot be read: {}", path_, log_file,
          std::strerror(errno));
  if (status.st_size < bytes) {
    print_stderr("warning: {}/{}: has fewer lines than when {} was written", path_, log_file,
                 last_);
    return;
  }
  require(::ftruncate(log_, bytes) == 0, "{}/{}: cannot be cut: {}", path_, log_file,
          std::strerror(errno));
}

void RunFolder::save(SavedTraining saved) {
  const std::string name = name_of(saved);
  if (!keeps() || name == last_) return;
  struct stat status {};
  require(::fsync(log_) == 0 && ::fstat(log_, &status) == 0, "{}/{}: flushing failed: {}", path_,
          log_file, std::strerror(errno));
  saved.log_bytes = static_cast<std::uint64_t>(status.st_size);
  write_training(saved, path_);
  require(::fsync(folder_) == 0, "{}: flushing failed: {}", path_, std::strerror(errno));
  last_ = name;
  link_model(name, last_file);
  if (!saved.best.empty()) link_model(saved.best, best_file);
  remove_old_trainings(path_, keep_);
}

// rename() does nothing if both names are links to one file, and leaves the source: remove it.
void RunFolder::link_model(const std::string& checkpoint, const char* name) const {
  const std::string place = path_ + "/" + name, beside = place + ".partial";
  ::unlink(beside.c_str());
  const bool done =
      ::link((path_ + "/" + checkpoint + "/model.safetensors").c_str(), beside.c_str()) == 0 &&
      ::rename(beside.c_str(), place.c_str()) == 0;
  require(done, "{}: cannot be linked to {}: {}", place, checkpoint, std::strerror(errno));
  ::unlink(beside.c_str());
}

void RunFolder::log(const Json& line) {
  const std::string text = line.text() + "\n";
  if (prints_) {
    fmt::print("{}", text);
    std::fflush(stdout);
  }
  if (!keeps()) return;
  if (!views_ && !columns_.empty()) {
    views_.emplace(path_, columns_);
    for (const auto& [tag, shown] : texts_) views_->add_text(tag, shown);
  }
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t put = ::write(log_, text.data() + done, text.size() - done);
    if (put < 0 && errno == EINTR) continue;
    require(put > 0, "{}/{}: writing failed: {}", path_, log_file, std::strerror(errno));
    done += static_cast<std::size_t>(put);
  }
  if (views_) views_->add(line);
}

void RunFolder::show_text(const std::string& tag, const std::string& text) {
  if (!keeps() || columns_.empty()) return;
  if (views_) {
    views_->add_text(tag, text);
  } else {
    texts_.emplace_back(tag, text);
  }
}

void RunFolder::finish(i64 step, const Json& result) {
  if (!keeps()) return;
  const Json all = {{"step", step}, {"commit", commit}, {"result", result}};
  write_file(path_ + "/" + result_file, all.text(2) + "\n");
}

Json RunFolder::result(i64 step) const {
  const std::string path = path_ + "/" + result_file;
  if (!keeps() || !fs::exists(path)) return {};
  const Json all = parse_json(read_file(path)).value_or(Json());
  const Json *const own_step = all.find("step"), *const own_result = all.find("result");
  require(own_step != nullptr && own_result != nullptr, "{}: is not the result of a run; remove it",
          path);
  i64 ended = -1;
  return own_step->take(ended) && ended == step ? *own_result : Json();
}

std::string checkpoint_file(const std::string& path) {
  return std::filesystem::is_directory(path) ? path + "/best.safetensors" : path;
}

}  // namespace weft
