// What a training does about signals: it ends after the step, or has a checkpoint written.
#pragma once

#include <csignal>

namespace weft {

// While it lives it takes SIGINT and SIGTERM, the second of which meets what was there before, and
// SIGUSR1. One at a time.
class SignalWatch {
 public:
  SignalWatch();
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  int caught() const;  // SIGINT or SIGTERM, whichever came; 0: neither did
  bool take_save();    // whether there was a SIGUSR1 since the last call

 private:
  static constexpr int signals[] = {SIGINT, SIGTERM, SIGUSR1};
  struct sigaction before_[3];
};

}  // namespace weft
