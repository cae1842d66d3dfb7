#include "runtime/cuda/emulated/accesses/races.h"

#include <algorithm>
#include <utility>

#include <fmt/core.h>

#include "runtime/cuda/emulated/accesses/places.h"

namespace weft::emulated::accesses {
namespace {

constexpr std::size_t most_lines = 20;

std::string text_of(const Extent& index) {
  return fmt::format("({}, {}, {})", index.x, index.y, index.z);
}

std::string block_text(std::uint32_t number) {
  const Extent& grid = launched().grid;
  return text_of({number % grid.x, number / grid.x % grid.y, number / grid.x / grid.y});
}

// The shadow words of a region, made at its first access.
Shadow& shadow_of(const Region& region) {
  if (!region.shadow) {
    region.shadow = std::make_shared<Shadow>();
    region.shadow->words.resize((region.bytes + 3) / 4);
  }
  return *region.shadow;
}

void split_into_bytes(Shadow& shadow) {
  std::vector<Word> bytes;
  bytes.reserve(shadow.words.size() * 4);
  for (const Word& word : shadow.words) bytes.insert(bytes.end(), 4, word);
  shadow.words = std::move(bytes);
  shadow.bytes_a_word = 1;
}

// The shadow words of some bytes of a region.
std::pair<Word*, Word*> words_of(const Region& region, const std::byte* begin, std::size_t bytes) {
  Shadow& shadow = shadow_of(region);
  const auto offset = static_cast<std::size_t>(begin - region.begin);
  if (shadow.bytes_a_word == 4 && (offset % 4 != 0 || bytes % 4 != 0)) split_into_bytes(shadow);
  Word* const first = shadow.words.data() + offset / shadow.bytes_a_word;
  return {first, first + bytes / shadow.bytes_a_word};
}

std::string where(const Region& region, const Access& access) {
  const auto element = [&](const std::byte* begin) {
    const std::ptrdiff_t offset = access.at - begin;
    return offset % access.bytes == 0
               ? fmt::format("element {} of {} bytes", offset / access.bytes, access.bytes)
               : fmt::format("{} bytes at byte {}", access.bytes, offset);
  };
  if (region.space == Space::global) {
    return fmt::format("{} of an allocation of {} bytes", element(region.begin), region.bytes);
  }
  if (region.dynamic) {
    return fmt::format("{} of the {} bytes of shared memory that the launch asked for",
                       element(region.begin), region.bytes);
  }
  const Variable variable = variable_at(access.at);
  return fmt::format("{} of __shared__ {}", element(variable.begin), variable.name);
}

const char* verb(Kind kind) {
  return kind == Kind::read ? "reads" : kind == Kind::write ? "writes" : "updates";
}

}  // namespace

Races& races() {
  static auto* const one = new Races;
  return *one;
}

void Races::launch_begins() {
  launch_ += segments_.size();
  segments_.clear();
  lines_.clear();
  reported_.clear();
}

void Races::block_begins() {
  block_ = launch_ + segments_.size();
  phase_ = 0;
  threads_.assign(launched().threads(), {});
  for (std::size_t i = 0; i < threads_.size(); ++i) {
    threads_[i].seen.fill(0);
    threads_[i].seen[i % warp_size] = 1;
  }
}

std::string Races::launch_ends() {
  std::string text;
  for (std::size_t i = 0; i < std::min(lines_.size(), most_lines); ++i) {
    text += (i == 0 ? "" : "\n") + lines_[i];
  }
  if (lines_.size() > most_lines)
    text += fmt::format("\n… and {} more", lines_.size() - most_lines);
  return text;
}

void Races::barrier_passed() {
  ++phase_;
  for (Thread& thread : threads_) thread.segment = 0;
}

void Races::lanes_met(unsigned first, unsigned mask) {
  std::array<std::uint32_t, warp_size> joined{};
  for (unsigned l = 0; l < warp_size; ++l) {
    if ((mask >> l & 1) == 0) continue;
    for (unsigned i = 0; i < warp_size; ++i) {
      joined[i] = std::max(joined[i], threads_[first + l].seen[i]);
    }
  }
  for (unsigned l = 0; l < warp_size; ++l) {
    if ((mask >> l & 1) == 0) continue;
    Thread& thread = threads_[first + l];
    thread.seen = joined;
    ++thread.seen[l];
    thread.segment = 0;
  }
}

std::uint64_t Races::own_segment() {
  const unsigned own = running_thread();
  Thread& thread = threads_[own];
  if (thread.segment == 0) {
    thread.segment = launch_ + segments_.size();
    segments_.push_back({launched().number, own, phase_, thread.seen[own % warp_size]});
  }
  return thread.segment;
}

// Whether the recorded access, of a segment not older than `since`, races with an access of the
// running thread.
bool Races::races(Record before, std::uint64_t since, Kind kind) const {
  if (before.segment < since) return false;
  if (before.atomic && kind == Kind::atomic) return false;
  const Segment& its = segment(before);
  const unsigned own = running_thread();
  if (its.block != launched().number) return true;
  if (its.thread == own || its.phase < phase_) return false;
  if (its.thread / warp_size != own / warp_size) return true;
  return its.clock > threads_[own].seen[its.thread % warp_size];
}

void Races::add(const Region& region, const Access& access) {
  const bool inside =
      access.at >= region.begin && access.at + access.bytes <= region.begin + region.bytes;
  if (!inside) {
    if (is_new(access, 'o')) {
      lines_.push_back(fmt::format(
          "outside: {} {} {} bytes at byte {} of an allocation of {} bytes", self(access),
          verb(access.kind), access.bytes, access.at - region.begin, region.bytes));
    }
    return;
  }
  const auto over = reinterpret_cast<std::uintptr_t>(access.at) % access.bytes;
  if (over != 0 && is_new(access, 'm')) {
    lines_.push_back(fmt::format("misaligned: {} {} {}, {} bytes after a multiple of {}",
                                 self(access), verb(access.kind), where(region, access), over,
                                 access.bytes));
    fmt::print(stderr, "{}\n", lines_.back());  // the access may fault before the launch ends
  }
  const Copy* const copy =
      region.space == Space::shared ? copy_filling(access.at, access.bytes) : nullptr;
  if (copy != nullptr && is_new(access, 'c')) {
    lines_.push_back(fmt::format(
        "unfinished: {} {} {}, which the cp.async of thread {} at {} is "
        "still filling, with no wait between",
        self(access), verb(access.kind), where(region, access), copy->thread, line_of(copy->pc)));
  }
  const std::uint64_t now = own_segment();
  Record own;
  own.segment = now, own.instruction = access.instruction, own.atomic = access.kind == Kind::atomic;
  const auto [begin, end] = words_of(region, access.at, access.bytes);
  for (Word* word = begin; word != end; ++word) {
    check(region, access, *word);
    if (access.kind == Kind::read) {
      note_read(*word, own);
    } else {
      if (word->write.segment >= launch_ && segment(word->write).block != launched().number) {
        word->far_write = word->write;
      }
      word->write = own;
    }
  }
}

void Races::check(const Region& region, const Access& access, const Word& word) {
  const bool shared = region.space == Space::shared;
  const std::uint64_t since = shared ? block_ : launch_;  // shared memory is fresh for each block
  if (access.kind != Kind::write && !access.part && word.write.segment < (shared ? block_ : 1) &&
      is_new(access, 'u')) {
    lines_.push_back(fmt::format("unwritten: {} {} {}, which was never written", self(access),
                                 verb(access.kind), where(region, access)));
  }
  for (const Record before : {word.write, word.far_write}) {
    if (races(before, since, access.kind)) return report_race(region, access, before, true);
  }
  if (access.kind == Kind::read) return;
  for (const Record before : {word.read, word.other_read, word.far_read}) {
    if (races(before, since, access.kind)) return report_race(region, access, before, false);
  }
}

// Of many readers three are remembered: the last one, one of another warp, and one of another
// block.
void Races::note_read(Word& word, Record own) {
  const Record last = word.read;
  if (last.segment == own.segment) return;
  if (last.segment >= launch_) {
    const Segment &its = segment(last), &mine = segment(own);
    if (its.block != mine.block) {
      word.far_read = last;
    } else if (its.thread != mine.thread &&
               (its.thread / warp_size != mine.thread / warp_size ||
                word.other_read.segment < block_ || segment(word.other_read).phase < phase_)) {
      word.other_read = last;
    }
  }
  word.read = own;
}

std::string Races::self(const Access& access) const {
  return fmt::format("{}: thread {} of block {} of {}", line_of(address_of(access.instruction)),
                     running_thread(), text_of(launched().index),
                     name_of_kernel(launched().kernel));
}

void Races::report_race(const Region& region, const Access& access, Record before, bool wrote) {
  if (!is_new(access, 'r', before.instruction)) return;
  const Segment& its = segment(before);
  const bool same_block = its.block == launched().number;
  const bool same_warp = same_block && its.thread / warp_size == running_thread() / warp_size;
  lines_.push_back(fmt::format("race: {} {} {}, which thread {}{} {} at {} with {} between",
                               self(access), verb(access.kind), where(region, access), its.thread,
                               same_block ? "" : " of block " + block_text(its.block),
                               before.atomic ? "updates"
                               : wrote       ? "writes"
                                             : "reads",
                               line_of(address_of(before.instruction)),
                               same_warp    ? "no __syncwarp"
                               : same_block ? "no __syncthreads"
                                            : "no end of the kernel"));
}

bool Races::is_new(const Access& access, char what, std::uint32_t other) {
  return reported_.insert({access.instruction, other, what}).second;
}

void Races::host_wrote(const Region& region, const std::byte* begin, std::size_t bytes) {
  if (begin < region.begin || begin + bytes > region.begin + region.bytes) return;
  const auto [first, last] = words_of(region, begin, bytes);
  for (Word* word = first; word != last; ++word) *word = {}, word->write.segment = 1;
}

void Races::host_copied(const Region& to, const std::byte* begin, const Region& from,
                        const std::byte* source, std::size_t bytes) {
  const std::size_t offsets = static_cast<std::size_t>(begin - to.begin) |
                              static_cast<std::size_t>(source - from.begin) | bytes;
  const std::size_t step = offsets % 4 == 0 ? 4 : 1;
  for (std::size_t i = 0; i + step <= bytes; i += step) {
    const bool fresh = words_of(from, source + i, step).first->write.segment == 0;
    if (fresh) *words_of(to, begin + i, step).first = {};
  }
}

}  // namespace weft::emulated::accesses
