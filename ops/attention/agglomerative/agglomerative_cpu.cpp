// CPU kernels of agglomerative attention; the equations are in agglomerative.h.
//
// Between load and store everything is f64. A chunk is processed by two kinds of loops: over [rows,
// H] for the arrays of classes (softmax, S, n, w), and over [rows, H, M] in strips of a few vectors
// of columns, whose running sum (U or G) stays in registers for a block of rows. Causal scans
// proceed wave by wave: what the first pass over a wave's chunks has read is still in cache for the
// second.
#include "ops/attention/agglomerative/agglomerative.h"

#include <algorithm>

#include "ops/attention/agglomerative/chunk.h"
#include "ops/attention/agglomerative/strip.h"
#include "ops/dropout/mask_vectors.h"
#include "runtime/parallel.h"
#include "runtime/scratch.h"

namespace weft {
namespace {

using namespace strips;

constexpr i64 wave = agglomerative_wave;

// S += Σ ck, U += Σ ck y over the references of a chunk.
template <class T>
void add_references(const Agglomerative<T>& p, const Chunk& c, double* sums) {
  const i64 H = p.H(), M = p.M();
  Pieces<double> scratch(c.rows * H);
  double* const ck = scratch.take(c.rows * H);
  classify(p.zk, c, c.keys, ck);
  add_rows(c.keys, H, ck, sums);
  const Rows<const T> y(p.y, c);
  each_strip(H, M, c.keys, [&](auto s, i64 begin, i64 end) {
    constexpr int V = decltype(s)::vectors;
    Doubles U[V];
    s.get_all(sums + H, U);
    for (i64 i = begin; i < end; ++i) s.add_row(ck + i * H, y[i], y.step, U);
    s.put_all(U, sums + H);
  });
}

// to = d ⊙ from for the queries of a chunk, both with contiguous rows.
template <class T>
void drop(const Agglomerative<T>& p, const Chunk& c, const T* from, T* to) {
  const i64 columns = p.H() * p.M(), row = c.b * p.N() + c.begin;
  const DropoutMask mask = p.mask();
  if (columns % DropoutMask::pieces == 0) {  // one row's decisions end where the next one's begin
    return apply_dropout<T>(mask, row, 0, c.queries * columns, from, to);
  }
  for (i64 i = 0; i < c.queries; ++i) {
    apply_dropout<T>(mask, row + i, 0, columns, from + i * columns, to + i * columns);
  }
}

// The outputs of a chunk. `sums` holds (S, U): before the chunk when causal, and then after it.
template <class T>
void write_outputs(const Agglomerative<T>& p, const Chunk& c, double* sums, const View<T, 4>& out) {
  const i64 H = p.H(), M = p.M(), keys = p.causal ? c.keys : 0;
  Pieces<double> scratch(3 * c.rows * H);
  double* const ck = scratch.take(c.rows * H);
  double* const w = scratch.take(c.rows * H);
  double* const inverse = scratch.take(c.rows * H);
  classify(p.zk, c, keys, ck);
  classify(p.zq, c, c.queries, w);
  invert_mass(p.causal, c, H, ck, sums, inverse, nullptr);
  for (i64 i = 0; i < c.queries * H; ++i) w[i] *= inverse[i];
  const Rows<T> to(out, c);
  const Rows<const T> y = p.causal ? Rows<const T>(p.y, c) : Rows<const T>(nullptr, 0, 0);
  each_strip(H, M, c.rows, [&](auto s, i64 begin, i64 end) {
    constexpr int V = decltype(s)::vectors;
    Doubles U[V];
    s.get_all(sums + H, U);
    for (i64 i = begin; i < end; ++i) {
      if (i < keys) s.add_row(ck + i * H, y[i], y.step, U);
      for (int v = 0; v < V && i < c.queries; ++v) {
        s.put(v, hn::Mul(s.of(v, w + i * H), U[v]), to[i], to.step);
      }
    }
    s.put_all(U, sums + H);
  });
  std::fill(to[c.queries], to[c.rows], T(0));
  if (p.dropout > 0) drop<T>(p, c, to[0], to[0]);
}

// dp of a chunk: rows of dout or, with dropout, of a masked copy.
template <class T>
struct OutputGradient {
  Tensor copy;
  Rows<const T> rows;

  OutputGradient(const Agglomerative<T>& p, const View<const T, 4>& dout, const Chunk& c)
      : rows(dout, c) {
    if (p.dropout == 0) return;
    copy = Tensor::empty({c.rows, p.H() * p.M()}, dtype_of<T>);
    drop<T>(p, c, rows[0], copy.data<T>());
    rows.data = copy.data<T>();
  }
};

// Results of the sweep over queries for that over references: ck, w and dn, [rows, H] each.
struct Kept {
  double *ck, *w, *dn;
  Kept(double* from, i64 count) : ck(from), w(from + count), dn(w + count) {}
};

// dz = c (dc − Σ c dc) for rows of classes.
template <class T>
void softmax_gradient(const Chunk& chunk, i64 rows, const double* c, const double* dc,
                      const View<T, 3>& dz) {
  const i64 H = dz.size(2);
  for (i64 i = 0; i < chunk.rows; ++i) {
    T* const to = &dz(chunk.b, chunk.begin + i, 0);
    if (i >= rows) {
      std::fill(to, to + H, T(0));
      continue;
    }
    const Number inner(simd::dot(c + i * H, dc + i * H, H));
    for (i64 k = 0; k < H; k += lanes) {
      const Number weight = Number::load(c + i * H + k, H - k);
      const Number gradient = Number::load(dc + i * H + k, H - k);
      store((weight * (gradient - inner)).vector(), to + k, H - k);
    }
  }
}

// dzq of a chunk, and what Kept holds. `sums` is used as by write_outputs; the chunk's (g, G) is
// added to `totals`, unless it is null.
template <class T>
void sweep_queries(const Agglomerative<T>& p, const Chunk& c, const View<const T, 4>& dout,
                   double* sums, const View<T, 3>& dzq, const Kept& kept, double* totals) {
  const i64 H = p.H(), M = p.M(), count = c.queries * H, keys = p.causal ? c.keys : 0;
  Pieces<double> scratch(3 * c.rows * H);
  double* const cq = scratch.take(c.rows * H);
  double* const inverse = scratch.take(c.rows * H);
  double* const dcq = scratch.take(c.rows * H);
  classify(p.zk, c, keys, kept.ck);
  classify(p.zq, c, c.queries, cq);
  invert_mass(p.causal, c, H, kept.ck, sums, inverse, kept.dn);
  for (i64 i = 0; i < count; ++i) kept.w[i] = cq[i] * inverse[i];
  std::fill(dcq, dcq + count, 0.0);
  const OutputGradient<T> gradient(p, dout, c);
  const Rows<const T>& dp = gradient.rows;
  const Rows<const T> y = p.causal ? Rows<const T>(p.y, c) : Rows<const T>(nullptr, 0, 0);
  each_strip(H, M, c.rows, [&](auto s, i64 begin, i64 end) {
    constexpr int V = decltype(s)::vectors;
    Doubles U[V], G[V];
    s.get_all(sums + H, U);
    if (totals) s.get_all(totals + H, G);
    for (i64 i = begin; i < end; ++i) {
      if (i < keys) s.add_row(kept.ck + i * H, y[i], y.step, U);
      if (i >= c.queries) continue;
      Doubles product[V];
      for (int v = 0; v < V; ++v) {
        const Doubles x = s.get(v, dp[i], dp.step);
        product[v] = hn::Mul(x, U[v]);
        if (totals) G[v] = hn::MulAdd(s.of(v, kept.w + i * H), x, G[v]);
      }
      s.add_dot(product, dcq + i * H);
    }
    s.put_all(U, sums + H);
    if (totals) s.put_all(G, totals + H);
  });
  for (i64 i = 0; i < count; ++i) {
    dcq[i] *= inverse[i];
    kept.dn[i] *= -kept.w[i] * dcq[i];
  }
  if (totals != nullptr) add_rows(c.queries, H, kept.dn, totals);
  softmax_gradient(c, c.queries, cq, dcq, dzq);
}

// dzk and dy of a chunk. `totals` holds (g, G): of the queries after the chunk when causal, and on
// return of those in it too; otherwise of all queries.
template <class T>
void sweep_references(const Agglomerative<T>& p, const Chunk& c, const View<const T, 4>& dout,
                      const Kept& kept, double* totals, const View<T, 3>& dzk,
                      const View<T, 4>& dy) {
  const i64 H = p.H(), M = p.M(), queries = p.causal ? c.queries : 0;
  Pieces<double> scratch(c.rows * H);
  double* const dck = scratch.take(c.rows * H);
  if (!p.causal) classify(p.zk, c, c.keys, kept.ck);
  for (i64 t = c.rows - 1; t >= 0; --t) {
    if (t < queries) add_rows(1, H, kept.dn + t * H, totals);
    std::copy(totals, totals + H, dck + t * H);
  }
  const Rows<const T> y(p.y, c);
  const Rows<T> to(dy, c);
  const auto sweep = [&](const Rows<const T>& dp) {
    each_strip(H, M, c.rows, [&](auto s, i64 begin, i64 end) {
      constexpr int V = decltype(s)::vectors;
      Doubles G[V];
      s.get_all(totals + H, G);
      for (i64 t = c.rows - 1 - begin; t >= c.rows - end; --t) {
        if (t < queries) s.add_row(kept.w + t * H, dp[t], dp.step, G);
        if (t >= c.keys) continue;
        Doubles product[V];
        for (int v = 0; v < V; ++v) {
          s.put(v, hn::Mul(s.of(v, kept.ck + t * H), G[v]), to[t], to.step);
          product[v] = hn::Mul(s.get(v, y[t], y.step), G[v]);
        }
        s.add_dot(product, dck + t * H);
      }
      s.put_all(G, totals + H);
    });
  };
  if (p.causal) {
    sweep(OutputGradient<T>(p, dout, c).rows);
  } else {
    sweep({nullptr, 0, 0});
  }
  for (i64 t = c.keys; t < c.rows; ++t) std::fill(to[t], to[t] + H * M, T(0));
  softmax_gradient(c, c.keys, kept.ck, dck, dzk);
}

// to [B, width] = Σ over the chunks of each batch item, in order, of what f(chunk, row) adds to
// zeros.
template <class T, class F>
void sum_chunks(const Agglomerative<T>& p, i64 positions, double* to, const F& f) {
  const i64 chunks = agglomerative_chunks(positions), width = p.width();
  const Tensor parts = Tensor::zeros({p.B() * chunks, width}, DType::f64);
  double* const rows = parts.data<double>();
  parallel_for(p.B() * chunks, [&](i64 i) { f(Chunk(p, i, positions), rows + i * width); });
  std::fill(to, to + p.B() * width, 0.0);
  for (i64 b = 0; b < p.B(); ++b) {
    add_rows(chunks, width, rows + b * chunks * width, to + b * width);
  }
}

template <class T>
void causal_forward(const Agglomerative<T>& p, const View<double, 3>& sums, const View<T, 4>& out) {
  const i64 pieces = p.B() * agglomerative_chunks(p.N()), width = p.width();
  const auto row = [&](i64 piece) { return sums.data + piece * width; };
  for (i64 first = 0; first < pieces; first += wave) {
    const i64 last = std::min(pieces, first + wave);
    parallel_for(last - first, [&](i64 i) {
      const Chunk c(p, first + i, p.N());
      if (c.index == 0) std::fill(row(first + i), row(first + i) + width, 0.0);
      if (c.last) return;
      std::fill(row(first + i + 1), row(first + i + 2), 0.0);
      add_references(p, c, row(first + i + 1));
    });
    for (i64 piece = first; piece < last; ++piece) {
      if (!Chunk(p, piece, p.N()).last) add_rows(1, width, row(piece), row(piece + 1));
    }
    parallel_for(last - first, [&](i64 i) {
      Pieces<double> running(width);
      write_outputs(p, Chunk(p, first + i, p.N()), running.copy(row(first + i), width), out);
    });
  }
}

template <class T>
void causal_backward(const Agglomerative<T>& p, const View<const double, 3>& sums,
                     const View<const T, 4>& dout, const View<T, 3>& dzq, const View<T, 3>& dzk,
                     const View<T, 4>& dy) {
  const i64 pieces = p.B() * agglomerative_chunks(p.N()), width = p.width();
  if (pieces == 0) return;
  const i64 most = std::min(pieces, wave);
  const i64 count = std::min(p.N(), agglomerative_chunk) * p.H();
  Pieces<double> scratch((most + 2) * width + most * 3 * count);
  // Row i: (g, G) of the queries in chunk first + i and after it; a row of zeros at the end of a
  // batch item.
  double* const totals = scratch.take((most + 1) * width);
  double* const zeros = scratch.take(width);
  double* const weights = scratch.take(most * 3 * count);
  const auto row = [&](i64 i) { return totals + i * width; };
  std::fill(zeros, zeros + width, 0.0);
  for (i64 first = (pieces - 1) / wave * wave; first >= 0; first -= wave) {
    const i64 in_wave = std::min(pieces - first, wave);
    const auto kept = [&](i64 i) { return Kept(weights + i * 3 * count, count); };
    parallel_for(in_wave, [&](i64 i) {
      const Chunk c(p, first + i, p.N());
      Pieces<double> running(width);
      std::fill(row(i), row(i + 1), 0.0);
      sweep_queries(p, c, dout, running.copy(sums.data + (first + i) * width, width), dzq, kept(i),
                    c.index > 0 ? row(i) : nullptr);
    });
    for (i64 i = in_wave - 1; i >= 0; --i) {
      if (!Chunk(p, first + i, p.N()).last) add_rows(1, width, row(i + 1), row(i));
    }
    parallel_for(in_wave, [&](i64 i) {
      const Chunk c(p, first + i, p.N());
      Pieces<double> running(width);
      sweep_references(p, c, dout, kept(i), running.copy(c.last ? zeros : row(i + 1), width), dzk,
                       dy);
    });
    std::copy(row(0), row(1), row(most));  // the sums after the wave before this one
  }
}

template <class T>
void full_backward(const Agglomerative<T>& p, const View<const double, 3>& sums,
                   const View<const T, 4>& dout, const View<T, 3>& dzq, const View<T, 3>& dzk,
                   const View<T, 4>& dy) {
  const i64 width = p.width();
  const Tensor totals = Tensor::empty({p.B(), width}, DType::f64);
  sum_chunks(p, p.N(), totals.data<double>(), [&](const Chunk& c, double* row) {
    const i64 count = c.rows * p.H();
    Pieces<double> scratch(width + 3 * count);
    double* const all = scratch.copy(&sums(c.b, 0, 0), width);
    sweep_queries(p, c, dout, all, dzq, Kept(scratch.take(3 * count), count), row);
  });
  parallel_for(p.B() * agglomerative_chunks(p.S()), [&](i64 piece) {
    const Chunk c(p, piece, p.S());
    const i64 count = c.rows * p.H();
    Pieces<double> scratch(width + 3 * count);
    double* const all = scratch.copy(totals.data<double>() + c.b * width, width);
    sweep_references(p, c, dout, Kept(scratch.take(3 * count), count), all, dzk, dy);
  });
}

}  // namespace

template <class Device, class T>
void AgglomerativeKernels<Device, T>::forward(const Device&, const Agglomerative<T>& p,
                                              View<double, 3> sums, View<T, 4> out) {
  if (p.causal) return causal_forward(p, sums, out);
  sum_chunks(p, p.S(), sums.data, [&](const Chunk& c, double* row) { add_references(p, c, row); });
  parallel_for(p.B() * agglomerative_chunks(p.N()), [&](i64 piece) {
    const Chunk c(p, piece, p.N());
    Pieces<double> all(p.width());
    write_outputs(p, c, all.copy(&sums(c.b, 0, 0), p.width()), out);
  });
}

template <class Device, class T>
void AgglomerativeKernels<Device, T>::advance(const Device&, const Agglomerative<T>& p,
                                              View<double, 2> sums, View<T, 4> out) {
  parallel_for(p.B(), [&](i64 b) { write_outputs(p, Chunk(p, b, p.N()), &sums(b, 0), out); });
}

template <class Device, class T>
void AgglomerativeKernels<Device, T>::backward(const Device&, const Agglomerative<T>& p,
                                               View<const double, 3> sums, View<const T, 4> dout,
                                               View<T, 3> dzq, View<T, 3> dzk, View<T, 4> dy) {
  const auto backward = p.causal ? causal_backward<T> : full_backward<T>;
  backward(p, sums, dout, dzq, dzk, dy);
}

template struct AgglomerativeKernels<Cpu, float>;
template struct AgglomerativeKernels<Cpu, double>;

}  // namespace weft
