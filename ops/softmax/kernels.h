// The kernels of softmax.h, over `rows` rows of V elements side by side.
#pragma once

#include <cstdint>

#include "runtime/device.h"

namespace weft {

template <class T>
void softmax(const Cpu&, std::int64_t rows, std::int64_t V, const T* x, T* y);
template <class T>
void softmax(const Cuda&, std::int64_t rows, std::int64_t V, const T* x, T* y);

template <class T>
void softmax_backward(const Cpu&, std::int64_t rows, std::int64_t V, const T* y, const T* dy, T* dx);
template <class T>
void softmax_backward(const Cuda&, std::int64_t rows, std::int64_t V, const T* y, const T* dy, T* dx);

template <class T>
void log_sum_exp(const Cpu&, std::int64_t rows, std::int64_t V, const T* x, T* lse);
template <class T>
void log_sum_exp(const Cuda&, std::int64_t rows, std::int64_t V, const T* x, T* lse);

template <class T>
void log_sum_exp_backward(const Cpu&, std::int64_t rows, std::int64_t V, const T* x, const T* lse,
                          const T* dlse, T* dx);
template <class T>
void log_sum_exp_backward(const Cuda&, std::int64_t rows, std::int64_t V, const T* x, const T* lse,
                          const T* dlse, T* dx);

}  // namespace weft
