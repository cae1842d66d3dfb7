// Races, reads of unwritten memory, and addresses that a device does not accept.
//
// Two accesses of the same bytes race where one of them writes, not both are atomic, and nothing
// orders them: threads of a block by a barrier, lanes of a warp also by a __syncwarp that both take
// part in, blocks of a grid by nothing. It does not matter which of them the emulated device ran
// first, nor whether the result was right.
//
// The accesses of a thread between two waits are a segment. A word of memory remembers the segment
// and the instruction of its last write and of a few reads. Words have 4 bytes; in regions with
// accesses that are not made of words, one byte.
#pragma once

#include <array>
#include <cstdint>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "runtime/cuda/emulated/accesses/recorder.h"

namespace weft::emulated::accesses {

struct Record {
  std::uint64_t segment : 40 = 0;  // 0: none; 1: the host's
  std::uint64_t instruction : 23 = 0;
  std::uint64_t atomic : 1 = 0;
};

struct Word {
  Record write, read;
  Record other_read;           // of another warp than `read` where there was one
  Record far_write, far_read;  // of another block of the same launch
};

struct Shadow {
  unsigned bytes_a_word = 4;
  std::vector<Word> words;
};

class Races {
 public:
  void launch_begins();
  void block_begins();
  std::string launch_ends();  // the faults found, a line each
  void add(const Region& region, const Access& access);
  void barrier_passed();
  void lanes_met(unsigned first, unsigned mask);

  void forget(const Region& region) { region.shadow.reset(); }
  void host_wrote(const Region& region, const std::byte* begin, std::size_t bytes);
  // Bytes that were unwritten at the source are unwritten at the destination.
  void host_copied(const Region& to, const std::byte* begin, const Region& from,
                   const std::byte* source, std::size_t bytes);

 private:
  // A thread's accesses since its last wait.
  struct Segment {
    std::uint32_t block, thread, phase, clock;
  };
  // `seen[l]` is the last segment of lane l of its warp, by l's clock, that happens before what the
  // thread does now. Its own clock counts its meetings with other lanes.
  struct Thread {
    std::array<std::uint32_t, warp_size> seen;
    std::uint64_t segment = 0;  // 0: no access yet since its last wait
  };

  const Segment& segment(Record record) const { return segments_[record.segment - launch_]; }
  std::uint64_t own_segment();
  bool races(Record before, std::uint64_t since, Kind kind) const;
  void check(const Region& region, const Access& access, const Word& word);
  void note_read(Word& word, Record own);
  void report_race(const Region& region, const Access& access, Record before, bool wrote);
  // Whether this fault of this instruction has not been reported yet.
  bool is_new(const Access& access, char what, std::uint32_t other = 0);
  std::string self(const Access& access) const;

  std::vector<Segment> segments_;         // of this launch
  std::uint64_t launch_ = 2, block_ = 2;  // the first segment of the launch, and of the block
  std::uint32_t phase_ = 0;               // how many barriers the block has passed
  std::vector<Thread> threads_;
  std::vector<std::string> lines_;
  std::set<std::tuple<std::uint32_t, std::uint32_t, char>> reported_;
};

Races& races();

}  // namespace weft::emulated::accesses
