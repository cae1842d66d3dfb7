#include "runtime/communicator.h"

#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>

#include "runtime/error.h"
#include "runtime/module.h"

namespace weft {
namespace {

class OneRank final : public Communicator {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  int on_this_machine() const override { return 1; }
  int place_on_this_machine() const override { return 0; }
  void exchange(std::span<const std::span<const std::byte>> to,
                std::span<const std::span<std::byte>> from) override {
    if (!to[0].empty()) std::memcpy(from[0].data(), to[0].data(), to[0].size());
  }
  void wait_until(const std::function<bool()>& done) override {
    while (!done()) std::this_thread::yield();
  }
  void cancel() override {}
  void end_all(const std::string& line, int status) override {
    fmt::print(stderr, "{}\n", line);
    std::exit(status);
  }
};

// The number of ranks that were started together, from the environment variables of Open MPI, or of
// Slurm if it provides PMIx; 1 without them.
int started_ranks() {
  const char* const slurm = std::getenv("PMIX_RANK") != nullptr ? "SLURM_NTASKS" : nullptr;
  for (const char* const name : {"OMPI_COMM_WORLD_SIZE", slurm}) {
    const char* const said = name == nullptr ? nullptr : std::getenv(name);
    if (said != nullptr) return std::atoi(said);
  }
  return 1;
}

std::unique_ptr<Communicator> ranks_of_mpi(int count) {
  const ModuleFunction make = function_of_module("libweft_mpi.so", "weft_mpi_ranks");
  require(make.found != nullptr,
          "this process was started as one of {} ranks, and the module that speaks MPI cannot be "
          "loaded ({}); install libopenmpi-dev and configure with -Dmpi=enabled",
          count, make.reason);
  return std::unique_ptr<Communicator>(reinterpret_cast<MakeRanks>(make.found)());
}

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

}  // namespace

Communicator& ranks() {
  static const std::unique_ptr<Communicator> all = [] {
    const int count = started_ranks();
    return count > 1 ? ranks_of_mpi(count) : std::make_unique<OneRank>();
  }();
  return *all;
}

std::vector<std::string> Communicator::gather(const std::string& own) {
  const auto count = static_cast<std::size_t>(size());
  const std::uint64_t length = own.size();
  std::vector<std::uint64_t> lengths(count);
  std::vector<std::string> all(count);
  std::vector<std::span<const std::byte>> to(count, std::as_bytes(std::span(&length, 1)));
  std::vector<std::span<std::byte>> from(count);
  for (std::size_t r = 0; r < count; ++r)
    from[r] = std::as_writable_bytes(std::span(&lengths[r], 1));
  exchange(to, from);
  for (std::size_t r = 0; r < count; ++r) {
    all[r].resize(lengths[r]);
    to[r] = bytes_of(own);
    from[r] = std::as_writable_bytes(std::span(all[r]));
  }
  exchange(to, from);
  return all;
}

std::string Communicator::broadcast(const std::string& own) {
  return gather(leads() ? own : std::string()).front();
}

void Communicator::broadcast(std::span<std::byte> bytes) {
  const auto count = static_cast<std::size_t>(size());
  std::vector<std::span<const std::byte>> to(count);
  std::vector<std::span<std::byte>> from(count);
  for (std::size_t r = 1; leads() && r < count; ++r) to[r] = bytes;
  if (!leads()) from[0] = bytes;
  exchange(to, from);
}

std::vector<std::vector<double>> Communicator::divide(
    i64 count, const std::function<std::vector<double>(i64 i)>& f) {
  std::vector<std::vector<double>> all(static_cast<std::size_t>(count));
  std::string own;  // for each i of this rank: the number of results, and the results
  for (i64 i = rank(); i < count; i += size()) {
    std::vector<double>& numbers = all[static_cast<std::size_t>(i)] = f(i);
    if (alone()) continue;
    const auto length = static_cast<double>(numbers.size());
    own.append(reinterpret_cast<const char*>(&length), sizeof length);
    own.append(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(double));
  }
  if (alone()) return all;
  const std::vector<std::string> said = gather(own);
  for (int r = 0; r < size(); ++r) {
    const char* next = said[static_cast<std::size_t>(r)].data();
    const auto take = [&](double* to, std::size_t numbers) {
      std::memcpy(to, next, numbers * sizeof(double));
      next += numbers * sizeof(double);
    };
    for (i64 i = r; i < count; i += size()) {
      double length = 0;
      take(&length, 1);
      std::vector<double>& numbers = all[static_cast<std::size_t>(i)];
      numbers.resize(static_cast<std::size_t>(length));
      take(numbers.data(), numbers.size());
    }
  }
  return all;
}

}  // namespace weft
