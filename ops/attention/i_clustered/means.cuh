// Attention of the means of clusters to the keys outside T_c, on CUDA devices: b of i_clustered.h,
// here y, and m. d is d' there; δ and dm are those there, dm 0 with detach_mass. The members of a
// cluster attend to T_c by themselves (members.cuh). With q̄ [B, C, H, E]:
//
//     a_cs = exp(τ q̄_c · k_s − ℓ_c)      m_c = Σ_{s∈T_c} a_cs      y_c = Σ_{s∉T_c} d_cs a_cs v_s
//
//     da_cs = dm_c for s ∈ T_c, d_cs (dy_c · v_s) elsewhere        dz_cs = a_cs (da_cs − δ_c)
//     dq̄_c = τ Σ_s dz_cs k_s      dk_s = τ Σ_c dz_cs q̄_c
//     dv_s = Σ_{c: s∉T_c} d_cs a_cs dy_c
#pragma once

#include "ops/attention/clustered/groups.cuh"
#include "ops/attention/length.h"
#include "ops/dropout/mask.h"
#include "runtime/cuda/device.h"
#include "runtime/view.h"

namespace weft {

template <class T>
struct MeansAttention {
  View<const T, 4> means, k, v;
  const i64* lengths;  // of keys; null: all
  const std::int32_t* begins;   // [B, H, C + 1], of the sorted queries: shows empty clusters
  const std::int32_t* topk;     // T [B, H, C, k], ascending, padded with −1
  i64 count;           // k
  T temperature;
  double dropout;
  RandomKey random;

  constexpr i64 B() const { return k.size(0); }
  constexpr i64 S() const { return k.size(1); }
  constexpr i64 H() const { return k.size(2); }
  constexpr i64 C() const { return means.size(1); }
  constexpr i64 E() const { return k.size(3); }
  constexpr i64 M() const { return v.size(3); }
  DropoutMask mask() const { return DropoutMask(random, dropout, S(), H() * C()); }
};

template <class T>
struct MeansKernels {
  // Writes all of y [B, C, H, M], ℓ and m [B, H, C]; an empty cluster has y = 0, ℓ = +∞ and m = 0.
  static void forward(const Cuda&, const MeansAttention<T>&, View<T, 4> y, T* log_sums, T* mass);

  // δ and dm are [B, H, C]. Writes all of dq̄, dk and dv.
  static void backward(const Cuda&, const MeansAttention<T>&, const T* log_sums, const T* delta,
                       const T* dmass, View<const T, 4> dy, View<T, 4> dmeans, View<T, 4> dk,
                       View<T, 4> dv);
};

}  // namespace weft
