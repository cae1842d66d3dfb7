// CUDA kernels of attention with potentials; the equations are in potentials.h, the tiles in
// score_tile.cuh and gradient_tile.cuh.
//
//     normalize     a block owns rows of one side and streams over the other: u or v
//     add_sums      likewise: Σ_j w_ij g_j, or over i
//     gradients     a block owns queries: dq; or keys: dk, or dx, or both
//
// The last pass of forward is that of pairs.cu with a bias by key. Each kernel recomputes the
// scores, so that every sum has one writer and one order.
#include <cmath>

#include "ops/attention/engines/pairs/gradient_tile.cuh"
#include "ops/attention/engines/pairs/potentials.h"
#include "ops/attention/infinity.h"
#include "runtime/cuda/workspace.h"

namespace weft {
namespace {

// Queries or keys, with a potential each; 0 without data.
template <class T>
struct Side {
  View<const T, 4> x;
  View<const T, 3> potential;
  const i64* lengths;
  T factor;  // of x in scores

  __device__ i64 count(i64 b) const { return length_of(lengths, b, x.size(1)); }
  __device__ T potential_of(const TileRows& rows, int row) const {
    return potential.data == nullptr ? T(0) : potential(rows.b, rows.h, rows.first + row);
  }
};

template <class T>
inline constexpr int own_rows = 8 * long_rows<T>;

template <class T>
__device__ TileRows rows_of_block(const Side<T>& own) {
  const i64 tiles = (own.x.size(1) + own_rows<T> - 1) / own_rows<T>, H = own.x.size(2);
  const i64 head = blockIdx.x / tiles, first = blockIdx.x % tiles * own_rows<T>;
  const i64 b = head / H;
  return {b, head % H, first, rows_within(first, own.count(b), own_rows<T>)};
}

template <class T>
__device__ TileRows streamed_rows(const Side<T>& other, const TileRows& own, i64 first) {
  return {own.b, own.h, first, rows_within(first, other.count(own.b), tile_columns)};
}

// Scores of the owned rows against tiles of the other side, one after the other.
template <class T>
class Scores {
 public:
  static constexpr int R = long_rows<T>;

  static std::size_t bytes(i64 E) {
    const auto stride = static_cast<std::size_t>(row_stride<T>(padded_width<T>(E, 64)));
    return SharedMemory::bytes<T>(own_rows<T> * stride) +
           SharedMemory::bytes<T>(tile_columns * stride);
  }

  __device__ Scores(const Side<T>& own, const TileRows& rows, SharedMemory& shared)
      : own_(own),
        rows_(rows),
        padded_(padded_width<T>(own.x.size(3), 64)),
        stride_(row_stride<T>(padded_)),
        a_(shared.take<T>(own_rows<T> * stride_)),
        b_(shared.take<T>(tile_columns * stride_)) {}

  // z = τ q · k
  __device__ void find(const Side<T>& other, const TileRows& tile, T (&z)[R][4]) const {
    for (i64 e = 0; e < own_.x.size(3); e += padded_) {
      __syncthreads();  // before shared memory is overwritten
      if (tile.first == 0 || own_.x.size(3) > padded_) {
        load_tile(own_.x, rows_, own_rows<T>, e, padded_, own_.factor, a_, stride_);
      }
      load_tile(other.x, tile, tile_columns, e, padded_, other.factor, b_, stride_);
      __syncthreads();
      add_products<R>(a_, b_, stride_, padded_, z);
    }
  }

 private:
  const Side<T>& own_;
  const TileRows& rows_;
  int padded_, stride_;
  T *a_, *b_;
};

// to_i = −log Σ_j exp(z_ij + p_j), for queries; for keys log(n/s) − the same over i.
template <class T>
__global__ void __launch_bounds__(tile_threads)
    normalize(Side<T> own, Side<T> other, bool of_keys, View<T, 3> to) {
  constexpr int R = long_rows<T>;
  SharedMemory shared;
  const TileRows rows = rows_of_block(own);
  const Scores<T> scores(own, rows, shared);
  const i64 others = other.count(rows.b);
  T most[R], sum[R] = {};
#pragma unroll
  for (int r = 0; r < R; ++r) most[r] = -infinity<T>;
  for (i64 first = 0; rows.count > 0 && first < others; first += tile_columns) {
    const TileRows tile = streamed_rows(other, rows, first);
    T z[R][4] = {};
    scores.find(other, tile, z);
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const int column = 16 * c + tile_x();
      const T potential = column < tile.count ? other.potential_of(tile, column) : -infinity<T>;
#pragma unroll
      for (int r = 0; r < R; ++r) z[r][c] += potential;
    }
#pragma unroll
    for (int r = 0; r < R; ++r) {
      T largest = most[r];
#pragma unroll
      for (int c = 0; c < 4; ++c) largest = Largest::of(largest, z[r][c]);
      largest = over_row<Largest>(largest);
      const T shift = largest == -infinity<T> ? T(0) : largest;
      sum[r] *= std::exp(most[r] - shift);
      most[r] = largest;
#pragma unroll
      for (int c = 0; c < 4; ++c) sum[r] += std::exp(z[r][c] - shift);
    }
  }
#pragma unroll
  for (int r = 0; r < R; ++r) {
    const int row = 8 * r + tile_y();
    const T total = over_row<Added>(sum[r]);
    if (tile_x() != 0 || rows.first + row >= to.size(2)) continue;
    const T share = of_keys ? std::log(T(others)) - std::log(T(own.count(rows.b))) : T(0);
    const bool any = row < rows.count && others > 0;
    to(rows.b, rows.h, rows.first + row) = any ? share - most[r] - std::log(total) : T(0);
  }
}

// to_i = before_i − Σ_j exp(z_ij + p_i + p_j) g_j; for keys times s/n. `before` or g without data
// counts as 0.
template <class T>
__global__ void __launch_bounds__(tile_threads)
    add_sums(Side<T> own, Side<T> other, bool of_keys, View<const T, 3> before, View<const T, 3> g,
             View<T, 3> to) {
  constexpr int R = long_rows<T>;
  SharedMemory shared;
  const TileRows rows = rows_of_block(own);
  const Scores<T> scores(own, rows, shared);
  const i64 others = other.count(rows.b);
  T sum[R] = {}, mine[R];
#pragma unroll
  for (int r = 0; r < R; ++r) {
    const int row = 8 * r + tile_y();
    mine[r] = row < rows.count ? own.potential_of(rows, row) : -infinity<T>;
  }
  for (i64 first = 0; g.data != nullptr && rows.count > 0 && first < others;
       first += tile_columns) {
    const TileRows tile = streamed_rows(other, rows, first);
    T z[R][4] = {};
    scores.find(other, tile, z);
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const int column = 16 * c + tile_x();
      if (column >= tile.count) continue;
      const T potential = other.potential_of(tile, column);
      const T factor = g(rows.b, rows.h, first + column);
#pragma unroll
      for (int r = 0; r < R; ++r) sum[r] += std::exp(z[r][c] + mine[r] + potential) * factor;
    }
  }
#pragma unroll
  for (int r = 0; r < R; ++r) {
    const int row = 8 * r + tile_y();
    const i64 i = rows.first + row;
    const T total = over_row<Added>(sum[r]);
    if (tile_x() != 0 || i >= to.size(2)) continue;
    const T share = of_keys ? T(own.count(rows.b)) / T(others) : T(1);
    const T start = before.data == nullptr ? T(0) : before(rows.b, rows.h, i);
    to(rows.b, rows.h, i) = row < rows.count && others > 0 ? share * (start - total) : T(0);
  }
}

// The owned rows' side of the products with dout, and the gradients that are wanted.
template <class T>
struct GradientCall {
  Side<T> own, other;
  View<const T, 4> own_values, other_values;  // dout of queries, the values of keys
  View<const T, 4> own_terms, other_terms;    // α [terms, B, H, N] and β [terms, B, H, S]
  bool scores = true;                         // dq or dk
  View<T, 4> gradient = {}, value_gradient = {};  // the latter for keys; no data: not wanted
};

template <class T, int C>
struct GradientLayout {
  static constexpr int R = long_rows<T>;
  static std::size_t bytes() {
    return Operands<T, R, C>::bytes() + SharedMemory::bytes<T>(own_rows<T> * weight_stride<T>) +
           SharedMemory::bytes<std::uint64_t>(tile_columns);
  }
};

template <class T, int C, bool of_keys>
__global__ void __launch_bounds__(tile_threads, 2)
    gradients(GradientCall<T> call, DropoutMask mask) {
  constexpr int R = long_rows<T>;
  using Tile = Operands<T, R, C>;
  constexpr int width = Tile::columns;
  SharedMemory shared;
  const Tile tile(shared);
  T* const weights = shared.take<T>(own_rows<T> * weight_stride<T>);
  std::uint64_t* const kept = shared.take<std::uint64_t>(tile_columns);
  const auto& [own, other, own_values, other_values, own_terms, other_terms, scores, gradient_view,
               value_view] = call;
  const TileRows rows = rows_of_block(own);
  const i64 others = other.count(rows.b), N = of_keys ? other.x.size(1) : own.x.size(1);
  const int chunks = chunks_of(own.x.size(3), own_values.size(3), width);
  const int mine = static_cast<int>(blockIdx.y);
  const bool values = of_keys && value_view.data != nullptr, drops = mask.threshold > 0;

  T gradient[R][C] = {}, value_gradient[R][C] = {};
  for (i64 first = 0; rows.count > 0 && first < others; first += tile_columns) {
    const TileRows streamed = streamed_rows(other, rows, first);
    T z[R][4] = {}, da[R][4] = {};
    for (int turn = 0; turn < chunks; ++turn) {
      const i64 column = (mine + 1 + turn) % chunks * width;
      __syncthreads();  // before shared memory is overwritten
      if (chunks > 1 || first == 0) {
        load_tile(own.x, rows, own_rows<T>, column, width, own.factor, tile.a, Tile::stride);
        load_tile(own_values, rows, own_rows<T>, column, width, T(1), tile.x, Tile::stride);
      }
      load_tile(other.x, streamed, tile_columns, column, width, other.factor, tile.b, Tile::stride);
      load_tile(other_values, streamed, tile_columns, column, width, T(1), tile.y, Tile::stride);
      if (turn == 0 && drops) {
        const TileRows& queries = of_keys ? streamed : rows;
        const i64 key = (of_keys ? rows : streamed).first / tile_columns * tile_columns;
        draw_kept(mask, (rows.b * own.x.size(2) + rows.h) * N + queries.first, 1,
                  of_keys ? tile_columns : own_rows<T>, key, kept);
      }
      __syncthreads();
      tile.products(z, da);
    }
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const int column = 16 * c + tile_x();
#pragma unroll
      for (int r = 0; r < R; ++r) {
        const int row = 8 * r + tile_y();
        if (row >= rows.count || column >= streamed.count) {
          z[r][c] = da[r][c] = 0;
          continue;
        }
        const int key = of_keys ? static_cast<int>(rows.first % tile_columns) + row : column;
        const bool left = !drops || (kept[of_keys ? column : row] >> key & 1) != 0;
        const T d = left ? static_cast<T>(mask.factor) : T(0);
        T sum = d * da[r][c];
        for (i64 t = 0; scores && t < own_terms.size(0); ++t) {
          sum -= own_terms(t, rows.b, rows.h, rows.first + row) *
                 other_terms(t, rows.b, rows.h, first + column);
        }
        const T potential = own.potential_of(rows, row) + other.potential_of(streamed, column);
        const T a = std::exp(z[r][c] + potential);
        da[r][c] = a * sum;
        z[r][c] = d * a;
      }
    }
    if (values) {
      store_weights<R>(z, weights);
      __syncwarp();
      add_weighted<R, C>(weights, tile.y, Tile::stride, streamed.count, value_gradient);
      __syncwarp();
    }
    if (scores) {
      store_weights<R>(da, weights);
      __syncwarp();
      add_weighted<R, C>(weights, tile.b, Tile::stride, streamed.count, gradient);
      __syncwarp();
    }
  }
  // The queries already contain the factor τ of dk.
  if (scores) {
    store_gradient<R, C>(gradient, of_keys ? T(1) : own.factor, rows, mine * width, false,
                         gradient_view);
  }
  if (values) store_gradient<R, C>(value_gradient, T(1), rows, mine * width, false, value_view);
}

// α or β of one term: exp(own − last) times `factor`; no data counts as 0, and as a factor as 1.
template <class T>
struct TermFactor {
  const T *own, *last, *factor;
  T* to;

  __device__ void operator()(i64 i) const {
    const T power = (own == nullptr ? T(0) : own[i]) - (last == nullptr ? T(0) : last[i]);
    to[i] = std::exp(power) * (factor == nullptr ? T(1) : factor[i]);
  }
};

// u = −ℓ of the last pass, 0 if there is no key.
template <class T>
struct NegatedLogSum {
  T* u;
  __device__ void operator()(i64 i) const { u[i] = u[i] == infinity<T> ? T(0) : -u[i]; }
};

// A row of out times exp(u + ℓ).
template <class T>
struct ScaledRow {
  View<const T, 3> u, log_sums;
  View<T, 4> out;

  template <class Team>
  __device__ void operator()(const Team& team, i64 row) const {
    const i64 N = out.size(1), H = out.size(2);
    const i64 b = row / N / H, h = row / N % H, i = row % N;
    const T log_sum = log_sums(b, h, i);
    if (log_sum == infinity<T>) return;
    const T factor = std::exp(u(b, h, i) + log_sum);
    for (i64 m = team.rank(); m < out.size(3); m += Team::threads) out(b, i, h, m) *= factor;
  }
};

template <class T>
struct Passes {
  const Cuda& device;
  const Potentials<T>& p;
  View<const T, 4> u, v;  // some of them are not written yet
  DropoutMask mask = p.pairs().mask();

  Side<T> queries(i64 r) const { return {p.q, step_of(u, r), p.query_lengths, p.temperature}; }
  Side<T> keys(i64 c) const { return {p.k, step_of(v, c), p.lengths, T(1)}; }

  template <class... P>
  void start_on(const Side<T>& own, int columns, std::size_t bytes, void (*kernel)(P...),
                std::type_identity_t<P>... arguments) const {
    const i64 tiles = (own.x.size(1) + own_rows<T> - 1) / own_rows<T>;
    const i64 blocks = p.B() * p.H() * tiles;
    if (blocks == 0) return;
    const dim3 grid(static_cast<unsigned>(blocks), static_cast<unsigned>(columns));
    start_tiles("pairs", device, grid, bytes, kernel, arguments...);
  }

  void normalize_rows(i64 c, const View<T, 3>& to) const {
    start_on(queries(-1), 1, Scores<T>::bytes(p.E()), normalize<T>, queries(-1), keys(c), false,
             to);
  }
  void normalize_columns(i64 r, const View<T, 3>& to) const {
    start_on(keys(-1), 1, Scores<T>::bytes(p.E()), normalize<T>, keys(-1), queries(r), true, to);
  }
  void sums_of_rows(i64 r, i64 c, const View<const T, 3>& before, const View<const T, 3>& g,
                    const View<T, 3>& to) const {
    start_on(queries(r), 1, Scores<T>::bytes(p.E()), add_sums<T>, queries(r), keys(c), false,
             before, g, to);
  }
  void sums_of_columns(i64 r, i64 c, const View<const T, 3>& before, const View<const T, 3>& g,
                       const View<T, 3>& to) const {
    start_on(keys(c), 1, Scores<T>::bytes(p.E()), add_sums<T>, keys(c), queries(r), true, before, g,
             to);
  }

  template <int C, bool of_keys>
  void find_gradients(const GradientCall<T>& call) const {
    const int chunks = chunks_of(p.E(), p.M(), 16 * C);
    start_on(call.own, chunks, GradientLayout<T, C>::bytes(), gradients<T, C, of_keys>, call, mask);
  }
  template <bool of_keys>
  void find_gradients(const GradientCall<T>& call) const {
    constexpr int wide = 16 / sizeof(T);  // in f64 what 99 KB of shared memory have room for
    std::max(p.E(), p.M()) <= 16 ? find_gradients<1, of_keys>(call)
                                 : find_gradients<wide, of_keys>(call);
  }
};

}  // namespace

template <class Device, class T>
void PotentialsKernels<Device, T>::forward(const Device& device, const Potentials<T>& p,
                                           View<T, 4> out, View<T, 4> u, View<T, 4> v) {
  const i64 B = p.B(), N = p.N(), S = p.S(), H = p.H(), C = p.column_steps();
  const Passes<T> passes{device, p, u, v};
  for (i64 c = 0; c < C; ++c) {
    passes.normalize_rows(c - 1, step_of(u, c));
    passes.normalize_columns(c, step_of(v, c));
  }
  if (B * H * N == 0) return;
  Pairs<T> pairs = p.pairs();
  if (C > 0) pairs.bias = {step_of(v, C - 1).data, {B, H, N, S}, {H * S, S, 0, 1}};
  if (p.ends_with_rows()) {
    const View<T, 3> last = step_of(u, C);
    PairsKernels<Device, T>::forward(device, pairs, {}, out, last);
    return for_elements("pairs", device, B * H * N, NegatedLogSum<T>{last.data});
  }
  const Workspace<T> sums(device, B * H * N);
  const View<T, 3> log_sums = sums.view(B, H, N);
  PairsKernels<Device, T>::forward(device, pairs, {}, out, log_sums);
  for_rows("pairs", device, B * H * N, p.M(), ScaledRow<T>{step_of(u, C - 1), log_sums, out});
}

template <class Device, class T>
void PotentialsKernels<Device, T>::backward(const Device& device, const Potentials<T>& p,
                                            View<const T, 4> out, View<const T, 4> u,
                                            View<const T, 4> v, View<const T, 4> dout,
                                            View<T, 4> dq, View<T, 4> dk, View<T, 4> dv) {
  const i64 B = p.B(), N = p.N(), S = p.S(), H = p.H(), heads = B * H;
  const i64 R = p.row_steps(), C = p.column_steps(), terms = term_count(p);
  const bool constant = p.constant_columns();
  const Passes<T> passes{device, p, u, v};
  const Workspace<T> rows(device, R * heads * N), columns(device, C * heads * S);
  const Workspace<T> alphas(device, terms * heads * N), betas(device, terms * heads * S);
  const Workspace<T> of_values(device, constant ? 0 : heads * S);
  const View<T, 4> du = rows.view(R, B, H, N), dcolumns = columns.view(C, B, H, S);
  const View<T, 4> alpha = alphas.view(terms, B, H, N), beta = betas.view(terms, B, H, S);
  for_rows("pairs", device, heads * N, p.M(), RowProducts<T>{dout, out, step_of(du, R - 1)});

  GradientCall<T> of_keys{passes.keys(C - 1), passes.queries(R - 1), p.v, dout, beta, alpha};
  of_keys.value_gradient = dv;
  if (!constant) {
    of_keys.scores = false;
    passes.template find_gradients<true>(of_keys);
    of_keys.value_gradient = {};
    const View<T, 3> direct = of_values.view(B, H, S);
    for_rows("pairs", device, heads * S, p.M(), RowProducts<T>{p.v, dv, direct});
    View<const T, 3> before = direct;
    i64 r = R - 1;
    if (!p.ends_with_rows()) {
      passes.sums_of_columns(r, r, before, {}, step_of(dcolumns, r));
      passes.sums_of_rows(r, r, step_of(du, r), step_of(dcolumns, r), step_of(du, r));
      before = {};
    }
    for (; r > 0; --r, before = {}) {
      passes.sums_of_columns(r, r - 1, before, step_of(du, r), step_of(dcolumns, r - 1));
      passes.sums_of_rows(r - 1, r - 1, {}, step_of(dcolumns, r - 1), step_of(du, r - 1));
    }
  }
  for (i64 t = 0; t < terms; ++t) {
    const PotentialTerm term = term_of(p, t);
    for_elements("pairs", device, heads * N,
                 TermFactor<T>{step_of(u, term.u()).data, step_of(u, R - 1).data,
                               term.of_row() ? step_of(du, term.row).data : nullptr,
                               step_of(alpha, t).data});
    for_elements("pairs", device, heads * S,
                 TermFactor<T>{step_of(v, term.v()).data, step_of(v, C - 1).data,
                               term.of_row() ? nullptr : step_of(dcolumns, term.column).data,
                               step_of(beta, t).data});
  }
  of_keys.scores = true;
  of_keys.gradient = dk;
  passes.template find_gradients<true>(of_keys);
  GradientCall<T> of_queries{passes.queries(R - 1), passes.keys(C - 1), dout, p.v, alpha, beta};
  of_queries.gradient = dq;
  passes.template find_gradients<false>(of_queries);
}

template struct PotentialsKernels<Cuda, float>;
template struct PotentialsKernels<Cuda, double>;

}  // namespace weft
