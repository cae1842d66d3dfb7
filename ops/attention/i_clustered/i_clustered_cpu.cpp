// CPU kernels of improved clustered attention; the equations are in i_clustered.h.
//
// Clusters are processed in blocks of up to 128. A block streams over tiles of keys with its
// clusters in the lanes (zᵀ [keys, clusters]); then, one cluster at a time, its members are the
// rows of small products with the keys of T_c (z [members, keys of T_c]).
#include "ops/attention/i_clustered/i_clustered.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "ops/attention/i_clustered/products.h"
#include "ops/attention/running_softmax.h"
#include "ops/select/largest.h"
#include "runtime/parallel.h"

namespace weft {
namespace {

using namespace improved;

// Σ over all keys of d' a v, with the running maximum and sum, for a block of clusters.
template <class T>
struct Streamed {
  const Block<T>& block;
  T *o, *maximum, *sum;  // o [M, width]

  static i64 numbers(const ImprovedClustered<T>& p) { return Block<T>::lanes_of(p) * (p.M() + 2); }

  Streamed(const Block<T>& of, Pieces<T>& pieces) : block(of) {
    o = pieces.take(block.width * block.p.M());
    maximum = pieces.take(block.width);
    sum = pieces.take(block.width);
  }

  void start() {
    std::fill(o, o + block.width * block.p.M(), T(0));
    std::fill(maximum, maximum + block.width, -infinity<T>);
    std::fill(sum, sum + block.width, T(0));
  }

  void add(i64 key, i64 keys) {
    const ImprovedClustered<T>& p = block.p;
    const simd::Tag<T> d;
    run_softmax(keys, block.width, p.M(), block.z, maximum, sum, Rows<T>{o, block.width});
    if (p.dropout > 0) {
      block.each_weight(key, keys, [&](i64 at, i64, auto factor) {
        hn::StoreU(hn::Mul(factor, hn::LoadU(d, block.z + at)), d, block.z + at);
      });
    }
    pack_rows(p.v, block.head.b, block.head.h, key, keys, T(1), block.v);
    tile_product<T>(p.M(), block.width, keys, {block.v, 1, p.M()}, {block.z, block.width},
                    {o, block.width}, true);
  }
};

template <class T>
struct ForwardHead {
  const ImprovedClustered<T>& p;
  Head<T> head;
  Pieces<T> pieces;
  Block<T> block;
  Streamed<T> streamed;
  Top<T> top;
  T *bottom, *o;  // b_c [M], o_i of some members

  static i64 numbers(const ImprovedClustered<T>& p) {
    return Block<T>::numbers(p) + Streamed<T>::numbers(p) + Top<T>::numbers(p) +
           (1 + member_rows) * p.M();
  }

  ForwardHead(const ImprovedClustered<T>& problem, i64 piece)
      : p(problem),
        head(p, piece),
        pieces(numbers(p)),
        block(head, pieces),
        streamed(block, pieces),
        top(head, pieces),
        bottom(pieces.take(p.M())),
        o(pieces.take(member_rows * p.M())) {}

  void run(bool decide, const View<std::int32_t, 4>& topk, const View<T, 3>& mass,
           const View<T, 3>& log_sums, const View<T, 4>& out) {
    clear_rows(out, head.b, head.h, head.queries);
    for (i64 first = 0; first < p.clusters; first += most_lanes) {
      block.start(first);
      if (decide || !p.causal) stream(decide, topk);
      for (i64 c = 0; c < block.count; ++c) {
        const bool empty = head.members.size(first + c) == 0;
        if (!empty) top.start(&topk(head.b, head.h, first + c, 0));
        std::fill(bottom, bottom + p.M(), T(0));
        T m = 1;
        if (!p.causal) {
          T& log_sum = log_sums(head.b, head.h, first + c);
          log_sum = empty || streamed.sum[c] == 0
                        ? infinity<T>
                        : streamed.maximum[c] + std::log(streamed.sum[c]);
          m = empty ? T(0) : top.weigh(block.means + c * p.E(), log_sum);
          mass(head.b, head.h, first + c) = m;
          if (!empty) take_bottom(c);
        }
        add_members(first + c, m, out);
      }
    }
  }

  void stream(bool decide, const View<std::int32_t, 4>& topk) {
    LargestOfLanes<T> largest(decide ? block.width : 0, p.topk);
    streamed.start();
    for (i64 key = 0; key < head.keys; key += key_tile) {
      const i64 size = std::min(key_tile, head.keys - key);
      block.score(key, size);
      if (decide) largest.add(block.z, key, size);
      if (!p.causal) streamed.add(key, size);
    }
    for (i64 c = 0; decide && c < block.count; ++c) {
      largest.finish(c, &topk(head.b, head.h, block.first + c, 0));
    }
  }

  // b_c: the streamed sum without the terms of T_c.
  void take_bottom(i64 c) {
    const T inverse = streamed.sum[c] == 0 ? T(0) : 1 / streamed.sum[c];
    for (i64 m = 0; m < p.M(); ++m) bottom[m] = streamed.o[m * block.width + c] * inverse;
    const DropoutMask mask = p.bottom_mask();
    const i64 row = head.row() * p.clusters + block.first + c;
    for (i64 t = 0; t < top.count; ++t) {
      if (p.dropout > 0 && !mask.keeps(row, top.chosen[t])) continue;
      const T weight = static_cast<T>(mask.factor) * top.mean_weights[t];
      for (i64 m = 0; m < p.M(); ++m) bottom[m] -= weight * top.v[t * p.M() + m];
    }
  }

  void add_members(i64 cluster, T m, const View<T, 4>& out) {
    const std::int32_t* const members = head.members.of(cluster);
    const i64 size = head.members.size(cluster);
    for (i64 begin = 0; begin < size; begin += member_rows) {
      const std::int32_t* const rows = members + begin;
      const i64 n = std::min(member_rows, size - begin);
      top.score(rows, n);
      for (i64 i = 0; i < n; ++i) {
        T* const weights = top.z + i * top.width;
        if (!p.causal) top.scale(weights, m);
        top.drop(rows[i], weights);
        std::copy(bottom, bottom + p.M(), o + i * p.M());
      }
      tile_product<T>(n, p.M(), top.count, {top.z, top.width, 1}, {top.v, p.M()}, {o, p.M()}, true);
      for (i64 i = 0; i < n; ++i) {
        unpack_rows(o + i * p.M(), head.b, head.h, rows[i], 1, out);
      }
    }
  }
};

template <class T>
struct BackwardHead {
  const ImprovedClustered<T>& p;
  const View<const T, 4>&out, &dout;
  const View<T, 4>&dq, &dk, &dv;
  Head<T> head;
  Pieces<T> pieces;
  Block<T> block;
  Top<T> top;
  T *v_turned, *dk_top, *dv_top;       // of T_c: vᵀ [M, lanes], gradients
  T *do_rows, *x, *dq_rows;            // of some members
  T *db, *db_turned;                   // of the block: [count, M], [M, width]
  T *dz, *dq_turned;                   // of the block: [keys, width], [E, width]
  T *delta, *log_sum;                  // [width]
  Scratch<std::int32_t> cursor;        // number of keys of T_c in the tiles so far

  static i64 numbers(const ImprovedClustered<T>& p) {
    return Block<T>::numbers(p) + Top<T>::numbers(p) +
           Top<T>::lanes_of(p) * (2 * p.M() + p.E() + member_rows) +
           member_rows * (p.M() + p.E()) +
           Block<T>::lanes_of(p) * (2 * p.M() + key_tile + p.E() + 2);
  }

  BackwardHead(const ImprovedClustered<T>& problem, i64 piece, const View<const T, 4>& outputs,
               const View<const T, 4>& doutputs, const View<T, 4>& dqueries,
               const View<T, 4>& dkeys, const View<T, 4>& dvalues)
      : p(problem),
        out(outputs),
        dout(doutputs),
        dq(dqueries),
        dk(dkeys),
        dv(dvalues),
        head(p, piece),
        pieces(numbers(p)),
        block(head, pieces),
        top(head, pieces),
        cursor(block.width) {
    v_turned = pieces.take(top.width * p.M());
    dk_top = pieces.take(top.width * p.E());
    dv_top = pieces.take(top.width * p.M());
    do_rows = pieces.take(member_rows * p.M());
    x = pieces.take(member_rows * top.width);
    dq_rows = pieces.take(member_rows * p.E());
    db = pieces.take(block.width * p.M());
    db_turned = pieces.take(block.width * p.M());
    dz = pieces.take(block.width * key_tile);
    dq_turned = pieces.take(block.width * p.E());
    delta = pieces.take(block.width);
    log_sum = pieces.take(block.width);
  }

  void run(const View<const std::int32_t, 4>& topk, const View<const T, 3>& mass,
           const View<const T, 3>& log_sums) {
    clear_rows(dq, head.b, head.h, head.queries);
    clear_rows(dk, head.b, head.h, 0);
    clear_rows(dv, head.b, head.h, 0);
    for (i64 first = 0; first < p.clusters; first += most_lanes) {
      block.start(first);
      std::fill(log_sum, log_sum + block.width, infinity<T>);  // unused lanes have no weight
      std::fill(delta, delta + block.width, T(0));
      std::fill(dq_turned, dq_turned + block.width * p.E(), T(0));
      std::fill(db, db + block.count * p.M(), T(0));
      for (i64 c = 0; c < block.count; ++c) {
        if (head.members.size(first + c) == 0) continue;
        top.start(&topk(head.b, head.h, first + c, 0));
        T dm = through_members(first + c, p.causal ? T(1) : mass(head.b, head.h, first + c), c);
        if (!p.causal) {
          log_sum[c] = log_sums(head.b, head.h, first + c);
          if (p.detach_mass) delta[c] -= mass(head.b, head.h, first + c) * std::exchange(dm, T(0));
          through_mass(c, dm);
        }
        scatter_top();
      }
      if (!p.causal) through_means(topk);
    }
  }

  // The members' own scores over T_c. Returns dm_c; writes db_c and Σ do · o at index c of the
  // block, and the gradients of T_c to dk_top, dv_top.
  T through_members(i64 cluster, T m, i64 c) {
    const std::int32_t* const members = head.members.of(cluster);
    const i64 size = head.members.size(cluster), E = p.E(), M = p.M();
    sum_of_rows(dout, head.b, head.h, members, size, 1.0, db + c * M);
    transpose_block(top.v, top.count, M, top.width, v_turned);
    std::fill(dk_top, dk_top + top.count * E, T(0));
    std::fill(dv_top, dv_top + top.count * M, T(0));
    double dmass = 0, inner = 0;
    for (i64 begin = 0; begin < size; begin += member_rows) {
      const std::int32_t* const rows = members + begin;
      const i64 n = std::min(member_rows, size - begin);
      top.score(rows, n);
      for (i64 i = 0; i < n; ++i) {
        pack_rows(dout, head.b, head.h, rows[i], 1, T(1), do_rows + i * M);
        inner += double(simd::dot(do_rows + i * M, &out(head.b, rows[i], head.h, 0), M));
      }
      tile_product<T>(n, top.width, M, {do_rows, M, 1}, {v_turned, top.width}, {x, top.width},
                      false);
      for (i64 i = 0; i < n; ++i) dmass += double(differentiate(rows[i], i, m));
      tile_product<T>(top.count, M, n, {top.z, 1, top.width}, {do_rows, M}, {dv_top, M}, true);
      tile_product<T>(top.count, E, n, {x, 1, top.width}, {top.q, E}, {dk_top, E}, true);
      tile_product<T>(n, E, top.count, {x, top.width, 1}, {top.k, E}, {dq_rows, E}, false);
      for (i64 i = 0; i < n; ++i) {
        copy_rows<T>(1, E, p.temperature, dq_rows + i * E, 0, 1, &dq(head.b, rows[i], head.h, 0), 0,
                     1);
      }
    }
    delta[c] = static_cast<T>(inner);
    return static_cast<T>(dmass);
  }

  // dz_cs for s ∈ T_c, and its contribution to dk and dq̄.
  void through_mass(i64 c, T dm) {
    const T* const mean = block.means + c * p.E();
    top.weigh(mean, log_sum[c]);
    for (i64 t = 0; t < top.count; ++t) {
      const T gradient = top.mean_weights[t] * (dm - delta[c]);
      add_row(p.E(), gradient, mean, dk_top + t * p.E());
      for (i64 e = 0; e < p.E(); ++e) {
        dq_turned[e * block.width + c] += gradient * top.k[t * p.E() + e];
      }
    }
  }

  void scatter_top() {
    for (i64 t = 0; t < top.count; ++t) {
      add_row(p.E(), T(1), dk_top + t * p.E(), &dk(head.b, top.chosen[t], head.h, 0));
      add_row(p.M(), T(1), dv_top + t * p.M(), &dv(head.b, top.chosen[t], head.h, 0));
    }
  }

  static void add_row(i64 count, T factor, const T* from, T* to) {
    for (i64 e = 0; e < count; ++e) to[e] += factor * from[e];
  }

  // Row i of z holds p and that of x do · v: they are replaced by d m p and dz. Returns dm_i.
  T differentiate(i64 query, i64 i, T m) {
    const simd::Tag<T> d;
    T* const weights = top.z + i * top.width;
    T* const gradient = x + i * top.width;
    top.drop(query, gradient);
    const T dmass = simd::dot(weights, gradient, top.width);
    top.scale(weights, m);
    for (i64 t = 0; t < top.width; t += simd::lanes<T>) {
      const auto excess = hn::Sub(hn::LoadU(d, gradient + t), hn::Set(d, dmass));
      hn::StoreU(hn::Mul(hn::LoadU(d, weights + t), excess), d, gradient + t);
    }
    top.drop(query, weights);
    return dmass;
  }

  // The gradients through the means of a block: streams over the tiles of keys.
  void through_means(const View<const std::int32_t, 4>& topk) {
    const i64 E = p.E(), M = p.M(), width = block.width;
    transpose_block(db, block.count, M, width, db_turned);
    std::fill(cursor.data(), cursor.data() + width, 0);
    for (i64 key = 0; key < head.keys; key += key_tile) {
      const i64 size = std::min(key_tile, head.keys - key);
      block.score(key, size);
      pack_rows(p.v, head.b, head.h, key, size, T(1), block.v);
      tile_product<T>(size, width, M, {block.v, M, 1}, {db_turned, width}, {dz, width}, false);
      weigh_means(key, size, topk);
      T* const dk_rows = &dk(head.b, key, head.h, 0);
      T* const dv_rows = &dv(head.b, key, head.h, 0);
      tile_product<T>(size, M, block.count, {block.z, width, 1}, {db, M}, {dv_rows, dv.stride(1)},
                      true);
      tile_product<T>(size, E, block.count, {dz, width, 1}, {block.means, E},
                      {dk_rows, dk.stride(1)}, true);
      tile_product<T>(E, width, size, {block.k, 1, E}, {dz, width}, {dq_turned, width}, true);
    }
    for (i64 c = 0; c < block.count; ++c) {
      const i64 size = head.members.size(block.first + c);
      for (i64 i = 0; i < size; ++i) {
        T* const to = &dq(head.b, head.members.of(block.first + c)[i], head.h, 0);
        const T share = p.temperature / T(size);
        for (i64 e = 0; e < E; ++e) to[e] += share * dq_turned[e * width + c];
      }
    }
  }

  // z and do · v are replaced by d' a and dz; on T, which through_members handles, both are 0.
  void weigh_means(i64 key, i64 keys, const View<const std::int32_t, 4>& topk) {
    const simd::Tag<T> d;
    for (i64 c = 0; c < block.count; ++c) {
      const std::int32_t* const chosen = &topk(head.b, head.h, block.first + c, 0);
      std::int32_t& t = cursor.data()[c];
      for (; t < p.topk && chosen[t] >= 0 && chosen[t] < key + keys; ++t) {
        block.z[(chosen[t] - key) * block.width + c] = -infinity<T>;
      }
    }
    const auto weigh = [&](i64 at, i64 lane, auto factor) {
      const auto weight =
          simd::exp<T>(hn::Sub(hn::LoadU(d, block.z + at), hn::LoadU(d, log_sum + lane)));
      const auto gradient = hn::Mul(factor, hn::LoadU(d, dz + at));
      hn::StoreU(hn::Mul(weight, hn::Sub(gradient, hn::LoadU(d, delta + lane))), d, dz + at);
      hn::StoreU(hn::Mul(weight, factor), d, block.z + at);
    };
    if (p.dropout > 0) return block.each_weight(key, keys, weigh);
    for (i64 at = 0; at < keys * block.width; at += simd::lanes<T>) {
      weigh(at, at % block.width, hn::Set(d, T(1)));
    }
  }
};

}  // namespace

template <class Device, class T>
void ImprovedClusteredKernels<Device, T>::forward(const Device&, const ImprovedClustered<T>& p,
                                                  bool decide, View<std::int32_t, 4> topk,
                                                  View<T, 3> mass, View<T, 3> log_sums,
                                                  View<T, 4> out) {
  parallel_for(p.B() * p.H(),
               [&](i64 piece) { ForwardHead<T>(p, piece).run(decide, topk, mass, log_sums, out); });
}

template <class Device, class T>
void ImprovedClusteredKernels<Device, T>::backward(const Device&, const ImprovedClustered<T>& p,
                                                   View<const std::int32_t, 4> topk,
                                                   View<const T, 3> mass, View<const T, 3> log_sums,
                                                   View<const T, 4> out, View<const T, 4> dout,
                                                   View<T, 4> dq, View<T, 4> dk, View<T, 4> dv) {
  parallel_for(p.B() * p.H(), [&](i64 piece) {
    BackwardHead<T>(p, piece, out, dout, dq, dk, dv).run(topk, mass, log_sums);
  });
}

template struct ImprovedClusteredKernels<Cpu, float>;
template struct ImprovedClusteredKernels<Cpu, double>;

}  // namespace weft
