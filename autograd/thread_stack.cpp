#include "autograd/thread_stack.h"

#include <cstdio>
#include <cstdlib>
#include <utility>

namespace weft {

ThreadStack::ThreadStack(ThreadStack*& innermost)
    : innermost_(innermost), outer_(std::exchange(innermost, this)) {
  if (outer_ != nullptr) outer_->inner_ = this;
}

ThreadStack::~ThreadStack() {
  if (!began_here()) {  // that thread would go on with what is gone
    std::fputs("weft: a tape or an observer ended on another thread than it began on\n", stderr);
    std::abort();
  }
  if (outer_ != nullptr) outer_->inner_ = inner_;
  (inner_ != nullptr ? inner_->outer_ : innermost_) = outer_;
}

}  // namespace weft
