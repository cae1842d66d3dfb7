#include "autograd/observer.h"

namespace weft {
namespace {

thread_local Observer* current_observer = nullptr;

}  // namespace

Observer::Observer() : previous_(std::exchange(current_observer, this)) {}

Observer::~Observer() { current_observer = previous_; }

Observer* Observer::current() { return current_observer; }

}  // namespace weft
