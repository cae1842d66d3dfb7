#include "runtime/cuda/emulated/worker.h"

#include <memory>
#include <utility>

#include <boost/context/protected_fixedsize_stack.hpp>

// AddressSanitizer has to be told of a change of stacks. Null where it is not linked.
extern "C" {
[[gnu::weak]] void __sanitizer_start_switch_fiber(void** fake_stack, const void* bottom,
                                                  std::size_t size);
[[gnu::weak]] void __sanitizer_finish_switch_fiber(void* fake_stack, const void** bottom,
                                                   std::size_t* size);
}

namespace weft::emulated {
namespace {

namespace context = boost::context;

constexpr std::size_t stack_bytes = 256 * 1024;  // untouched pages are never committed

// Called around every change of stacks: `leave` on the old stack, before; `arrive` on the new
// stack, after, which also returns the bounds of the old one.
void leave(const Bounds& to, void** fake) {
  if (__sanitizer_start_switch_fiber != nullptr) {
    __sanitizer_start_switch_fiber(fake, to.bottom, to.size);
  }
}
void arrive(void* fake, Bounds* from) {
  if (__sanitizer_finish_switch_fiber != nullptr) {
    Bounds ignored;
    Bounds& left = from != nullptr ? *from : ignored;
    __sanitizer_finish_switch_fiber(fake, &left.bottom, &left.size);
  }
}

struct RecordedStack {
  Bounds* bounds;
  context::stack_context allocate() {
    const context::stack_context stack = context::protected_fixedsize_stack(stack_bytes).allocate();
    *bounds = {static_cast<std::byte*>(stack.sp) - stack.size, stack.size};
    return stack;
  }
  void deallocate(context::stack_context& stack) noexcept {
    context::protected_fixedsize_stack(stack_bytes).deallocate(stack);
  }
};

}  // namespace

Worker::Worker(std::function<void(Worker&)> work)
    : work_(std::move(work)),
      fiber_(std::allocator_arg, RecordedStack{&own_}, [this](context::fiber&& scheduler) {
        scheduler_ = std::move(scheduler);
        arrive(nullptr, &scheduler_stack_);
        for (;;) {
          work_(*this);
          pause();
        }
        return std::move(scheduler_);
      }) {}

void Worker::resume() {
  void* fake = nullptr;
  leave(own_, &fake);
  fiber_ = std::move(fiber_).resume();
  arrive(fake, nullptr);
}

void Worker::pause() {
  void* fake = nullptr;
  leave(scheduler_stack_, &fake);
  scheduler_ = std::move(scheduler_).resume();
  arrive(fake, &scheduler_stack_);
}

}  // namespace weft::emulated
