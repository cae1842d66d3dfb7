#include "apps/command_line/progress.h"

#include <cmath>
#include <cstdio>

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "apps/command_line/output.h"
#include "runtime/communicator.h"

namespace weft {
namespace {

constexpr std::chrono::milliseconds between_drawings(100);

std::size_t terminal_width() {
  winsize size{};
  const bool known = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : 80;
}

}  // namespace

Progress::Progress(bool quiet)
    : quiet_(quiet), terminal_(::isatty(STDOUT_FILENO) == 1 && ranks().alone()) {}

Progress::~Progress() { clear(); }

bool Progress::wants_update() const {
  return terminal_ && !quiet_ && std::chrono::steady_clock::now() - last_ >= between_drawings;
}

void Progress::update(const std::string& line) {
  if (wants_update()) redraw(line);
}

void Progress::report(const std::string& line) {
  if (quiet_) return;
  if (terminal_) {
    redraw(line);
  } else {
    print(line);
  }
}

void Progress::print(const std::string& line) {
  if (quiet_) return;
  clear();
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

void Progress::note(const std::string& line) {
  if (quiet_) return;
  clear();
  print_stderr("note: {}", line);
}

// A line wider than the terminal would wrap, and the next redraw could not erase it.
void Progress::redraw(const std::string& line) {
  fmt::print("\r{}\x1b[K", fields_within(line, terminal_width() - 1));
  std::fflush(stdout);
  drawn_ = true;
  last_ = std::chrono::steady_clock::now();
}

void Progress::clear() {
  if (!drawn_) return;
  fmt::print("\r\x1b[K");
  std::fflush(stdout);
  drawn_ = false;
}

std::string fields_within(const std::string& line, std::size_t width) {
  if (line.size() <= width) return line;
  const std::size_t end = line.rfind("  ", width);
  return line.substr(0, end == std::string::npos ? width : end);
}

std::string duration(double seconds) {
  if (!(seconds >= 0 && seconds < 1e9)) return "?";
  const auto whole = static_cast<long long>(std::llround(seconds));
  const long long hours = whole / 3600, minutes = whole / 60 % 60;
  return hours > 0 ? fmt::format("{}:{:02}:{:02}", hours, minutes, whole % 60)
                   : fmt::format("{}:{:02}", minutes, whole % 60);
}

void TimeEstimate::count(i64 step, i64 steps, Progress& progress) {
  constexpr double hour = 3600, enough_seconds = 1;
  constexpr i64 enough_steps = 10;
  if (noted_) return;
  if (from_ < 0) {
    from_ = step;
    watch_ = {};
    return;
  }
  const i64 counted = step - from_, left = steps - step;
  const double seconds = watch_.seconds();
  if (counted < enough_steps && seconds < enough_seconds) return;
  noted_ = true;
  const double each = seconds / static_cast<double>(counted);
  const double all = each * static_cast<double>(left);
  if (all < hour) return;
  progress.note(
      fmt::format("the {} steps will take about {} (estimated from {} steps of {:.3g} s), plus "
                  "validations; --steps or --epochs sets a smaller number",
                  grouped(left), rough_duration(all), counted, each));
}

std::string rough_duration(double seconds) {
  if (seconds < 120) return fmt::format("{:.0f} seconds", seconds);
  if (seconds < 2 * 3600) return fmt::format("{:.0f} minutes", seconds / 60);
  if (seconds < 48 * 3600) return fmt::format("{:.1f} hours", seconds / 3600);
  return fmt::format("{:.1f} days", seconds / (24 * 3600));
}

std::string short_number(double value) {
  if (value >= 1e6) return fmt::format("{:.2f}M", value / 1e6);
  return value >= 1e3 ? fmt::format("{:.1f}k", value / 1e3) : fmt::format("{:.0f}", value);
}

std::string grouped(i64 value) {
  std::string text = std::to_string(value);
  for (auto i = static_cast<std::ptrdiff_t>(text.size()) - 3; i > 0; i -= 3) {
    text.insert(static_cast<std::size_t>(i), 1, ',');
  }
  return text;
}

}  // namespace weft
