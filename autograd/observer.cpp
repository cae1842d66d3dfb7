#include "autograd/observer.h"

namespace weft {

thread_local ThreadStack* Observer::last = nullptr;

Observer::Observer() : ThreadStack(last) {}

Observer* Observer::current() { return static_cast<Observer*>(last); }

}  // namespace weft
