// The rows that each block of a grid owns, and the tiles that it visits. For .cu files.
#pragma once

#include "ops/attention/engines/pairs/pairs.h"
#include "ops/attention/score_tile.cuh"

namespace weft {

// Data that is the same for all threads of a block. One of them writes it into shared memory, from
// which all read it: in the registers of each thread, the 64-bit sizes and strides would take a
// hundred.
template <class T>
struct TileBlock {
  Pairs<T> p;     // of the block's class
  TileRows rows;  // its own
};

// How far scores may exceed μ before it is updated: weights up to e^8 sum as accurately as those up
// to 1, and most tiles then skip the cross-lane maximum.
inline constexpr int slack = 8;

// The query side, besides q.
template <class S>
struct QuerySide {
  View<const Accumulator<S>, 3> log_sums, deltas;
  View<const S, 4> dout;

  __device__ __forceinline__ QuerySide of_class(const Pairs<S>& p, i64 c) const {
    return {p.of_class(log_sums, c, 2), p.of_class(deltas, c, 2), p.of_class(dout, c, 1)};
  }
};

// For `length` queries or keys, `rows` for each block; the first exist(p, b) of a class are valid.
// Tiles of one head are adjacent in the grid, so that its keys and values are in cache; if later
// queries see more keys (causal masks), these blocks are launched first.
template <class T, class Exist>
__device__ void set_block(const Pairs<T>& all, i64 length, int rows, const Exist& exist,
                          TileBlock<T>& to) {
  // All fit the 32 bits of a grid; a division of 64 bits takes a hundred instructions.
  const auto tiles = static_cast<unsigned>((all.longest_class(length) + rows - 1) / rows);
  const auto classes = static_cast<unsigned>(all.classes), H = static_cast<unsigned>(all.H());
  const unsigned sequence = blockIdx.x / tiles, tile = blockIdx.x % tiles;
  const unsigned head = sequence / classes;
  const i64 b = head / H;
  const bool growing = all.band.end.slope > 0 && all.band.first.slope == 0;
  const i64 first = i64{growing ? tiles - 1 - tile : tile} * rows;
  to.p = all.of_class(sequence % classes);
  to.rows = {b, head % H, first, rows_within(first, exist(to.p, b), rows)};
}

// A block for each tile of each sequence in x, for each `columns` columns of `width` in y.
template <class T>
dim3 tile_grid(const Pairs<T>& p, i64 length, int rows, i64 width, int columns) {
  const i64 tiles = (p.longest_class(length) + rows - 1) / rows;
  return {static_cast<unsigned>(p.B() * p.H() * p.classes * tiles),
          static_cast<unsigned>((width + columns - 1) / columns)};
}

// The row of the dropout mask for query i of the class of these rows.
template <class T>
__device__ i64 mask_row(const Pairs<T>& p, const TileRows& rows, i64 i) {
  return p.mask_row(rows.b, rows.h) + i * p.classes;
}

// The tiles that a block visits, one after the other. Every thread walks by itself, all the same
// way. In a partial tile, word(i) has a bit for each of 64 keys: whether query i of the tile sees
// it. Along a band, places count from the first row that is visited, in 32 bits: half the
// instructions of 64, and more rows than a block could visit in a day.
template <class T>
class TileWalk {
 public:
  i64 first = 0;  // first row of the tile: a key, or a query in QueryWalk
  int count = 0;
  bool whole = true;

  // Steps to the next tile, if there is one.
  __device__ bool next() {
    if (run_ != nullptr) return next_in_lists();
    if (next_ >= end_) return false;
    first = bound_ + next_;
    count = std::min(end_ - next_, int{tile_columns});
    whole = next_ >= whole_from_ && next_ + count <= whole_to_;
    next_ += tile_columns;
    return true;
  }

 protected:
  __device__ explicit TileWalk(const Pairs<T>& p) : p_(p) {}

  // The tiles of a list, up to row `end`.
  __device__ void follow(const TileLists::Runs& runs, i64 end) {
    run_ = runs.from, runs_end_ = runs.to, bound_ = end;
  }
  // The rows begin … end − 1; a tile of rows whole_from … whole_to − 1 is whole.
  __device__ void follow(i64 begin, i64 end, i64 whole_from, i64 whole_to) {
    bound_ = begin, end_ = place(end), whole_from_ = place(whole_from), whole_to_ = place(whole_to);
  }

  // Which of the 64 keys from `key` on query i sees by the band.
  __device__ std::uint64_t band_word(i64 i, i64 key) const {
    return bits_between(p_.band.first.at(i) - key, p_.band.end.at(i) - key);
  }

  const Pairs<T>& p_;
  const std::uint64_t* words_ = nullptr;  // of the tile of a list, by query

 private:
  __device__ int place(i64 row) const {
    constexpr i64 farthest = std::numeric_limits<int>::max() - tile_columns;
    return static_cast<int>(std::min(std::max(row - bound_, i64{-1}), farthest));
  }

  __device__ bool next_in_lists() {
    while (run_ != runs_end_) {
      first = (i64{run_->first} + done_) * tile_side;
      if (++done_ > run_->count || first >= bound_) {
        ++run_, done_ = 0;
        continue;
      }
      count = rows_within(first, bound_, tile_columns);
      words_ = p_.lists.by_query(run_->mask);
      whole = words_ == nullptr;
      return true;
    }
    return false;
  }

  i64 bound_ = 0;  // the first row of a band, or the end of lists
  int next_ = 0, end_ = 0, whole_from_ = 0, whole_to_ = 0;
  const TileRun *run_ = nullptr, *runs_end_ = nullptr;  // of lists
  std::int32_t done_ = 0;
};

// Which of the `count` blocks that share the keys of a block of queries this is.
struct KeyShare {
  i64 number = 0, count = 1;
};

// The tiles of keys that a block of queries sees, of those before `keys`; for a band, a share of
// them. What follows lists costs registers: it may be left out where there are none.
template <class T, bool lists = true>
class KeyWalk : public TileWalk<T> {
 public:
  __device__ KeyWalk(const Pairs<T>& p, const TileRows& queries, i64 keys, KeyShare share = {})
      : TileWalk<T>(p), queries_(queries) {
    if (queries.count == 0) return;
    const i64 last = queries.first + queries.count - 1;
    if (lists && p.lists.any()) {
      this->follow(p.lists.row(queries.b, queries.h, queries.first / tile_side), keys);
      return;
    }
    // Rounded down, since the dropout mask is drawn for eight columns at once.
    const i64 begin = p.band.first.at(queries.first) / 8 * 8;
    const i64 end = std::min(keys, p.band.end.at(last));
    const i64 tiles = (end - begin + tile_columns - 1) / tile_columns;
    const i64 each = (tiles + share.count - 1) / share.count * tile_columns;
    const i64 from = begin + share.number * each;
    this->follow(from, std::min(end, from + each), p.band.first.at(last),
                 p.band.end.at(queries.first));
  }

  __device__ std::uint64_t word(int row) const {
    const i64 i = queries_.first + row;
    if (this->words_ != nullptr) return this->words_[i % tile_side];
    return this->band_word(i, this->first);
  }

 private:
  const TileRows& queries_;
};

// The tiles of queries that see the keys of a block, of those before `counted`.
template <class T>
class QueryWalk : public TileWalk<T> {
 public:
  __device__ QueryWalk(const Pairs<T>& p, const TileRows& keys, i64 counted)
      : TileWalk<T>(p), keys_(keys) {
    if (keys.count == 0) return;
    if (p.lists.any()) {
      this->follow(p.lists.column(keys.b, keys.h, keys.first / tile_side), counted);
    } else {
      this->follow(p.band.end.first_above(keys.first) / tile_columns * tile_columns,
                   std::min(counted, p.band.first.first_above(keys.first + keys.count - 1)),
                   p.band.end.first_above(keys.first + keys.count - 1),
                   p.band.first.first_above(keys.first));
    }
  }

  __device__ std::uint64_t word(int column) const {
    const i64 i = this->first + column;
    if (this->words_ != nullptr) return this->words_[i % tile_side] >> (keys_.first % tile_side);
    return this->band_word(i, keys_.first);
  }

 private:
  const TileRows& keys_;
};

}  // namespace weft
