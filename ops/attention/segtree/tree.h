// The tree over n leaves, in closed form: its nodes, and the edges between them, as segtree.h
// defines them. constexpr functions, for both devices.
#pragma once

#include <algorithm>

#include "ops/attention/engines/lists/list_rule.h"
#include "ops/attention/length.h"

namespace weft {

struct Tree {
  i64 n = 0;
  bool causal = false;

  // Node u of a level covers the leaves u 2^level … (u + 1) 2^level − 1, as far as they exist.
  struct Node {
    i64 level, u;
  };

  static constexpr i64 bits(i64 x) {
    i64 width = 0;
    for (; x > 0; x >>= 1) ++width;
    return width;
  }
  constexpr i64 nodes(i64 level) const { return (n + (i64{1} << level) - 1) >> level; }
  constexpr i64 top() const { return bits(n - 1); }
  constexpr i64 levels() const { return top() + 1; }
  constexpr i64 first_row(i64 level) const {
    i64 row = 0;
    for (i64 l = 0; l < level; ++l) row += nodes(l);
    return row;
  }
  constexpr i64 rows() const { return n == 0 ? 0 : first_row(levels()); }
  constexpr Node node(i64 row) const {
    i64 level = 0;
    for (; row >= nodes(level); ++level) row -= nodes(level);
    return {level, row};
  }
  constexpr i64 row(i64 level, i64 u) const { return first_row(level) + u; }
  constexpr i64 first_leaf(const Node& x) const { return x.u << x.level; }
  constexpr i64 end_of_leaves(const Node& x) const { return std::min(n, (x.u + 1) << x.level); }

  // Levels of the left edges into leaf i: 0 … lefts(i) − 1; and of the right ones.
  static constexpr i64 lefts(i64 i) { return bits(i); }
  static constexpr bool bit(i64 i, i64 at) { return at >= 0 && (i >> at & 1) != 0; }
  // The source of the edge of a level.
  static constexpr Node left(i64 i, i64 level) {
    const i64 v = i >> level;
    return level == 0 || bit(i, level - 1) ? Node{level, v - 1} : Node{level - 1, 2 * (v - 1)};
  }
  static constexpr Node right(i64 i, i64 level) {
    const i64 v = i >> level;
    return bit(i, level - 1) ? Node{level - 1, 2 * (v + 1) + 1} : Node{level, v + 1};
  }
  constexpr i64 rights(i64 i) const {
    i64 level = 0;
    while (!causal && first_leaf(right(i, level)) < n) ++level;
    return level;
  }

  constexpr i64 edges(i64 row) const {
    const Node x = node(row);
    return x.level == 0 ? 1 + lefts(x.u) + rights(x.u) : 1 + end_of_leaves(x) - first_leaf(x);
  }
  constexpr i64 runs(i64 row) const { return row < n ? edges(row) : 2; }  // each type by itself
  // Calls f(rank, source row, type) for the edges into a row, in the order of the list.
  template <class F>
  constexpr void each_edge(i64 row, const F& f) const {
    const Node x = node(row);
    i64 rank = 0;
    f(rank++, row, i64{0});
    for (i64 i = first_leaf(x); x.level > 0 && i < end_of_leaves(x); ++i) f(rank++, i, 3 * x.level);
    if (x.level > 0) return;
    const auto from = [&](const Node& y) { return this->row(y.level, y.u); };
    for (i64 l = 0; l < lefts(x.u); ++l) f(rank++, from(left(x.u, l)), 3 * l + 1);
    for (i64 l = 0, end = rights(x.u); l < end; ++l) f(rank++, from(right(x.u, l)), 3 * l + 2);
  }

  // Leaves begin … end − 1, into which the edge of a level comes from one node.
  struct Reached {
    i64 begin, end, level;
    bool right;

    constexpr i64 rank(i64 i) const { return (right ? 1 + lefts(i) : 1) + level; }
  };
  // From this node: the left and the right edges of its own level, and those of the level above.
  constexpr void reached(const Node& x, Reached (&to)[4]) const {
    const i64 one = i64{1} << x.level, half = one >> 1, u = x.u;
    to[0] = {(u + 1) * one + half, (u + 2) * one, x.level, false};
    to[1] = {(u + 2) * one, u % 2 == 0 ? (u + 3) * one : 0, x.level + 1, false};
    to[2] = {(u - 1) * one, u > 0 ? (u - 1) * one + std::max<i64>(half, 1) : 0, x.level, true};
    to[3] = {(u - 2) * one, u > 2 && u % 2 == 1 ? (u - 1) * one : 0, x.level + 1, true};
    for (Reached& range : to) {
      range.end = range.right && causal ? 0 : std::min(range.end, n);
      range.begin = std::clamp<i64>(range.begin, 0, range.end);
    }
  }
  constexpr i64 out_edges(i64 row) const {
    const Node x = node(row);
    Reached to[4];
    reached(x, to);
    i64 count = x.level == 0 ? 1 + top() : 1;
    for (const Reached& range : to) count += range.end - range.begin;
    return count;
  }
  // Calls f(target row, rank in that row's list) for the edges that come from a row.
  template <class F>
  constexpr void each_out_edge(i64 row, const F& f) const {
    const Node x = node(row);
    f(row, i64{0});
    for (i64 l = 1; x.level == 0 && l <= top(); ++l) {
      f(this->row(l, x.u >> l), 1 + x.u - (x.u >> l << l));
    }
    Reached to[4];
    reached(x, to);
    for (const Reached& range : to) {
      for (i64 i = range.begin; i < range.end; ++i) f(i, range.rank(i));
    }
  }
};

// The rule of their lists: one sheet for all items, or with lengths one for each.
struct Trees {
  const i64* lengths = nullptr;  // [items], or null
  i64 positions = 0;             // the most leaves
  bool causal = false;

  constexpr Tree sheet(i64 item) const { return {length_of(lengths, item, positions), causal}; }
};

template <class Device>
struct TreeKernels {
  static void fill(const Device&, const RuledLists<Trees>&);
};

}  // namespace weft
