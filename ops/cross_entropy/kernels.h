// The kernels of cross_entropy.h, over `rows` rows of V logits side by side.
#pragma once

#include <cstdint>

#include "runtime/device.h"

namespace weft {

// lse (unless null) and nats of every row.
template <class T>
void cross_entropy_forward(const Cpu&, std::int64_t rows, std::int64_t V, const T* logits,
                           const std::int64_t* targets, T* lse, double* nats);
template <class T>
void cross_entropy_forward(const Cuda&, std::int64_t rows, std::int64_t V, const T* logits,
                           const std::int64_t* targets, T* lse, double* nats);

// loss = Σ nats / rows
template <class T>
void mean_of_nats(const Cpu&, std::int64_t rows, const double* nats, T* loss);
template <class T>
void mean_of_nats(const Cuda&, std::int64_t rows, const double* nats, T* loss);

// Its second half on CUDA devices: loss = Σ partial / rows.
template <class T>
void mean_of_pieces(const Cuda&, std::int64_t rows, std::int64_t pieces, const double* partial,
                    T* loss);

template <class T>
void cross_entropy_backward(const Cpu&, std::int64_t rows, std::int64_t V, const T* logits,
                            const std::int64_t* targets, const T* lse, const T* dloss, T* dlogits);
template <class T>
void cross_entropy_backward(const Cuda&, std::int64_t rows, std::int64_t V, const T* logits,
                            const std::int64_t* targets, const T* lse, const T* dloss, T* dlogits);

}  // namespace weft
