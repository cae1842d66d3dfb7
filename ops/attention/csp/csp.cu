// CUDA kernels of channel-wise sample permutation that move samples; the equations are in csp.h.
// Groups of one and two are compared and moved in one pass; longer ones are sorted before, by
// csp_sort.cu, and the record then gives the source of each output.
//
// 8 bytes a sample in f32, and the record: a bit for pairs (a sixteenth of a byte), 2 or 4 bytes
// for other groups. Adjacent channels are read from rows that are a shift apart, so that a sector
// of 32 bytes is requested by 8 threads at different times; it is still in the L2 cache if 8 shifts
// of rows fit in it. Then the kernel is bound by memory bandwidth, otherwise by that of the cache.
// Not measured.
#include "ops/attention/csp/channel.cuh"

namespace weft {
namespace {

using namespace permuted;

constexpr int rows_of_byte = 16, rows_of_block = warps * rows_of_byte;

// A thread has 16 rows of a channel: 8 pairs, whose bits are one byte.
template <class T>
__global__ void move_kernel(CspProblem p, i64 tiles, View<const T, 4> v,
                            View<T, 4> out) {
  const Tile tile(p, tiles, rows_of_block);
  if (!tile.there) return;
  const i64 L = tile.L, begin = tile.begin + threadIdx.y * rows_of_byte;
  const bool sorts = p.record == CspRecord::pairs && L > 0 && p.group_of(L) == 2;
  const bool aligned = sorts && p.order == CspOrder::reference;
  const i64 J = p.shift(tile.b, tile.c), J0 = p.shift(tile.b, 0);
  const Channel<const T> x(v, tile.b, tile.c), reference(v, tile.b, 0);
  const Channel<T> y(out, tile.b, tile.c);
  const auto wrong = [&](T a, T b) { return csp_precedes(p.order, b, a); };
  unsigned bits = 0;
#pragma unroll
  for (int i = 0; i < rows_of_byte; i += 2) {
    const i64 n = begin + i;
    T a = n < L ? x[p.unshifted(n, J, L)] : T(0);
    T b = n + 1 < L ? x[p.unshifted(n + 1, J, L)] : T(0);
    if (sorts && n + 1 < L) {
      bool changed = wrong(a, b);
      if (aligned) {
        changed ^= wrong(reference[p.unshifted(n, J0, L)], reference[p.unshifted(n + 1, J0, L)]);
      }
      bits |= static_cast<unsigned>(changed) << i / 2;
      const T first = changed ? b : a;
      b = changed ? a : b;
      a = first;
    }
    if (n < p.N) y[n] = a;
    if (n + 1 < p.N) y[n + 1] = b;
  }
  const i64 byte = begin / rows_of_byte;
  if (byte < CspProblem::row_bytes(p.record, p.N) && p.record == CspRecord::pairs) {
    p.row(tile.b, tile.c)[byte] = static_cast<std::uint8_t>(bits);
  }
}

// dv[r] for 16 rows r of a channel, from where r was moved to.
template <class T>
__global__ void move_back_kernel(CspProblem p, i64 tiles, View<const T, 4> dout,
                                 View<T, 4> dv) {
  const Tile tile(p, tiles, rows_of_block);
  if (!tile.there) return;
  const i64 J = p.shift(tile.b, tile.c), begin = tile.begin + threadIdx.y * rows_of_byte;
  const bool sorted = p.record == CspRecord::pairs && tile.L > 0 && p.group_of(tile.L) == 2;
  const Channel<const T> dy(dout, tile.b, tile.c);
  const Channel<T> dx(dv, tile.b, tile.c);
  i64 byte = -1;  // of these 8 pairs
  std::uint8_t bits = 0;
#pragma unroll 4
  for (int i = 0; i < rows_of_byte; ++i) {
    const i64 r = begin + i;
    T gradient = 0;
    if (r < tile.L) {
      const i64 u = p.shifted(r, J, tile.L);
      const bool paired = sorted && (u | 1) < tile.L;
      if (paired && u / rows_of_byte != byte) {
        byte = u / rows_of_byte;
        bits = p.row(tile.b, tile.c)[byte];
      }
      const bool changed = paired && p.swapped(bits, u);
      gradient = dy[changed ? u ^ 1 : u];
    }
    if (r < p.N) dx[r] = gradient;
  }
}

// The sources of 32 rows of 32 channels: the record is read along the rows, and transposed in
// shared memory.
template <class Index>
__device__ void load_sources(const CspProblem& p, const Tile& tile,
                             std::int32_t (&from)[lanes][lanes + 1]) {
  const i64 n = tile.begin + threadIdx.x, L = tile.L;
  const i64 G = L > 0 ? p.group_of(L) : 1;
#pragma unroll
  for (int i = 0; i < lanes / warps; ++i) {
    const int channel = static_cast<int>(threadIdx.y) + i * warps;
    const i64 c = tile.first + channel;
    if (c < p.C && n < L) {
      const i64 u = n - n % G + p.offsets<const Index>(tile.b, c)[n];
      from[threadIdx.x][channel] =
          static_cast<std::int32_t>(p.unshifted(u, p.shift(tile.b, c), L));
    }
  }
  __syncthreads();
}

// A thread has 8 rows of a channel.
template <class T, class Index>
__global__ void take_kernel(CspProblem p, i64 tiles, View<const T, 4> v,
                            View<T, 4> out) {
  __shared__ std::int32_t from[lanes][lanes + 1];
  const Tile tile(p, tiles, lanes);
  load_sources<Index>(p, tile, from);
  if (!tile.there) return;
  const Channel<const T> x(v, tile.b, tile.c);
  const Channel<T> y(out, tile.b, tile.c);
#pragma unroll
  for (int i = 0; i < lanes / warps; ++i) {
    const int row = static_cast<int>(threadIdx.y) + i * warps;
    const i64 n = tile.begin + row;
    if (n < p.N) y[n] = n < tile.L ? x[from[row][threadIdx.x]] : T(0);
  }
}

template <class T, class Index>
__global__ void return_kernel(CspProblem p, i64 tiles, View<const T, 4> dout,
                              View<T, 4> dv) {
  __shared__ std::int32_t from[lanes][lanes + 1];
  const Tile tile(p, tiles, lanes);
  load_sources<Index>(p, tile, from);
  if (!tile.there) return;
  const Channel<const T> dy(dout, tile.b, tile.c);
  const Channel<T> dx(dv, tile.b, tile.c);
#pragma unroll
  for (int i = 0; i < lanes / warps; ++i) {
    const int row = static_cast<int>(threadIdx.y) + i * warps;
    const i64 n = tile.begin + row;
    if (n < p.N) dx[n < tile.L ? from[row][threadIdx.x] : n] = n < tile.L ? dy[n] : T(0);
  }
}

struct ShiftElement {
  CspShiftTable table;
  std::int32_t* shifts;
  __device__ void operator()(i64 i) const {
    const i64 C = table.C;
    shifts[i] = table(i / C, i % C);
  }
};

struct DecideElement {
  CspProblem p;
  View<const i64, 3> src;
  __device__ void operator()(i64 i) const {
    const i64 c = i % p.C, n = i / p.C % p.N, b = i / p.C / p.N;
    p.decide(b, n, c, src(b, n, c));
  }
};

struct SourceElement {
  CspProblem p;
  View<i64, 3> src;
  __device__ void operator()(i64 i) const {
    const i64 c = i % p.C, n = i / p.C % p.N, b = i / p.C / p.N;
    src(b, n, c) = p.source(b, n, c);
  }
};

constexpr i64 tiles_of(i64 N, i64 rows) { return (N + rows - 1) / rows; }

// For groups of one or two: out, and the bits of the pairs.
template <class T>
void move_samples(const Cuda& device, const CspProblem& p, View<const T, 4> v, View<T, 4> out) {
  const i64 tiles = tiles_of(p.N, rows_of_block);
  start_tiles(device, p, tiles, move_kernel<T>, p, tiles, v, out);
}

// out from the record.
template <class T>
void take_samples(const Cuda& device, const CspProblem& p, View<const T, 4> v, View<T, 4> out) {
  const i64 tiles = tiles_of(p.N, lanes);
  const bool wide = p.record == CspRecord::wide;
  start_tiles(device, p, tiles,
              wide ? take_kernel<T, std::uint32_t> : take_kernel<T, std::uint16_t>, p, tiles, v,
              out);
}

// dv from the record.
template <class T>
void return_samples(const Cuda& device, const CspProblem& p, View<const T, 4> dout,
                    View<T, 4> dv) {
  if (p.record == CspRecord::nothing || p.record == CspRecord::pairs) {
    const i64 tiles = tiles_of(p.N, rows_of_block);
    return start_tiles(device, p, tiles, move_back_kernel<T>, p, tiles, dout, dv);
  }
  const i64 tiles = tiles_of(p.N, lanes);
  const bool wide = p.record == CspRecord::wide;
  start_tiles(device, p, tiles,
              wide ? return_kernel<T, std::uint32_t> : return_kernel<T, std::uint16_t>, p, tiles,
              dout, dv);
}

}  // namespace

template <class Device>
void CspSourceKernels<Device>::shifts(const Device& device, const CspShiftTable& table,
                                      i64 rows, std::int32_t* shifts) {
  for_elements("csp", device, rows * table.C, ShiftElement{table, shifts});
}

template <class Device>
void CspSourceKernels<Device>::decide(const Device& device, const CspProblem& p,
                                      View<const i64, 3> src) {
  for_elements("csp", device, p.B * p.N * p.C, DecideElement{p, src});
}

template <class Device>
void CspSourceKernels<Device>::sources(const Device& device, const CspProblem& p,
                                       View<i64, 3> src) {
  for_elements("csp", device, p.B * p.N * p.C, SourceElement{p, src});
}

template <class Device, class T>
void CspKernels<Device, T>::forward(const Device& device, const CspProblem& p, View<const T, 4> v,
                                    View<T, 4> out) {
  if (p.B * p.N * p.C == 0) return;
  if (p.record == CspRecord::nothing || p.record == CspRecord::pairs) {
    move_samples<T>(device, p, v, out);
    return;
  }
  if (!p.decided) CspSortKernels<T>::order(device, p, v);
  take_samples<T>(device, p, v, out);
}

template <class Device, class T>
void CspKernels<Device, T>::backward(const Device& device, const CspProblem& p,
                                     View<const T, 4> dout, View<T, 4> dv) {
  if (p.B * p.N * p.C > 0) return_samples<T>(device, p, dout, dv);
}

template struct CspSourceKernels<Cuda>;
template struct CspKernels<Cuda, float>;
template struct CspKernels<Cuda, double>;

}  // namespace weft
