// CUDA kernels of directed.h. A thread has one feature of one position; accesses are coalesced, and
// a block of positions stays in cache. Bound by exponentials: two a pair and feature forward, four
// backward. Unmeasured.
#include "ops/attention/biblosa/directed_kernels.h"
#include "runtime/cuda/loops.h"

namespace weft {
namespace {

// Element `number` of [B, N, C], and the valid positions of its block.
struct Place {
  i64 b, i, c, begin, end;

  template <class T>
  __device__ Place(const Directed<T>& p, i64 number)
      : b(number / p.C() / p.N()), i(number / p.C() % p.N()), c(number % p.C()) {
    begin = p.blocks.begin(i / p.blocks.size);
    end = p.blocks.end(b, i / p.blocks.size);
  }
  __device__ bool exists() const { return i < end; }
  // The keys that i sees, and the queries that see i: one before it, the other after.
  __device__ i64 first(bool behind) const { return behind ? i + 1 : begin; }
  __device__ i64 last(bool behind) const { return behind ? end : i; }
};

template <class T>
struct Weight {
  T q, w;

  __device__ Weight(T key, T query)
      : q(T(1) / (T(1) + std::exp(T(0.4) * (key + query)))), w(std::exp(T(-10) * q)) {}
};

template <class T>
struct Forward {
  Directed<T> p;
  View<T, 3> s, sums;

  __device__ void operator()(i64 number) const {
    const Place at(p, number);
    T total = 0, sum = 0;
    if (at.exists()) {
      const T query = p.scores(at.b, at.i, p.C() + at.c);
      for (i64 j = at.first(p.later); j < at.last(p.later); ++j) {
        const Weight<T> weight(p.scores(at.b, j, at.c), query);
        total += weight.w;
        sum += weight.w * p.h(at.b, j, at.c);
      }
    }
    const bool sees = at.exists() && at.first(p.later) < at.last(p.later);
    s(at.b, at.i, at.c) = sees ? sum / total : T(0);
    sums(at.b, at.i, at.c) = total;
  }
};

template <class T>
struct Backward {
  Directed<T> p;
  View<const T, 3> s, sums, ds;
  View<T, 3> dscores, dh;

  // For the pair of query i and key j: dy, and the gradient a_ij ds_i of h_j.
  struct Pair {
    T dscore, dvalue;
  };
  __device__ Pair pair(i64 b, i64 i, i64 j, i64 c) const {
    const Weight<T> weight(p.scores(b, j, c), p.scores(b, i, p.C() + c));
    const T gradient = weight.w * (ds(b, i, c) / sums(b, i, c));
    const T slope = T(4) * weight.q * (T(1) - weight.q);
    return {gradient * (p.h(b, j, c) - s(b, i, c)) * slope, gradient};
  }

  __device__ void operator()(i64 number) const {
    const Place at(p, number);
    T dkey = 0, dquery = 0, dvalue = 0;
    if (at.exists()) {
      for (i64 j = at.first(p.later); j < at.last(p.later); ++j) {
        dquery += pair(at.b, at.i, j, at.c).dscore;
      }
      for (i64 i = at.first(!p.later); i < at.last(!p.later); ++i) {
        const Pair own = pair(at.b, i, at.i, at.c);
        dkey += own.dscore;
        dvalue += own.dvalue;
      }
    }
    dscores(at.b, at.i, at.c) = dkey;
    dscores(at.b, at.i, p.C() + at.c) = dquery;
    dh(at.b, at.i, at.c) = dvalue;
  }
};

}  // namespace

template <class Device, class T>
void DirectedKernels<Device, T>::forward(const Device& device, const Directed<T>& p, View<T, 3> s,
                                         View<T, 3> sums) {
  for_elements("directed_attention", device, p.B() * p.N() * p.C(), Forward<T>{p, s, sums});
}

template <class Device, class T>
void DirectedKernels<Device, T>::backward(const Device& device, const Directed<T>& p,
                                          View<const T, 3> s, View<const T, 3> sums,
                                          View<const T, 3> ds, View<T, 3> dscores, View<T, 3> dh) {
  for_elements("directed_attention", device, p.B() * p.N() * p.C(),
               Backward<T>{p, s, sums, ds, dscores, dh});
}

template struct DirectedKernels<Cuda, float>;
template struct DirectedKernels<Cuda, double>;

}  // namespace weft
