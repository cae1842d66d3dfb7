// A training step as one CUDA graph, and the host's side of such steps.
//
//     CudaGraph graph(Cuda{});
//     graph.run(step);      // as usual, in the graph's own memory; once or twice, to allocate it
//     graph.capture(step);  // records what `step` queues; nothing is computed
//     graph.replay();       // computes it, any number of times
//
// A captured step reads and writes the same memory at each replay: whatever changes from step to
// step (the batch, the step that keys random numbers, the learning rate) is in device memory. The
// graph owns a pool of memory for its lifetime; tensors made in run() and capture() are in it.
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
  // Throws if `step` waits for the device or needs memory that run() did not allocate.
  void capture(const std::function<void()>& step);
  bool captured() const { return executable_ != nullptr; }
  void replay();

 private:
  Cuda device_;
  int pool_;
  void* executable_ = nullptr;
};

// Steps that the host queues without waiting for them. Each begins with small tensors that the host
// fills in, and ends with a report that the host reads when it has arrived.
class StepQueue {
 public:
  static constexpr std::size_t most_under_way = 4;

  // `inputs` and `report` ([n] f64) are on the device and stay where they are.
  StepQueue(const Cuda& device, std::vector<Tensor> inputs, Tensor report);
  ~StepQueue();
  StepQueue(const StepQueue&) = delete;
  StepQueue& operator=(const StepQueue&) = delete;

  // Copies `values` (on the CPU, of the inputs' shapes and types) to the inputs, then calls `step`.
  // At most most_under_way − 1 reports may be waiting.
  void submit(const std::vector<Tensor>& values, const std::function<void()>& step);
  std::size_t under_way() const { return submitted_ - taken_; }
  // Whether the oldest report not yet taken has arrived.
  bool arrived() const;
  // That report; waits for it.
  std::vector<double> take();

 private:
  struct Slot;
  void queue(const std::vector<Tensor>& values, const std::function<void()>& step,
             const Slot& slot);

  Cuda device_;
  std::vector<Tensor> inputs_;
  Tensor report_;
  std::vector<Slot> slots_;
  std::size_t submitted_ = 0, taken_ = 0;
};

}  // namespace weft
