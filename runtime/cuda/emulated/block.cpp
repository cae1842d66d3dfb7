#include "runtime/cuda/emulated/block.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <stdexcept>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "runtime/cuda/emulated/accesses.h"
#include "runtime/cuda/emulated/copies.h"
#include "runtime/cuda/emulated/cuda_runtime.h"
#include "runtime/cuda/emulated/worker.h"

namespace weft::emulated {
namespace {

// Thrown through a waiting thread when its block is abandoned.
struct GivenUp {};

enum class State { unstarted, ready, at_barrier, at_exchange, ended };

struct Thread {
  State state = State::unstarted;
  Worker* worker = nullptr;  // the fiber that it runs on
  std::source_location site;
  std::uint64_t value = 0;  // given to an exchange, then the value received from it
  Exchange kind = Exchange::shuffle;
  unsigned mask = 0, from = 0;
};

bool same_site(const std::source_location& a, const std::source_location& b) {
  return a.line() == b.line() && a.column() == b.column() &&
         (a.file_name() == b.file_name() || std::strcmp(a.file_name(), b.file_name()) == 0);
}

std::string text_of(const std::source_location& site) {
  const std::string_view path = site.file_name();
  const auto slash = path.rfind('/');
  return fmt::format("{}:{}", path.substr(slash == path.npos ? 0 : slash + 1), site.line());
}

struct AlignedDelete {
  void operator()(std::byte* bytes) const {
    ::operator delete[](bytes, std::align_val_t{shared_alignment});
  }
};

class Block {
 public:
  void run(Extent grid, Extent block, Extent index, std::size_t shared,
           const std::function<void()>& body);

  unsigned barrier(bool predicate, const std::source_location& site);
  std::uint64_t exchange(Exchange kind, unsigned mask, std::uint64_t value, unsigned from,
                         const std::source_location& site, void (*work)(OfLanes) = nullptr);
  void start_copy(std::byte* to, Copy copy);
  void require_aligned(const void* at, const char* instruction,
                       const std::source_location& site) const;
  void require_filled(const std::byte* at, const char* instruction,
                      const std::source_location& site) const;
  unsigned thread() const { return current_->thread; }
  std::byte* shared() const { return shared_.get(); }

  // 0 … count − 1 in the configured order.
  template <class I>
  void arrange(std::vector<I>& sequence, std::uint64_t count) {
    sequence.resize(count);
    std::iota(sequence.begin(), sequence.end(), I{0});
    if (order == Order::descending) std::reverse(sequence.begin(), sequence.end());
    if (order == Order::random) std::shuffle(sequence.begin(), sequence.end(), random);
  }

  Order order = Order::ascending;
  std::mt19937_64 random;
  Copies copies;

 private:
  void resume(Worker* worker);
  void work(Worker& worker);
  void wait();
  void enter(unsigned thread) const;
  bool all_arrived(unsigned thread) const;
  std::uint64_t result_of(unsigned thread) const;
  void work_together(unsigned first, void (*work)(OfLanes)) const;
  void give_up();
  std::string what_is(const Thread& thread) const;
  [[noreturn]] void fail_stuck() const;
  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    throw std::runtime_error(fmt::format("block ({}, {}, {}): ", index_.x, index_.y, index_.z) +
                             fmt::format(format, std::forward<Args>(args)...));
  }

  Extent extent_, index_;
  const std::function<void()>* body_ = nullptr;
  std::unique_ptr<std::byte[], AlignedDelete> shared_;
  std::vector<Thread> threads_;
  std::vector<unsigned> sequence_;  // the order in which threads run
  std::size_t started_ = 0, at_barrier_ = 0;
  std::vector<unsigned> exchanging_;  // for each warp, how many lanes wait in an exchange
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<Worker*> idle_;
  Worker* current_ = nullptr;
  std::exception_ptr error_;
  bool giving_up_ = false;
};

// Never destroyed: its workers are suspended on stacks that nobody unwinds.
Block& the_block() {
  static auto* const block = new Block;
  return *block;
}

void Block::run(Extent grid, Extent block, Extent index, std::size_t shared,
                const std::function<void()>& body) {
  extent_ = block, index_ = index, body_ = &body;
  gridDim = {grid.x, grid.y, grid.z};
  blockDim = {block.x, block.y, block.z};
  blockIdx = {index.x, index.y, index.z};
  // Exactly as many bytes: a sanitizer sees accesses beyond.
  shared_.reset(new (std::align_val_t{shared_alignment}) std::byte[shared]);
  std::fill_n(shared_.get(), shared, std::byte{0xff});
  threads_.assign(block.count(), {});
  exchanging_.assign((block.count() + warp_size - 1) / warp_size, 0);
  started_ = at_barrier_ = 0, error_ = nullptr, giving_up_ = false;
  copies.forget_all();
  if constexpr (accesses::seen) accesses::block_begins(index, shared_.get(), shared);
  try {
    arrange(sequence_, threads_.size());
    while (started_ < threads_.size()) {
      if (idle_.empty()) {
        workers_.push_back(std::make_unique<Worker>([this](Worker& worker) { work(worker); }));
        idle_.push_back(workers_.back().get());
      }
      Worker* const worker = idle_.back();
      idle_.pop_back();
      resume(worker);
    }
    for (bool ended = false; !ended;) {
      arrange(sequence_, threads_.size());  // reordered whenever every thread waits or has ended
      bool progress = false;
      ended = true;
      const std::uint64_t resting = order == Order::random ? random() : 0;  // a bit for each warp
      for (const unsigned i : sequence_) {
        if (threads_[i].state == State::ready) {
          progress = true;
          if ((resting >> i / warp_size & 1) == 0) resume(threads_[i].worker);
        }
        ended = ended && threads_[i].state == State::ended;
      }
      if (!ended && !progress) fail_stuck();
    }
    if constexpr (accesses::seen) accesses::block_ends();
  } catch (...) {
    give_up();
    throw;
  }
}

// Runs a worker until its thread waits, or no thread is left to start.
void Block::resume(Worker* worker) {
  current_ = worker;
  enter(worker->thread);
  worker->resume();
  if constexpr (accesses::seen) accesses::none_runs();
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

// The threads that a worker runs, one after the other.
void Block::work(Worker& worker) {
  while (started_ < sequence_.size() && !error_ && !giving_up_) {
    worker.thread = sequence_[started_++];
    Thread& thread = threads_[worker.thread];
    thread.worker = &worker;
    thread.state = State::ready;
    enter(worker.thread);
    try {
      (*body_)();
    } catch (const GivenUp&) {
    } catch (...) {
      error_ = std::current_exception();
    }
    thread.state = State::ended;
  }
  idle_.push_back(&worker);
}

void Block::wait() {
  current_->pause();
  if (giving_up_) throw GivenUp{};
}

void Block::enter(unsigned i) const {
  threadIdx = {i % extent_.x, i / extent_.x % extent_.y, i / extent_.x / extent_.y};
  if constexpr (accesses::seen) {
    accesses::thread_runs(i, current_->stack().bottom, current_->stack().size);
  }
}

unsigned Block::barrier(bool predicate, const std::source_location& site) {
  Thread& own = threads_[thread()];
  own.state = State::at_barrier, own.site = site, own.value = predicate ? 1 : 0;
  if (++at_barrier_ == threads_.size()) {
    std::uint64_t count = 0;
    for (const Thread& other : threads_) {
      if (!same_site(other.site, site)) fail_stuck();
      count += other.value;
    }
    for (Thread& other : threads_) other.state = State::ready, other.value = count;
    at_barrier_ = 0;
    if constexpr (accesses::seen) accesses::barrier_passed(site);
  }
  wait();
  return static_cast<unsigned>(own.value);
}

std::uint64_t Block::exchange(Exchange kind, unsigned mask, std::uint64_t value, unsigned from,
                              const std::source_location& site, void (*work)(OfLanes)) {
  const unsigned own = thread(), first = own / warp_size * warp_size;
  Thread& self = threads_[own];
  self.state = State::at_exchange, self.site = site, self.value = value;
  self.kind = kind, self.mask = mask, self.from = from;
  if ((mask >> own % warp_size & 1) == 0) {
    fail("thread {} calls at {} with a mask {:#010x} that does not hold its lane {}", own,
         text_of(site), mask, own % warp_size);
  }
  // Only the last lane to arrive checks the others; a lane that waits in vain is found when the
  // block makes no more progress.
  unsigned& waiting = exchanging_[own / warp_size];
  if (++waiting >= static_cast<unsigned>(std::popcount(mask)) && all_arrived(own)) {
    waiting -= static_cast<unsigned>(std::popcount(mask));
    if constexpr (accesses::seen) {
      accesses::lanes_met(own / warp_size * warp_size, mask, kind == Exchange::order);
    }
    if (kind == Exchange::operands) work_together(first, work);
    std::uint64_t results[warp_size] = {};
    for (unsigned l = 0, before = warp_size; l < warp_size; ++l) {
      if ((mask >> l & 1) == 0) continue;
      const bool known = kind == Exchange::vote && before < warp_size;  // one result for all
      results[l] = known ? results[before] : result_of(first + l);
      before = l;
    }
    for (unsigned l = 0; l < warp_size; ++l) {
      if (!(mask >> l & 1)) continue;
      threads_[first + l].value = results[l];
      threads_[first + l].state = State::ready;
    }
  }
  wait();
  return self.value;
}

// Whether every lane of the mask is at the same exchange; throws where one cannot arrive there.
bool Block::all_arrived(unsigned i) const {
  const Thread& self = threads_[i];
  const unsigned first = i / warp_size * warp_size;
  bool all = true;
  for (unsigned l = 0; l < warp_size; ++l) {
    if ((self.mask >> l & 1) == 0) continue;
    if (first + l >= threads_.size()) {
      fail("thread {} exchanges at {} with lane {}, which the block does not have", i,
           text_of(self.site), l);
    }
    const Thread& other = threads_[first + l];
    if (other.state == State::ended || other.state == State::at_barrier ||
        (other.state == State::at_exchange && (other.kind != self.kind || other.mask != self.mask ||
                                               !same_site(other.site, self.site)))) {
      fail("thread {} exchanges at {} with lane {}, which {}", i, text_of(self.site), l,
           what_is(other));
    }
    all = all && other.state == State::at_exchange;
  }
  return all;
}

std::uint64_t Block::result_of(unsigned i) const {
  const Thread& self = threads_[i];
  const unsigned first = i / warp_size * warp_size;
  if (self.kind == Exchange::shuffle) {
    if ((self.mask >> self.from & 1) == 0) {
      fail("thread {} shuffles at {} from lane {}, which its mask {:#010x} does not hold", i,
           text_of(self.site), self.from, self.mask);
    }
    return threads_[first + self.from].value;
  }
  std::uint64_t set = 0;
  for (unsigned l = 0; l < warp_size; ++l) {
    if ((self.mask >> l & 1) == 0) continue;
    const std::uint64_t value = threads_[first + l].value;
    const bool in = self.kind == Exchange::vote ? value != 0 : value == self.value;
    set |= std::uint64_t{in} << l;
  }
  return set;
}

void Block::work_together(unsigned first, void (*work)(OfLanes)) const {
  void* operands[warp_size];
  for (unsigned l = 0; l < warp_size; ++l) {
    operands[l] = reinterpret_cast<void*>(threads_[first + l].value);
  }
  work(operands);
}

void Block::start_copy(std::byte* to, Copy copy) {
  require_aligned(to, "cp.async", copy.site);
  require_aligned(copy.from, "cp.async", copy.site);
  if (copy.bytes > copied_bytes) {
    fail("thread {} calls cp.async at {} for {} bytes of {}", thread(), text_of(copy.site),
         copy.bytes, copied_bytes);
  }
  require_filled(to, "cp.async", copy.site);
  copy.thread = thread();
  copies.start(to, copy);
}

void Block::require_aligned(const void* at, const char* instruction,
                            const std::source_location& site) const {
  const auto over = reinterpret_cast<std::uintptr_t>(at) % copied_bytes;
  if (over == 0) return;
  fail("thread {} calls {} at {} with an address that is {} bytes after a multiple of {}", thread(),
       instruction, text_of(site), over, copied_bytes);
}

void Block::require_filled(const std::byte* at, const char* instruction,
                           const std::source_location& site) const {
  const Copy* const copy = copies.filling(at, copied_bytes);
  if (copy == nullptr) return;
  fail(
      "thread {} calls {} at {} on shared memory that the cp.async of thread {} at {} is still "
      "filling: no wait between",
      thread(), instruction, text_of(site), copy->thread, text_of(copy->site));
}

// Ends every waiting thread by an exception, so that its worker is free again.
void Block::give_up() {
  giving_up_ = true;
  for (const Thread& thread : threads_) {
    if (thread.state != State::unstarted && thread.state != State::ended) resume(thread.worker);
  }
}

std::string Block::what_is(const Thread& thread) const {
  switch (thread.state) {
    case State::ended: return "has ended";
    case State::at_barrier: return "waits at the barrier at " + text_of(thread.site);
    case State::at_exchange:
      return fmt::format("is at the exchange at {} with mask {:#010x}", text_of(thread.site),
                         thread.mask);
    case State::unstarted:
    case State::ready: break;
  }
  return "runs";
}

void Block::fail_stuck() const {
  for (std::size_t i = 0; i < threads_.size(); ++i) {  // one that waits for its warp says more
    if (threads_[i].state == State::at_exchange) all_arrived(static_cast<unsigned>(i));
  }
  std::string runs;
  for (std::size_t i = 0, end = 0; i < threads_.size(); i = end) {
    const std::string what = what_is(threads_[i]);
    while (end < threads_.size() && what_is(threads_[end]) == what) ++end;
    runs +=
        fmt::format("{}thread{} {}: {}", i == 0 ? "" : "; ", end - i > 1 ? "s" : "",
                    end - i > 1 ? fmt::format("{} … {}", i, end - 1) : fmt::format("{}", i), what);
    if (runs.size() > 600) {
      runs += "; …";
      break;
    }
  }
  fail("not all threads reach the same barrier ({})", runs);
}

}  // namespace

void set_order(Order order, std::uint64_t seed) {
  the_block().order = order;
  the_block().random.seed(seed);
}

void run_grid(Extent grid, Extent block, std::size_t shared, const std::function<void()>& thread) {
  std::vector<std::uint64_t> sequence;
  the_block().arrange(sequence, grid.count());
  for (const std::uint64_t i : sequence) {
    const std::uint64_t plane = i / grid.x;
    const Extent index{static_cast<unsigned>(i % grid.x), static_cast<unsigned>(plane % grid.y),
                       static_cast<unsigned>(plane / grid.y)};
    the_block().run(grid, block, index, shared, thread);
  }
}

std::byte* shared_bytes() { return the_block().shared(); }

unsigned barrier(bool predicate, const std::source_location& site) {
  return the_block().barrier(predicate, site);
}

std::uint64_t exchange(Exchange kind, unsigned mask, std::uint64_t value, unsigned from,
                       const std::source_location& site) {
  return the_block().exchange(kind, mask, value, from, site);
}

void together(void* own, void (*work)(OfLanes), const std::source_location& site) {
  the_block().exchange(Exchange::operands, 0xffffffff, reinterpret_cast<std::uintptr_t>(own), 0,
                       site, work);
}

void start_copy(void* to, const void* from, unsigned bytes, const void* pc,
                const std::source_location& site) {
  the_block().start_copy(static_cast<std::byte*>(to),
                         {static_cast<const std::byte*>(from), bytes, 0, pc, site});
}

void commit_copies() { the_block().copies.commit(the_block().thread()); }

void wait_for_copies(unsigned groups_left) {
  the_block().copies.wait(the_block().thread(), groups_left);
}

const Copy* copy_filling(const void* at, std::size_t bytes) {
  return the_block().copies.filling(static_cast<const std::byte*>(at), bytes);
}

void require_aligned(const void* at, const char* instruction, const std::source_location& site) {
  the_block().require_aligned(at, instruction, site);
}

void require_filled(const void* at, const char* instruction, const std::source_location& site) {
  the_block().require_filled(static_cast<const std::byte*>(at), instruction, site);
}

unsigned lane() { return the_block().thread() % warp_size; }

}  // namespace weft::emulated
