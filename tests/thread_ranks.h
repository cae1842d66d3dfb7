// Ranks that are threads of one process.
#pragma once

#include <barrier>
#include <cstring>
#include <exception>
#include <functional>
#include <thread>
#include <vector>

#include "runtime/communicator.h"

namespace weft {

class ThreadRank final : public Communicator {
 public:
  // What all of them share.
  struct Shared {
    explicit Shared(int size) : posted(static_cast<std::size_t>(size)), all(size) {}
    std::vector<std::span<const std::span<const std::byte>>> posted;
    std::barrier<> all;
  };
  ThreadRank(Shared& shared, int rank) : shared_(shared), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(shared_.posted.size()); }
  int on_this_machine() const override { return size(); }
  int place_on_this_machine() const override { return rank(); }
  void wait_until(const std::function<bool()>& done) override {
    while (!done()) std::this_thread::yield();
  }
  void cancel() override {}
  void end_all(const std::string&, int) override { std::terminate(); }
  void exchange(std::span<const std::span<const std::byte>> to,
                std::span<const std::span<std::byte>> from) override {
    if (exchanging) exchanging();
    shared_.posted[static_cast<std::size_t>(rank_)] = to;
    shared_.all.arrive_and_wait();
    for (std::size_t r = 0; r < from.size(); ++r) {
      const auto sent = shared_.posted[r][static_cast<std::size_t>(rank_)];
      if (sent.size() != from[r].size()) std::terminate();
      if (!sent.empty()) std::memmove(from[r].data(), sent.data(), sent.size());
    }
    shared_.all.arrive_and_wait();
  }

  std::function<void()> exchanging;  // called when an exchange begins

 private:
  Shared& shared_;
  int rank_;
};

// Calls f(rank) on that many threads, and waits for them.
inline void on_ranks(int size, const std::function<void(ThreadRank& rank)>& f) {
  ThreadRank::Shared shared(size);
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r) {
    threads.emplace_back([&, r] {
      ThreadRank rank(shared, r);
      f(rank);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace weft
