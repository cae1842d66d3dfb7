// CUDA kernel that finds the k largest keys of every query; the rules stand in topk.h, the tiles of
// scores in score_tile.cuh.
//
// A block owns 8 R queries of one head and streams over tiles of 64 keys. A warp owns 2 R of these
// queries: it wrote their scores, and keeps for each a room of candidates in the order of their
// keys. Of 32 scores at once it appends those above the k-th largest known so far; a room that is
// full is cut to its k largest, which keeps the order, so that at equal scores the lower keys stay.
//
// By count, for k = 32 of 4096 keys of width 64 in f32 (unmeasured): a row takes 8192 warp
// instructions for its products and 800 to look at its scores, and lets some 200 of them in, for
// which 6 cuts of 64 candidates take 2000. Arithmetic is the limit.
//
// For that, blocks of 64 queries and 128 threads: 2 on a multiprocessor (118 registers, 89 KB of
// shared memory).
#include <bit>

#include "ops/attention/by_type.h"
#include "ops/attention/score_tile.cuh"
#include "ops/attention/topk/topk.h"
#include "runtime/cuda/workspace.h"

namespace weft {
namespace {

constexpr int most_width = 64;                   // columns of queries and keys held at once
constexpr std::size_t most_shared = 220 * 1024;  // bytes of a block
constexpr std::int64_t scratch_blocks = 264;     // where rooms are too large for that

// A whole number in the order of scores: larger is larger, NaN is largest, both zeros are one, and
// nothing is as low as 0.
template <class T>
using Code = Bits<T>;
template <class T>
__device__ Code<T> code_of(T score) {
  constexpr Code<T> sign = Code<T>{1} << (8 * sizeof(T) - 1);
  if (score != score) return ~Code<T>{0};
  const auto bits = std::bit_cast<Code<T>>(score + T(0));
  return (bits & sign) != 0 ? ~bits : bits | sign;
}

__device__ inline unsigned lane_of() { return threadIdx.x % 32; }
// How many lanes below the caller's are in the set.
__device__ inline int below_lane(unsigned set) { return __popc(set & ((1u << lane_of()) - 1)); }

// The candidates of one query, in the hands of one warp.
template <class T>
struct Room {
  Code<T>* codes;
  std::int32_t* keys;

  __device__ int above(Code<T> bound, int held) const {
    int count = 0;
    for (int j = 0; j < held; j += 32) {
      const int own = j + static_cast<int>(lane_of());
      count += __popc(__ballot_sync(0xffffffffu, own < held && codes[own] > bound));
    }
    return count;
  }

  // Keeps the `wanted` largest of more; nothing above the value returned is left out. That is found
  // bit by bit: the largest number that `wanted` codes reach, or one that no others do.
  __device__ Code<T> cut(int wanted, int held) const {
    Code<T> least = 0;
    for (int bit = 8 * static_cast<int>(sizeof(T)) - 1; bit >= 0; --bit) {
      const Code<T> trial = least | Code<T>{1} << bit;
      const int count = above(trial - 1, held);
      if (count >= wanted) least = trial;
      if (count == wanted) break;
    }
    const int equal_wanted = wanted - above(least, held);
    int kept = 0, equal_seen = 0;
    for (int j = 0; j < held; j += 32) {
      const int own = j + static_cast<int>(lane_of());
      const bool inside = own < held;
      const Code<T> code = inside ? codes[own] : 0;
      const std::int32_t key = inside ? keys[own] : 0;
      const unsigned equal = __ballot_sync(0xffffffffu, inside && code == least);
      const int rank = equal_seen + below_lane(equal);  // among those equal to the least
      const bool keep = inside && (code > least || (code == least && rank < equal_wanted));
      const unsigned set = __ballot_sync(0xffffffffu, keep);
      if (keep) {
        codes[kept + below_lane(set)] = code;
        keys[kept + below_lane(set)] = key;
      }
      kept += __popc(set);
      equal_seen += __popc(equal);
      __syncwarp();
    }
    return least;
  }
};

int room_for(std::int64_t wanted) {
  return static_cast<int>(wanted + std::max<std::int64_t>(wanted, 32));
}

template <class T>
constexpr std::size_t room_bytes = sizeof(Code<T>) + sizeof(std::int32_t);

template <class T, int R>
struct SelectLayout {
  static constexpr int rows = 8 * R;

  static std::size_t bytes(std::int64_t E, int room) {
    const auto stride = static_cast<std::size_t>(row_stride<T>(padded_width<T>(E, most_width)));
    const auto all = static_cast<std::size_t>(rows) * static_cast<std::size_t>(room);
    return SharedMemory::bytes<T>(rows * stride) + SharedMemory::bytes<T>(tile_columns * stride) +
           SharedMemory::bytes<T>(rows * weight_stride<T>) + SharedMemory::bytes<Code<T>>(rows) +
           SharedMemory::bytes<int>(rows) + SharedMemory::bytes<Code<T>>(all) +
           SharedMemory::bytes<std::int32_t>(all);
  }
};

// `scratch` holds the rooms of all blocks, or is null: then they stand in shared memory.
template <class T, int R>
__global__ void __launch_bounds__(tile_threads, 2)
    select_tiles(TopkAttention<T> p, View<std::int32_t, 4> topk, int room, unsigned char* scratch) {
  constexpr int rows_in_all = 8 * R;
  const int padded = padded_width<T>(p.E(), most_width), stride = row_stride<T>(padded);
  const int wanted = static_cast<int>(topk.size(3)), warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(lane_of());
  SharedMemory shared;
  T* const q = shared.take<T>(rows_in_all * stride);
  T* const k = shared.take<T>(tile_columns * stride);
  T* const scores = shared.take<T>(rows_in_all * weight_stride<T>);
  Code<T>* const least = shared.take<Code<T>>(rows_in_all);
  int* const held = shared.take<int>(rows_in_all);
  const std::size_t all = static_cast<std::size_t>(rows_in_all) * static_cast<std::size_t>(room);
  Code<T>* codes;
  std::int32_t* keys;
  if (scratch == nullptr) {
    codes = shared.take<Code<T>>(all);
    keys = shared.take<std::int32_t>(all);
  } else {
    codes = reinterpret_cast<Code<T>*>(scratch + blockIdx.x * all * room_bytes<T>);
    keys = reinterpret_cast<std::int32_t*>(codes + all);
  }

  const std::int64_t tiles = (p.N() + rows_in_all - 1) / rows_in_all;
  for (std::int64_t piece = blockIdx.x; piece < p.B() * p.H() * tiles; piece += gridDim.x) {
    const std::int64_t b = piece / tiles / p.H(), h = piece / tiles % p.H();
    const std::int64_t tile = p.causal ? tiles - 1 - piece % tiles : piece % tiles;
    const std::int64_t first = tile * rows_in_all;
    const int rows = rows_within(first, std::min(p.queries(b), p.N()), rows_in_all);
    const std::int64_t seen = rows == 0 ? 0 : p.seen(b, first + rows - 1);
    for (int row = 2 * warp + lane % 2 + lane / 2 * 8; row < rows_in_all; row += 128) {
      least[row] = 0;
      held[row] = 0;
    }
    __syncwarp();
    for (std::int64_t key = 0; key < seen; key += tile_columns) {
      const TileRows own{b, h, key, rows_within(key, seen, tile_columns)};
      T z[R][4] = {};
      for (std::int64_t e = 0; e < p.E(); e += padded) {
        __syncthreads();  // all are done with what is written over
        if (key == 0 || p.E() > padded) {
          load_tile(p.q, {b, h, first, rows}, rows_in_all, e, padded, T(1), q, stride);
        }
        load_tile(p.k, own, tile_columns, e, padded, T(1), k, stride);
        __syncthreads();
        add_products<R>(q, k, stride, padded, z);
      }
      store_weights<R>(z, scores);
      __syncwarp();
      for (int r = 0; r < 2 * R; ++r) {
        const int row = r / 2 * 8 + 2 * warp + r % 2;
        const std::int64_t visible = row < rows ? p.seen(b, first + row) - key : 0;
        const Room<T> its{codes + row * room, keys + row * room};
        int count = held[row];
        Code<T> bound = least[row];
        for (int column = lane; column < tile_columns; column += 32) {
          const Code<T> code =
              column < visible ? code_of(scores[row * weight_stride<T> + column]) : 0;
          unsigned set = __ballot_sync(0xffffffffu, code > bound);
          if (count + __popc(set) > room) {
            bound = its.cut(wanted, count);
            count = wanted;
            set = __ballot_sync(0xffffffffu, code > bound);
          }
          if (code > bound) {
            its.codes[count + below_lane(set)] = code;
            its.keys[count + below_lane(set)] = static_cast<std::int32_t>(key + column);
          }
          count += __popc(set);
          __syncwarp();
        }
        if (lane == 0) {
          held[row] = count;
          least[row] = bound;
        }
      }
      __syncwarp();
    }
    for (int r = 0; r < 2 * R; ++r) {
      const int row = r / 2 * 8 + 2 * warp + r % 2;
      if (first + row >= p.N()) continue;
      const Room<T> its{codes + row * room, keys + row * room};
      if (held[row] > wanted) its.cut(wanted, held[row]);
      for (int t = lane; t < wanted; t += 32) {
        topk(b, h, first + row, t) = t < held[row] ? its.keys[t] : -1;
      }
    }
    __syncwarp();
  }
}

template <class T, int R>
void start_select(const Cuda& device, const TopkAttention<T>& p, const View<std::int32_t, 4>& topk,
                  unsigned char* scratch) {
  constexpr int rows = 8 * R;
  const int room = room_for(topk.size(3));
  const std::int64_t pieces = p.B() * p.H() * ((p.N() + rows - 1) / rows);
  const std::int64_t blocks = scratch == nullptr ? pieces : std::min(pieces, scratch_blocks);
  start_tiles("topk", device, static_cast<unsigned>(blocks),
              SelectLayout<T, R>::bytes(p.E(), scratch == nullptr ? room : 0), select_tiles<T, R>,
              p, topk, room, scratch);
}

}  // namespace

template <class Device, class T>
void TopkSelectKernels<Device, T>::select(const Device& device, const TopkAttention<T>& p,
                                          View<std::int32_t, 4> topk) {
  constexpr int R = long_rows<T>;
  if (p.B() * p.H() * p.N() == 0) return;
  const int room = room_for(topk.size(3));
  const bool fits = SelectLayout<T, R>::bytes(p.E(), room) <= most_shared;
  if (fits && p.N() > few_rows) return start_select<T, R>(device, p, topk, nullptr);
  Workspace<unsigned char> rooms;  // none but for thousands of keys kept
  if (SelectLayout<T, 1>::bytes(p.E(), room) > most_shared) {
    const std::int64_t blocks = std::min(p.B() * p.H() * ((p.N() + 7) / 8), scratch_blocks);
    rooms = {device, blocks * 8 * room * static_cast<std::int64_t>(room_bytes<T>)};
  }
  start_select<T, 1>(device, p, topk, rooms.data());
}

template struct TopkSelectKernels<Cuda, float>;
template struct TopkSelectKernels<Cuda, double>;

}  // namespace weft
