// Shared by the kernels of LSH attention on CUDA devices: all heads of the batch are processed at
// once, one round after the other, so that what the rounds add to has one owner at a time. The
// rules are in lsh.h.
#pragma once

#include "ops/attention/lsh/lsh.h"
#include "ops/dropout/mask.h"
#include "runtime/cuda/workspace.h"

namespace weft {

// Queries that a block owns; a tile of them holds whole chunks, or is inside one.
inline constexpr i64 lsh_rows = 32;

// Scratch of a call. Elements of a list beyond the item's length are never read.
template <class T>
struct LshWork {
  Lsh<T> p;
  DropoutMask mask;
  std::int32_t* lists = nullptr;   // [R, B, H, N] positions
  std::int32_t* chunks = nullptr;  // [R, B, H, N] of each position, if duplicates are counted
  T* inverse_norms = nullptr;      // [B, H, N] of keys; 1 if they are queries, 0 for a norm of 0
  T* deltas = nullptr;             // [B, H, R or (logsumexp) 1, N]
  T* alone = nullptr;  // [B, H, R, N]: 1 if i sees nothing else; for the mean with self=last
  T* dk = nullptr;     // [B, H, N, E]

  constexpr i64 heads() const { return p.B() * p.H(); }
  constexpr i64 chunk() const { return p.chunk(p.N()); }
  // Ranks of a tile, tiles of a run of ranks (a chunk, or the chunks of one tile), and runs of a
  // list.
  constexpr i64 run() const {
    return chunk() < lsh_rows ? lsh_rows / chunk() * chunk() : chunk();
  }
  constexpr i64 tiles() const { return (run() + lsh_rows - 1) / lsh_rows; }
  constexpr i64 runs() const { return (p.N() + run() - 1) / run(); }
  constexpr i64 items() const { return heads() * runs() * tiles(); }
};

// Defined in lsh_hash.cu for the other kernels.
template <class T>
struct LshSortKernels {
  // Computes lists, and chunks if they have data.
  static void sort(const Cuda&, const LshWork<T>&);
};

// The scratch of a call, with its lists.
template <class T>
class LshScratch {
 public:
  LshWork<T> work;

  LshScratch(const Cuda& device, const Lsh<T>& p)
      : work{p, p.mask()} {
    const i64 rows = work.heads() * p.N(), R = p.rules.rounds;
    work.lists = take(device, R * rows, lists_);
    if (p.rules.correct) work.chunks = take(device, R * rows, chunks_);
    LshSortKernels<T>::sort(device, work);
    work.inverse_norms = take(device, rows, inverse_norms_);
  }

  void add_backward(const Cuda& device) {
    const Lsh<T>& p = work.p;
    const i64 rows = work.heads() * p.N(), R = p.rules.rounds;
    work.dk = take(device, rows * p.E(), dk_);
    work.deltas = take(device, p.rules.logsumexp ? rows : R * rows, deltas_);
    const bool alone = !p.rules.logsumexp && p.rules.self == LshSelf::last;
    if (alone) work.alone = take(device, R * rows, alone_);
  }

 private:
  template <class Item>
  static Item* take(const Cuda& device, i64 count, Workspace<Item>& from) {
    from = {device, count};
    return from.data();
  }

  Workspace<std::int32_t> lists_, chunks_;
  Workspace<T> inverse_norms_, dk_, deltas_, alone_;
};

}  // namespace weft
