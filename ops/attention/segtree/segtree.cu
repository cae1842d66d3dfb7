// The lists of trees on a CUDA device: a thread for each row, and a block for each list of starts,
// which it sums.
//
// Bound by latency: a row computes some levels of integers for each of its edges, and writes 12 bytes
// an edge. The thread of the root writes n edges, one after the other. Unmeasured.
#include "ops/attention/segtree/tree.h"
#include "runtime/cuda/loops.h"

namespace weft {
namespace {

struct CountRow {
  TreeLists trees;
  __device__ void operator()(i64 i) const {
    trees.count(i / trees.lists.rows, i % trees.lists.rows);
  }
};

struct FillRow {
  TreeLists trees;
  __device__ void operator()(i64 i) const {
    trees.fill(i / trees.lists.rows, i % trees.lists.rows);
  }
};

constexpr unsigned sum_threads = 256;

// Each thread has a range of rows: it sums that, then all before it, then goes through it again.
__global__ void sum_starts(TreeLists trees) {
  __shared__ std::int32_t sums[sum_threads];
  std::int32_t* const starts = trees.starts_of(blockIdx.x % 3, blockIdx.x / 3);
  const i64 rows = trees.lists.rows, own = (rows + sum_threads - 1) / sum_threads;
  const i64 begin = std::min(rows, threadIdx.x * own), end = std::min(rows, begin + own);
  std::int32_t sum = 0;
  for (i64 row = begin; row < end; ++row) sum += starts[row + 1];
  sums[threadIdx.x] = sum;
  __syncthreads();
  sum = 0;
  for (unsigned thread = 0; thread < threadIdx.x; ++thread) sum += sums[thread];
  if (threadIdx.x == 0) starts[0] = 0;
  for (i64 row = begin; row < end; ++row) starts[row + 1] = sum += starts[row + 1];
}

}  // namespace

template <class Device>
void TreeKernels<Device>::fill(const Device& device, const TreeLists& trees) {
  const i64 count = trees.lists.items * trees.lists.rows;
  if (count == 0) return;
  for_elements("segtree", device, count, CountRow{trees});
  start("segtree", device, static_cast<unsigned>(3 * trees.lists.items), sum_threads, 0, sum_starts,
        trees);
  for_elements("segtree", device, count, FillRow{trees});
}

template struct TreeKernels<Cuda>;

}  // namespace weft
