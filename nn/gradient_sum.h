// The gradient of a batch that is cut into V shards, each walked back on its own: on one process
// one after the other, on R ranks V / R of them on each.
//
//     dw = Σ dw_s / V,   s = 0 … V − 1: shards of one size, each with its own mean
//
// The sum is a binary tree over the shards that depends on V alone,
//
//     node(s, 1) = dw_s,   node(s, 2n) = node(s, n) + node(s + n, n),   s a multiple of 2n;
//     a node of no shard is left out,
//
// so that any number of ranks that divides V finds the same bits.
//
// Gradients gather in buckets: runs of memory that hold several parameters, the last of the model
// first, as backward completes them. A bucket whose last shard is complete is summed over the ranks
// by another thread while backward goes on, in an order that all ranks share: each rank adds its
// own 1/R of the bucket, from what all send it, and sends the sum to all. That moves as few bytes
// as an all-reduce can, 2 (R − 1) / R of the bucket from each rank.
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

// A node of the tree: the sum over `size` shards from `first` on; those beyond the last count as
// there.
template <class Sum>
struct TreeNode {
  i64 first = 0, size = 1;
  Sum sum = {};
};

// `nodes` are in order and none is the neighbour of another. Takes over the next one, and calls
// add(a, b), which adds to a, for each pair that is now complete.
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

// The root, where all shards are there.
template <class Sum, class Add>
void add_rest(std::vector<TreeNode<Sum>>& nodes, const Add& add) {
  while (nodes.size() > 1) {
    add(nodes[nodes.size() - 2].sum, nodes.back().sum);
    nodes.pop_back();
  }
}

class GradientSum {
 public:
  // Bytes of a bucket, unless one parameter has more: the first is small, so that the first sum
  // begins early (S. Li et al., "PyTorch distributed", VLDB 2020, arXiv 2006.15704, section 3.2).
  struct BucketBytes {
    i64 first = i64{1} << 20, others = i64{25} << 20;
  };

  // The ranks divide `shards`. On several ranks the parameters are on the CPU. `numbers` of every
  // shard are summed as gradients are.
  GradientSum(std::vector<NamedParameter> parameters, i64 shards, i64 numbers, Communicator& ranks,
              const BucketBytes& bytes);
  GradientSum(std::vector<NamedParameter> parameters, i64 shards, i64 numbers, Communicator& ranks)
      : GradientSum(std::move(parameters), shards, numbers, ranks, BucketBytes{}) {}
  ~GradientSum();
  GradientSum(const GradientSum&) = delete;
  GradientSum& operator=(const GradientSum&) = delete;

  // The shards of this rank.
  i64 first() const { return first_; }
  i64 count() const { return count_; }

  // Walks the next of them back, whose loss was recorded on `tape`. `numbers` [n] f64 lie where the
  // parameters do.
  void add(Tape& tape, const Variable& loss, const Tensor& numbers);
  // Behind the last of them: leaves the mean gradient in every parameter that any shard has one of,
  // and returns the sum of the numbers.
  Tensor finish();

  // What the ranks' exchanges took since the beginning.
  struct Traffic {
    i64 bytes = 0;                       // that this rank sent
    double exchanging = 0, waiting = 0;  // seconds: of all, and of those behind backward
  };
  // Between finish() and the next add().
  const Traffic& traffic() const { return traffic_; }

  // The parameters of which this rank's own part of the last sum is not finite.
  std::vector<std::string> not_finite() const;

 private:
  using Node = TreeNode<Tensor>;
  struct Bucket {
    DType dtype = DType::f64;
    i64 count = 0;                     // elements
    std::vector<std::size_t> members;  // parameters; none: the numbers
    std::vector<i64> places;           // where each begins
    std::size_t missing = 0;           // members that the shard has not completed
    Tensor shard, sum;                 // [count]
    std::vector<Node> own;             // of this rank's shards
  };
  struct Place {
    std::size_t bucket = 0, member = 0;
  };

  void lay_out(const BucketBytes& bytes);
  void complete(std::size_t parameter);
  void close(Bucket& bucket);
  void exchange_all();
  void exchange(Bucket& bucket);
  void exchange(std::span<const std::span<const std::byte>> to,
                std::span<const std::span<std::byte>> from);
  template <class T>
  void exchange_as(Bucket& bucket);
  void wait();

  std::vector<NamedParameter> parameters_;
  i64 shards_, first_, count_, numbers_;
  Communicator& ranks_;
  Device device_;
  std::vector<Bucket> buckets_;  // the last one is that of the numbers
  std::vector<Place> places_;    // of the parameters
  std::unordered_map<const Gradient*, std::size_t> known_;
  std::vector<char> completed_, present_;  // by parameter: in this shard; in any of this rank
  i64 walked_ = 0;                         // shards since the last finish()

  // The thread that exchanges: buckets before `ready_` may be, those before `exchanged_` are.
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
