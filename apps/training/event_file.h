// Event files, which TensorBoard reads.
//
// A file is a sequence of records, each a protocol buffer with two checksums (TFRecord):
//
//     8 bytes   n, the length of the message, little endian
//     4 bytes   masked CRC-32C of those 8 bytes
//     n bytes   the message
//     4 bytes   masked CRC-32C of the message
//
//     masked(c) = (c rotated right by 15 bits) + 0xA282EAD8
//
// The messages, with the fields written here (tensorflow's event.proto, summary.proto):
//
//     Event    wall_time = 1 double, step = 2 int64, file_version = 3 string, summary = 5 Summary
//     Summary  value = 1 Value, any number of them
//     Value    tag = 1 string, simple_value = 2 float
//              or tensor = 8 TensorProto, metadata = 9 SummaryMetadata
//
// Text is a tensor of one string (dtype = 1, DT_STRING; tensor_shape = 2, none; string_val = 8)
// whose metadata name the plugin that shows it (plugin_data = 1 with plugin_name = 1, "text").
//
// A field is its number · 8 + its wire type, as a varint, then the value. Wire types: 0 is a varint
// (7 bits per byte, lowest first, the high bit set on all but the last), 1 is eight bytes, 5 is
// four bytes, 2 is a length as a varint and that many bytes. The first event holds the version,
// "brain.Event:2".
#pragma once

#include <cstdint>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "apps/command_line/json.h"
#include "runtime/types.h"

namespace weft {

// CRC-32C (Castagnoli): the polynomial 0x1EDC6F41, bits reflected, start and end inverted.
std::uint32_t crc32c(std::string_view bytes);

struct Scalar {
  std::string tag;
  float value;
};

class EventFile {
 public:
  // Creates or truncates the file and writes the first event. TensorBoard reads files whose names
  // contain "tfevents".
  EventFile(const std::string& path, double wall_time);
  // Times are seconds since 1970. Throws if the file cannot be written.
  void add(double wall_time, i64 step, std::span<const Scalar> scalars);
  // `text` is UTF-8, which TensorBoard renders as Markdown.
  void add_text(double wall_time, i64 step, const std::string& tag, const std::string& text);

 private:
  void add_summary(double wall_time, i64 step, const std::string& summary);
  void write(std::string_view message);

  std::string path_;
  std::ofstream file_;
};

// The measured numbers of a line of metrics.jsonl, without step, epoch and times. Tags are KIND/KEY
// ("train/loss"), or KIND/WINDOWS/KEY for a line with a key "windows".
std::vector<Scalar> scalars_of(const Json& line);

}  // namespace weft
