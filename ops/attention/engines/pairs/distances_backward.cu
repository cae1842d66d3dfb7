// CUDA kernel of the backward pass of attention by distance: a block owns queries: dq and its part
// of dz; keys: dk, dv; or distances: dr. The equations are in distances.h.
#include "ops/attention/engines/pairs/distances_tile.cuh"

namespace weft {
namespace {

enum class Owner { queries, keys, distances };

// The query side besides q, and the outputs of the gradients.
template <class T>
struct GradientCall {
  View<const T, 3> log_sums, deltas;
  View<const T, 4> dout;
  View<T, 4> first = {}, second = {};  // dq; dk and dv; dr of each item and head [B, most, H, E]
  View<T, 3> bias = {};                // dc of each item and head [B, most, H]
  View<T, 2> spans = {};               // of each head [B H, tiles]: the parts of dz
};

template <class T>
struct GradientLayout {
  static constexpr int R = long_rows<T>, C = held<T> / 16, rows = 8 * R,
                       differences = rows + tile_columns;
  using Tile = Operands<T, R, C>;

  static std::size_t bytes(Owner owner) {
    return Tile::bytes() +
           (owner == Owner::distances ? 2 : 1) *
               SharedMemory::bytes<T>(differences * Tile::stride) +
           SharedMemory::bytes<T>(rows * weight_stride<T>) +
           SharedMemory::bytes<std::uint64_t>(tile_columns) +
           2 * SharedMemory::bytes<T>(tile_columns);
  }
};

template <class T, Owner owner>
__global__ void __launch_bounds__(tile_threads)
    gradients(Distances<T> p, DropoutMask mask, GradientCall<T> call) {
  using Layout = GradientLayout<T>;
  constexpr int R = Layout::R, C = Layout::C, stride = Layout::Tile::stride, rows = Layout::rows;
  constexpr bool of_queries = owner == Owner::queries, of_keys = owner == Owner::keys;
  SharedMemory shared;
  const typename Layout::Tile tile(shared);
  T* const d = shared.take<T>(Layout::differences * stride);
  T* const d_values =
      owner == Owner::distances ? shared.take<T>(Layout::differences * stride) : nullptr;
  T* const weights = shared.take<T>(rows * weight_stride<T>);
  std::uint64_t* const kept = shared.take<std::uint64_t>(tile_columns);
  T* const log_sum = shared.take<T>(tile_columns);
  T* const delta = shared.take<T>(tile_columns);

  const i64 length = of_queries ? p.N() : of_keys ? p.S() : p.distances();
  const OwnRows own = own_rows_of(length, rows, p.H());
  const i64 b = own.b, h = own.h, n = p.queries(b), keys = p.keys(b), shift = p.first_key(0);
  const Ramp<T> ramp = p.ramp_of(h);
  const i64 there = std::min(own.first + rows, of_queries ? n
                                               : of_keys  ? keys
                                                          : ramp.reach);  // owned rows
  i64 begin = std::max<i64>(own.first - shift, 0), end = 0;              // streamed ones
  if (of_queries) begin = std::max<i64>(own.first + shift - ramp.reach + 1, 0) / 8 * 8;
  if (own.first < there) {
    end = of_queries ? std::min(keys, there + shift)
          : of_keys  ? std::min(n, there - 1 - shift + ramp.reach)
                     : n;
  }
  const auto of_q = HeadRows<T>::of(p.q, b, h, n), of_dout = HeadRows<T>::of(call.dout, b, h, n);
  const auto of_k = HeadRows<T>::of(p.k, b, h, keys), of_v = HeadRows<T>::of(p.v, b, h, keys);
  const auto table = HeadRows<T>::of_table(p, h, ramp.reach);
  const int chunks = chunks_of(p.E(), p.M(), held<T>), mine = static_cast<int>(blockIdx.y);
  const bool by_distance = p.table.data != nullptr;

  T gradient[R][C] = {}, value_gradient[R][C] = {}, dbias[R] = {}, dspan = 0;
  for (i64 first = begin; first < end; first += tile_columns) {
    // The smallest difference.
    const i64 lowest = of_queries ? own.first + shift - first - (tile_columns - 1)
                                  : first + shift - own.first - (rows - 1);
    T z[R][4] = {}, da[R][4] = {};
    for (int turn = 0; turn < chunks; ++turn) {
      const i64 e = (mine + 1 + turn) % chunks * held<T>;
      __syncthreads();  // before shared memory is overwritten
      if (chunks > 1 || first == begin) {
        load_rows(of_queries ? of_q
                  : of_keys  ? of_k
                             : table,
                  own.first, rows, e, held<T>, of_queries ? p.temperature : T(1), tile.a, stride);
        if (owner != Owner::distances) {
          load_rows(of_queries ? of_dout : of_v, own.first, rows, e, held<T>, T(1), tile.x, stride);
        }
      }
      load_rows(of_queries ? of_k : of_q, first, tile_columns, e, held<T>,
                of_queries ? T(1) : p.temperature, tile.b, stride);
      load_rows(of_queries ? of_v : of_dout, first, tile_columns, e, held<T>, T(1), tile.y, stride);
      if (by_distance) {
        load_rows(owner == Owner::distances ? of_k : table, lowest, Layout::differences - 1, e,
                  held<T>, T(1), d, stride);
      }
      if (owner == Owner::distances) {
        load_rows(of_v, lowest, Layout::differences - 1, e, held<T>, T(1), d_values, stride);
      }
      if (turn == 0) {
        const i64 query = of_queries ? own.first : first;
        if (const int t = static_cast<int>(threadIdx.x); t < (of_queries ? rows : tile_columns)) {
          const bool inside = query + t < n;
          log_sum[t] = inside ? call.log_sums(b, h, query + t) : infinity<T>;
          delta[t] = inside ? call.deltas(b, h, query + t) : T(0);
        }
        if (p.dropout > 0 && owner != Owner::distances) {
          draw_kept(mask, p.mask_row(b, h) + query, 1, of_queries ? rows : tile_columns,
                    of_queries ? first : own.first, kept);
        }
      }
      __syncthreads();
      if (by_distance) {
        add_products_and_differences<R, !of_queries>(tile.a, tile.b, d, stride, held<T>, z);
      } else {
        add_products<R>(tile.a, tile.b, stride, held<T>, z);
      }
      if (owner == Owner::distances) {
        add_differences<R>(tile.y, d_values, stride, held<T>, da);
      } else {
        add_products<R>(tile.x, tile.y, stride, held<T>, da);
      }
    }
#pragma unroll
    for (int r = 0; r < R; ++r) {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const int row = 8 * r + tile_y(), column = 16 * c + tile_x(),
                  query = of_queries ? row : column;
        const i64 i = (of_queries ? own.first : first) + query;
        const i64 difference =
            lowest + (of_queries ? row - column + tile_columns - 1 : column - row + rows - 1);
        const i64 distance = owner == Owner::distances ? own.first + row : difference;
        const i64 j = owner == Owner::distances ? difference
                      : of_queries              ? first + column
                                                : own.first + row;
        if (i >= n || j < 0 || j >= keys || !ramp.sees(distance)) {
          z[r][c] = da[r][c] = 0;
          continue;
        }
        T left = 1;  // dropout's factor
        if (p.dropout > 0) {
          const bool keeps = owner == Owner::distances
                                 ? mask.keeps(p.mask_row(b, h) + i, j)
                                 : (kept[query] >> (of_queries ? column : row) & 1) != 0;
          left = keeps ? static_cast<T>(mask.factor) : T(0);
        }
        const T score = z[r][c] + bias_of(p, h, distance);
        const T power = std::exp(score - log_sum[query]), m = ramp.factor(distance);
        const T g = left * da[r][c];
        da[r][c] = power * (m * g - (m + ramp.epsilon()) * delta[query]);
        z[r][c] = left * m * power;
        if (owner == Owner::distances) dbias[r] += da[r][c];
        if (of_queries) dspan += ramp.slope(distance) * power * (g - delta[query]);
      }
    }
    if (of_keys) {
      store_weights<R>(z, weights);
      __syncwarp();
      add_weighted<R, C>(weights, tile.y, stride, tile_columns, value_gradient);
      __syncwarp();
    }
    store_weights<R>(da, weights);
    __syncwarp();
    add_weighted<R, C>(weights, tile.b, stride, tile_columns, gradient);
    if (of_queries && by_distance) {
      add_weighted_differences<R, C>(weights, d, stride, tile_columns, gradient);
    }
  }
  const TileRows to{b, h, own.first, static_cast<int>(std::max<i64>(there - own.first, 0))};
  store_gradient<R, C>(gradient, of_queries ? p.temperature : T(1), to, mine * held<T>, false,
                       call.first);
  if (of_keys) store_gradient<R, C>(value_gradient, T(1), to, mine * held<T>, false, call.second);
  if (owner == Owner::distances && mine == 0 && call.bias.data != nullptr) {
#pragma unroll
    for (int r = 0; r < R; ++r) {
      const i64 distance = own.first + 8 * r + tile_y();
      const T sum = over_row<Added>(dbias[r]);
      if (tile_x() == 0 && distance < length) call.bias(b, distance, h) = p.temperature * sum;
    }
  }
  if (of_queries && mine == 0) {
    const T sum = BlockTeam<tile_threads>{}.sum(dspan);
    if (threadIdx.x == 0) call.spans(b * p.H() + h, own.tile) = sum;
  }
}

// dz of a head: the partial sums of its blocks of queries, item by item.
template <class T>
struct AddSpans {
  View<T, 2> parts;  // [B H, tiles]
  View<T, 1> to;     // [H]

  __device__ void operator()(i64 h) const {
    const i64 H = to.size(0);
    T sum = 0;
    for (i64 head = h; head < parts.size(0); head += H) {
      for (i64 tile = 0; tile < parts.size(1); ++tile) sum += parts(head, tile);
    }
    to(h) = sum;
  }
};

// dr, summed over all items, and over the heads that share a table.
template <class T>
struct AddTables {
  View<T, 4> parts;  // [B, distances, H, E]
  View<T, 3> to;     // [tables, most, E]

  __device__ void operator()(i64 element) const {
    const i64 E = to.size(2), row = element / E, e = element % E;
    const i64 table = row / to.size(1), d = row % to.size(1);
    T sum = 0;
    for (i64 b = 0; b < parts.size(0) && d < parts.size(1); ++b) {
      for (i64 h = table; h < parts.size(2); h += to.size(0)) sum += parts(b, d, h, e);
    }
    to(table, d, e) = sum;
  }
};

// dc, summed over all items.
template <class T>
struct AddBiases {
  View<T, 3> parts;  // [B, distances, H]
  View<T, 2> to;     // [H, most]

  __device__ void operator()(i64 element) const {
    const i64 h = element / to.size(1), d = element % to.size(1);
    T sum = 0;
    for (i64 b = 0; b < parts.size(0) && d < parts.size(1); ++b) sum += parts(b, d, h);
    to(h, d) = sum;
  }
};

}  // namespace

template <class Device, class T>
void DistancesBackwardKernels<Device, T>::backward(const Device& device, const Distances<T>& p,
                                                   View<const T, 4> out, View<const T, 3> log_sums,
                                                   View<const T, 4> dout, View<T, 4> dq,
                                                   View<T, 4> dk, View<T, 4> dv, View<T, 3> dtable,
                                                   View<T, 2> dbias, View<T, 1> dspans) {
  using Layout = GradientLayout<T>;
  const i64 B = p.B(), H = p.H(), N = p.N(), E = p.E(), heads = B * H;
  const i64 tiles = (N + Layout::rows - 1) / Layout::rows;
  const Workspace<T> work(device, heads * N), spans(device, heads * tiles);
  const View<T, 3> deltas = work.view(B, H, N);
  const View<T, 2> parts = spans.view(heads, tiles);
  const auto run = [&](auto kernel, Owner owner, i64 length, i64 width, const View<T, 4>& first,
                       const View<T, 4>& second, const View<T, 3>& bias = {}) {
    if (heads * length == 0) return;
    start_tiles("distances", device, grid_of(heads, length, Layout::rows, width, held<T>),
                Layout::bytes(owner), kernel, p, p.mask(),
                GradientCall<T>{log_sums, deltas, dout, first, second, bias, parts});
  };
  for_rows("distances", device, heads * N, p.M(), RowProducts<T>{dout, out, deltas});
  run(gradients<T, Owner::queries>, Owner::queries, N, E, dq, {});
  run(gradients<T, Owner::keys>, Owner::keys, p.S(), std::max(E, p.M()), dk, dv);
  if (dspans.data != nullptr) for_elements("distances", device, H, AddSpans<T>{parts, dspans});
  const bool biased = dbias.data != nullptr;
  if (dtable.data == nullptr && !biased) return;
  const Workspace<T> tables(device, heads * p.distances() * E);
  const Workspace<T> biases(device, biased ? heads * p.distances() : 0);
  const View<T, 4> own = tables.view(B, p.distances(), H, E);
  const View<T, 3> own_bias = biased ? biases.view(B, p.distances(), H) : View<T, 3>{};
  run(gradients<T, Owner::distances>, Owner::distances, p.distances(), E, own, {}, own_bias);
  if (dtable.data != nullptr) {
    for_elements("distances", device, dtable.size(0) * p.most * E, AddTables<T>{own, dtable});
  }
  if (biased) for_elements("distances", device, H * p.most, AddBiases<T>{own_bias, dbias});
}

template struct DistancesBackwardKernels<Cuda, float>;
template struct DistancesBackwardKernels<Cuda, double>;

}  // namespace weft
