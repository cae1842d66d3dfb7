#include "runtime/cuda/graph.h"

#include <cstring>

#include "runtime/allocator.h"
#include "runtime/cuda/stream.h"

namespace weft {
namespace {

// Makes a graph's pool the one in use, for a scope.
class InPool {
 public:
  InPool(const Cuda& device, int pool) : allocator_(allocator_of(device)) {
    allocator_.use_pool(pool);
  }
  ~InPool() { allocator_.use_pool(0); }
  InPool(const InPool&) = delete;
  InPool& operator=(const InPool&) = delete;

 private:
  CachingAllocator& allocator_;
};

}  // namespace

CudaGraph::CudaGraph(const Cuda& device)
    : device_(device), pool_(allocator_of(device).make_pool()) {}

CudaGraph::~CudaGraph() {
  cudaStreamSynchronize(stream_of(device_));
  if (executable_ != nullptr) cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(executable_));
  allocator_of(device_).release_pool(pool_);
}

void CudaGraph::run(const std::function<void()>& step) {
  const InPool scope(device_, pool_);
  step();
}

void CudaGraph::capture(const std::function<void()>& step) {
  require(executable_ == nullptr, "graph: it was captured before; make a new one");
  const InPool scope(device_, pool_);
  cudaGraph_t graph = nullptr;
  check_cuda(cudaStreamBeginCapture(stream_of(device_), cudaStreamCaptureModeGlobal), "graph");
  try {
    step();
  } catch (...) {
    cudaStreamEndCapture(stream_of(device_), &graph);
    if (graph != nullptr) cudaGraphDestroy(graph);
    cudaGetLastError();
    throw;
  }
  check_cuda(cudaStreamEndCapture(stream_of(device_), &graph), "graph");
  cudaGraphExec_t executable = nullptr;
  const cudaError_t error = cudaGraphInstantiate(&executable, graph, 0);
  cudaGraphDestroy(graph);
  check_cuda(error, "graph");
  executable_ = executable;
}

void CudaGraph::replay() {
  require(captured(), "graph: nothing was captured yet");
  check_cuda(cudaGraphLaunch(static_cast<cudaGraphExec_t>(executable_), stream_of(device_)),
             "graph");
}

struct StepQueue::Slot {
  std::byte* memory = nullptr;  // page-locked: the inputs one after the other, then the report
  cudaEvent_t over = nullptr;

  Slot() = default;
  Slot(const Slot&) = delete;
  Slot& operator=(const Slot&) = delete;
  ~Slot() {
    if (memory != nullptr) cudaFreeHost(memory);
    if (over != nullptr) cudaEventDestroy(over);
  }
};

StepQueue::StepQueue(const Cuda& device, std::vector<Tensor> inputs, Tensor report)
    : device_(device),
      inputs_(std::move(inputs)),
      report_(std::move(report)),
      slots_(most_under_way) {
  std::size_t bytes = report_.byte_count();
  for (const Tensor& input : inputs_) bytes += input.byte_count();
  for (Slot& slot : slots_) {
    void* memory = nullptr;
    check_cuda(cudaMallocHost(&memory, bytes), "steps");
    slot.memory = static_cast<std::byte*>(memory);
    check_cuda(cudaEventCreateWithFlags(&slot.over, cudaEventDisableTiming), "steps");
  }
}

StepQueue::~StepQueue() {
  cudaStreamSynchronize(stream_of(device_));  // which may still copy from and to the slots
}

void StepQueue::submit(const std::vector<Tensor>& values, const std::function<void()>& step) {
  require(under_way() < most_under_way, "steps: {} are queued; take a report first",
          most_under_way);
  require(values.size() == inputs_.size(), "steps: wanted {} inputs, got {}", inputs_.size(),
          values.size());
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    require(values[i].shape() == inputs_[i].shape() && values[i].dtype() == inputs_[i].dtype(),
            "steps: input {} is {} {}, got {} {}", i, name_of(inputs_[i].dtype()),
            inputs_[i].shape(), name_of(values[i].dtype()), values[i].shape());
  }
  const Slot& slot = slots_[submitted_ % most_under_way];
  check_cuda(cudaEventSynchronize(slot.over), "steps");  // of a step that threw
  try {
    queue(values, step, slot);
  } catch (...) {
    // The device may still copy from the slot. It is not waited for here: after an error of another
    // rank that could take for ever.
    cudaEventRecord(slot.over, stream_of(device_));
    throw;
  }
  ++submitted_;
}

void StepQueue::queue(const std::vector<Tensor>& values, const std::function<void()>& step,
                      const Slot& slot) {
  std::byte* at = slot.memory;
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    const Tensor value = values[i].packed();
    const std::size_t bytes = value.byte_count();
    std::memcpy(at, value.bytes(), bytes);
    check_cuda(cudaMemcpyAsync(inputs_[i].bytes(), at, bytes, cudaMemcpyHostToDevice,
                               stream_of(device_)),
               "steps");
    at += bytes;
  }
  step();
  check_cuda(cudaMemcpyAsync(at, report_.bytes(), report_.byte_count(), cudaMemcpyDeviceToHost,
                             stream_of(device_)),
             "steps");
  check_cuda(cudaEventRecord(slot.over, stream_of(device_)), "steps");
}

bool StepQueue::arrived() const {
  require(under_way() > 0, "steps: there is no report to wait for");
  return is_over(cudaEventQuery(slots_[taken_ % most_under_way].over), "steps");
}

std::vector<double> StepQueue::take() {
  require(under_way() > 0, "steps: there is no report to take");
  const Slot& slot = slots_[taken_++ % most_under_way];
  check_cuda(cudaEventSynchronize(slot.over), "steps");
  const std::byte* at = slot.memory;
  for (const Tensor& input : inputs_) at += input.byte_count();
  std::vector<double> values(static_cast<std::size_t>(report_.count()));
  std::memcpy(values.data(), at, report_.byte_count());
  return values;
}

}  // namespace weft
