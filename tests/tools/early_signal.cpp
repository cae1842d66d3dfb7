// Preloaded into a program: SIGUSR1 arrives before its libraries are set up.
#include <csignal>

namespace {

[[gnu::constructor]] void signal_early() { std::raise(SIGUSR1); }

}  // namespace
