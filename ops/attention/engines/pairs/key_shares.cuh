// Few queries, whose keys several blocks share: each computes an out and an ℓ, and join_shares()
// merges them. For .cu files.
#pragma once

#include <cmath>

#include "ops/attention/engines/pairs/pairs_tile.cuh"
#include "ops/attention/infinity.h"
#include "runtime/cuda/workspace.h"

namespace weft {

inline constexpr int join_threads = 128;

// A block merges the shares of one query of one head, and the result of other parts if `before` has
// data: with ℓ = log Σ_s exp ℓ_s, out = Σ_s exp(ℓ_s − ℓ) out_s.
template <class T, class S>
__global__ void __launch_bounds__(join_threads)
    join_shares(View<const T, 4> shared_out, View<const T, 3> shared_log_sums,
                View<const T, 3> before, View<S, 4> out, View<T, 3> log_sums) {
  const i64 N = out.size(1), H = out.size(2), B = out.size(0);
  const i64 i = blockIdx.x % N, h = blockIdx.x / N % H, b = blockIdx.x / N / H;
  const T first = before.data == nullptr ? infinity<T> : before(b, h, i);
  T most = first == infinity<T> ? -infinity<T> : first;
  for (i64 item = b; item < shared_log_sums.size(0); item += B) {
    const T log_sum = shared_log_sums(item, h, i);
    if (log_sum != infinity<T> && !(log_sum <= most)) most = log_sum;
  }
  const auto weight = [&](T log_sum) {  // +∞: no key
    return log_sum == infinity<T> ? T(0) : std::exp(log_sum - most);
  };
  T sum = weight(first);
  for (i64 item = b; item < shared_log_sums.size(0); item += B) {
    sum += weight(shared_log_sums(item, h, i));
  }
  for (i64 m = threadIdx.x; m < out.size(3); m += join_threads) {
    T total = first == infinity<T> ? T(0) : weight(first) * convert<T>(out(b, i, h, m));
    for (i64 item = b; item < shared_log_sums.size(0); item += B) {
      total += weight(shared_log_sums(item, h, i)) * shared_out(item, i, h, m);
    }
    out(b, i, h, m) = convert<S>(sum == 0 ? T(0) : total / sum);
  }
  if (threadIdx.x == 0) log_sums(b, h, i) = sum == 0 ? infinity<T> : most + std::log(sum);
}

// How many blocks share the keys of a few queries, by the shape alone: enough in all to fill a
// device, each with at least four tiles.
template <class T>
i64 key_shares(const Pairs<T>& p, i64 blocks) {
  constexpr i64 enough = 512, least_keys = 4 * tile_columns;
  if (p.lists.any() || p.longest_class(p.N()) > few_rows) return 1;
  return std::max<i64>(1, std::min(enough / blocks, p.longest_class(p.S()) / least_keys));
}

// Calls run(out, log_sums), which queues the kernel that writes the results of share s of batch
// item b as item s B + b; and merges them.
template <class T, class S, class Run>
void in_shares(const Cuda& device, const Pairs<S>& p, i64 shares, const View<const T, 3>& before,
               const View<S, 4>& out, const View<T, 3>& log_sums, const Run& run) {
  const i64 items = shares * p.B(), N = p.N(), H = p.H();
  const Workspace<T> outs(device, items * N * H * p.M()), sums(device, items * H * N);
  const View<T, 4> shared_out = outs.view(items, N, H, p.M());
  const View<T, 3> shared_sums = sums.view(items, H, N);
  run(shared_out, shared_sums);
  start("pairs", device, static_cast<unsigned>(p.B() * H * N), join_threads, 0, join_shares<T, S>,
        shared_out, shared_sums, before, out, log_sums);
}

}  // namespace weft
