// The kernels of LSH attention on CUDA devices, and what they share: all heads of the batch are at
// work at once, one round after the other. The rules stand in lsh.h.
#pragma once

#include "ops/attention/lsh/lsh.h"
#include "ops/dropout/mask.h"

namespace weft {

// Queries that a block has at once; a tile of them holds whole chunks, or lies inside one.
inline constexpr std::int64_t lsh_rows = 32;

// Scratch of a call. A list holds what its length says; behind that nobody looks.
template <class T>
struct LshWork {
  Lsh<T> p;
  DropoutMask mask;
  std::int32_t* lists = nullptr;   // [R, B, H, N] positions
  std::int32_t* spare = nullptr;   // the same, where sorting takes turns; otherwise null
  std::int32_t* chunks = nullptr;  // [R, B, H, N] of each position, where duplicates are counted
  T* inverse_norms = nullptr;      // [B, H, N] of keys; 1 where they are the queries, 0 of a norm 0
  T* deltas = nullptr;             // [B, H, R or (logsumexp) 1, N]
  T* alone = nullptr;  // [B, H, R, N]: 1 where i sees nothing else; for the mean with self=last
  T* dk = nullptr;     // [B, H, N, E]

  constexpr std::int64_t heads() const { return p.B() * p.H(); }
  constexpr std::int64_t chunk() const { return p.chunk(p.N()); }
  // Ranks of a tile, tiles of a run of ranks (a chunk, or the chunks of one tile), and runs of a
  // list.
  constexpr std::int64_t run() const {
    return chunk() < lsh_rows ? lsh_rows / chunk() * chunk() : chunk();
  }
  constexpr std::int64_t tiles() const { return (run() + lsh_rows - 1) / lsh_rows; }
  constexpr std::int64_t runs() const { return (p.N() + run() - 1) / run(); }
  constexpr std::int64_t items() const { return heads() * runs() * tiles(); }
};

// Passes of the sort, of 8 bits each.
constexpr int lsh_passes(std::int64_t buckets) {
  return buckets <= 1 << 8 ? 1 : buckets <= 1 << 16 ? 2 : 3;
}

// lists, and chunks where there are any.
template <class T>
void lsh_sort(const Cuda&, const LshWork<T>&);

// Inverse norms, and what the rounds add to: out 0, log_sums as they are before the first round.
template <class T>
void lsh_start(const Cuda&, const LshWork<T>&, View<T, 4> out, View<T, 4> log_sums);
// Adds a round to out and log_sums; the last one leaves them whole.
template <class T>
void lsh_attend(const Cuda&, const LshWork<T>&, std::int32_t round, View<T, 4> out,
                View<T, 4> log_sums);

// The gradient of out as the rounds see it, and what they read of the forward pass.
template <class T>
struct LshGradient {
  View<const T, 4> out, log_sums, dout;
};

// Inverse norms, zeros in dq, dv and dk, and for logsumexp the deltas.
template <class T>
void lsh_start_backward(const Cuda&, const LshWork<T>&, const LshGradient<T>&, View<T, 4> dq,
                        View<T, 4> dv);
// Adds Σ dz k of a round to dq; leaves its deltas and who is alone, for all rounds before
// lsh_backward_keys() is called for any.
template <class T>
void lsh_backward_queries(const Cuda&, const LshWork<T>&, const LshGradient<T>&, std::int32_t round,
                          View<T, 4> dq);
// Adds what queries of all rounds owe to the keys in the list of this one to dk and dv.
template <class T>
void lsh_backward_keys(const Cuda&, const LshWork<T>&, const LshGradient<T>&, std::int32_t round,
                       View<T, 4> dv);
// dq ← τ dq and the way of dk through the normalisation.
template <class T>
void lsh_finish_backward(const Cuda&, const LshWork<T>&, View<T, 4> dq);

}  // namespace weft
