// The k largest of each row of scores, on CUDA devices. Scores arrive tile by tile, in the order of
// their keys.
//
// Larger comes first, NaN is the largest, at equal scores the lower key comes first. One warp owns
// a row, and keeps its candidates in the order of their keys. From 32 scores at once it appends
// those above the threshold, the k-th largest score known so far. When the candidates are full, the
// row is reduced to its k first, in the same order.
//
// The k-th largest of a row is found bit by bit, each by a count over the candidates: some 300 warp
// instructions for 64 of them in f32. Of S keys in random order some k log(S / k) become
// candidates.
#pragma once

#include <algorithm>

#include "ops/select/ordered_code.h"
#include "runtime/cuda/loops.h"
#include "runtime/cuda/workspace.h"

namespace weft {

// The rows of a block, each with its candidates.
template <class T>
class LargestOfRows {
 public:
  // The capacity for candidates of a row.
  static int room_for(i64 k) {
    return static_cast<int>(k + std::max<i64>(k, 32));
  }
  static constexpr i64 candidate_bytes = sizeof(Bits<T>) + sizeof(std::int32_t);
  // Shared memory of `rows` rows; room = 0: their candidates are in global memory.
  static std::size_t shared_bytes(int rows, int room) {
    const auto all = static_cast<std::size_t>(rows) * static_cast<std::size_t>(room);
    return SharedMemory::bytes<Bits<T>>(static_cast<std::size_t>(rows)) +
           SharedMemory::bytes<int>(static_cast<std::size_t>(rows)) +
           SharedMemory::bytes<Bits<T>>(all) + SharedMemory::bytes<std::int32_t>(all);
  }

  // The candidates of all blocks are at `elsewhere`, or, if that is null, in shared memory.
  __device__ LargestOfRows(SharedMemory& shared, int rows, i64 k, int room,
                           unsigned char* elsewhere)
      : k_(static_cast<int>(k)),
        room_(room),
        thresholds_(shared.take<Bits<T>>(static_cast<std::size_t>(rows))),
        held_(shared.take<int>(static_cast<std::size_t>(rows))) {
    const auto all = static_cast<std::size_t>(rows) * static_cast<std::size_t>(room);
    if (elsewhere == nullptr) {
      codes_ = shared.take<Bits<T>>(all);
      keys_ = shared.take<std::int32_t>(all);
    } else {
      codes_ = reinterpret_cast<Bits<T>*>(elsewhere + blockIdx.x * all * candidate_bytes);
      keys_ = reinterpret_cast<std::int32_t*>(codes_ + all);
    }
  }

  // By one thread of the row's warp; the others see it after __syncwarp().
  __device__ void start(int row) const {
    thresholds_[row] = 0;
    held_[row] = 0;
  }

  // Called by all lanes of the row's warp:

  // The scores of the keys first … first + count − 1.
  __device__ void add(int row, const T* scores, i64 first, i64 count) const {
    int held = held_[row];
    Bits<T> threshold = thresholds_[row];
    for (i64 begin = 0; begin < count; begin += 32) {
      const i64 own = begin + lane();
      const Bits<T> code = own < count ? ordered_code(scores[own]) : 0;
      unsigned set = __ballot_sync(whole_warp, code > threshold);
      if (set == 0) continue;
      if (held + __popc(set) > room_) {
        threshold = cut(row, held);
        held = k_;
        set = __ballot_sync(whole_warp, code > threshold);
      }
      if (code > threshold) {
        const i64 to = place(row, held + below(set));
        codes_[to] = code;
        keys_[to] = static_cast<std::int32_t>(first + own);
      }
      held += __popc(set);
      __syncwarp();
    }
    __syncwarp();  // all lanes have read them
    if (lane() == 0) {
      held_[row] = held;
      thresholds_[row] = threshold;
    }
  }

  // Calls put(t, key) for t < k with the keys of the k first in ascending order, padded with −1 if
  // there are fewer.
  template <class Put>
  __device__ void finish(int row, const Put& put) const {
    const int held = held_[row];
    if (held > k_) cut(row, held);
    for (int t = lane(); t < k_; t += 32) put(t, t < held ? keys_[place(row, t)] : -1);
  }

 private:
  static constexpr unsigned whole_warp = 0xffffffffu;

  __device__ static int lane() { return static_cast<int>(threadIdx.x % 32); }
  // The number of lanes below the caller's in the set.
  __device__ static int below(unsigned set) { return __popc(set & ((1u << lane()) - 1)); }
  __device__ i64 place(int row, int candidate) const {
    return i64{row} * room_ + candidate;
  }

  __device__ int above(int row, Bits<T> bound, int held) const {
    int count = 0;
    for (int j = 0; j < held; j += 32) {
      const int own = j + lane();
      count += __popc(__ballot_sync(whole_warp, own < held && codes_[place(row, own)] > bound));
    }
    return count;
  }

  // Reduces more than k candidates to the k first; no dropped candidate is above the value
  // returned. It is found bit by bit: the largest number that k codes reach, or one that no others
  // do.
  __device__ Bits<T> cut(int row, int held) const {
    Bits<T> least = 0;
    for (int bit = 8 * static_cast<int>(sizeof(T)) - 1; bit >= 0; --bit) {
      const Bits<T> trial = least | Bits<T>{1} << bit;
      const int count = above(row, trial - 1, held);
      if (count >= k_) least = trial;
      if (count == k_) break;
    }
    const int equal_wanted = k_ - above(row, least, held);
    int kept = 0, equal_seen = 0;
    for (int j = 0; j < held; j += 32) {
      const int own = j + lane();
      const bool inside = own < held;
      const Bits<T> code = inside ? codes_[place(row, own)] : 0;
      const std::int32_t key = inside ? keys_[place(row, own)] : 0;
      const unsigned equal = __ballot_sync(whole_warp, inside && code == least);
      const int rank = equal_seen + below(equal);  // among those equal to the smallest
      const bool keep = inside && (code > least || (code == least && rank < equal_wanted));
      const unsigned set = __ballot_sync(whole_warp, keep);
      __syncwarp();  // a vote does not order reads before writes
      if (keep) {
        codes_[place(row, kept + below(set))] = code;
        keys_[place(row, kept + below(set))] = key;
      }
      kept += __popc(set);
      equal_seen += __popc(equal);
      __syncwarp();
    }
    return least;
  }

  int k_, room_;
  Bits<T>* thresholds_;  // [rows]; 0: none yet
  int* held_;            // [rows]
  Bits<T>* codes_;       // [rows, room]
  std::int32_t* keys_;
};

// The location of the candidates for a kernel whose blocks need `others` bytes of other shared
// memory, and the number of blocks: each has `rows` rows at a time.
template <class T>
struct LargestRooms {
  int room;
  std::size_t shared;
  i64 blocks;
  Workspace<unsigned char> elsewhere;  // null if they are in shared memory

  static constexpr i64 most_blocks = 264;  // with candidates in global memory

  static bool fit(const Cuda& device, int rows, i64 k, std::size_t others) {
    return others + LargestOfRows<T>::shared_bytes(rows, LargestOfRows<T>::room_for(k)) <=
           most_shared(device);
  }

  LargestRooms(const Cuda& device, int rows, i64 k, std::size_t others,
               i64 wanted_blocks)
      : room(LargestOfRows<T>::room_for(k)), blocks(wanted_blocks) {
    const bool here = fit(device, rows, k, others);
    shared = others + LargestOfRows<T>::shared_bytes(rows, here ? room : 0);
    if (here) return;
    blocks = std::min(wanted_blocks, most_blocks);
    elsewhere = {device, blocks * rows * room * LargestOfRows<T>::candidate_bytes};
  }
};

}  // namespace weft
