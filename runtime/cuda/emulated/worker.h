// A fiber on which threads of an emulated block run.
#pragma once

#include <cstddef>
#include <functional>

#include <boost/context/fiber.hpp>

namespace weft::emulated {

// The bounds of a stack.
struct Bounds {
  const void* bottom = nullptr;
  std::size_t size = 0;
};

class Worker {
 public:
  // `work` is called on the worker's own stack; when it returns, the worker pauses, and the next
  // resume() calls it again.
  explicit Worker(std::function<void(Worker&)> work);

  void resume();  // called by the scheduler: runs the worker until it pauses
  void pause();   // called on the worker's stack

  const Bounds& stack() const { return own_; }

  unsigned thread = 0;  // the thread of the block that runs or waits on it

 private:
  std::function<void(Worker&)> work_;
  Bounds own_, scheduler_stack_;
  boost::context::fiber fiber_, scheduler_;
};

}  // namespace weft::emulated
