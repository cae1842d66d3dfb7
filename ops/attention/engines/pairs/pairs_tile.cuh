// Which block of a grid owns which rows, and which tiles it meets. For .cu files.
#pragma once

#include "ops/attention/engines/pairs/pairs.h"
#include "ops/attention/score_tile.cuh"

namespace weft {

// Rows `first` … of one batch item, head and class.
struct PairsBlock {
  i64 b, h, residue, first;
};

// Tiles of one head are neighbours in the grid, so that its keys and values are in cache; where
// later queries see more keys (causal masks), these come first.
template <class T>
__device__ PairsBlock rows_of_block(const Pairs<T>& p, i64 length, int rows) {
  const i64 tiles = (p.longest_class(length) + rows - 1) / rows;
  const i64 sequence = blockIdx.x / tiles, tile = blockIdx.x % tiles, head = sequence / p.classes;
  const bool growing = p.band.end.slope > 0 && p.band.first.slope == 0;
  return {head / p.H(), head % p.H(), sequence % p.classes,
          (growing ? tiles - 1 - tile : tile) * rows};
}

// A block for each tile of each sequence in x, for each `columns` columns of `width` in y.
template <class T>
dim3 tile_grid(const Pairs<T>& p, i64 length, int rows, i64 width, int columns) {
  const i64 tiles = (p.longest_class(length) + rows - 1) / rows;
  return {static_cast<unsigned>(p.B() * p.H() * p.classes * tiles),
          static_cast<unsigned>((width + columns - 1) / columns)};
}

template <class T>
DropoutMask mask_of(const Pairs<T>& p) {
  return DropoutMask(p.random, p.dropout, p.columns);
}

// The row of the dropout mask that belongs to query i of the class.
template <class T>
__device__ i64 mask_row(const Pairs<T>& p, const PairsBlock& at, i64 i) {
  return p.mask_row(at.b, at.h) + i * p.classes;
}

// Bits from … to − 1 of a word.
__device__ inline std::uint64_t bits_between(i64 from, i64 to) {
  const auto below = [](i64 count) {
    return count >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << (count < 0 ? 0 : count)) - 1;
  };
  return below(to) & ~below(from);
}

// The tiles that a block meets, one after the other. Each thread walks by itself, all the same way.
// Where a tile is not whole, word(i) has a bit for each of 64 keys from first_key on: whether query i
// of the tile's queries sees it.
class TileWalk {
 public:
  i64 first = 0;  // row of the tile: a key, or a query in QueryWalk
  int count = 0;
  bool whole = true;

 protected:
  // The next tile among the runs of lists.
  __device__ bool next_listed(const TileLists& lists, i64 end) {
    while (run_ != runs_end_) {
      first = (i64{run_->first} + done_) * tile_side;
      if (++done_ > run_->count || first >= end) {
        ++run_, done_ = 0;
        continue;
      }
      count = rows_within(first, end, tile_columns);
      words_ = lists.by_query(run_->mask);
      whole = words_ == nullptr;
      return true;
    }
    return false;
  }
  __device__ void follow(const TileLists::Runs& runs) { run_ = runs.from, runs_end_ = runs.to; }

  const TileRun *run_ = nullptr, *runs_end_ = nullptr;
  std::int32_t done_ = 0;
  const std::uint64_t* words_ = nullptr;
};

// The tiles of keys that queries `first_row` … see.
template <class T>
class KeyWalk : public TileWalk {
 public:
  __device__ KeyWalk(const Pairs<T>& p, const TileRows& queries, i64 keys)
      : p_(p), queries_(queries), end_(queries.count == 0 ? 0 : keys) {
    if (queries.count == 0) return;
    if (p.lists.any()) {
      follow(p.lists.row(queries.b, queries.h, queries.first / tile_side));
      return;
    }
    const i64 last = queries.first + queries.count - 1;
    next_ = p.band.first.at(queries.first) / 8 * 8;  // the mask is drawn for eight columns at once
    end_ = std::min(keys, p.band.end.at(last));
  }

  __device__ bool next() {
    if (p_.lists.any()) return next_listed(p_.lists, end_);
    if (next_ >= end_) return false;
    first = next_;
    next_ += tile_columns;
    count = rows_within(first, end_, tile_columns);
    const i64 last = queries_.first + queries_.count - 1;
    whole = first >= p_.band.first.at(last) && first + count <= p_.band.end.at(queries_.first);
    return true;
  }

  __device__ std::uint64_t word(int row) const {
    const i64 i = queries_.first + row;
    if (words_ != nullptr) return words_[i % tile_side];
    return bits_between(p_.band.first.at(i) - first, p_.band.end.at(i) - first);
  }

 private:
  const Pairs<T>& p_;
  const TileRows& queries_;
  i64 next_ = 0, end_;
};

// The tiles of queries that see the keys of a block, of those before `counted`.
template <class T>
class QueryWalk : public TileWalk {
 public:
  __device__ QueryWalk(const Pairs<T>& p, const TileRows& keys, i64 counted)
      : p_(p), keys_(keys), end_(keys.count == 0 ? 0 : counted) {
    if (keys.count == 0) return;
    if (p.lists.any()) {
      follow(p.lists.column(keys.b, keys.h, keys.first / tile_side));
      return;
    }
    next_ = p.band.end.first_above(keys.first) / tile_columns * tile_columns;
    end_ = std::min(counted, p.band.first.first_above(keys.first + keys.count - 1));
  }

  __device__ bool next() {
    if (p_.lists.any()) return next_listed(p_.lists, end_);
    if (next_ >= end_) return false;
    first = next_;
    next_ += tile_columns;
    count = rows_within(first, end_, tile_columns);
    whole = keys_.first >= p_.band.first.at(first + count - 1) &&
            keys_.first + keys_.count <= p_.band.end.at(first);
    return true;
  }

  __device__ std::uint64_t word(int column) const {
    const i64 i = first + column;
    if (words_ != nullptr) return words_[i % tile_side] >> (keys_.first % tile_side);
    return bits_between(p_.band.first.at(i) - keys_.first, p_.band.end.at(i) - keys_.first);
  }

 private:
  const Pairs<T>& p_;
  const TileRows& keys_;
  i64 next_ = 0, end_;
};

}  // namespace weft
