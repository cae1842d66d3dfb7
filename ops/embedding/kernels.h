// The kernels of embedding.h.
#pragma once

#include <cstdint>

#include "runtime/device.h"

namespace weft {

template <class T>
void gather_rows(const Cpu&, std::int64_t count, std::int64_t V, std::int64_t d, const T* table,
                 const std::int64_t* ids, T* y);
template <class T>
void gather_rows(const Cuda&, std::int64_t count, std::int64_t V, std::int64_t d, const T* table,
                 const std::int64_t* ids, T* y);

template <class T>
void scatter_rows(const Cpu&, std::int64_t count, std::int64_t V, std::int64_t d, const T* dy,
                  const std::int64_t* ids, T* dtable);
template <class T>
void scatter_rows(const Cuda&, std::int64_t count, std::int64_t V, std::int64_t d, const T* dy,
                  const std::int64_t* ids, T* dtable);

// The two halves of scatter_rows on CUDA devices.
//
// A stable counting sort of the positions by id. They are cut into chunks, which warps count and
// place; ids outside of the table come last, as if theirs were V.
struct IdSort {
  std::int64_t count, V;
  const std::int64_t* ids;
  std::int32_t* counts;   // [chunks, V + 1], zero at first
  std::int64_t* starts;   // [chunks, V + 1]: where the next of a chunk goes among those of its id
  std::int64_t* first;    // [V + 2]: where an id begins in `sorted`
  std::int64_t* sorted;   // [count]: the positions

  constexpr std::int64_t chunk() const {
    const std::int64_t share = (count + 127) / 128;
    return share < 512 ? 512 : share;
  }
  constexpr std::int64_t chunks() const { return (count + chunk() - 1) / chunk(); }
};
void sort_ids(const Cuda&, const IdSort&);

// dtable from the sorted positions: sums over tiles of them, then the sums of those of rows that lie
// in several. heads and tails [tiles, d] hold what a tile has of a row that began before it, and of
// one that goes on after it.
inline constexpr std::int64_t id_tile = 64;
template <class T>
void sum_sorted_rows(const Cuda&, const IdSort&, std::int64_t d, const T* dy, double* heads,
                     double* tails, T* dtable);

}  // namespace weft
