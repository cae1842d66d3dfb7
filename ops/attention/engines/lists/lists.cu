// CUDA kernels of attention over lists; the equations are in lists.h.
//
//     ForwardRow   a team owns a query: scores of its edges, softmax, output
//     QueryRow     a team owns a query: dq, and d w and dz of its edges, for the next kernel
//     KeyRow       a team owns a key and the edges that come from it: dk and dv
//     TypeShare    a thread owns a column and some queries: their contribution to da
//
// A team is a warp, or a block of 256 threads for a long list: both kinds visit all rows and skip
// the other's. The data of edges, above all their scores, are in global memory, since lists have
// any length.
//
// An edge gathers E + M elements forward, 2 E + M in QueryRow and E + M in KeyRow: 4 bytes in f32
// for 2 operations each, from the cache if adjacent queries have edges from the same keys. That
// bandwidth is the limit (unmeasured).
#include <cmath>
#include <limits>

#include "ops/attention/engines/lists/lane_groups.cuh"
#include "ops/attention/engines/lists/lists.h"
#include "ops/attention/engines/lists/shares.h"
#include "ops/dropout/mask.h"
#include "runtime/cuda/loops.h"
#include "runtime/cuda/workspace.h"

namespace weft {
namespace {

constexpr i64 long_list = 256;  // edges; a longer row is processed by a block
constexpr i64 long_run = 64;    // edges; a longer run is summed by the whole team

// One query and its list, processed by a team. `first` and `first_run` are offsets into the arrays
// for all sheets and heads.
template <class T>
struct Row {
  const Lists<T>& p;
  EdgeLists lists;
  i64 b, h, i, number;
  i64 count, runs;
  const std::int32_t* from;
  const TypeRun* run;
  i64 first, first_run;

  __device__ Row(const Lists<T>& problem, i64 row)
      : p(problem),
        lists(problem.lists.sheet(row / p.N() / p.H(), row / p.N() % p.H())),
        b(row / p.N() / p.H()),
        h(row / p.N() % p.H()),
        i(row % p.N()),
        number(row),
        count(lists.length(i)),
        runs(p.typed() ? lists.run_starts[i + 1] - lists.run_starts[i] : 0),
        from(lists.from + lists.starts[i]),
        run(lists.runs + lists.run_starts[i]),
        first(row / p.N() * lists.edges + lists.starts[i]),
        first_run(row / p.N() * lists.run_count + lists.run_starts[i]) {}

  __device__ i64 key(i64 t) const { return from[t]; }
  __device__ i64 type(i64 r) const { return run[r].type; }
  __device__ i64 begin_of_run(i64 r) const {
    return r < runs ? run[r].first - lists.starts[i] : count;
  }
  // The run of an edge.
  __device__ i64 run_of(i64 t) const {
    i64 low = 0, high = runs;
    while (high - low > 1) {
      const i64 middle = (low + high) / 2;
      (begin_of_run(middle) <= t ? low : high) = middle;
    }
    return low;
  }
  // Writes τ q · k of the edges to z, and τ q · a of the runs to terms; score() adds them. It
  // multiplies nothing, so that a single edge has weight 1 in both passes, however the compiler
  // contracts.
  template <class Team>
  __device__ void products(const Team& team, T* z, T* terms) const {
    const LaneGroups<Team> groups(team, p.E());
    const RowsOf<T> q(p.q, b, h);
    const T scale = p.temperature;
    groups.dots(
        scale, q, i, RowsOf<T>(p.k, b, h), count, [&](i64 t) { return key(t); }, z);
    if (runs > 0) {
      groups.dots(
          scale, q, i, RowsOf<T>(p.types), runs, [&](i64 r) { return type(r); }, terms);
    }
    team.wait();
  }
  __device__ T score(i64 t, const T* z, const T* terms) const {
    return runs > 0 ? z[t] + terms[run_of(t)] : z[t];
  }
  __device__ T factor(const DropoutMask& mask, i64 t) const {
    if (mask.threshold == 0) return T(1);
    return mask.keeps(number, t) ? static_cast<T>(mask.factor) : T(0);
  }
};

template <class Team>
__device__ bool is_mine(i64 length) {
  return (length > long_list) == (Team::threads > 32);
}

// `weights` and `terms` have room for all edges and all runs of all heads.
template <class T>
struct ForwardRow {
  Lists<T> p;
  DropoutMask mask;
  View<T, 4> out;
  View<T, 3> log_sums;
  T *weights, *run_terms;

  template <class Team>
  __device__ void operator()(const Team& team, i64 row) const {
    const Row<T> at(p, row);
    if (!is_mine<Team>(at.count)) return;
    T *const z = weights + at.first, *const terms = run_terms + at.first_run;
    at.products(team, z, terms);
    T most = -std::numeric_limits<T>::infinity(), sum = 0;
    for (i64 t = team.rank(); t < at.count; t += Team::threads) {
      most = Largest::of(most, z[t] = at.score(t, z, terms));
    }
    most = team.max(most);
    for (i64 t = team.rank(); t < at.count; t += Team::threads) {
      const T weight = std::exp(z[t] - most);
      sum += weight;
      z[t] = weight * at.factor(mask, t);
    }
    sum = team.sum(sum);
    team.wait();
    const LaneGroups<Team> groups(team, p.M());
    const RowsOf<T> v(p.v, at.b, at.h);
    const bool any = at.count > 0;
    groups.columns(
        p.M(),
        [&](i64 m) {
          return groups.weighted(
              v, m, at.count, [&](i64 t) { return z[t]; }, [&](i64 t) { return at.key(t); });
        },
        [&](i64 m, T o) { out(at.b, at.i, at.h, m) = any ? o / sum : T(0); });
    if (team.rank() == 0) {
      log_sums(at.b, at.h, at.i) = any ? most + std::log(sum) : std::numeric_limits<T>::infinity();
    }
  }
};

// `weights` and `scores` receive d w and dz, `sums` the sums of dz over runs.
template <class T>
struct QueryRow {
  Lists<T> p;
  DropoutMask mask;
  View<const T, 3> log_sums;
  View<const T, 4> dout;
  View<T, 4> dq;
  T *weights, *scores, *sums;

  template <class Team>
  __device__ void operator()(const Team& team, i64 row) const {
    const Row<T> at(p, row);
    if (!is_mine<Team>(at.count)) return;
    T *const w = weights + at.first, *const dz = scores + at.first, *const s = sums + at.first_run;
    at.products(team, w, s);
    const RowsOf<T> k(p.k, at.b, at.h);
    LaneGroups<Team>(team, p.M())
        .dots(
            T(1), RowsOf<T>(dout, at.b, at.h), at.i, RowsOf<T>(p.v, at.b, at.h), at.count,
            [&](i64 t) { return at.key(t); }, dz);
    team.wait();
    const T log_sum = log_sums(at.b, at.h, at.i);
    T delta = 0;
    for (i64 t = team.rank(); t < at.count; t += Team::threads) {
      w[t] = std::exp(at.score(t, w, s) - log_sum);
      dz[t] *= at.factor(mask, t);
      delta += w[t] * dz[t];
    }
    delta = team.sum(delta);
    for (i64 t = team.rank(); t < at.count; t += Team::threads) {
      const T weight = w[t];
      w[t] = weight * at.factor(mask, t);
      dz[t] = weight * (dz[t] - delta);  // exactly 0 if the weight is 1
    }
    team.wait();
    sum_runs(team, at, dz, s);
    team.wait();
    const LaneGroups<Team> groups(team, p.E());
    groups.columns(
        p.E(),
        [&](i64 e) {
          T part = groups.weighted(
              k, e, at.count, [&](i64 t) { return dz[t]; }, [&](i64 t) { return at.key(t); });
          if (at.runs > 0) {
            part += groups.weighted(
                RowsOf<T>(p.types), e, at.runs, [&](i64 r) { return s[r]; },
                [&](i64 r) { return at.type(r); });
          }
          return part;
        },
        [&](i64 e, T gradient) { dq(at.b, at.i, at.h, e) = p.temperature * gradient; });
  }

 private:
  // Short runs by a thread each, the others by the whole team.
  template <class Team>
  __device__ void sum_runs(const Team& team, const Row<T>& at, const T* dz, T* to) const {
    bool others = false;
    for (i64 r = 0; r < at.runs; ++r) {
      const i64 begin = at.begin_of_run(r), end = at.begin_of_run(r + 1);
      if (end - begin > long_run) {
        others = true;
      } else if (r % Team::threads == team.rank()) {
        T sum = 0;
        for (i64 t = begin; t < end; ++t) sum += dz[t];
        to[r] = sum;
      }
    }
    for (i64 r = 0; others && r < at.runs; ++r) {
      const i64 begin = at.begin_of_run(r), end = at.begin_of_run(r + 1);
      if (end - begin <= long_run) continue;
      T sum = 0;
      for (i64 t = begin + team.rank(); t < end; t += Team::threads) sum += dz[t];
      sum = team.sum(sum);
      if (team.rank() == 0) to[r] = sum;
    }
  }
};

template <class T>
struct KeyRow {
  Lists<T> p;
  View<const T, 4> dout;
  const T *weights, *scores;
  View<T, 4> dk, dv;

  template <class Team>
  __device__ void operator()(const Team& team, i64 row) const {
    const i64 head = row / p.S(), b = head / p.H(), h = head % p.H(), j = row % p.S();
    const EdgeLists lists = p.lists.sheet(b, h);
    const i64 count = lists.out_length(j);
    if (!is_mine<Team>(count)) return;
    const OutEdge* const out = lists.out + lists.out_starts[j];
    const auto sum = [&](const View<const T, 4>& x, const T* of_edges, T factor,
                         const View<T, 4>& to) {
      const LaneGroups<Team> groups(team, x.size(3));
      const RowsOf<T> rows(x, b, h);
      groups.columns(
          x.size(3),
          [&](i64 e) {
            return groups.weighted(
                rows, e, count, [&](i64 t) { return of_edges[head * lists.edges + out[t].edge]; },
                [&](i64 t) { return i64{out[t].to}; });
          },
          [&](i64 e, T total) { to(b, j, h, e) = factor * total; });
    };
    sum(p.q, scores, p.temperature, dk);
    sum(dout, weights, T(1), dv);
  }
};

// Shares of queries of one head: element x is column x % E of share x / E. `to` [shares, types, E].
template <class T>
struct TypeShare {
  Lists<T> p;
  const T* sums;
  i64 shares;  // of a head
  T* to;

  __device__ void operator()(i64 x) const {
    const i64 E = p.E(), types = p.types.size(0), e = x % E, share = x / E, head = share / shares;
    const i64 begin = share % shares * device_share, end = std::min(p.N(), begin + device_share);
    const i64 b = head / p.H(), h = head % p.H();
    const EdgeLists lists = p.lists.sheet(b, h);
    T* const own = to + share * types * E + e;
    for (i64 t = 0; t < types; ++t) own[t * E] = 0;
    for (i64 i = begin; i < end; ++i) {
      const T q = p.q(b, i, h, e);
      for (i64 r = lists.run_starts[i]; r < lists.run_starts[i + 1]; ++r) {
        own[lists.runs[r].type * E] += sums[head * lists.run_count + r] * q;
      }
    }
  }
};

template <class T>
struct TypeSum {
  const T* of_shares;
  i64 shares, count;  // of all heads; types × E
  T factor;
  View<T, 2> da;

  __device__ void operator()(i64 x) const {
    T sum = 0;
    for (i64 share = 0; share < shares; ++share) sum += of_shares[share * count + x];
    da(x / da.size(1), x % da.size(1)) = factor * sum;
  }
};

// A warp for each row with a short list, a block for each of the others.
template <class F>
void for_lists(const Cuda& device, i64 rows, i64 longest, const F& f) {
  if (rows == 0) return;
  start("lists", device, blocks_for(device, rows * 32, row_threads), row_threads, 0,
        each_row<WarpTeam, F>, rows, f);
  if (longest <= long_list) return;
  start("lists", device, blocks_for(device, rows * row_threads, row_threads), row_threads, 0,
        each_row<BlockTeam<row_threads>, F>, rows, f);
}

}  // namespace

template <class Device, class T>
void ListsKernels<Device, T>::forward(const Device& device, const Lists<T>& p, View<T, 4> out,
                                      View<T, 3> log_sums) {
  const i64 heads = p.B() * p.H();
  const Workspace<T> weights(device, heads * p.lists.edges),
      terms(device, heads * p.lists.run_count);
  for_lists(device, heads * p.N(), p.lists.longest,
            ForwardRow<T>{p, p.mask(), out, log_sums,
                          weights.data(), terms.data()});
}

template <class Device, class T>
void ListsKernels<Device, T>::backward(const Device& device, const Lists<T>& p,
                                       View<const T, 3> log_sums, View<const T, 4> dout,
                                       View<T, 4> dq, View<T, 4> dk, View<T, 4> dv, View<T, 2> da) {
  const i64 heads = p.B() * p.H();
  const Workspace<T> weights(device, heads * p.lists.edges), scores(device, heads * p.lists.edges);
  const Workspace<T> sums(device, heads * p.lists.run_count);
  for_lists(device, heads * p.N(), p.lists.longest,
            QueryRow<T>{p, p.mask(), log_sums, dout, dq,
                        weights.data(), scores.data(), sums.data()});
  for_lists(device, heads * p.S(), p.lists.longest_out,
            KeyRow<T>{p, dout, weights.data(), scores.data(), dk, dv});
  if (!p.typed()) return;
  const i64 shares = (p.N() + device_share - 1) / device_share, count = p.types.size(0) * p.E();
  const Workspace<T> of_shares(device, heads * shares * count);
  for_elements("lists", device, heads * shares * p.E(),
               TypeShare<T>{p, sums.data(), shares, of_shares.data()});
  for_elements("lists", device, count,
               TypeSum<T>{of_shares.data(), heads * shares, count, p.temperature, da});
}

template struct ListsKernels<Cuda, float>;
template struct ListsKernels<Cuda, double>;

}  // namespace weft
