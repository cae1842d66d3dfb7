#include "nn/file.h"

#include <cerrno>
#include <cstdio>
#include <cstring>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/error.h"

namespace weft {
namespace {

const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a pipe";
  return "a device or a socket";
}

}  // namespace

// O_NONBLOCK: opening a pipe without a writer must not block before it is refused.
InputFile::InputFile(const std::string& path)
    : path_(path), descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  require(descriptor_ >= 0, "{}: cannot be opened: {}", path, std::strerror(errno));
  struct stat status {};
  const bool known = ::fstat(descriptor_, &status) == 0;
  if (!known || !S_ISREG(status.st_mode)) {
    ::close(descriptor_);
    require(known, "{}: its size cannot be read: {}", path, std::strerror(errno));
    fail("{}: wanted a file, got {}", path, kind_of(status.st_mode));
  }
  size_ = static_cast<std::uint64_t>(status.st_size);
}

InputFile::~InputFile() { ::close(descriptor_); }

void InputFile::read(std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t got = ::read(descriptor_, bytes.data(), bytes.size());
    if (got < 0 && errno == EINTR) continue;
    require(got >= 0, "{}: reading failed: {}", path_, std::strerror(errno));
    require(got > 0, "{}: ends {} bytes too early; it was cut short while it was read", path_,
            bytes.size());
    bytes = bytes.subspan(static_cast<std::size_t>(got));
  }
}

void InputFile::check_unchanged() const {
  struct stat status {};
  const bool known = ::fstat(descriptor_, &status) == 0;
  require(known && static_cast<std::uint64_t>(status.st_size) == size_,
          "{}: its size changed while it was read; wait until it is written", path_);
}

std::string read_file(const std::string& path) {
  InputFile file(path);
  return read_file(file);
}

std::string read_file(InputFile& file) {
  std::string text(file.size(), '\0');
  file.read(std::as_writable_bytes(std::span(text)));
  file.check_unchanged();
  return text;
}

// O_NONBLOCK: nor must a pipe without a reader, at the path of the partial file.
OutputFile::OutputFile(const std::string& path)
    : path_(path),
      partial_(path + ".partial"),
      descriptor_(
          ::open(partial_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK, 0666)) {
  if (descriptor_ < 0) fail_with("cannot be created");
}

OutputFile::~OutputFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(partial_.c_str());
}

void OutputFile::fail_with(const char* what) const {
  fail("{}: {}: {}; an existing file is unchanged", path_, what, std::strerror(errno));
}

void OutputFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t put = ::write(descriptor_, bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) fail_with("writing failed");
    bytes = bytes.subspan(static_cast<std::size_t>(put));
  }
}

void OutputFile::commit() {
  if (::fsync(descriptor_) != 0) fail_with("flushing failed");
  if (std::rename(partial_.c_str(), path_.c_str()) != 0) fail_with("renaming failed");
  ::close(descriptor_);
  descriptor_ = -1;
  // The rename is durable only once the folder's entry is on the disk.
  const std::size_t slash = path_.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path_.substr(0, slash + 1);
  const int parent = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (parent >= 0) {
    ::fsync(parent);
    ::close(parent);
  }
}

void write_file(const std::string& path, std::string_view text) {
  OutputFile file(path);
  file.write(std::as_bytes(std::span(text)));
  file.commit();
}

}  // namespace weft
