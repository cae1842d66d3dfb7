#include "apps/common/run_folder.h"

#include <cerrno>
#include <cstring>
#include <filesystem>

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <sys/file.h>
#include <unistd.h>

#include "runtime/error.h"

namespace weft {
namespace {

constexpr const char* run_files[] = {"best.safetensors", "last.safetensors", "metrics.jsonl",
                                     "metrics.csv"};

// The folder, locked until the descriptor is closed, be it by the end of the process.
int locked_folder(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  require(descriptor >= 0, "{}: cannot be opened as a folder: {}", path, std::strerror(errno));
  if (::flock(descriptor, LOCK_EX | LOCK_NB) == 0) return descriptor;
  ::close(descriptor);
  fail("{}: another process is training into it; take another --out", path);
}

}  // namespace

RunFolder::RunFolder(const std::string& path, bool force) : path_(path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  require(!error || std::filesystem::is_directory(path), "{}: the folder cannot be made: {}", path,
          error.message());
  descriptor_ = locked_folder(path);
  try {
    for (const char* name : run_files) {
      const std::filesystem::path file = std::filesystem::path(path) / name;
      if (!std::filesystem::exists(std::filesystem::symlink_status(file))) continue;
      require(force, "{}: holds another run ({}); take another --out, or --force to replace it",
              path, name);
      std::filesystem::remove(file, error);
      require(!error, "{}: cannot be removed: {}", file.string(), error.message());
    }
    if (force) remove_event_files(path);
    metrics_.open(path + "/metrics.jsonl");
    require(metrics_.is_open(), "{}/metrics.jsonl: cannot be written: {}", path,
            std::strerror(errno));
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
}

RunFolder::~RunFolder() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void RunFolder::save(const Checkpoint& checkpoint, const char* name) const {
  if (keeps()) write_checkpoint(checkpoint, path_ + "/" + name);
}

void RunFolder::log(const nlohmann::ordered_json& line) {
  if (!keeps()) return;
  if (!views_ && !columns_.empty()) views_.emplace(path_, columns_);
  metrics_ << line.dump() << std::endl;
  require(metrics_.good(), "{}/metrics.jsonl: writing failed: {}", path_, std::strerror(errno));
  if (views_) views_->add(line);
}

std::string checkpoint_file(const std::string& path) {
  return std::filesystem::is_directory(path) ? path + "/best.safetensors" : path;
}

}  // namespace weft
