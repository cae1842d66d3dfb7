// CUDA kernel of the gradients of the members' own scores with respect to keys and values; the
// equations are in i_clustered.h.
//
// The clusters determine which queries chose a key, so a warp has a key (and 64 columns), looks up
// the T_c that contain it, and visits the members of these clusters in their order: there are no
// conflicting writes, and the order of every sum is fixed. Eight lanes process a member, four
// members are in flight; lane l of the eight has the columns l, l + 8, ….
//
// For one head of N = 2048, k = 32, E = M = 64 in f32 (estimates, not measured): 65 536 pairs of a
// member and a key, 33 MFLOP, and 34 MB of members' rows from the L1 and L2 caches, which bound it.
// A key that all clusters chose visits all N queries.
#include <cmath>

#include "ops/attention/i_clustered/members.cuh"
#include "ops/attention/i_clustered/tiles.cuh"

namespace weft {
namespace {

using tiles::columns, tiles::side, tiles::threads;

constexpr int warps = threads / 32, lanes = 8, together = 32 / lanes, each = columns / lanes;
constexpr unsigned whole_warp = 0xffffffffu;

template <class T>
struct KeysGradient {
  MembersAttention<T> p;
  MemberSums<T> sums;
  View<const T, 4> dout;
  View<T, 4> dk, dv;
  bool add;
};

// A warp's key, its current columns, and their sums in its lanes.
template <class T>
struct KeySums {
  i64 head, b, h, key, column;
  T of_key[each] = {}, of_value[each] = {};

  // Adds the members of one cluster; the mask is that of the key's rank in T_c.
  __device__ void add(const KeysGradient<T>& g, const DropoutMask& mask, i64 c) {
    const MembersAttention<T>& p = g.p;
    const SortedQueries& sorted = p.sorted;
    const int group = threadIdx.x % 32 / lanes, lane = threadIdx.x % lanes;
    const i64 row = head * sorted.clusters + c, E = p.k.size(3), M = p.v.size(3);
    const std::int32_t* const begins = sorted.begins + head * (sorted.clusters + 1) + c;
    const std::int32_t* const chosen = p.topk + row * p.count;
    const std::int32_t next = p.count > 1 ? chosen[1] : -1;
    const T m = p.mass != nullptr ? p.mass[row] : T(1);
    const i64 place = mask.threshold == 0 ? 0 : tiles::place_of(chosen, p.count, key);
    for (i64 i = begins[0]; i < begins[1]; i += together) {
      const bool real = i + group < begins[1];
      const i64 query = real ? sorted.order[head * sorted.N + i + group] : 0;
      T z = 0, x = 0;
      for (i64 e = lane; real && e < E; e += lanes) {
        z += p.q(b, query, h, e) * p.k(b, key, h, e);
      }
      for (i64 e = lane; real && e < M; e += lanes) {
        x += g.dout(b, query, h, e) * p.v(b, key, h, e);
      }
#pragma unroll
      for (int by = lanes / 2; by > 0; by /= 2) {
        z += __shfl_xor_sync(whole_warp, z, by);
        x += __shfl_xor_sync(whole_warp, x, by);
      }
      if (!real || (p.causal && key > query)) continue;
      const i64 at = head * sorted.N + query;
      const bool kept = (mask.keeps_eight(at, place / 8 * 8) >> place % 8 & 1) != 0;
      const T factor = kept ? static_cast<T>(mask.factor) : T(0);
      const T weight = m * std::exp(p.temperature * z - g.sums.log_sums[at]);
      // A key that is the only one of its member has a gradient of exactly 0, not a rounding error.
      const bool alone = chosen[0] == key && (next < 0 || (p.causal && next > query));
      const T dz = alone ? T(0) : weight * (factor * x - g.sums.dmass[at]);
#pragma unroll
      for (int j = 0; j < each; ++j) {
        const i64 e = column + lane + lanes * j;
        if (e < E) of_key[j] += dz * p.q(b, query, h, e);
        if (e < M) of_value[j] += factor * weight * g.dout(b, query, h, e);
      }
    }
  }
};

template <class T>
__global__ __launch_bounds__(threads) void keys_kernel(KeysGradient<T> g, DropoutMask mask) {
  __shared__ T parts[warps][2][together][columns + lanes];  // groups of lanes write to other banks
  const MembersAttention<T>& p = g.p;
  const SortedQueries& sorted = p.sorted;
  std::uint32_t* const holds = SharedMemory{}.take<std::uint32_t>(sorted.clusters);
  const i64 E = p.k.size(3), M = p.v.size(3), S = p.k.size(1);
  const i64 wide = ((E > M ? E : M) + columns - 1) / columns, tall = (S + side - 1) / side;
  const i64 head = blockIdx.x / wide / tall, first = blockIdx.x / wide % tall * side;
  const i64 b = head / sorted.H, h = head % sorted.H, column = blockIdx.x % wide * columns;
  const int t = threadIdx.x, lane = t % 32, warp = t / 32;
  const std::int32_t* const begins = sorted.begins + head * (sorted.clusters + 1);
  for (i64 c = t; c < sorted.clusters; c += threads) {
    const bool empty = begins[c] == begins[c + 1];
    holds[c] = empty ? 0
                     : tiles::chosen_from(p.topk + (head * sorted.clusters + c) * p.count, p.count,
                                          first, side);
  }
  __syncthreads();
  for (int i = warp; i < side && first + i < S; i += warps) {
    KeySums<T> sums{head, b, h, first + i, column};
    bool any = false;
    for (i64 c = 0; c < sorted.clusters; c += 32) {
      const bool own = c + lane < sorted.clusters && (holds[c + lane] >> i & 1) != 0;
      unsigned found = __ballot_sync(whole_warp, own);
      any = any || found != 0;
      for (; found != 0; found &= found - 1)
        sums.add(g, mask, c + __ffs(static_cast<int>(found)) - 1);
    }
    if (!any && g.add) continue;
    auto& part = parts[warp];
#pragma unroll
    for (int j = 0; j < each; ++j) {
      part[0][lane / lanes][lane % lanes + lanes * j] = sums.of_key[j];
      part[1][lane / lanes][lane % lanes + lanes * j] = sums.of_value[j];
    }
    __syncwarp();
    for (int e = lane; e < columns; e += 32) {
      T of_key = 0, of_value = 0;
#pragma unroll
      for (int group = 0; group < together; ++group) {
        of_key += part[0][group][e];
        of_value += part[1][group][e];
      }
      if (column + e < E) {
        T& to = g.dk(b, first + i, h, column + e);
        to = (g.add ? to : T(0)) + p.temperature * of_key;
      }
      if (column + e < M) {
        T& to = g.dv(b, first + i, h, column + e);
        to = (g.add ? to : T(0)) + of_value;
      }
    }
    __syncwarp();
  }
}

}  // namespace

template <class T>
void MembersKeysKernels<T>::backward(const Cuda& device, const MembersAttention<T>& p,
                                     const MemberSums<T>& sums, View<const T, 4> dout, bool add,
                                     View<T, 4> dk, View<T, 4> dv) {
  const i64 S = p.k.size(1), width = p.k.size(3) > p.v.size(3) ? p.k.size(3) : p.v.size(3);
  const i64 wide = (width + columns - 1) / columns, tall = (S + side - 1) / side;
  if (p.heads() == 0) return;
  const DropoutMask mask = p.mask();
  start("i-clustered", device, static_cast<unsigned>(p.heads() * wide * tall), threads,
        SharedMemory::bytes<std::uint32_t>(static_cast<std::size_t>(p.sorted.clusters)),
        keys_kernel<T>, KeysGradient<T>{p, sums, dout, dk, dv, add}, mask);
}

template struct MembersKeysKernels<float>;
template struct MembersKeysKernels<double>;

}  // namespace weft
