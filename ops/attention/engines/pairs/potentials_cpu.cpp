// CPU kernels of attention with potentials; the equations are in potentials.h.
//
// As in pairs_tile_cpu.h, vector lanes hold queries, scores are transposed, zᵀ [keys, queries], in
// units of ln 2. A potential is one more element of a row: queries are [τ q, 1, u] and keys [k, v,
// 1], so that products give z + v + u.
#include <cmath>
#include <numbers>

#include "ops/attention/engines/pairs/potentials.h"
#include "ops/attention/infinity.h"
#include "ops/attention/rows.h"
#include "ops/attention/running_softmax.h"
#include "ops/dropout/mask_rows.h"
#include "runtime/parallel.h"
#include "runtime/scratch.h"
#include "runtime/tile.h"
#include "runtime/transpose.h"

namespace weft {
namespace {

namespace hn = simd::hn;
using std::numbers::ln2_v, std::numbers::log2e_v;

// One batch item and head, packed.
template <class T>
struct Head {
  const Potentials<T>& p;
  i64 b, h, n, s, block, blocks;
  i64 width = p.E() + 2;
  Scratch<T> buffer;
  T* const q;     // [blocks, width, block]: [τ q, 1, u], transposed
  T* const k;     // [s, width]: [k, v, 1]
  T* const rows;  // [block, E]

  Head(const Potentials<T>& problem, i64 item, i64 head)
      : p(problem),
        b(item),
        h(head),
        n(p.queries(b)),
        s(p.keys(b)),
        block(std::min<i64>(tile_side, simd::round_up_to_lanes<T>(n))),
        blocks((n + block - 1) / block),
        buffer((blocks * block + s) * width + block * p.E()),
        q(buffer.data()),
        k(q + blocks * block * width),
        rows(k + s * width) {
    for (i64 i = 0; i < blocks; ++i) {
      const i64 count = rows_of(i);
      pack_rows(p.q, b, h, i * block, count, log2e_v<T> * p.temperature, rows);
      transpose_block(rows, count, p.E(), block, queries(i));
      std::fill_n(queries(i) + p.E() * block, block, T(1));
      std::fill_n(queries(i) + (p.E() + 1) * block, block, T(0));
    }
    copy_rows(s, p.E(), T(1), &p.k(b, 0, h, 0), p.k.stride(1), p.k.stride(3), k, width, i64{1});
    for (i64 j = 0; j < s; ++j) k[j * width + p.E()] = 0, k[j * width + p.E() + 1] = 1;
  }

  i64 rows_of(i64 i) const { return std::min(block, n - i * block); }
  T* queries(i64 i) const { return q + i * block * width; }
  T* row_potentials(i64 i) const { return queries(i) + (p.E() + 1) * block; }

  // Sets the potentials of the scores. Lanes without a query have weight 0.
  void set_rows(const T* u) const {
    for (i64 i = 0; i < blocks; ++i) {
      for (i64 lane = 0; lane < block; ++lane) {
        row_potentials(i)[lane] =
            lane < rows_of(i) ? log2e_v<T> * u[i * block + lane] : -infinity<T>;
      }
    }
  }
  void set_columns(const T* v) const {
    for (i64 j = 0; j < s; ++j) k[j * width + p.E()] = v == nullptr ? T(0) : log2e_v<T> * v[j];
  }

  // z [keys, block] of block i and the keys from `key` on.
  void scores(i64 i, i64 key, i64 keys, T* z) const {
    tile_product<T>(keys, block, width, {k + key * width, width, 1}, {queries(i), block},
                    {z, block}, false);
  }
};

// Running sums over queries of exp(z + u), a vector of lanes for every key.
template <class T>
class ColumnSums {
 public:
  explicit ColumnSums(i64 keys)
      : keys_(keys), buffer_(2 * keys * lanes), most_(buffer_.data()), sum_(most_ + keys * lanes) {
    std::fill_n(most_, keys * lanes, -infinity<T>);
    std::fill_n(sum_, keys * lanes, T(0));
  }

  // Of the scores z [keys, block] of a block of queries.
  void add(const T* z, const T* u, i64 block) {
    const simd::Tag<T> d;
    // Scores may exceed the maximum by this much before it is updated.
    const auto slack = hn::Set(d, T(8)), none = hn::Set(d, -infinity<T>);
    for (i64 j = 0; j < keys_; ++j) {
      const T* const row = z + j * block;
      auto largest = none;
      for (i64 i = 0; i < block; i += lanes) {
        largest = hn::Max(largest, hn::Add(hn::LoadU(d, row + i), hn::LoadU(d, u + i)));
      }
      auto most = hn::LoadU(d, most_ + j * lanes), sum = hn::LoadU(d, sum_ + j * lanes);
      if (!hn::AllTrue(d, hn::Le(largest, hn::Add(most, slack)))) {
        const auto now = hn::Max(most, largest);
        const auto shift = hn::IfThenElse(hn::Eq(now, none), hn::Zero(d), now);
        sum = hn::Mul(sum, simd::exp2<T>(hn::Sub(most, shift)));
        most = now;
        hn::StoreU(most, d, most_ + j * lanes);
      }
      const auto shift = hn::IfThenElse(hn::Eq(most, none), hn::Zero(d), most);
      for (i64 i = 0; i < block; i += lanes) {
        const auto score = hn::Add(hn::LoadU(d, row + i), hn::LoadU(d, u + i));
        sum = hn::Add(sum, simd::exp2<T>(hn::Sub(score, shift)));
      }
      hn::StoreU(sum, d, sum_ + j * lanes);
    }
  }

  // The logarithm of the sum for key j.
  T log_sum(i64 j) const {
    const simd::Tag<T> d;
    const auto most = hn::LoadU(d, most_ + j * lanes), none = hn::Set(d, -infinity<T>);
    const auto largest = hn::MaxOfLanes(d, most);
    const auto shift = hn::IfThenElse(hn::Eq(largest, none), hn::Zero(d), largest);
    const auto sums = hn::Mul(hn::LoadU(d, sum_ + j * lanes), simd::exp2<T>(hn::Sub(most, shift)));
    return ln2_v<T> * hn::GetLane(shift) + std::log(simd::sum_of_lanes<T>(sums));
  }

 private:
  static constexpr i64 lanes = simd::lanes<T>;
  i64 keys_;
  Scratch<T> buffer_;
  T *most_, *sum_;
};

// The pairs of half steps before the last pass: u [R, B, H, N] and v [C, B, H, S].
template <class T>
void normalize(const Potentials<T>& p, i64 b, i64 h, const View<T, 4>& u, const View<T, 4>& v) {
  const Head<T> head(p, b, h);
  const i64 block = head.block, s = head.s;
  const Scratch<T> buffer(block * (s + 3));
  T* const z = buffer.data();
  T *const most = z + s * block, *const sum = most + block, *const rows = sum + block;
  const T share = std::log(T(head.n)) - std::log(T(s));
  for (i64 c = 0; c < p.column_steps(); ++c) {
    ColumnSums<T> columns(s);
    for (i64 i = 0; i < head.blocks; ++i) {
      std::fill_n(most, block, -infinity<T>);
      std::fill_n(sum, block, T(0));
      for (i64 j = 0; j < s; j += tile_side) {
        const i64 keys = std::min(tile_side, s - j);
        head.scores(i, j, keys, z + j * block);
        run_softmax<Base::two, T, false>(keys, block, 0, z + j * block, most, sum, {});
      }
      for (i64 lane = 0; lane < block; ++lane) {
        const T found = -ln2_v<T> * most[lane] - std::log(sum[lane]);
        rows[lane] = lane < head.rows_of(i) ? log2e_v<T> * found : -infinity<T>;
        if (lane < head.rows_of(i)) u(c, b, h, i * block + lane) = found;
      }
      columns.add(z, rows, block);
    }
    for (i64 j = 0; j < s; ++j) {  // the sums contain the previous v
      const T before = c == 0 ? T(0) : v(c - 1, b, h, j);
      v(c, b, h, j) = before + share - columns.log_sum(j);
    }
    head.set_columns(&v(c, b, h, 0));
  }
}

// x [B, positions, H, width] times `scale`, and one more element from `last`, or 1 if that has no
// data.
template <class T>
struct Extended {
  Scratch<T> buffer;
  View<const T, 4> view;

  Extended(const View<const T, 4>& x, T scale, const View<T, 3>& last)
      : buffer(x.size(0) * x.size(1) * x.size(2) * (x.size(3) + 1)),
        view{buffer.data(), {x.size(0), x.size(1), x.size(2), x.size(3) + 1}, {}} {
    const i64 positions = x.size(1), H = x.size(2), width = x.size(3) + 1;
    view.strides[0] = positions * H * width, view.strides[1] = width;
    view.strides[2] = positions * width, view.strides[3] = 1;
    parallel_for(x.size(0) * H, positions * width, [&](i64 piece) {
      const i64 b = piece / H, h = piece % H;
      T* const to = buffer.data() + piece * positions * width;
      copy_rows(positions, width - 1, scale, &x(b, 0, h, 0), x.stride(1), x.stride(3), to, width,
                i64{1});
      for (i64 i = 0; i < positions; ++i) {
        to[(i + 1) * width - 1] = last.data == nullptr ? T(1) : last(b, h, i);
      }
    });
  }
};

}  // namespace

template <class Device, class T>
void PotentialsKernels<Device, T>::forward(const Device& device, const Potentials<T>& p,
                                           View<T, 4> out, View<T, 4> u, View<T, 4> v) {
  const i64 B = p.B(), N = p.N(), S = p.S(), H = p.H(), C = p.column_steps();
  if (B * H * N * S == 0) return;
  if (C > 0) {
    parallel_for(B * H, [&](i64 piece) {
      const i64 b = piece / H, h = piece % H, n = p.queries(b), s = p.keys(b);
      for (i64 c = 0; c < C; ++c) {
        std::fill_n(&u(c, b, h, 0) + (s > 0 ? n : 0), s > 0 ? N - n : N, T(0));
        std::fill_n(&v(c, b, h, 0) + (n > 0 ? s : 0), n > 0 ? S - s : S, T(0));
      }
      if (n > 0 && s > 0) normalize(p, b, h, u, v);
    });
  }
  Pairs<T> pairs = p.pairs();
  const Scratch<T> sums(p.ends_with_rows() ? 0 : B * H * N);
  const View<T, 3> log_sums =
      p.ends_with_rows() ? step_of(u, C) : View<T, 3>{sums.data(), {B, H, N}, {H * N, N, 1}};
  if (C == 0) {
    PairsKernels<Device, T>::forward(device, pairs, {}, out, log_sums);
  } else {
    const Extended<T> q(p.q, p.temperature, {}), k(p.k, T(1), step_of(v, C - 1));
    pairs.q = q.view, pairs.k = k.view, pairs.temperature = 1;
    PairsKernels<Device, T>::forward(device, pairs, {}, out, log_sums);
  }
  parallel_for(B * H, N * p.M(), [&](i64 piece) {
    const i64 b = piece / H, h = piece % H;
    for (i64 i = 0; i < N; ++i) {
      T& log_sum = log_sums(b, h, i);
      if (p.ends_with_rows()) {
        log_sum = log_sum == infinity<T> ? T(0) : -log_sum;
      } else if (log_sum != infinity<T>) {
        const T factor = std::exp(u(C - 1, b, h, i) + log_sum);
        for (i64 m = 0; m < p.M(); ++m) out(b, i, h, m) *= factor;
      }
    }
  });
}

namespace {

// Backward of one batch item and head.
template <class T>
struct HeadBackward {
  const Potentials<T>& p;
  const Head<T> head;
  View<const T, 4> u, v;
  View<T, 4> dk, dv;
  i64 b = head.b, h = head.h, n = head.n, s = head.s, block = head.block, blocks = head.blocks;
  i64 E = p.E(), M = p.M(), terms = term_count(p), deep = M + terms, padded = blocks * block;
  Pieces<T> pieces;
  T* const q = pieces.take(padded * E);  // in units of ln 2
  T* const dout = pieces.take(padded * M);
  T* const turned = pieces.take(padded * deep);  // [blocks, M + terms, block]: [do, α]
  T* const dq = pieces.take(padded * E);         // [blocks, E, block]
  T* const du = pieces.take(p.row_steps() * padded);
  T* const dcolumns = pieces.take(p.column_steps() * s);
  T* const kept =
      pieces.take(p.constant_columns() ? 0 : padded * tile_side);  // weights of a tile of keys
  T* const totals = pieces.take(padded);
  T* const values = pieces.take(tile_side * deep);  // [x, −β]
  T* const dkeys = pieces.take(tile_side * E);
  T* const dvalues = pieces.take(tile_side * M);
  T* const a = pieces.take(tile_side * block);
  T* const dz = pieces.take(tile_side * block);

  HeadBackward(const Potentials<T>& problem, i64 item, i64 head_number, const View<const T, 4>& out,
               const View<const T, 4>& rows, const View<const T, 4>& columns,
               const View<const T, 4>& row_dout, const View<T, 4>& to_keys,
               const View<T, 4>& to_values)
      : p(problem),
        head(problem, item, head_number),
        u(rows),
        v(columns),
        dk(to_keys),
        dv(to_values),
        pieces(padded * (2 * (E + M) + terms + p.row_steps() + 1 +
                         (p.constant_columns() ? 0 : tile_side)) +
               p.column_steps() * s + tile_side * (deep + E + M + 2 * block)) {
    std::fill_n(q, padded * E, T(0));
    std::fill_n(dout, padded * M, T(0));
    std::fill_n(dq, padded * E, T(0));
    std::fill_n(du, p.row_steps() * padded, T(0));
    pack_rows(p.q, b, h, 0, n, log2e_v<T> * p.temperature, q);
    pack_rows(row_dout, b, h, 0, n, T(1), dout);
    for (i64 i = 0; i < blocks; ++i) {
      transpose_block(dout + i * block * M, block, M, block, turned + i * block * deep);
    }
    for (i64 i = 0; i < n; ++i) {
      du[last_row() * padded + i] = simd::dot(dout + i * M, &out(b, i, h, 0), M);
    }
  }

  i64 last_row() const { return p.row_steps() - 1; }
  const T* columns_of(i64 c) const { return c < 0 ? nullptr : &v(c, b, h, 0); }
  const T* rows_of(i64 r) const { return &u(r, b, h, 0); }

  void run(const View<T, 4>& to_queries) {
    if (!p.constant_columns()) {
      i64 r = last_row();
      if (!p.ends_with_rows()) add_columns(r, r, true);
      for (; r > 0; --r) add_columns(r, r - 1, r == last_row() && p.ends_with_rows());
    }
    add_gradients();
    for (i64 i = 0; i < blocks; ++i) {
      transpose<T>(E, block, {dq + i * block * E, block}, {q + i * block * E, E});
    }
    unpack_rows(q, b, h, 0, n, to_queries, p.temperature);
  }

  // From du^r and the weights exp(z + u^r + v^c) computes the sums over columns, which complete
  // dv^c, and from those the sums over rows, which complete du^c. If r = c, v^c is later than u^r,
  // and there are no sums over columns. The first of these passes computes the gradient of the
  // values.
  void add_columns(i64 r, i64 c, bool first) {
    head.set_rows(rows_of(r));
    head.set_columns(columns_of(c));
    std::fill_n(totals, padded, T(0));
    for (i64 key = 0; key < s; key += tile_side) {
      const i64 keys = std::min(tile_side, s - key);
      T* const dcolumn = dcolumns + c * s + key;
      std::fill_n(dcolumn, keys, T(0));
      if (first) start_values(key, keys, false);
      for (i64 i = 0; i < blocks; ++i) {
        T* const weights = kept + i * block * tile_side;
        head.scores(i, key, keys, weights);
        raise(keys, weights, c < r ? du + r * padded + i * block : nullptr, dcolumn);
        if (first) add_values(i, key, keys, weights);
      }
      if (first) {
        finish_values(key, keys);
        for (i64 j = 0; j < keys; ++j) {
          dcolumn[j] += simd::dot(values + j * M, dvalues + j * M, M);
        }
      }
      const T share = T(s) / T(n);
      for (i64 j = 0; j < keys; ++j) dcolumn[j] *= share;
      for (i64 i = 0; i < blocks; ++i) {
        tile_product<T>(1, block, keys, {dcolumn, keys, 1}, {kept + i * block * tile_side, block},
                        {totals + i * block, block}, true);
      }
    }
    for (i64 i = 0; i < n; ++i) {
      const T factor = c == r ? T(1) : std::exp(rows_of(c)[i] - rows_of(r)[i]);
      du[c * padded + i] -= factor * totals[i];
    }
  }

  // z [keys, block] are replaced by weights w; column_j −= Σ_i w_ij row_i, if there are rows.
  void raise(i64 keys, T* z, const T* row, T* column) const {
    const simd::Tag<T> d;
    for (i64 j = 0; j < keys; ++j) {
      auto sum = hn::Zero(d);
      for (i64 i = 0; i < block; i += simd::lanes<T>) {
        T* const at = z + j * block + i;
        const auto weight = simd::exp2<T>(hn::LoadU(d, at));
        hn::StoreU(weight, d, at);
        if (row != nullptr) sum = hn::MulAdd(weight, hn::LoadU(d, row + i), sum);
      }
      if (row != nullptr) column[j] -= simd::sum_of_lanes<T>(sum);
    }
  }

  // The rows of the values, followed by −β of these terms if they are wanted.
  void start_values(i64 key, i64 keys, bool with_terms) {
    const i64 width = with_terms ? deep : M;
    copy_rows(keys, M, T(1), &p.v(b, key, h, 0), p.v.stride(1), p.v.stride(3), values, width,
              i64{1});
    std::fill_n(dvalues, keys * M, T(0));
  }
  void add_values(i64 i, i64 key, i64 keys, const T* weights) {
    if (p.dropout > 0) {
      std::copy_n(weights, keys * block, a);
      drop(i, key, keys, a);
      weights = a;
    }
    tile_product<T>(keys, M, block, {weights, block, 1}, {dout + i * block * M, M}, {dvalues, M},
                    true);
  }
  void finish_values(i64 key, i64 keys) { unpack_rows(dvalues, b, h, key, keys, dv); }

  // x [keys, block] times the dropout mask.
  void drop(i64 i, i64 key, i64 keys, T* x) const {
    const DropoutMask mask = p.pairs().mask();
    drop_rows(mask, (b * p.H() + h) * p.N() + i * block, block, key, keys, x);
  }

  // α of all terms, after do.
  void set_terms() {
    for (i64 t = 0; t < terms; ++t) {
      const PotentialTerm term = term_of(p, t);
      for (i64 i = 0; i < padded; ++i) {
        T* const at = turned + i / block * block * deep + (M + t) * block + i % block;
        if (i >= n) {
          *at = 0;
          continue;
        }
        const T factor = std::exp(rows_of(term.u())[i] - rows_of(last_row())[i]);
        *at = factor * (term.of_row() ? du[term.row * padded + i] : T(1));
      }
    }
  }

  // dq, dk, and if v is constant dv: the last pass.
  void add_gradients() {
    const i64 C = p.column_steps();
    head.set_rows(rows_of(last_row()));
    head.set_columns(columns_of(C - 1));
    set_terms();
    for (i64 key = 0; key < s; key += tile_side) {
      const i64 keys = std::min(tile_side, s - key);
      start_values(key, keys, true);
      for (i64 t = 0; t < terms; ++t) {
        const PotentialTerm term = term_of(p, t);
        for (i64 j = 0; j < keys; ++j) {
          const T own = term.v() < 0 ? T(0) : columns_of(term.v())[key + j];
          const T last = C == 0 ? T(0) : columns_of(C - 1)[key + j];
          const T factor = term.of_row() ? T(1) : dcolumns[term.column * s + key + j];
          values[j * deep + M + t] = -std::exp(own - last) * factor;
        }
      }
      std::fill_n(dkeys, keys * E, T(0));
      for (i64 i = 0; i < blocks; ++i) add_tile(i, key, keys);
      unpack_rows(dkeys, b, h, key, keys, dk, ln2_v<T>);
      if (p.constant_columns()) finish_values(key, keys);
    }
  }

  void add_tile(i64 i, i64 key, i64 keys) {
    const T* const of_queries = turned + i * block * deep;
    const bool drops = p.dropout > 0;
    head.scores(i, key, keys, a);
    tile_product<T>(keys, block, drops ? M : deep, {values, deep, 1}, {of_queries, block},
                    {dz, block}, false);
    if (drops) {
      drop(i, key, keys, dz);
      tile_product<T>(keys, block, terms, {values + M, deep, 1}, {of_queries + M * block, block},
                      {dz, block}, true);
    }
    const simd::Tag<T> d;
    for (i64 e = 0; e < keys * block; e += simd::lanes<T>) {
      const auto weight = simd::exp2<T>(hn::LoadU(d, a + e));
      hn::StoreU(hn::Mul(weight, hn::LoadU(d, dz + e)), d, dz + e);
      if (p.constant_columns()) hn::StoreU(weight, d, a + e);
    }
    tile_product<T>(E, block, keys, {head.k + key * head.width, 1, head.width}, {dz, block},
                    {dq + i * block * E, block}, true);
    tile_product<T>(keys, E, block, {dz, block, 1}, {q + i * block * E, E}, {dkeys, E}, true);
    if (!p.constant_columns()) return;
    if (drops) drop(i, key, keys, a);
    tile_product<T>(keys, M, block, {a, block, 1}, {dout + i * block * M, M}, {dvalues, M}, true);
  }
};

}  // namespace

template <class Device, class T>
void PotentialsKernels<Device, T>::backward(const Device&, const Potentials<T>& p,
                                            View<const T, 4> out, View<const T, 4> u,
                                            View<const T, 4> v, View<const T, 4> dout,
                                            View<T, 4> dq, View<T, 4> dk, View<T, 4> dv) {
  parallel_for(p.B() * p.H(), [&](i64 piece) {
    const i64 b = piece / p.H(), h = piece % p.H();
    const bool any = p.queries(b) > 0 && p.keys(b) > 0;
    clear_rows(dq, b, h, any ? p.queries(b) : 0);
    clear_rows(dk, b, h, any ? p.keys(b) : 0);
    clear_rows(dv, b, h, any ? p.keys(b) : 0);
    if (any) HeadBackward<T>(p, b, h, out, u, v, dout, dk, dv).run(dq);
  });
}

template struct PotentialsKernels<Cpu, float>;
template struct PotentialsKernels<Cpu, double>;

}  // namespace weft
