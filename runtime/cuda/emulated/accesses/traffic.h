// How kernels use the memory system, by kernel and source line.
//
// A request is the k-th execution of one instruction by the lanes of a warp since they last met,
// which the device would execute as one. In global memory it moves the 32-byte sectors that its
// lanes touch. In shared memory, with 32 banks of 4 bytes, it takes as many passes as there are
// different words in the worst bank. Accesses of 8 bytes are served 16 lanes at a time, of 16 bytes
// 8 lanes at a time.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "runtime/cuda/emulated/accesses/places.h"
#include "runtime/cuda/emulated/accesses/recorder.h"

namespace weft::emulated::accesses {

struct Counts {
  std::uint64_t requests = 0, lanes = 0;
  std::uint64_t sectors = 0, least_sectors = 0;  // moved; and the fewest that hold the same bytes
  std::uint64_t passes = 0, least_passes = 0;    // and without conflicts

  Counts& operator+=(const Counts& more);
};

// The accesses of one kernel at one source line, of one kind and size.
struct Row {
  const void* entry;  // of the kernel: names of unnamed namespaces are not unique
  std::string kernel;
  Line line;
  Space space;
  Kind kind;
  std::uint32_t bytes;
  Counts counts;
};

class Traffic {
 public:
  std::vector<Row> rows() const;
  // At the end of the program, as JSON, an object a line.
  void write_to(std::string path);

  void launch_begins();
  void block_begins();
  void block_ends();
  void add(const Region& region, const Access& access);
  void barrier_passed(const std::source_location& site);
  void lanes_met(unsigned first, unsigned mask);

 private:
  struct Request {
    Space space;
    Kind kind;
    std::uint32_t bytes, instruction, mask = 0;
    std::array<const std::byte*, warp_size> at{};
  };
  struct Key {
    std::uint32_t meeting, instruction, time;
    bool operator==(const Key&) const = default;
  };
  struct HashOfKey {
    std::size_t operator()(const Key& key) const {
      return (std::uint64_t{key.instruction} << 32 | key.time) * 0x9e3779b97f4a7c15u ^
             key.meeting * std::uint64_t{0xc2b2ae3d27d4eb4f};
    }
  };
  struct Warp {
    std::vector<Request> requests;
    std::unordered_map<Key, std::size_t, HashOfKey> places;
  };
  struct Thread {
    std::uint32_t meetings = 0;
    std::unordered_map<std::uint32_t, std::uint32_t> times;  // of each instruction since the last
  };
  struct Kernel {
    std::uint64_t launches = 0, blocks = 0;
    std::map<std::tuple<std::uint32_t, Space, Kind, std::uint32_t>, Counts> counts;
    std::map<std::pair<std::string, unsigned>, std::uint64_t> barriers;  // of a block, by line
  };

  void write() const;
  void meet(unsigned first, unsigned mask);
  void count(Warp& warp);

  std::string path_;
  std::vector<Warp> warps_;
  std::vector<Thread> threads_;
  std::map<const void*, Kernel> kernels_;
  Kernel* kernel_ = nullptr;
};

Traffic& traffic();

}  // namespace weft::emulated::accesses
