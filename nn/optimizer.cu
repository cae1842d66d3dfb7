// CUDA kernels of the optimizers. A step is three launches: the squares of all gradients, the
// quantities that follow from their norm, and the update of all parameters. The host waits for none
// of them. A launch's arguments hold 128 parameters; more take further launches. Block (i, p) of a
// grid has every gridDim.x-th tile of parameter p, thread t of it the elements t, t + 256, … of a
// tile.
//
// Adam reads 16 bytes a weight in f32 and writes 16 (with the copy of the old weight), with about
// 15 operations: it is bound by memory bandwidth.
#include "nn/update.h"
#include "runtime/cuda/loops.h"

namespace weft {
namespace {

constexpr unsigned threads = WeightTable<float>::threads;

template <class T>
__global__ void squares_kernel(WeightTable<T> table, double* squares) {
  const auto& entry = table.entry[blockIdx.y];
  double part = 0;
  for (i64 i = i64{threads} * blockIdx.x + threadIdx.x; i < entry.count;
       i += i64{threads} * gridDim.x) {
    const double g = entry.gradient[i];
    part += g * g;
  }
  const double sum = BlockTeam<threads>{}.sum(part);
  if (threadIdx.x == 0) squares[i64{blockIdx.y} * gridDim.x + blockIdx.x] = sum;
}

// One block: thread t adds the partial sums t, t + 256, ….
template <class Rule>
__global__ void prepare_kernel(Rule rule, const double* squares, i64 sums,
                               const double* rate, StepLimits limits, const float* loss_f32,
                               const double* loss_f64, i64* steps, StepFacts* facts,
                               StepReport* report) {
  double part = 0;
  for (i64 i = threadIdx.x; i < sums; i += threads) part += squares[i];
  const double norm = std::sqrt(BlockTeam<threads>{}.sum(part));
  if (threadIdx.x != 0) return;
  const double loss = loss_f32 != nullptr   ? double(*loss_f32)
                      : loss_f64 != nullptr ? *loss_f64
                                            : 0;
  const bool is_finite = (norm + loss) * 0 == 0;  // NaN or infinity times 0 is NaN
  const bool ended = report->finite != 1 || report->failures >= limits.failures;
  if (!ended) report->failures = is_finite ? 0 : report->failures + 1;
  const bool counts = is_finite && !ended;
  StepFacts now;
  now.rate = *rate;
  now.scale = norm > limits.norm ? limits.norm / norm : 1;
  now.updates = counts;
  if (counts) ++*steps;
  rule.correct(now, static_cast<double>(*steps));
  *facts = now;
  report->norm = norm;
  report->updated = counts ? 1 : 0;
}

template <class Rule, class T>
__global__ void update_kernel(Rule rule, WeightTable<T> table, const StepFacts* facts,
                              StepReport* report) {
  const StepFacts now = *facts;
  if (!now.updates) return;
  const auto& entry = table.entry[blockIdx.y];
  const auto update = rule.template for_weights<T>(now, table.matrix[blockIdx.y]);
  bool finite = true;
  for (i64 i = i64{threads} * blockIdx.x + threadIdx.x; i < entry.count;
       i += i64{threads} * gridDim.x) {
    T w = entry.weight[i];
    entry.before[i] = w;
    T first = entry.state[0] != nullptr ? entry.state[0][i] : T(0);
    T second = entry.state[1] != nullptr ? entry.state[1][i] : T(0);
    if constexpr (requires { update(w, w); }) {
      if (entry.state[0] == nullptr) {
        update(w, entry.gradient[i]);
      } else {
        update(w, entry.gradient[i], first, second);
      }
    } else {
      update(w, entry.gradient[i], first, second);
    }
    entry.weight[i] = w;
    if (entry.state[0] != nullptr) entry.state[0][i] = first;
    if (entry.state[1] != nullptr) entry.state[1][i] = second;
    finite = finite && w * 0 == 0;
  }
  if (!finite) atomicExch(reinterpret_cast<unsigned long long*>(&report->finite), 0);  // 0.0
}

template <class T>
dim3 grid_of(const WeightTable<T>& table) {
  return {static_cast<unsigned>(table.blocks()), static_cast<unsigned>(table.size)};
}

template <class Rule, class T>
void update_weights(const Cuda& device, const Rule& rule, const WeightTable<T>& table,
                    const StepFacts* facts, StepReport* report) {
  start("optimizer", device, grid_of(table), threads, 0, update_kernel<Rule, T>, rule, table, facts,
        report);
}

}  // namespace

template <class Device, class T>
void WeightKernels<Device, T>::sum_squares(const Device& device, const WeightTable<T>& table,
                                           double* squares) {
  start("optimizer", device, grid_of(table), threads, 0, squares_kernel<T>, table, squares);
}

template <class Device, class T>
void WeightKernels<Device, T>::keep_within(const Device& device, const Within<T>& within,
                                           i64 count) {
  for_elements("optimizer", device, count, within);
}

template <class Device, class Rule>
void StepKernels<Device, Rule>::prepare(const Device& device, const Rule& rule,
                                        const double* squares, i64 sums, const double* rate,
                                        StepLimits limits, const float* loss_f32,
                                        const double* loss_f64, i64* steps, StepFacts* facts,
                                        StepReport* report) {
  start("optimizer", device, 1, threads, 0, prepare_kernel<Rule>, rule, squares, sums, rate,
        limits, loss_f32, loss_f64, steps, facts, report);
}

template <class Device, class Rule>
void StepKernels<Device, Rule>::update(const Device& device, const Rule& rule,
                                       const WeightTable<float>& table, const StepFacts* facts,
                                       StepReport* report) {
  update_weights(device, rule, table, facts, report);
}

template <class Device, class Rule>
void StepKernels<Device, Rule>::update(const Device& device, const Rule& rule,
                                       const WeightTable<double>& table, const StepFacts* facts,
                                       StepReport* report) {
  update_weights(device, rule, table, facts, report);
}

template struct WeightKernels<Cuda, float>;
template struct WeightKernels<Cuda, double>;
template struct StepKernels<Cuda, Sgd>;
template struct StepKernels<Cuda, Adadelta>;
template struct StepKernels<Cuda, Adam>;

}  // namespace weft
