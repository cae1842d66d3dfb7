// What a training does about signals: it ends after the step, or has a checkpoint written.
#pragma once

#include <csignal>

namespace weft {

// While it lives it takes SIGINT and SIGTERM, the second of which meets what was there before, and
// SIGUSR1. One at a time. A program that links it notes SIGUSR1 from its first moment on, so that
// one that comes before the training has begun is not lost and kills nothing.
class SignalWatch {
 public:
  SignalWatch();
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  static int caught();  // SIGINT or SIGTERM, whichever came; 0: neither did
  bool take_save();    // whether there was a SIGUSR1 since the last call, or the start

 private:
  static constexpr int signals[] = {SIGINT, SIGTERM, SIGUSR1};
  struct sigaction before_[3];
};

}  // namespace weft
