#include "runtime/cuda/emulated/copies.h"

#include <cstdint>
#include <cstring>
#include <utility>

#include "runtime/cuda/emulated/accesses.h"

namespace weft::emulated {

void Copies::start(std::byte* to, const Copy& copy) {
  if constexpr (accesses::seen) accesses::copy_started(to, copy.from, copy.bytes, copy.pc);
  std::memset(to, 0xff, copied_bytes);
  under_way_[to] = copy;
  threads_[copy.thread].uncommitted.push_back(to);
}

void Copies::commit(unsigned thread) {
  OfThread& own = threads_[thread];
  own.groups.push_back(std::exchange(own.uncommitted, {}));
}

void Copies::wait(unsigned thread, unsigned groups_left) {
  OfThread& own = threads_[thread];
  for (; own.groups.size() > groups_left; own.groups.pop_front()) {
    for (std::byte* const to : own.groups.front()) {
      const Copy copy = under_way_.at(to);
      under_way_.erase(to);
      std::byte line[copied_bytes];
      for (unsigned i = 0; i < copied_bytes; ++i) {
        line[i] = i < copy.bytes ? copy.from[i] : std::byte{0};
      }
      std::memcpy(to, line, copied_bytes);
      if constexpr (accesses::seen) accesses::copy_arrived(to, copy.pc);
    }
  }
}

const Copy* Copies::filling(const std::byte* at, std::size_t bytes) const {
  if (under_way_.empty()) return nullptr;
  const auto over = reinterpret_cast<std::uintptr_t>(at) % copied_bytes;
  for (const std::byte* to = at - over; to < at + bytes; to += copied_bytes) {
    const auto found = under_way_.find(to);
    if (found != under_way_.end()) return &found->second;
  }
  return nullptr;
}

void Copies::forget_all() {
  threads_.clear();
  under_way_.clear();
}

}  // namespace weft::emulated
