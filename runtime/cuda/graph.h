// A training step as one CUDA graph, and the host's side of such steps.
//
//     CudaGraph graph(Cuda{});
//     graph.run(step);      // as usual, but in the graph's own memory; once or twice, so that all is there
//     graph.capture(step);  // notes what `step` queues; nothing is computed
//     graph.replay();       // computes it, as often as wanted
//
// What is captured reads and writes the same memory at each replay: whatever changes from step to
// step (the batch, the step that keys random numbers, the learning rate) stands in device memory. The
// graph owns a pool of memory until it goes; tensors made in run() and capture() live there.
#pragma once

#include <functional>
#include <vector>

#include "runtime/cuda/device.h"
#include "runtime/tensor.h"

namespace weft {

class CudaGraph {
 public:
  explicit CudaGraph(const Cuda& device);
  ~CudaGraph();
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;

  void run(const std::function<void()>& step);
  // Throws where `step` waits for the device or wants memory that run() did not leave behind.
  void capture(const std::function<void()>& step);
  bool captured() const { return executable_ != nullptr; }
  void replay();

 private:
  Cuda device_;
  int pool_;
  void* executable_ = nullptr;
};

// Steps that the host queues without waiting for them. Each begins with small tensors that the host
// fills in, and ends with a report that the host reads when it has come.
class StepQueue {
 public:
  static constexpr std::size_t most_under_way = 4;

  // `inputs` and `report` ([n] f64) are on the device and stay where they are.
  StepQueue(const Cuda& device, std::vector<Tensor> inputs, Tensor report);
  ~StepQueue();
  StepQueue(const StepQueue&) = delete;
  StepQueue& operator=(const StepQueue&) = delete;

  // Hands `values` (on the CPU, of the inputs' shapes and types) to the inputs, then calls `step`.
  // At most most_under_way − 1 reports may be waiting.
  void submit(const std::vector<Tensor>& values, const std::function<void()>& step);
  std::size_t under_way() const { return submitted_ - taken_; }
  // The oldest report not yet taken; waits for it.
  std::vector<double> take();

 private:
  struct Slot;
  Cuda device_;
  std::vector<Tensor> inputs_;
  Tensor report_;
  std::vector<Slot> slots_;
  std::size_t submitted_ = 0, taken_ = 0;
};

}  // namespace weft
