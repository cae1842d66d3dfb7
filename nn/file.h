// Files read defensively and written atomically.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace weft {

// The most that a header may claim for a tensor: their bytes fit 64 bits.
constexpr std::uint64_t most_elements = (std::uint64_t{1} << 60) - 1;

// A regular file, read sequentially. Folders, pipes and devices are refused: their size says
// nothing, and memory is allocated by size. The bytes are read, never mapped: a file that shrinks
// meanwhile is an error and not a signal.
class InputFile {
 public:
  explicit InputFile(const std::string& path);  // throws if it cannot be opened
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::string& path() const { return path_; }
  std::uint64_t size() const { return size_; }  // bytes, when it was opened

  // The next bytes; throws if the file ends before them.
  void read(std::span<std::byte> bytes);
  // Throws if the size has changed: another process is writing to the file.
  void check_unchanged() const;

 private:
  std::string path_;
  int descriptor_;
  std::uint64_t size_ = 0;
};

std::string read_file(const std::string& path);
// All of an opened file of which nothing has been read yet.
std::string read_file(InputFile& file);

// A file that appears whole or not at all, even if the power fails: it is written as PATH.partial,
// flushed to the disk, and only then renamed.
class OutputFile {
 public:
  explicit OutputFile(const std::string& path);
  ~OutputFile();  // without commit(), removes the partial file and leaves PATH as it was
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void commit();

 private:
  [[noreturn]] void fail_with(const char* what) const;

  std::string path_;
  std::string partial_;
  int descriptor_;
};

// Writes this text as an OutputFile.
void write_file(const std::string& path, std::string_view text);

}  // namespace weft
