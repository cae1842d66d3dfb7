// Signals during training: SIGINT and SIGTERM end it after the step, SIGUSR1 writes a checkpoint.
#pragma once

#include <csignal>

namespace weft {

// While it exists, it catches SIGUSR1 and the first SIGINT or SIGTERM; a second one has its
// previous effect. An inner watch keeps what an outer one caught. A program that links this
// file records SIGUSR1 from process start, so that an early one is neither lost nor fatal.
class SignalWatch {
 public:
  SignalWatch();
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  static int caught();  // SIGINT or SIGTERM if one was caught; otherwise 0
  bool take_save();     // whether a SIGUSR1 arrived since the last call

 private:
  static constexpr int signals[] = {SIGINT, SIGTERM, SIGUSR1};
  struct sigaction before_[3];
};

}  // namespace weft
