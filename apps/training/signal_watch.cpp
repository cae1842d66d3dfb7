#include "apps/training/signal_watch.h"

#include <iterator>

namespace weft {
namespace {

volatile std::sig_atomic_t caught_signal = 0;
volatile std::sig_atomic_t save_asked = 0;
int watches = 0;

struct sigaction saving() {
  struct sigaction saves {};
  saves.sa_handler = [](int) { save_asked = 1; };
  saves.sa_flags = SA_RESTART;
  return saves;
}

// The loader calls this function before it initialises the libraries, which is most of the time
// before main().
void note_saves(int, char**, char**) {
  const struct sigaction saves = saving();
  ::sigaction(SIGUSR1, &saves, nullptr);
}
[[gnu::section(".preinit_array"), gnu::used]] void (*const first_of_all)(int, char**,
                                                                         char**) = note_saves;

}  // namespace

SignalWatch::SignalWatch() {
  if (watches++ == 0) caught_signal = 0;
  struct sigaction ends {};
  ends.sa_handler = [](int signal) { caught_signal = signal; };
  ends.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
  const struct sigaction saves = saving();
  for (std::size_t i = 0; i < std::size(signals); ++i) {
    ::sigaction(signals[i], signals[i] == SIGUSR1 ? &saves : &ends, &before_[i]);
  }
}

SignalWatch::~SignalWatch() {
  for (std::size_t i = 0; i < std::size(signals); ++i) {
    ::sigaction(signals[i], &before_[i], nullptr);
  }
  --watches;
}

int SignalWatch::caught() { return caught_signal; }

bool SignalWatch::take_save() {
  const bool asked = save_asked != 0;
  save_asked = 0;
  return asked;
}

}  // namespace weft
