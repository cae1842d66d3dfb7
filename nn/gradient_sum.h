// The gradient of a batch that is cut into V shards, each with a backward pass of its own: one
// process runs them one after the other, and each of R ranks runs V / R of them.
//
//     dw = Σ dw_s / V,   s = 0 … V − 1: shards of equal size, dw_s of the mean loss of shard s
//
// The sum is a binary tree over the shards that depends on V alone,
//
//     node(s, 1) = dw_s,   node(s, 2n) = node(s, n) + node(s + n, n),   s a multiple of 2n;
//     a node without shards is left out,
//
// so that any number of ranks that divides V computes the same bits.
//
// Gradients are collected in buckets: contiguous memory for several parameters, the last of the
// model first, since backward completes these first. When a bucket has the gradients of this rank's
// last shard, another thread sums it over the ranks while backward continues. All ranks sum buckets
// in the same order, by a reduce-scatter and an all-gather: each rank receives its 1/R of the
// bucket from all, adds it, and sends the sum to all. Each rank sends 2 (R − 1) / R of the bucket's
// bytes, the fewest that an all-reduce needs.
//
// On CUDA devices NCCL sums the buckets, on a stream of its own (runtime/cuda/device_sum.h): the
// same bits for the same number of ranks, not for another. The order of its additions is its own.
//
// On an emulated device, whose memory the host reads, the thread above sums them. What tells it
// that a bucket is ready, and what waits for it, are calls of the host that stand in the device's
// stream (call_in_order()). A captured step therefore repeats its exchanges with every replay.
#pragma once

#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "autograd/tape.h"
#include "nn/module.h"
#include "runtime/communicator.h"

namespace weft {

class DeviceSum;

// A node of the tree: the sum over the shards first … first + size − 1; those beyond the last shard
// contribute nothing.
template <class Sum>
struct TreeNode {
  i64 first = 0, size = 1;
  Sum sum = {};
};

// Appends the next node to `nodes`, which are in order, and merges siblings: add(a, b) adds b to a.
template <class Sum, class Add>
void add_node(std::vector<TreeNode<Sum>>& nodes, TreeNode<Sum> next, const Add& add) {
  while (!nodes.empty() && nodes.back().size == next.size &&
         nodes.back().first % (2 * next.size) == 0) {
    add(nodes.back().sum, next.sum);
    next = std::move(nodes.back());
    next.size *= 2;
    nodes.pop_back();
  }
  nodes.push_back(std::move(next));
}

// Merges what is left into the root, after the last shard.
template <class Sum, class Add>
void add_rest(std::vector<TreeNode<Sum>>& nodes, const Add& add) {
  while (nodes.size() > 1) {
    add(nodes[nodes.size() - 2].sum, nodes.back().sum);
    nodes.pop_back();
  }
}

class GradientSum {
 public:
  // Largest bytes of a bucket, unless one parameter has more: the first is small, so that the first
  // sum begins early (S. Li et al., "PyTorch distributed", VLDB 2020, arXiv 2006.15704,
  // section 3.2).
  struct BucketBytes {
    i64 first = i64{1} << 20, others = i64{25} << 20;
  };

  // The number of ranks divides `shards`. Each shard has `numbers` f64 numbers, which are summed
  // like gradients. On several ranks with a CUDA device each, throws if there is no NCCL.
  GradientSum(std::vector<NamedParameter> parameters, i64 shards, i64 numbers, Communicator& ranks,
              const BucketBytes& bytes);
  GradientSum(std::vector<NamedParameter> parameters, i64 shards, i64 numbers, Communicator& ranks)
      : GradientSum(std::move(parameters), shards, numbers, ranks, BucketBytes{}) {}
  ~GradientSum();
  GradientSum(const GradientSum&) = delete;
  GradientSum& operator=(const GradientSum&) = delete;

  // The shards of this rank: first() … first() + count() − 1.
  i64 first() const { return first_; }
  i64 count() const { return count_; }

  // Runs backward for the next of them, whose loss was recorded on `tape`. `numbers` [n] f64 are on
  // the device of the parameters.
  void add(Tape& tape, const Variable& loss, const Tensor& numbers);
  // After the last of them: stores the mean gradient in every parameter that has one in any shard,
  // and returns the sum of the numbers. On a device both are queued, and can be captured after the
  // first time; the same parameters have gradients in every step.
  Tensor finish();
  // On several ranks with devices: waits until done() is true, of work queued there. Throws if an
  // exchange or NCCL failed, or if another rank has ended or does not answer. Elsewhere returns.
  void wait_until(const std::function<bool()>& done);
  void wait();  // for all work queued there

  // The cost of the ranks' exchanges since construction.
  struct Traffic {
    i64 bytes = 0;  // sent by this rank
    double exchanging = 0,
           waiting = 0;  // seconds: of exchanges; of waiting for them after backward
  };
  // Valid between finish() and the next add().
  const Traffic& traffic() const { return traffic_; }

  // The parameters whose gradient from this rank's shards was not finite in the last sum; and
  // whether the sum of this number over these shards was.
  std::vector<std::string> not_finite() const;
  bool finite_number(i64 number) const;

 private:
  using Node = TreeNode<Tensor>;
  struct Bucket {
    DType dtype = DType::f64;
    i64 count = 0;                          // elements
    std::vector<std::size_t> members = {};  // parameters; empty: the bucket of the numbers
    std::vector<i64> places = {};           // the first element of each
    std::size_t missing = 0;                // parts that the current shard has not filled in yet
    Tensor shard = {}, sum = {};            // [count]
    std::vector<Node> own = {};             // sums over this rank's shards

    // Members whose gradients are awaited; the numbers come all at once.
    std::size_t parts() const { return members.empty() ? 1 : members.size(); }
  };
  struct Place {
    std::size_t bucket = 0, member = 0;
  };

  void lay_out(const BucketBytes& bytes);
  void complete(std::size_t parameter);
  void close(Bucket& bucket);
  void begin(Bucket& bucket);
  void call_in_order(void (*f)(void* self));
  static void open_next(void* self);
  static void await_sums(void* self);
  const std::vector<char>& present_in_any_shard();
  void exchange_all();
  void exchange(Bucket& bucket);
  void exchange(std::span<const std::span<const std::byte>> to,
                std::span<const std::span<std::byte>> from);
  template <class T>
  void exchange_as(Bucket& bucket);
  void rethrow();

  std::vector<NamedParameter> parameters_;
  i64 shards_, first_, count_, numbers_;
  Communicator& ranks_;
  Device device_;
  std::vector<Bucket> buckets_;  // the last one is that of the numbers
  std::vector<Place> places_;    // of the parameters
  std::unordered_map<const Gradient*, std::size_t> known_;
  // By parameter: it is in its bucket, for this shard; it has a gradient in a shard of this rank.
  std::vector<char> completed_, present_;
  // On a device: the latter in the first step, and the parameters that have one on any rank.
  std::vector<char> present_at_first_, present_anywhere_;
  i64 walked_ = 0;                   // shards whose backward ran since the last finish()
  std::size_t begun_ = 0;            // buckets before it have begun their sum over the ranks
  DeviceSum* device_sum_ = nullptr;  // null: the thread sums

  // Shared with the thread that exchanges: buckets before `ready_` are complete, and those before
  // `exchanged_` are summed over the ranks.
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t ready_ = 0, exchanged_ = 0;
  bool ends_ = false;
  std::exception_ptr failure_;
  std::vector<std::byte> packed_, received_;
  Traffic traffic_;
  std::thread thread_;
};

}  // namespace weft
