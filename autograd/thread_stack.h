// The objects of a class that are alive on a thread, the last one innermost. They may end in any
// order, but on the thread where they began.
#pragma once

#include <thread>

namespace weft {

class ThreadStack {
 public:
  ThreadStack(const ThreadStack&) = delete;
  ThreadStack& operator=(const ThreadStack&) = delete;

  bool began_here() const { return thread_ == std::this_thread::get_id(); }

 protected:
  // `innermost` is the class's own, of this thread.
  explicit ThreadStack(ThreadStack*& innermost);
  ~ThreadStack();

 private:
  ThreadStack*& innermost_;
  ThreadStack *outer_, *inner_ = nullptr;
  std::thread::id thread_ = std::this_thread::get_id();
};

}  // namespace weft
