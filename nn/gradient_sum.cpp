#include "nn/gradient_sum.h"

#include <algorithm>
#include <chrono>

#include "nn/checkpoint.h"
#include "runtime/arithmetic.h"
#include "runtime/cuda/device_sum.h"
#include "runtime/dispatch.h"

namespace weft {
namespace {

void add_tensors(const Tensor& a, const Tensor& b) { add_into(a, b); }

std::vector<NamedParameter> without_frozen(std::vector<NamedParameter> parameters) {
  std::erase_if(parameters, [](const NamedParameter& p) { return !p.variable.wants_gradient(); });
  return parameters;
}

// The nodes that the shards begin … end − 1 are merged into without the others.
std::vector<TreeNode<char>> nodes_of(i64 begin, i64 end) {
  std::vector<TreeNode<char>> nodes;
  for (i64 s = begin; s < end; ++s) add_node(nodes, {s}, [](char, char) {});
  return nodes;
}

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Whether the elements begin … end − 1 of all nodes are finite.
bool all_own_finite(const std::vector<TreeNode<Tensor>>& nodes, i64 begin, i64 end) {
  return std::ranges::all_of(nodes, [&](const TreeNode<Tensor>& node) {
    return all_finite(node.sum.slice(0, begin, end).to(Device{}));
  });
}

// The first element of a rank's part of a bucket of `count`; for rank = size, its end.
i64 part(i64 count, int rank, int size) { return count * rank / size; }

}  // namespace

GradientSum::GradientSum(std::vector<NamedParameter> parameters, i64 shards, i64 numbers,
                         Communicator& ranks, const BucketBytes& bytes)
    : parameters_(without_frozen(std::move(parameters))),
      shards_(shards),
      first_(shards / ranks.size() * ranks.rank()),
      count_(shards / ranks.size()),
      numbers_(numbers),
      ranks_(ranks),
      device_(parameters_.at(0).variable.value().device()),
      places_(parameters_.size()),
      completed_(parameters_.size()),
      present_(parameters_.size()) {
  require(shards % ranks.size() == 0, "gradient sum: {} ranks do not divide {} shards",
          ranks.size(), shards);
  lay_out(bytes);
  if (ranks_.alone()) return;
  dispatch_device(device_, [&]<class D>(const D& device) {
    if constexpr (!std::is_same_v<D, Cpu>) device_sum_ = device_sum(device, ranks_);
  });
  if (device_sum_ == nullptr) thread_ = std::thread([this] { exchange_all(); });
}

GradientSum::~GradientSum() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
    if (exchanged_ < ready_) ranks_.cancel();  // an error ended the step
  }
  changed_.notify_all();
  thread_.join();
}

void GradientSum::lay_out(const BucketBytes& bytes) {
  i64 most = 0;
  for (std::size_t i = parameters_.size(); i-- > 0;) {
    const Variable& variable = parameters_[i].variable;
    const DType dtype = variable.value().dtype();
    const i64 count = variable.value().count(), size = static_cast<i64>(size_of(dtype));
    const bool fits = !buckets_.empty() && buckets_.back().dtype == dtype &&
                      (buckets_.back().count + count) * size <= most;
    if (!fits) {
      most = buckets_.empty() ? bytes.first : bytes.others;
      buckets_.push_back({.dtype = dtype});
    }
    Bucket& bucket = buckets_.back();
    places_[i] = {buckets_.size() - 1, bucket.members.size()};
    bucket.members.push_back(i);
    bucket.places.push_back(bucket.count);
    bucket.count += count;
    known_[variable.place().get()] = i;
  }
  // The numbers, and on the CPU of how many shards each parameter has a gradient.
  const bool with_presence = device_ == Device{};
  buckets_.push_back(
      {.count = numbers_ + (with_presence ? static_cast<i64>(parameters_.size()) : 0)});
  for (Bucket& bucket : buckets_) {
    bucket.missing = bucket.parts();
    if (!ranks_.alone()) bucket.sum = Tensor::zeros({bucket.count}, bucket.dtype, device_);
  }
}

void GradientSum::add(Tape& tape, const Variable& loss, const Tensor& numbers) {
  require(walked_ < count_, "gradient sum: backward ran for all {} shards of this rank", count_);
  if (walked_ == 0) {
    std::ranges::fill(present_, char{0});
    for (Bucket& bucket : buckets_) bucket.own.clear();
    begun_ = 0;
  }
  ++walked_;
  std::ranges::fill(completed_, char{0});
  tape.on_complete([this](Gradient& gradient) {
    const auto found = known_.find(&gradient);
    if (found != known_.end()) complete(found->second);
  });
  tape.backward(loss, Tensor::full(loss.shape(), 1.0 / static_cast<double>(shards_),
                                   loss.value().dtype(), device_));
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (completed_[i] == 0) complete(i);
  }
  Bucket& last = buckets_.back();
  last.shard = Tensor::zeros({last.count}, DType::f64, device_);
  if (numbers_ > 0) last.shard.slice(0, 0, numbers_).copy_from(numbers);
  if (!ranks_.alone() && device_ == Device{}) {
    double* const has = last.shard.data<double>() + numbers_;
    std::ranges::copy(present_, has);
  }
  close(last);
}

// Moves a parameter's gradient to its bucket.
void GradientSum::complete(std::size_t parameter) {
  completed_[parameter] = 1;
  const auto [at, member] = places_[parameter];
  Bucket& bucket = buckets_[at];
  if (!bucket.shard.defined()) bucket.shard = Tensor::empty({bucket.count}, bucket.dtype, device_);
  Gradient& gradient = *parameters_[parameter].variable.place();
  const i64 begin = bucket.places[member];
  const i64 count = parameters_[parameter].variable.value().count();
  const Tensor to = bucket.shard.slice(0, begin, begin + count);
  const Tensor from = gradient.take();
  if (from.defined()) {
    to.copy_from(from.reshaped({count}));
    present_[parameter] = 1;
  } else {
    to.fill(0);
  }
  if (--bucket.missing == 0) close(bucket);
}

// The bucket has all gradients of the current shard.
void GradientSum::close(Bucket& bucket) {
  bucket.missing = bucket.parts();
  add_node(bucket.own, Node{first_ + walked_ - 1, 1, std::exchange(bucket.shard, {})}, add_tensors);
  if (ranks_.alone() || walked_ < count_) return;
  // Ranks may complete buckets in different orders, but must sum them in the same one.
  bucket.missing = 0;
  while (begun_ < buckets_.size() && !buckets_[begun_].own.empty() &&
         buckets_[begun_].missing == 0) {
    begin(buckets_[begun_++]);
  }
}

// Begins the sum of the next bucket over the ranks.
void GradientSum::begin(Bucket& bucket) {
  if (device_sum_ == nullptr) return call_in_order(open_next);
  add_rest(bucket.own, add_tensors);
  device_sum_->begin(bucket.dtype, bucket.own.front().sum.bytes(), bucket.sum.bytes(),
                     bucket.count);
}

// Calls f(this) after the work queued so far: on the CPU at once.
void GradientSum::call_in_order(void (*f)(void* self)) {
  dispatch_device(device_, [&]<class D>(const D& device) {
    if constexpr (std::is_same_v<D, Cpu>) {
      f(this);
    } else {
      weft::call_in_order(device, f, this);
    }
  });
}

void GradientSum::open_next(void* self) {
  auto& sum = *static_cast<GradientSum*>(self);
  const std::lock_guard lock(sum.mutex_);
  ++sum.ready_;
  sum.changed_.notify_all();
}

void GradientSum::exchange_all() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return ends_ || exchanged_ < ready_; });
    if (ends_) return;
    Bucket& bucket = buckets_[exchanged_];
    lock.unlock();
    std::exception_ptr failure;
    try {
      exchange(bucket);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    ++exchanged_;
    if (failure) {
      failure_ = failure;
      ends_ = true;
    }
    changed_.notify_all();
  }
}

void GradientSum::exchange(Bucket& bucket) {
  if (bucket.dtype == DType::f32) {
    exchange_as<float>(bucket);
  } else {
    exchange_as<double>(bucket);
  }
}

void GradientSum::exchange(std::span<const std::span<const std::byte>> to,
                           std::span<const std::span<std::byte>> from) {
  const Clock::time_point begin = Clock::now();
  ranks_.exchange(to, from);
  traffic_.exchanging += seconds_since(begin);
  for (std::size_t r = 0; r < to.size(); ++r) {
    if (static_cast<int>(r) != ranks_.rank()) traffic_.bytes += static_cast<i64>(to[r].size());
  }
}

template <class T>
void GradientSum::exchange_as(Bucket& bucket) {
  const int size = ranks_.size();
  const auto begin = [&](int r) { return part(bucket.count, r, size); };
  const i64 mine = begin(ranks_.rank() + 1) - begin(ranks_.rank());
  std::vector<std::span<const std::byte>> to(static_cast<std::size_t>(size));
  std::vector<std::span<std::byte>> from(to.size());

  // Reduce-scatter: sends every rank its part of this rank's nodes.
  packed_.resize(sizeof(T) * static_cast<std::size_t>(bucket.count) * bucket.own.size());
  T* next = reinterpret_cast<T*>(packed_.data());
  for (int r = 0; r < size; ++r) {
    T* const start = next;
    for (const Node& node : bucket.own) {
      next = std::copy_n(node.sum.data<T>() + begin(r), begin(r + 1) - begin(r), next);
    }
    to[static_cast<std::size_t>(r)] = std::as_bytes(std::span(start, next));
  }
  std::vector<std::vector<TreeNode<char>>> theirs;
  i64 all = 0;
  for (int r = 0; r < size; ++r) {
    theirs.push_back(nodes_of(count_ * r, count_ * (r + 1)));
    all += static_cast<i64>(theirs.back().size()) * mine;
  }
  received_.resize(sizeof(T) * static_cast<std::size_t>(all));
  T* const received = reinterpret_cast<T*>(received_.data());
  T* place = received;
  for (int r = 0; r < size; ++r) {
    const i64 count = static_cast<i64>(theirs[static_cast<std::size_t>(r)].size()) * mine;
    from[static_cast<std::size_t>(r)] =
        std::as_writable_bytes(std::span(place, static_cast<std::size_t>(count)));
    place += count;
  }
  exchange(to, from);

  // Adds them in the order of the tree; the sum is in the first node.
  const auto add = [mine](T* a, const T* b) {
    for (i64 i = 0; i < mine; ++i) a[i] += b[i];
  };
  std::vector<TreeNode<T*>> nodes;
  place = received;
  for (const auto& of_rank : theirs) {
    for (const TreeNode<char>& node : of_rank) {
      add_node(nodes, TreeNode<T*>{node.first, node.size, place}, add);
      place += mine;
    }
  }
  add_rest(nodes, add);

  T* const sum = bucket.sum.data<T>();
  std::copy_n(received, mine, sum + begin(ranks_.rank()));
  for (int r = 0; r < size; ++r) {
    const auto of = [&](int rank) {
      return std::span(sum + begin(rank), static_cast<std::size_t>(begin(rank + 1) - begin(rank)));
    };
    to[static_cast<std::size_t>(r)] = std::as_bytes(of(ranks_.rank()));
    from[static_cast<std::size_t>(r)] = std::as_writable_bytes(of(r));
  }
  exchange(to, from);
}

// Waits until all buckets are summed over the ranks, or one sum has failed.
void GradientSum::await_sums(void* self) {
  auto& sum = *static_cast<GradientSum*>(self);
  const Clock::time_point begin = Clock::now();
  std::unique_lock lock(sum.mutex_);
  sum.changed_.wait(lock, [&] { return sum.exchanged_ == sum.buckets_.size() || sum.failure_; });
  if (sum.failure_) return;
  sum.ready_ = sum.exchanged_ = 0;
  sum.traffic_.waiting += seconds_since(begin);
}

void GradientSum::rethrow() {
  const std::lock_guard lock(mutex_);
  if (failure_) std::rethrow_exception(failure_);
}

void GradientSum::wait_until(const std::function<bool()>& done) {
  if (ranks_.alone() || device_ == Device{}) return;
  ranks_.wait_until([&] {
    if (device_sum_ != nullptr) device_sum_->check();
    return done();
  });
  rethrow();
}

void GradientSum::wait() {
  wait_until([&] {
    return dispatch_device(device_, []<class D>(const D& device) {
      if constexpr (!std::is_same_v<D, Cpu>) return idle(device);
      return true;
    });
  });
}

// What a step has a gradient for is known to its host alone, and on a device the host does not wait
// for the step's sums: the ranks tell each other once.
const std::vector<char>& GradientSum::present_in_any_shard() {
  if (present_anywhere_.empty()) {
    wait();
    present_at_first_ = present_anywhere_ = present_;
    for (const std::string& said : ranks_.gather({present_.begin(), present_.end()})) {
      for (std::size_t i = 0; i < said.size(); ++i) present_anywhere_[i] |= said[i];
    }
  }
  for (std::size_t i = 0; i < present_.size(); ++i) {
    require(present_[i] == present_at_first_[i],
            "gradient sum: {} has a gradient in some steps only; several ranks with a device each "
            "want it in all steps or in none",
            parameters_[i].name);
  }
  return present_anywhere_;
}

Tensor GradientSum::finish() {
  require(walked_ == count_, "gradient sum: backward ran for {} of {} shards", walked_, count_);
  walked_ = 0;
  for (Bucket& bucket : buckets_) bucket.missing = bucket.parts();
  std::vector<char> present = present_;
  if (ranks_.alone()) {
    for (Bucket& bucket : buckets_) {
      add_rest(bucket.own, add_tensors);
      bucket.sum = std::move(bucket.own.front().sum);
      bucket.own.clear();
    }
  } else {
    device_sum_ != nullptr ? device_sum_->join() : call_in_order(await_sums);
    if (device_ == Device{}) {
      rethrow();
      const double* const shards = buckets_.back().sum.data<double>() + numbers_;
      for (std::size_t i = 0; i < present.size(); ++i) present[i] = shards[i] > 0;
    } else {
      present = present_in_any_shard();
    }
  }
  for (const Bucket& bucket : buckets_) {
    for (std::size_t m = 0; m < bucket.members.size(); ++m) {
      const Variable& variable = parameters_[bucket.members[m]].variable;
      if (present[bucket.members[m]] == 0) continue;
      const i64 begin = bucket.places[m];
      variable.place()->accumulate(
          bucket.sum.slice(0, begin, begin + variable.value().count()).reshape(variable.shape()));
    }
  }
  const Tensor numbers = buckets_.back().sum.slice(0, 0, numbers_);
  if (ranks_.alone()) {  // the gradients are views of these sums, and free them
    for (Bucket& bucket : buckets_) bucket.sum = {};
  }
  return numbers;
}

std::vector<std::string> GradientSum::not_finite() const {
  std::vector<std::string> names;
  for (const Bucket& bucket : buckets_) {
    for (std::size_t m = 0; m < bucket.members.size(); ++m) {
      const NamedParameter& parameter = parameters_[bucket.members[m]];
      const i64 begin = bucket.places[m], end = begin + parameter.variable.value().count();
      const bool finite = all_own_finite(bucket.own, begin, end);
      if (!finite) names.push_back(parameter.name);
    }
  }
  return names;
}

bool GradientSum::finite_number(i64 number) const {
  return all_own_finite(buckets_.back().own, number, number + 1);
}

}  // namespace weft
