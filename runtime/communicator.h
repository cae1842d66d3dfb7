// Ranks: the processes of one training, numbered from 0, each with the whole model and its share of
// every batch. A process that nothing started as one of several is rank 0 of one.
//
// Everything that ranks say to each other is an exchange: each sends some bytes to each, and
// receives some from each. All ranks exchange in the same order, on one thread at a time.
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
  virtual int on_this_machine() const = 0;  // how many of them

  // to[r] goes to rank r, from[r] comes from it; both sides know how long each is. Throws, naming
  // the ranks that are missing, where that takes longer than the patience.
  virtual void exchange(std::span<const std::span<const std::byte>> to,
                        std::span<const std::span<std::byte>> from) = 0;
  // An exchange that another thread waits in throws, and so does every one after it.
  virtual void cancel() = 0;
  // Ends all ranks with this status, after one line on stderr: that of the first rank to fail.
  [[noreturn]] virtual void end_all(const std::string& line, int status) = 0;

  // Seconds that an exchange waits for other ranks. Where interrupted() is true, a signal has come
  // and whoever is missing may be dead: then it is no more than a few.
  double patience = 600;
  bool (*interrupted)() = nullptr;

  bool alone() const { return size() == 1; }
  bool leads() const { return rank() == 0; }  // the one that writes and prints

  // What every rank said, by rank.
  std::vector<std::string> gather(const std::string& own);
  // Rank 0's, on every rank.
  std::string broadcast(const std::string& own);
  void broadcast(std::span<std::byte> bytes);
  // Calls f(i) for i = 0 … count − 1, each on one rank; every rank gets all results, in this order.
  std::vector<std::vector<double>> divide(i64 count,
                                          const std::function<std::vector<double>(i64 i)>& f);
};

// Those of this process. Where the environment says that `mpirun` or `srun` started it as one of
// several, the module for MPI is loaded at the first call, which throws where there is none.
Communicator& ranks();

// What the module defines under the name "weft_mpi_ranks".
using MakeRanks = Communicator* (*)();

}  // namespace weft
