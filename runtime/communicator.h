// Ranks: the processes of one training, numbered from 0, each with the whole model and its share of
// every batch. A process that was not started as one of several is the only rank, number 0.
//
// Exchange is the only collective: each rank sends bytes to every rank and receives bytes from
// every rank (as MPI_Alltoallv). All ranks call exchanges in the same order, from one thread at a
// time. Bytes are in the host's memory; sums on CUDA devices have runtime/cuda/device_sum.h.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "runtime/types.h"

namespace weft {

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual int on_this_machine() const = 0;        // number of ranks on this machine
  virtual int place_on_this_machine() const = 0;  // this rank's number among them, from 0

  // Sends to[r] to rank r and receives from[r] from it; both sides know the lengths. Throws, naming
  // the ranks that do not answer, after `patience`.
  virtual void exchange(std::span<const std::span<const std::byte>> to,
                        std::span<const std::span<std::byte>> from) = 0;
  // Waits until done() is true, for work that other ranks take part in besides exchanges. Throws if
  // one of them has ended, and after `patience`.
  virtual void wait_until(const std::function<bool()>& done) = 0;
  // Makes the exchange in which another thread waits throw, and every later one.
  virtual void cancel() = 0;
  // Ends all ranks with this status, after one line on stderr: that of the rank that failed first.
  [[noreturn]] virtual void end_all(const std::string& line, int status) = 0;

  // Seconds that a wait for other ranks lasts; after a signal, when interrupted() is true,
  // only a few, since ranks that do not answer may have been killed.
  double patience = 600;
  bool (*interrupted)() = nullptr;

  bool alone() const { return size() == 1; }
  bool leads() const { return rank() == 0; }  // the rank that writes and prints

  // The texts of all ranks, by rank.
  std::vector<std::string> gather(const std::string& own);
  // The text of rank 0, on every rank.
  std::string broadcast(const std::string& own);
  void broadcast(std::span<std::byte> bytes);
  // Calls f(i) for i = 0 … count − 1, each on one rank; returns all results by i on every rank.
  std::vector<std::vector<double>> divide(i64 count,
                                          const std::function<std::vector<double>(i64 i)>& f);
};

// The ranks of this process's training. If `mpirun` or `srun` started the process as one of
// several, as its environment says, the first call loads the module for MPI, and throws if there is
// none.
Communicator& ranks();

// The type of the module's function "weft_mpi_ranks".
using MakeRanks = Communicator* (*)();

}  // namespace weft
