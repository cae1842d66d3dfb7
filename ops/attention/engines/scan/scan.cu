// CUDA kernels of the engine for scans; the equations are in scan.h, the tile of scores in
// score_tile.cuh.
//
// Features are computed once a call, into workspace. Then chunks are independent: the sums of outer
// products of each chunk, their prefix sums along the sequence, element by element and in order,
// and the result of each chunk's rows with the sum before it. That last kernel is used for out,
// dφq, dφk and dv, which have the same form: with x the rows of one side, y those of the other
// side, W and w a state,
//
//     o_i = W x_i (+ w) + Σ_{j in the chunk} (x_i · y_j) u_j
//
// with levels as factors, and the unscaled sums beside. Without pairs it multiplies by Ω and Ωᵀ.
//
// A block owns 8 R rows of a chunk and 64 columns; products go through shared memory in tiles
// of 64. With storage in bf16 the products are those of scan_mma.cuh, but for Ω, and the features
// that gradients read are kept in f32 beside the rounded ones.
//
// Workspace: features and their gradients, and for the causal form F (M + 1) numbers a chunk of 64
// positions. Unmeasured on a device.
#include "ops/attention/engines/scan/scan_mma.cuh"

namespace weft {
namespace {

using namespace scan;

// --- rows

// X: of the rows.
template <class S, class X, int R, class T = Accumulator<S>>
__global__ void __launch_bounds__(tile_threads, 2)
    rows_of_chunks(Scan<S> p, Rows<X> of, View<T, 4> out, View<T, 3> divisors) {
  constexpr int rows = 8 * R;
  const i64 depth = of.x.size(3), width = out.size(3), M = p.M();
  const i64 tiles = (out.size(1) + rows - 1) / rows, sequence = blockIdx.x / tiles;
  const i64 b = sequence / p.H(), h = sequence % p.H(), first = blockIdx.x % tiles * rows;
  const i64 chunk = first / side, column = i64{blockIdx.y} * side;
  const i64 queries = p.queries(b), keys = p.keys(b);
  const TileRows own{b, h, first, rows_within(first, of.own_queries ? queries : keys, rows)};
  const TileRows others{b, h, chunk * side,
                        rows_within(chunk * side, of.own_queries ? keys : queries, side)};
  const int padded = padded_width<T>(depth, side), stride = row_stride<T>(padded);
  const T* const state = of.states.at(sequence, p.causal ? chunk : 0);
  const T* const vector = state + p.F() * M;  // z or g
  const T* const beside = vector + p.F();     // V and the number of keys, or W
  const bool alone = of.columns > 0, totals = of.beside == Beside::totals;
  const i64 row_of_state = alone ? of.columns : M;

  SharedMemory shared;
  T* const weights = shared.take<T>(rows * weight_stride<T>);
  T* const left = shared.take<T>(rows * row_stride<T>(side));
  T* const right = shared.take<T>(side * row_stride<T>(side));
  T o[R][4] = {}, D[R] = {};
  for (i64 d = 0; d < depth; d += side) {
    const int count = rows_within(d, depth, side);
    __syncthreads();  // before shared memory is overwritten
    load_tile(of.x, own, rows, d, side, T(1), weights, weight_stride<T>);
    const auto inside = [&](int i, int c) { return i < count && column + c < width; };
    if (of.turned) {
      load_turned(side, right, row_stride<T>(side), [&](int c, int i) {
        return inside(i, c) ? state[(column + c) * row_of_state + d + i] : T(0);
      });
    } else {
      for (int k = static_cast<int>(threadIdx.x); k < side * side; k += tile_threads) {
        const int i = k / side, c = k % side;
        right[i * row_stride<T>(side) + c] =
            inside(i, c) ? state[(d + i) * row_of_state + column + c] : T(0);
      }
    }
    __syncthreads();
    add_weighted<R, 4>(weights, right, row_stride<T>(side), count, o);
    if (divisors.data == nullptr) continue;
    const T* const summed = totals ? beside : vector;
#pragma unroll
    for (int r = 0; r < R; ++r) {
      for (int i = tile_x(); i < count; i += 16) {
        D[r] += weights[(8 * r + tile_y()) * weight_stride<T> + i] * summed[d + i];
      }
    }
  }
  if (of.turned && !alone) {
#pragma unroll
    for (int r = 0; r < R; ++r) {
      const int row = 8 * r + tile_y();
      if (row >= own.count) continue;
      const T factor = of.own_added.data == nullptr ? T(1) : of.own_added(b, h, first + row);
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const i64 f = column + owned_column<T, 4>(c);
        if (f < width) o[r][c] += factor * vector[f];
      }
    }
  }
  if (of.levels.rise()) {
#pragma unroll
    for (int r = 0; r < R; ++r) {
      const int row = 8 * r + tile_y();
      if (row >= own.count) continue;
      const T factor = of.fade(b, h, first + row);
#pragma unroll
      for (int c = 0; c < 4; ++c) o[r][c] *= factor;
      if (!totals) D[r] *= factor;
    }
  }
  if (of.beside != Beside::nothing) {
#pragma unroll
    for (int r = 0; r < R; ++r) {
      const int row = 8 * r + tile_y();
      if (row >= own.count) continue;
      const bool outputs = of.beside == Beside::outputs;
      const T weight = outputs ? of.weights(b, h, first + row)
                       : totals ? of.own_added(b, h, first + row)
                                : T(1);
#pragma unroll
      for (int c = 0; c < 4 && !totals; ++c) {
        const i64 m = column + owned_column<T, 4>(c);
        if (m < width) o[r][c] += weight * beside[m];
      }
      if (tile_x() == 0) D[r] += weight * beside[M];
    }
  }
  if (p.causal && !alone && own.count > 0 && others.count > 0) {
    T z[R][4] = {};
    for (i64 d = 0; d < depth; d += padded) {
      __syncthreads();
      load_tile(of.x, own, rows, d, padded, T(1), left, stride);
      load_tile(of.y, others, side, d, padded, T(1), right, stride);
      __syncthreads();
      add_products<R>(left, right, stride, padded, z);
    }
#pragma unroll
    for (int r = 0; r < R; ++r) {
      const int row = 8 * r + tile_y();
      const i64 i = first + row;
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const int place = 16 * c + tile_x();
        const i64 j = others.first + place;
        const bool seen = row < own.count && place < others.count &&
                          (of.own_queries ? j <= i : i <= j);
        if (!seen) {
          z[r][c] = 0;
          continue;
        }
        if (of.own_added.data != nullptr) z[r][c] += of.own_added(b, h, i);
        if (of.other_added.data != nullptr) z[r][c] += of.other_added(b, h, j);
        if (totals) D[r] += z[r][c];
        if (of.levels.rise()) z[r][c] *= of.fade(b, h, i, j);
        if (of.weights.data != nullptr) z[r][c] += of.weights(b, h, of.own_queries ? i : j);
        if (!totals) D[r] += z[r][c];
      }
    }
    __syncthreads();
    store_weights<R>(z, weights);
    load_tile(of.u, others, side, column, side, T(1), right, side);
    __syncthreads();
    add_weighted<R, 4>(weights, right, side, others.count, o);
  }
#pragma unroll
  for (int r = 0; r < R; ++r) {
    const int row = 8 * r + tile_y();
    const bool there = row < own.count;
    T n = 1;
    if (divisors.data != nullptr) {
      const T sum = over_row<Added>(D[r]);
      if (there && !totals) n = p.divisor(sum);
      if (first + row < out.size(1) && blockIdx.y == 0 && tile_x() == 0) {
        divisors(b, h, first + row) = !there ? T(0) : totals ? sum : n;
      }
    }
    if (first + row >= out.size(1)) continue;
#pragma unroll
    for (int c = 0; c < 4; ++c) o[r][c] = there ? o[r][c] / n : T(0);
    store_owned(o[r], row_of(out, b, first + row, h), column);
  }
}

// --- launching them

unsigned cut(i64 count, i64 by) { return static_cast<unsigned>((count + by - 1) / by); }

// The workspace of one call.
template <class S>
class Call {
 public:
  using T = Accumulator<S>;

  // If features have levels that continue, `carried` are the sums whose level they continue from.
  Call(const Cuda& device, const Scan<S>& p, const double* carried, bool gradients)
      : device_(device),
        p_(p),
        chunks_(std::max<i64>((std::max(p.N(), p.S()) + side - 1) / side, 1)),
        exact_(!rounds || gradients || is_random(p.feature)),
        q_(device, exact_ ? features_of_queries() : 0),
        k_(device, exact_ ? features_of_keys() : 0),
        rounded_q_(device, rounds ? features_of_queries() : 0),
        rounded_k_(device, rounds ? features_of_keys() : 0),
        states_(device, p.B() * p.H() * chunks_ * p.sums()),
        weights_(device, p.levels() ? p.B() * p.H() * p.N() : 0),
        first_(device, p.levels() ? p.B() * p.H() : 0) {
    if (is_random(p.feature)) {
      random_queries();
      random_keys(carried);
      return;
    }
    for_rows("scan", device, p.B() * p.N() * p.H(), p.E(),
             Features<S>{p, p.q, true, exact_q(), rounded_q()});
    for_rows("scan", device, p.B() * p.S() * p.H(), p.E(),
             Features<S>{p, p.k, false, exact_k(), rounded_k()});
  }

  // Features, as operands.
  View<const S, 4> q() const {
    if constexpr (rounds) return rounded_q();
    else return exact_q();
  }
  View<const S, 4> k() const {
    if constexpr (rounds) return rounded_k();
    else return exact_k();
  }
  States<T> states() const { return {states_.data(), chunks_, p_.sums()}; }
  Levels<T> levels() const {
    return p_.levels() && p_.causal ? Levels<T>{p_.key_max, first_.data()} : Levels<T>{};
  }
  View<const T, 3> weights() const { return writable_weights(); }
  Beside beside(Beside what) const { return p_.levels() ? what : Beside::nothing; }

  // Of features of queries or of keys and of y.
  void sum(bool of_queries, const View<const S, 4>& y, const View<const T, 3>& vector,
           double* carried) const {
    const View<const S, 4> x = of_queries ? q() : k();
    const RowWeights<T> rows{vector, of_queries ? weights() : View<const T, 3>{}, levels()};
    const auto chunks = static_cast<unsigned>(p_.B() * p_.H() * chunks_);
    if constexpr (rounds) {
      with_mma_width<side>(std::max(p_.F(), p_.M()), [&](auto columns) {
        constexpr int W = columns();
        start_tiles("scan", device_, dim3(chunks, cut(p_.F(), W), cut(p_.M(), W)),
                    SumsLayout<W>::bytes(), sums_mma<W>, x, of_queries ? exact_q() : exact_k(), y,
                    p_, of_queries, rows, states());
      });
    } else {
      constexpr int R = long_rows<T>;
      const std::size_t shared = SharedMemory::bytes<T>(8 * R * weight_stride<T>) +
                                 SharedMemory::bytes<T>(side * side);
      start_tiles("scan", device_, dim3(chunks, cut(p_.F(), 8 * R), cut(p_.M(), side)), shared,
                  sums_of_chunks<T, R>, x, y, p_, of_queries, rows, states());
    }
    for_elements("scan", device_, p_.B() * p_.H() * p_.sums(),
                 RunningSums<T>{states(), p_.causal, of_queries, carried, levels(),
                                p_.F() * (p_.M() + 1), p_.H()});
  }

  template <class Out>
  void rows(const Rows<S>& of, const View<Out, 4>& out, const View<T, 3>& divisors) const {
    if constexpr (rounds) {
      if (out.size(1) == 0) return;
      with_mma_width<side>(std::max(of.x.size(3), out.size(3)), [&](auto columns) {
        constexpr int W = columns();
        const dim3 grid(static_cast<unsigned>(p_.B() * p_.H()) * cut(out.size(1), side),
                        cut(out.size(3), W));
        start_tiles("scan", device_, grid, RowsLayout<W>::bytes(), rows_mma<W, Out>, p_, of, out,
                    divisors);
      });
    } else {
      exact_rows(of, out, divisors);
    }
  }

  // dx from dφ, which is overwritten; `totals` are dw of queries, for features with levels.
  void gradient(bool of_queries, const View<T, 4>& dphi, const View<const T, 3>& totals,
                const View<S, 4>& dx) const {
    const View<const S, 4> x = of_queries ? p_.q : p_.k;
    const View<const T, 4> phi = of_queries ? exact_q() : exact_k();
    const i64 L = x.size(1), count = p_.B() * L * p_.H();
    if (!is_random(p_.feature)) {
      for_rows("scan", device_, count, p_.E(),
               FeatureGradients<S>{p_, x, phi, dphi, of_queries, dx});
      return;
    }
    const Workspace<T> for_norms(device_, count), for_product(device_, rounds ? count * p_.E() : 0);
    const View<T, 3> norms = for_norms.view(p_.B(), p_.H(), L);
    View<T, 4> product = for_product.view(p_.B(), L, p_.H(), p_.E());
    if constexpr (!rounds) product = dx;
    for_rows("scan", device_, count, p_.R(),
             RandomSlopes<S>{p_, phi, totals, of_queries, dphi, norms});
    exact_rows(Rows<T>{.x = first_columns(dphi), .own_queries = of_queries, .states = omega(),
                       .columns = p_.omega.stride(0)},
               product, {});
    for_rows("scan", device_, count, p_.E(),
             NormGradients<S>{p_, x, norms, of_queries, product, dx});
  }

 private:
  static constexpr bool rounds = !std::is_same_v<S, T>;

  i64 features_of_queries() const { return p_.B() * p_.N() * p_.H() * p_.F(); }
  i64 features_of_keys() const { return p_.B() * p_.S() * p_.H() * p_.F(); }
  // No data if nobody reads them.
  View<T, 4> exact_q() const {
    return exact_ ? q_.view(p_.B(), p_.N(), p_.H(), p_.F()) : View<T, 4>{};
  }
  View<T, 4> exact_k() const {
    return exact_ ? k_.view(p_.B(), p_.S(), p_.H(), p_.F()) : View<T, 4>{};
  }
  View<S, 4> rounded_q() const {
    return rounds ? rounded_q_.view(p_.B(), p_.N(), p_.H(), p_.F()) : View<S, 4>{};
  }
  View<S, 4> rounded_k() const {
    return rounds ? rounded_k_.view(p_.B(), p_.S(), p_.H(), p_.F()) : View<S, 4>{};
  }
  View<T, 3> writable_weights() const {
    return p_.levels() ? weights_.view(p_.B(), p_.H(), p_.N()) : View<T, 3>{};
  }
  // Of features: the first R columns, which hold u.
  View<T, 4> first_columns(View<T, 4> x) const {
    x.sizes[3] = p_.R();
    return x;
  }
  // One state for all; it is only read.
  States<T> omega() const { return {const_cast<T*>(p_.omega.data), 0, 0}; }

  // Products in f32 or f64, of rows of any type.
  template <class X>
  void exact_rows(const Rows<X>& of, const View<T, 4>& out, const View<T, 3>& divisors) const {
    constexpr int R = long_rows<T>;
    if (out.size(1) == 0) return;
    const dim3 grid(static_cast<unsigned>(p_.B() * p_.H()) * cut(out.size(1), 8 * R),
                    cut(out.size(3), side));
    const std::size_t shared = SharedMemory::bytes<T>(8 * R * weight_stride<T>) +
                               SharedMemory::bytes<T>(8 * R * row_stride<T>(side)) +
                               SharedMemory::bytes<T>(side * row_stride<T>(side));
    start_tiles("scan", device_, grid, shared, rows_of_chunks<S, X, R>, p_, of, out, divisors);
  }
  void project(bool of_queries, const View<T, 4>& phi) const {
    exact_rows(Rows<S>{.x = of_queries ? p_.q : p_.k, .own_queries = of_queries, .states = omega(),
                       .turned = true, .columns = p_.omega.stride(0)},
               first_columns(phi), {});
  }
  void random_queries() const {
    const i64 count = p_.B() * p_.N() * p_.H();
    const View<T, 4> phi = exact_q();
    project(true, phi);
    if (p_.levels() && !p_.query_max_given) {
      for_rows("scan", device_, count, p_.R(), RowTops<S>{p_, p_.q, phi, true, p_.query_max});
    }
    for_rows("scan", device_, count, p_.R(),
             RandomFeatures<S>{p_, p_.q, true, phi, writable_weights(), rounded_q()});
  }
  void random_keys(const double* carried) const {
    const i64 count = p_.B() * p_.S() * p_.H();
    const View<T, 4> phi = exact_k();
    project(false, phi);
    if (p_.levels()) find_levels(carried, phi);
    for_rows("scan", device_, count, p_.R(),
             RandomFeatures<S>{p_, p_.k, false, phi, {}, rounded_k()});
  }
  void find_levels(const double* carried, const View<const T, 4>& u) const {
    const i64 heads = p_.B() * p_.H();
    for_elements("scan", device_, heads,
                 FirstLevels<T>{p_.causal ? carried : nullptr, p_.sums(), first_.data()});
    if (p_.key_max_given) return;
    const Workspace<T> for_tops(device_, heads * p_.S()), of_chunks(device_, heads * chunks_);
    const View<T, 3> tops = for_tops.view(p_.B(), p_.H(), p_.S());
    for_rows("scan", device_, heads * p_.S(), p_.R(), RowTops<S>{p_, p_.k, u, false, tops});
    for_elements("scan", device_, heads * chunks_,
                 ChunkTops<S>{p_, tops, chunks_, of_chunks.data()});
    for_elements("scan", device_, heads,
                 RunningTops<S>{p_, first_.data(), chunks_, of_chunks.data()});
    if (!p_.causal) return;
    for_elements("scan", device_, heads * p_.N(),
                 PositionLevels<S>{p_, tops, chunks_, of_chunks.data()});
  }

  const Cuda& device_;
  const Scan<S>& p_;
  i64 chunks_;
  bool exact_;  // whether features are kept as they are computed
  Workspace<T> q_, k_;
  Workspace<S> rounded_q_, rounded_k_;
  Workspace<T> states_, weights_, first_;
};

}  // namespace

template <class Device, class S>
void ScanKernels<Device, S>::forward(const Device& device, const Scan<S>& p, View<double, 3> sums,
                                     View<S, 4> out, View<T, 3> divisors) {
  if (p.B() * p.H() * std::max(p.N(), p.S()) == 0) return;
  const Call<S> call(device, p, sums.data, false);
  call.sum(false, p.v, {}, sums.data);
  call.rows({.x = call.q(), .y = call.k(), .u = p.v, .own_queries = true, .states = call.states(),
             .levels = call.levels(), .beside = call.beside(Beside::outputs),
             .weights = call.weights()},
            out, divisors);
}

template <class Device, class S>
void ScanKernels<Device, S>::backward(const Device& device, const Scan<S>& p,
                                      View<const double, 3> sums, View<const S, 4> out,
                                      View<const T, 3> divisors, View<const S, 4> dout,
                                      View<S, 4> dq, View<S, 4> dk, View<S, 4> dv) {
  const i64 B = p.B(), N = p.N(), keys = p.S(), H = p.H(), F = p.F();
  if (B * H * std::max(N, keys) == 0) return;
  const Call<S> call(device, p, nullptr, true);
  const Workspace<S> for_dN(device, B * N * H * p.M());
  const Workspace<T> for_dD(device, B * H * N);
  const Workspace<T> for_features(device, B * std::max(N, keys) * H * F);
  const Workspace<T> for_totals(device, p.levels() ? B * H * N : 0);
  const View<S, 4> dN = for_dN.view(B, N, H, p.M());
  const View<T, 3> dD = for_dD.view(B, H, N);
  const View<T, 3> totals = p.levels() ? for_totals.view(B, H, N) : View<T, 3>{};
  for_rows("scan", device, B * N * H, p.M(), QueryGradients<S>{p, out, dout, divisors, dN, dD});

  if (p.causal) {
    call.sum(false, p.v, {}, nullptr);
  } else {
    for_elements("scan", device, B * H * p.sums(), RoundedSums<T>{sums.data, call.states()});
  }
  const View<T, 4> dphi_q = for_features.view(B, N, H, F);
  const View<T, 4> dphi_k = for_features.view(B, keys, H, F);
  call.rows({.x = dN, .y = p.v, .u = call.k(), .own_queries = true, .states = call.states(),
             .turned = true, .own_added = dD, .levels = call.levels(),
             .beside = call.beside(Beside::totals)},
            dphi_q, totals);
  call.gradient(true, dphi_q, totals, dq);

  call.sum(true, dN, dD, nullptr);
  call.rows({.x = p.v, .y = dN, .u = call.q(), .own_queries = false, .states = call.states(),
             .turned = true, .other_added = dD, .levels = call.levels()},
            dphi_k, {});
  call.gradient(false, dphi_k, {}, dk);
  call.rows({.x = call.k(), .y = call.q(), .u = dN, .own_queries = false, .states = call.states(),
             .levels = call.levels(), .beside = call.beside(Beside::values),
             .weights = call.weights()},
            dv, {});
}

template struct ScanKernels<Cuda, float>;
template struct ScanKernels<Cuda, double>;
template struct ScanKernels<Cuda, bf16>;

}  // namespace weft
