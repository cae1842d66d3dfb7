#include "apps/training/queued_steps.h"

#include <algorithm>
#include <exception>

#include "runtime/communicator.h"
#include "runtime/cuda/graph.h"

namespace weft {
namespace {

// Steps to run before capturing one: the first allocates memory, the second shows whether more is
// needed.
constexpr int warm_up = 2;
constexpr i64 outcomes = 5;  // numbers of a report before the words that were heard

class Steps final : public QueuedSteps {
 public:
  Steps(const Cuda& device, const Task& task, const TrainOptions& options, Optimizer& optimizer)
      : device_(device),
        task_(task),
        options_(options),
        optimizer_(optimizer),
        gradient_(task, options.shards) {
    if (options.graph) graph_ = std::make_unique<CudaGraph>(device);
  }
  ~Steps() override {
    // Both wait for the device, and after an error that may wait for another rank for ever.
    if (ranks().alone() || std::uncaught_exceptions() == 0) return;
    static_cast<void>(queue_.release());
    static_cast<void>(graph_.release());
  }

  void submit(std::uint32_t step, const StepGradient::Words& said) override {
    const double rate = options_.learning_rate(step);
    std::vector<Tensor> values = task_.batch(step);
    if (!queue_) prepare(values);
    values.push_back(Tensor::full({1}, step, DType::i32));
    values.push_back(Tensor::full({1}, rate, DType::f64));
    values.push_back(Tensor::from(std::span<const double>(said), {StepGradient::words}));
    queue_->submit(values, [&] { run(); });
    submitted_.push_back({.step = step, .rate = rate});
  }

  bool room() const override { return !queue_ || queue_->under_way() < StepQueue::most_under_way; }
  bool any() const override { return queue_ && queue_->under_way() > 0; }

  Outcome take() override {
    gradient_.wait_until([&] { return queue_->arrived(); });
    const std::vector<double> report = queue_->take();
    Outcome outcome = submitted_.front();
    submitted_.erase(submitted_.begin());
    outcome.loss = report[0];
    outcome.cross_entropy = report[1];
    outcome.norm = report[2];
    outcome.updated = report[3] == 1;
    outcome.finite = report[4] == 1;
    std::copy_n(report.begin() + outcomes, StepGradient::words, outcome.heard.begin());
    return outcome;
  }

 private:
  // Writes the inputs in device memory that change from step to step.
  void prepare(const std::vector<Tensor>& batch) {
    const Device device = device_;
    for (const Tensor& x : batch) batch_.push_back(Tensor::empty(x.shape(), x.dtype(), device));
    step_ = Tensor::empty({1}, DType::i32, device);
    rate_ = Tensor::empty({1}, DType::f64, device);
    said_ = gradient_.saying();
    report_ = Tensor::empty({outcomes + StepGradient::words}, DType::f64, device);
    std::vector<Tensor> inputs = batch_;
    inputs.insert(inputs.end(), {step_, rate_, said_});
    queue_ = std::make_unique<StepQueue>(device_, inputs, report_);
  }

  void run() {
    const auto step = [&] { compute(); };
    if (!graph_) return step();
    if (++runs_ <= warm_up) return graph_->run(step);
    if (!graph_->captured()) graph_->capture(step);
    graph_->replay();
  }

  void compute() {
    const auto* const step_at = reinterpret_cast<const std::uint32_t*>(step_.bytes());
    const auto [loss, heard] = gradient_(batch_, {.at = step_at}, said_);
    const Tensor& written = optimizer_.enqueue(
        rate_, loss.loss.value(),
        {.norm = options_.clip, .failures = TrainOptions::most_failures_in_a_row});
    if (task_.carry) task_.carry(written.slice(0, 1, 2));
    report_.slice(0, 0, 1).copy_from(loss.loss.value().reshape({1}));
    report_.slice(0, 1, 2).copy_from(loss.cross_entropy.reshape({1}));
    report_.slice(0, 2, outcomes).copy_from(written.slice(0, 0, outcomes - 2));
    report_.slice(0, outcomes, outcomes + StepGradient::words).copy_from(heard);
  }

  Cuda device_;
  const Task& task_;
  const TrainOptions& options_;
  Optimizer& optimizer_;
  StepGradient gradient_;
  std::unique_ptr<CudaGraph> graph_;
  int runs_ = 0;
  std::vector<Tensor> batch_;
  Tensor step_, rate_, said_, report_;
  std::unique_ptr<StepQueue> queue_;
  std::vector<Outcome> submitted_;  // steps whose outcome was not taken yet
};

}  // namespace

std::unique_ptr<QueuedSteps> queued_steps(const Cuda& device, const Task& task,
                                          const TrainOptions& options, Optimizer& optimizer) {
  return std::make_unique<Steps>(device, task, options, optimizer);
}

}  // namespace weft
