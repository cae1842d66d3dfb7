// CUDA kernel that selects the k keys of largest score for each cluster. A block of 128 threads
// (tiles.cuh) has 32 clusters and streams over all keys once, 32 at a time; a warp computes the
// scores of eight clusters and keeps the candidates of each (ops/select/largest.cuh).
//
// For one head with C = 100, S = 2048, E = 64 in f32 the scores take 26 MFLOP. Nothing of C × S is
// stored. Bound by shared memory (estimates, not measured). Candidates for more keys than fit in
// shared memory, some hundreds a cluster, are in global memory.
#include "ops/attention/i_clustered/i_clustered.h"
#include "ops/attention/i_clustered/members.cuh"
#include "ops/attention/i_clustered/tiles.cuh"
#include "ops/select/largest.cuh"

namespace weft {
namespace {

using namespace tiles;

// The clusters first … last − 1 of a head, up to 32 of them.
struct ClusterTile {
  i64 b, h, head, first, last;

  template <class T>
  __device__ ClusterTile(const MeansAttention<T>& p, i64 piece) {
    const i64 tall = (p.C() + side - 1) / side;
    head = piece / tall;
    b = head / p.H();
    h = head % p.H();
    first = piece % tall * side;
    last = first + side < p.C() ? first + side : p.C();
  }
};

constexpr int warp_rows = side / (threads / 32);  // whose scores a warp computes

template <class T>
__global__ __launch_bounds__(threads, 3) void select_kernel(MeansAttention<T> p,
                                                            i64 pieces, std::int32_t* topk,
                                                            int room, unsigned char* elsewhere) {
  SharedMemory shared;
  Shared<T>& s = *shared.take<Shared<T>>(1);
  const LargestOfRows<T> largest(shared, side, p.count, room, elsewhere);
  const int t = threadIdx.x, own = t / 32 * warp_rows;  // the first of the warp's rows
  for (i64 piece = blockIdx.x; piece < pieces; piece += gridDim.x) {
    const ClusterTile at(p, piece);
    const i64 keys = length_of(p.lengths, at.b, p.S());
    const std::int32_t* const begins = p.begins + at.head * (p.C() + 1);
    std::int32_t* const chosen = topk + (at.head * p.C() + at.first) * p.count;
    if (keys <= p.count || begins[at.first] == begins[at.last]) {
      for (i64 i = t; i < (at.last - at.first) * p.count; i += threads) {
        chosen[i] = i % p.count < keys ? static_cast<std::int32_t>(i % p.count) : -1;
      }
      continue;
    }
    const auto empty = [&](int i) {
      const i64 c = at.first + i;
      return c >= at.last || begins[c] == begins[c + 1];
    };
    if (t < side) s.own[0][t] = empty(t) ? nullptr : &p.means(at.b, at.first + t, at.h, 0);
    const int lane = t % 32;
    if (lane < warp_rows) largest.start(own + lane);
    const unsigned real = __ballot_sync(0xffffffffu, lane < warp_rows && !empty(own + lane));
    for (i64 key = 0; key < keys; key += side) {
      if (t < side) s.other[0][t] = key + t < keys ? &p.k(at.b, key + t, at.h, 0) : nullptr;
      multiply(s, s.own[0], p.means.stride(3), s.other[0], p.k.stride(3), p.E(), p.temperature,
               real == 0, s.first);
      __syncwarp();
      for (unsigned left = real; left != 0; left &= left - 1) {
        const int row = own + __ffs(static_cast<int>(left)) - 1;
        largest.add(row, s.first[row], key, keys - key < side ? keys - key : side);
      }
      __syncwarp();
    }
    for (int i = 0; i < warp_rows && at.first + own + i < at.last; ++i) {
      const auto put = [&](int k, std::int32_t key) { chosen[(own + i) * p.count + k] = key; };
      if ((real >> i & 1) != 0) {
        largest.finish(own + i, put);
      } else {  // no member reads the keys of an empty cluster
        for (int k = lane; k < p.count; k += 32) put(k, k);
      }
    }
    __syncwarp();
  }
}

}  // namespace

template <class T>
void SelectionKernels<T>::select(const Cuda& device, const MeansAttention<T>& p,
                                 std::int32_t* topk) {
  const i64 pieces = p.B() * p.H() * ((p.C() + side - 1) / side);
  if (pieces == 0) return;
  const LargestRooms<T> rooms(device, side, p.count, SharedMemory::bytes<Shared<T>>(1), pieces);
  start("i-clustered", device, static_cast<unsigned>(rooms.blocks), threads, rooms.shared,
        select_kernel<T>, p, pieces, topk, rooms.room, rooms.elsewhere.data());
}

template struct SelectionKernels<float>;
template struct SelectionKernels<double>;

}  // namespace weft
