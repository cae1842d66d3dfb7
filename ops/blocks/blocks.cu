// CUDA kernels of blocks.h. A thread computes one feature of one block, or of one position;
// accesses are coalesced. Each element is read and written once: bound by memory bandwidth if there
// are enough blocks to fill the device.
#include "ops/blocks/kernels.h"
#include "runtime/cuda/loops.h"

namespace weft {
namespace {

// The indices of element `number` of a view in row-major order.
struct Place {
  i64 b, i, h, e;

  template <class T>
  __device__ Place(const View<T, 4>& x, i64 number)
      : b(number / x.size(3) / x.size(2) / x.size(1)),
        i(number / x.size(3) / x.size(2) % x.size(1)),
        h(number / x.size(3) % x.size(2)),
        e(number % x.size(3)) {}
};

template <class T>
i64 count_of(const View<T, 4>& x) {
  return x.size(0) * x.size(1) * x.size(2) * x.size(3);
}

template <class T>
struct SumBlock {
  Blocks blocks;
  bool mean;
  View<const T, 4> x;
  View<T, 4> y;

  __device__ void operator()(i64 number) const {
    const Place at(y, number);
    double sum = 0;
    for (i64 i = blocks.begin(at.i); i < blocks.end(at.b, at.i); ++i) {
      sum += static_cast<double>(x(at.b, i, at.h, at.e));
    }
    const i64 count = mean ? std::max<i64>(blocks.count(at.b, at.i), 1) : 1;
    y(at.b, at.i, at.h, at.e) = static_cast<T>(sum / static_cast<double>(count));
  }
};

template <class T>
struct LargestOfBlock {
  Blocks blocks;
  View<const T, 4> x;
  View<T, 4> y;
  View<i64, 4> positions;

  __device__ void operator()(i64 number) const {
    const Place at(y, number);
    T largest = 0;
    i64 position = -1;
    for (i64 i = blocks.begin(at.i); i < blocks.end(at.b, at.i); ++i) {
      const T value = x(at.b, i, at.h, at.e);
      if (position >= 0 && !exceeds(value, largest)) continue;
      largest = value;
      position = i;
    }
    y(at.b, at.i, at.h, at.e) = largest;
    positions(at.b, at.i, at.h, at.e) = position;
  }
};

// The largest logit and the sum of exponentials of one feature of a block.
template <class T>
struct ColumnSoftmax {
  T most = 0, sum = 0;

  __device__ ColumnSoftmax(const View<const T, 4>& z, const Place& at, i64 begin, i64 end) {
    for (i64 i = begin; i < end; ++i) {
      const T logit = z(at.b, i, at.h, at.e);
      if (i == begin || most < logit) most = logit;
    }
    for (i64 i = begin; i < end; ++i) sum += std::exp(z(at.b, i, at.h, at.e) - most);
  }
};

template <class T>
struct WeightedMean {
  Blocks blocks;
  View<const T, 4> x, logits;
  View<T, 4> y;

  __device__ void operator()(i64 number) const {
    const Place at(y, number);
    const i64 begin = blocks.begin(at.i), end = blocks.end(at.b, at.i);
    const ColumnSoftmax<T> softmax(logits, at, begin, end);
    T total = 0;
    for (i64 i = begin; i < end; ++i) {
      total += std::exp(logits(at.b, i, at.h, at.e) - softmax.most) * x(at.b, i, at.h, at.e);
    }
    y(at.b, at.i, at.h, at.e) = begin < end ? total / softmax.sum : T(0);
  }
};

template <class T>
struct WeightedMeanBackward {
  Blocks blocks;
  View<const T, 4> x, logits, y, dy;
  View<T, 4> dx, dlogits;

  __device__ void operator()(i64 number) const {
    const Place at(y, number);
    const i64 begin = blocks.begin(at.i), end = blocks.end(at.b, at.i);
    const ColumnSoftmax<T> softmax(logits, at, begin, end);
    const T mean = y(at.b, at.i, at.h, at.e), share = dy(at.b, at.i, at.h, at.e) / softmax.sum;
    for (i64 i = begin; i < std::min(begin + blocks.size, blocks.positions); ++i) {
      T gradient = 0, dlogit = 0;
      if (i < end) {
        gradient = std::exp(logits(at.b, i, at.h, at.e) - softmax.most) * share;
        dlogit = gradient * (x(at.b, i, at.h, at.e) - mean);
      }
      dx(at.b, i, at.h, at.e) = gradient;
      dlogits(at.b, i, at.h, at.e) = dlogit;
    }
  }
};

template <class T>
struct SpreadBlock {
  Blocks blocks;
  bool mean;
  View<const T, 4> x, r;
  View<T, 4> y;

  __device__ void operator()(i64 number) const {
    const Place at(y, number);
    const i64 t = at.i / blocks.size, end = blocks.end(at.b, t);
    const double count = mean ? static_cast<double>(end - blocks.begin(t)) : 1;
    const double row = at.i < end ? static_cast<double>(r(at.b, t, at.h, at.e)) / count : 0;
    const T own = x.data == nullptr ? T(0) : x(at.b, at.i, at.h, at.e);
    y(at.b, at.i, at.h, at.e) = own + static_cast<T>(row);
  }
};

template <class T>
struct PlaceBlock {
  Blocks blocks;
  View<const i64, 4> positions;
  View<const T, 4> r;
  View<T, 4> y;

  __device__ void operator()(i64 number) const {
    const Place at(y, number);
    const i64 t = at.i / blocks.size;
    const bool here = positions(at.b, t, at.h, at.e) == at.i;
    y(at.b, at.i, at.h, at.e) = here ? r(at.b, t, at.h, at.e) : T(0);
  }
};

}  // namespace

template <class Device, class T>
void BlockKernels<Device, T>::sum(const Device& device, const Blocks& blocks, bool mean,
                                  View<const T, 4> x, View<T, 4> y) {
  for_elements("block_mean", device, count_of(y), SumBlock<T>{blocks, mean, x, y});
}

template <class Device, class T>
void BlockKernels<Device, T>::maximum(const Device& device, const Blocks& blocks,
                                      View<const T, 4> x, View<T, 4> y, View<i64, 4> positions) {
  for_elements("block_maximum", device, count_of(y), LargestOfBlock<T>{blocks, x, y, positions});
}

template <class Device, class T>
void BlockKernels<Device, T>::weighted_mean(const Device& device, const Blocks& blocks,
                                            View<const T, 4> x, View<const T, 4> logits,
                                            View<T, 4> y) {
  for_elements("block_weighted_mean", device, count_of(y), WeightedMean<T>{blocks, x, logits, y});
}

template <class Device, class T>
void BlockKernels<Device, T>::weighted_mean_backward(const Device& device, const Blocks& blocks,
                                                     View<const T, 4> x, View<const T, 4> logits,
                                                     View<const T, 4> y, View<const T, 4> dy,
                                                     View<T, 4> dx, View<T, 4> dlogits) {
  for_elements("block_weighted_mean", device, count_of(y),
               WeightedMeanBackward<T>{blocks, x, logits, y, dy, dx, dlogits});
}

template <class Device, class T>
void BlockKernels<Device, T>::spread(const Device& device, const Blocks& blocks, bool mean,
                                     View<const T, 4> x, View<const T, 4> r, View<T, 4> y) {
  for_elements("add_to_blocks", device, count_of(y), SpreadBlock<T>{blocks, mean, x, r, y});
}

template <class Device, class T>
void BlockKernels<Device, T>::place(const Device& device, const Blocks& blocks,
                                    View<const i64, 4> positions, View<const T, 4> r,
                                    View<T, 4> y) {
  for_elements("block_maximum", device, count_of(y), PlaceBlock<T>{blocks, positions, r, y});
}

template struct BlockKernels<Cuda, float>;
template struct BlockKernels<Cuda, double>;

}  // namespace weft
