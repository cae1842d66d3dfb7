// Programs that mpirun starts as several ranks.
#pragma once

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <map>
#include <thread>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/check.h"
#include "tests/cuda_there.h"
#include "tests/program.h"

namespace weft {

// Whether this build has MPI; says so where it has not.
inline bool mpi_is_there() {
  if (!WEFT_MPI) MESSAGE("skipped: this build has no MPI");
  return WEFT_MPI;
}

// The same, and whether every rank has a device: one that is emulated, since this machine may have
// fewer others than ranks.
inline bool mpi_and_devices_are_there() {
  if (!mpi_is_there()) return false;
  if (cuda_is_there() && cuda_devices().all.at(0).emulated) return true;
  MESSAGE("skipped: wants emulated devices; -Dgpu=emulated builds them");
  return false;
}

// `mpirun` with these words, one thread a rank; killed when the test ends.
class Started {
 public:
  explicit Started(const Words& words) : process_(::fork()) {
    if (process_ != 0) return;
    for (const auto& [name, descriptor] : {std::pair{"out", 1}, std::pair{"err", 2}}) {
      ::dup2(::open(folder_.path(name).c_str(), O_WRONLY | O_CREAT, 0600), descriptor);
    }
    for (const char* const name :
         {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "OMP_NUM_THREADS"}) {
      ::setenv(name, "1", 1);
    }
    // Open MPI unloads its plugins before the program ends. What they leaked has no module then
    // that a suppression could name. Runs of one process look for leaks.
    const char* const options = std::getenv("ASAN_OPTIONS");
    ::setenv("ASAN_OPTIONS",
             ((options ? std::string(options) + ':' : "") + "detect_leaks=0").c_str(), 1);
    const Words all = Words{"mpirun", "--oversubscribe", "--bind-to", "none"} + words;
    std::vector<char*> arguments;
    for (const std::string& word : all) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    ::execvp("mpirun", arguments.data());
    std::_Exit(127);
  }
  ~Started() {
    if (process_ <= 0) return;
    for (const auto& [rank, process] : ranks()) ::kill(process, SIGKILL);
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
  }
  Started(const Started&) = delete;
  Started& operator=(const Started&) = delete;

  int process() const { return process_; }

  // The processes of the ranks that run.
  std::map<int, int> ranks() const {
    std::map<int, int> all;
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      const std::string name = entry.path().filename();
      if (name.find_first_not_of("0123456789") != std::string::npos) continue;
      std::ifstream stat(entry.path() / "stat"), environment(entry.path() / "environ");
      std::string word, variable;
      int parent = 0;
      stat >> word >> word >> word >> parent;
      if (parent != process_) continue;
      const std::string rank = "OMPI_COMM_WORLD_RANK=";
      while (std::getline(environment, variable, '\0')) {
        if (variable.starts_with(rank))
          all[std::stoi(variable.substr(rank.size()))] = std::stoi(name);
      }
    }
    return all;
  }

  // Ends with the program, or with a status of −1 after so many seconds.
  ProgramRun wait(double seconds = 60) {
    ProgramRun run{"mpirun", -1, {}, {}};
    int status = 0;
    const bool ended = until(seconds, [&] { return ::waitpid(process_, &status, WNOHANG) != 0; });
    if (ended) {
      process_ = -1;
      run.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    run.out = read_file(folder_.path("out")), run.err = read_file(folder_.path("err"));
    return run;
  }

  // Whether it came true within so many seconds.
  template <class F>
  static bool until(double seconds, const F& f) {
    const auto begin = std::chrono::steady_clock::now();
    while (!f()) {
      const auto now = std::chrono::steady_clock::now();
      if (std::chrono::duration<double>(now - begin).count() > seconds) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return true;
  }

 private:
  TemporaryFolder folder_;
  int process_;
};

inline ProgramRun run_ranks(int count, const std::string& program, const Words& words) {
  return Started(Words{"-np", std::to_string(count), program} + words).wait();
}

}  // namespace weft
