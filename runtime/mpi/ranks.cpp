// Ranks by MPI, in a module of its own: a process that trains alone never loads MPI.
//
// No MPI call here blocks. An exchange posts all messages and polls them, so that a waiting rank
// uses little of its core, notices ranks that have ended, and does not wait for ever.
#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <map>
#include <set>
#include <thread>

#include <mpi.h>
#include <unistd.h>

#include "runtime/communicator.h"
#include "runtime/error.h"
#include "runtime/listed.h"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

enum Tag : int { data, failure, ended };
constexpr std::size_t most_bytes = std::size_t{1} << 30;  // of one message; MPI counts in int
constexpr double grace = 3;  // seconds that a wait goes on after a signal
// Seconds that rank 0 waits longer than the others, and those that wait for rank 0 longer than it:
// a rank that is waited for may itself wait for the one that is missing, and then says so first.
constexpr double behind_others = 1;
constexpr double to_be_said = 2;       // seconds that rank 0 has to print the line of another rank
constexpr double between_looks = 0.1;  // seconds between two checks that the other ranks run

class MpiRanks final : public Communicator {
 public:
  MpiRanks() {
    int provided = 0;
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided);
    if (provided < MPI_THREAD_SERIALIZED) fail("MPI: it does not allow calls from several threads");
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
    MPI_Comm machine;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine);
    MPI_Comm_size(machine, &on_this_machine_);
    MPI_Comm_rank(machine, &place_on_this_machine_);
    const std::array<int, 2> own = {rank_, static_cast<int>(getpid())};
    std::vector<std::array<int, 2>> all(static_cast<std::size_t>(on_this_machine_));
    MPI_Allgather(own.data(), 2, MPI_INT, all.data(), 2, MPI_INT, machine);
    MPI_Comm_free(&machine);
    for (const auto& [rank, process] : all) processes_[rank] = process;
  }
  // Waits for the others: no rank ends before rank 0 has written its files.
  ~MpiRanks() override { MPI_Finalize(); }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int on_this_machine() const override { return on_this_machine_; }
  int place_on_this_machine() const override { return place_on_this_machine_; }
  void cancel() override { cancelled_ = true; }

  void exchange(std::span<const std::span<const std::byte>> to,
                std::span<const std::span<std::byte>> from) override {
    std::vector<Message> messages;
    for (int r = 0; r < size_; ++r) {
      const auto at = static_cast<std::size_t>(r);
      if (r == rank_) {
        if (!to[at].empty() && to[at].data() != from[at].data()) {
          std::memcpy(from[at].data(), to[at].data(), to[at].size());
        }
        continue;
      }
      in_pieces(from[at].size(), [&](std::size_t begin, int bytes) {
        MPI_Irecv(from[at].data() + begin, bytes, MPI_BYTE, r, data, MPI_COMM_WORLD,
                  &messages.emplace_back(Message{r, MPI_REQUEST_NULL}).request);
      });
    }
    for (int r = 0; r < size_; ++r) {
      const auto at = static_cast<std::size_t>(r);
      if (r == rank_) continue;
      in_pieces(to[at].size(), [&](std::size_t begin, int bytes) {
        MPI_Isend(to[at].data() + begin, bytes, MPI_BYTE, r, data, MPI_COMM_WORLD,
                  &messages.emplace_back(Message{r, MPI_REQUEST_NULL}).request);
      });
    }
    const auto arrived = [&] {
      std::erase_if(messages, [](Message& message) {
        int there = 0;
        MPI_Test(&message.request, &there, MPI_STATUS_IGNORE);
        return there != 0;
      });
      return messages.empty();
    };
    const auto awaited = [&] {
      std::set<int> all;
      for (const Message& message : messages) all.insert(message.rank);
      return all;
    };
    try {
      wait(arrived, awaited, [&] { return fmt::format("rank {}", listed(awaited())); });
    } catch (...) {
      forget(messages);
      throw;
    }
  }

  void wait_until(const std::function<bool()>& done) override {
    std::set<int> others;
    for (int r = 0; r < size_; ++r) {
      if (r != rank_) others.insert(r);
    }
    wait(
        done, [&] { return others; }, [] { return std::string("another rank"); });
  }

  [[noreturn]] void end_all(const std::string& line, int status) override {
    if (rank_ != 0) tell_first(line, status);
    say(line);
    for (int r = 0; r < size_; ++r) {
      if (r == rank_) continue;
      MPI_Request request;
      MPI_Isend(&status, 1, MPI_INT, r, ended, MPI_COMM_WORLD, &request);
    }
    MPI_Abort(MPI_COMM_WORLD, status);
    std::_Exit(status);
  }

 private:
  struct Message {
    int rank;
    MPI_Request request;
  };

  static void in_pieces(std::size_t bytes, const auto& f) {
    for (std::size_t begin = 0; begin < bytes; begin += most_bytes) {
      f(begin, static_cast<int>(std::min(most_bytes, bytes - begin)));
    }
  }

  static double since(Clock::time_point time) { return Seconds(Clock::now() - time).count(); }

  // Another thread may need the core: this one first yields, then sleeps.
  static void pause(int turn) {
    if (turn < 64) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(turn < 1024 ? 20 : 200));
    }
  }

  // Waits until done() is true, for the ranks awaited(), which named() names.
  void wait(const auto& done, const auto& awaited, const auto& named) {
    const auto begin = Clock::now();
    auto looked = begin;
    auto signalled = Clock::time_point::max();
    const auto overdue = [&](double seconds, double limit) {
      if (seconds <= limit) return false;
      const double longer = rank_ == 0              ? behind_others
                            : awaited().contains(0) ? 2 * behind_others
                                                    : 0;
      return seconds > limit + longer;
    };
    for (int turn = 0; !done(); ++turn) {
      if (cancelled_) fail("this rank has ended its exchanges");
      heed_the_end();
      if (interrupted != nullptr && interrupted() && signalled == Clock::time_point::max()) {
        signalled = Clock::now();
      }
      if (since(looked) > between_looks) {
        look_for_ended(awaited());
        looked = Clock::now();
      }
      const bool hurried =
          signalled != Clock::time_point::max() && overdue(since(signalled), grace);
      if (hurried || overdue(since(begin), patience)) {
        fail("{} does not answer{}", named(),
             hurried ? " after a signal" : "; --timeout is how long the others wait");
      }
      pause(turn);
    }
  }

  // Cancels the messages, so that none arrives in memory that was freed.
  static void forget(std::vector<Message>& messages) {
    for (Message& message : messages) {
      MPI_Cancel(&message.request);
      MPI_Request_free(&message.request);
    }
  }

  // A rank on another machine cannot be checked.
  void look_for_ended(const std::set<int>& awaited) const {
    for (const auto& [rank, process] : processes_) {
      if (!awaited.contains(rank) || ::kill(process, 0) == 0 || errno != ESRCH) continue;
      fail("rank {}, process {}, has ended while this rank waits for it", rank, process);
    }
  }

  // Ends this rank if another has ended all; rank 0 prints a failure that another rank sent.
  void heed_the_end() {
    int there = 0;
    MPI_Status status;
    MPI_Iprobe(MPI_ANY_SOURCE, ended, MPI_COMM_WORLD, &there, &status);
    if (there != 0) wait_to_be_ended(0);
    if (rank_ != 0) return;
    MPI_Iprobe(MPI_ANY_SOURCE, failure, MPI_COMM_WORLD, &there, &status);
    if (there == 0) return;
    int length = 0;
    MPI_Get_count(&status, MPI_BYTE, &length);
    std::string told(static_cast<std::size_t>(length), '\0');
    MPI_Recv(told.data(), length, MPI_BYTE, status.MPI_SOURCE, failure, MPI_COMM_WORLD,
             MPI_STATUS_IGNORE);
    int end = 0;
    std::memcpy(&end, told.data(), sizeof end);
    end_all(told.substr(sizeof end), end);
  }

  // Sends the line to rank 0, which prints one line even if several ranks fail. Gives up after a
  // while: rank 0 may be computing, or dead.
  void tell_first(const std::string& line, int status) {
    std::string told(reinterpret_cast<const char*>(&status), sizeof status);
    told += line;
    MPI_Request request;
    MPI_Isend(told.data(), static_cast<int>(told.size()), MPI_BYTE, 0, failure, MPI_COMM_WORLD,
              &request);
    const auto begin = Clock::now();
    int there = 0, sent = 0;
    while (since(begin) < to_be_said + 0.2 * rank_) {
      MPI_Test(&request, &sent, MPI_STATUS_IGNORE);
      MPI_Iprobe(MPI_ANY_SOURCE, ended, MPI_COMM_WORLD, &there, MPI_STATUS_IGNORE);
      if (there != 0) wait_to_be_ended(status);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }

  // The rank that printed the line aborts all by MPI; this one ends by itself before.
  [[noreturn]] static void wait_to_be_ended(int status) {
    std::this_thread::sleep_for(std::chrono::seconds(1));
    std::_Exit(status);
  }

  static void say(const std::string& line) {
    std::fprintf(stderr, "%s\n", line.c_str());
    std::fflush(stderr);
  }

  int rank_ = 0, size_ = 1, on_this_machine_ = 1, place_on_this_machine_ = 0;
  std::map<int, int> processes_;  // of the ranks on this machine
  std::atomic<bool> cancelled_ = false;
};

}  // namespace
}  // namespace weft

extern "C" weft::Communicator* weft_mpi_ranks() { return new weft::MpiRanks; }
