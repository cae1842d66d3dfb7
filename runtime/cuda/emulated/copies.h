// The asynchronous copies of an emulated block, from global to shared memory: cp.async.
#pragma once

#include <cstddef>
#include <deque>
#include <unordered_map>
#include <vector>

#include "runtime/cuda/emulated/block.h"

namespace weft::emulated {

inline constexpr unsigned copied_bytes = 16;  // of a copy, at addresses that are multiples of it

class Copies {
 public:
  // Fills the destination with bytes 0xff until the copy, of the thread copy.thread, arrives.
  void start(std::byte* to, const Copy& copy);
  // Makes a group of those that the thread started since the last one.
  void commit(unsigned thread);
  // All but the last `groups_left` groups of the thread arrive.
  void wait(unsigned thread, unsigned groups_left);
  // The copy that is filling one of these bytes; null if none is.
  const Copy* filling(const std::byte* at, std::size_t bytes) const;
  void forget_all();

 private:
  struct OfThread {
    std::deque<std::vector<std::byte*>> groups = {};  // destinations
    std::vector<std::byte*> uncommitted = {};
  };
  std::unordered_map<unsigned, OfThread> threads_;
  std::unordered_map<const std::byte*, Copy> under_way_;  // by destination
};

}  // namespace weft::emulated
