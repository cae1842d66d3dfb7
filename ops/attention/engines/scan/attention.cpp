// The op on the engine for scans, decoding and costs. Equations: scan.h.
#include "ops/attention/engines/scan/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "autograd/apply.h"
#include "ops/attention/scores.h"
#include "runtime/dispatch.h"

namespace weft {
namespace {

struct ScanOp {
  static constexpr bool takes_bf16_alone = true;
  ScanCall call;
  const char* name = call.name;

  struct Saved {
    Tensor q, k, v, out, divisors, sums;
  };

  // `found`: the maxima are known.
  template <class S>
  Scan<S> problem(const Saved& saved, bool found) const {
    using T = Accumulator<S>;
    return {.q = saved.q.view<const S, 4>(),
            .k = saved.k.view<const S, 4>(),
            .v = saved.v.view<const S, 4>(),
            .lengths = numbers_of(call.lengths),
            .query_lengths = numbers_of(call.query_lengths),
            .causal = call.causal,
            .feature = call.feature,
            .added = static_cast<T>(call.added),
            .least = static_cast<T>(call.least),
            .period = call.period,
            .offset = call.offset,
            .omega = call.omega.defined() ? call.omega.view<const T, 2>() : View<const T, 2>{},
            .scale = static_cast<T>(call.scale),
            .constant = static_cast<T>(call.constant),
            .query_max = maxima<T>(call.query_max),
            .key_max = maxima<T>(call.key_max),
            .query_max_given = found || !call.find_query_max,
            .key_max_given = found || !call.find_key_max};
  }

  template <class T>
  static View<T, 3> maxima(const Tensor& x) {
    return x.defined() ? x.view<T, 3>() : View<T, 3>{};
  }

  // `sums` may be undefined if the sums begin at 0 and are not wanted.
  Tensor run(Saved& saved) const {
    const Tensor &q = saved.q, &v = saved.v;
    const i64 B = q.size(0), N = q.size(1), H = q.size(2);
    saved.out = Tensor::empty({B, N, H, v.size(3)}, q.dtype(), q.device());
    saved.divisors = Tensor::empty({B, H, N}, accumulator_of(q.dtype()), q.device());
    dispatch_floating(q, [&](auto device, auto type) {
      using S = decltype(type);
      const Scan<S> p = problem<S>(saved, false);
      if (!call.causal) saved.sums = Tensor::empty({B, H, p.sums()}, DType::f64, q.device());
      ScanKernels<decltype(device), S>::forward(
          device, p, saved.sums.defined() ? saved.sums.view<double, 3>() : View<double, 3>{},
          saved.out.view<S, 4>(), saved.divisors.view<Accumulator<S>, 3>());
    });
    return saved.out;
  }

  Tensor forward(Saved& saved, const Tensor& q, const Tensor& k, const Tensor& v) const {
    saved = {q, k, v, {}, {}, {}};
    return run(saved);
  }

  std::array<Tensor, 3> backward(const Saved& saved, const Tensor& dout) const {
    const std::array<Tensor, 3> gradients{Tensor::empty_like(saved.q), Tensor::empty_like(saved.k),
                                          Tensor::empty_like(saved.v)};
    dispatch_floating(dout, [&](auto device, auto type) {
      using S = decltype(type);
      ScanKernels<decltype(device), S>::backward(
          device, problem<S>(saved, true),
          saved.sums.defined() ? saved.sums.view<const double, 3>() : View<const double, 3>{},
          saved.out.view<const S, 4>(), saved.divisors.view<const Accumulator<S>, 3>(),
          dout.view<const S, 4>(), gradients[0].view<S, 4>(), gradients[1].view<S, 4>(),
          gradients[2].view<S, 4>());
    });
    return gradients;
  }
};

class ScanDecoding final : public DecodingState {
 public:
  ScanDecoding(const ScanCall& call, const AttentionSizes& s, i64 R)
      : op_{call},
        shape_{s.B, s.H, sums_of(call.feature, features_of(call.feature, s.E, R), s.M)},
        omega_{R, s.E} {
    op_.call.causal = true;
  }

  Tensor step(std::span<const Tensor> inputs) override {
    if (!sums_.defined()) {
      sums_ = Tensor::zeros(shape_, DType::f64, inputs[0].device());
      if (has_levels(op_.call.feature)) {
        sums_.slice(2, shape_[2] - 1, shape_[2]).fill(-std::numeric_limits<double>::infinity());
      }
    }
    if (is_random(op_.call.feature)) {
      require(inputs[3].shape() == omega_, "{}: decoding needs omega {}, got {}", op_.name, omega_,
              inputs[3].shape());
      op_.call.omega = inputs[3].packed();
    }
    op_.call.query_max = op_.call.key_max = {};
    make_maxima(op_.call, inputs[0]);
    ScanOp::Saved saved{inputs[0], inputs[1], inputs[2], {}, {}, sums_};
    const Tensor out = op_.run(saved);
    op_.call.offset += inputs[0].size(1);
    return out;
  }

  i64 bytes() const override { return shape_.count() * i64{sizeof(double)}; }

 private:
  ScanOp op_;
  Shape shape_, omega_;
  Tensor sums_;  // from the first step on
};

}  // namespace

void make_maxima(ScanCall& call, const Tensor& q) {
  if (!has_levels(call.feature)) return;
  const i64 B = q.size(0), N = q.size(1), H = q.size(2);
  const auto make = [&](Tensor& maxima, bool& find, i64 count) {
    if (maxima.defined()) return;
    maxima = Tensor::empty({B, H, count}, accumulator_of(q.dtype()), q.device());
    find = true;
  };
  make(call.query_max, call.find_query_max, N);
  make(call.key_max, call.find_key_max, call.causal ? N : 1);
}

Variable scan_attention(const ScanCall& call, const Variable& q, const Variable& k,
                        const Variable& v) {
  ScanCall whole = call;
  make_maxima(whole, q.value());
  if (whole.omega.defined()) whole.omega = whole.omega.to(accumulator_of(q.value().dtype()));
  return apply(ScanOp{whole}, q, k, v);
}

std::unique_ptr<DecodingState> decode_by_scan(const ScanCall& call, const AttentionSizes& sizes,
                                              i64 R) {
  return std::make_unique<ScanDecoding>(call, sizes, R);
}

AttentionCost scan_cost(Feature feature, const AttentionSizes& s, bool causal, DType type, i64 R) {
  const double item = double(size_of(accumulator_of(type))), heads = double(s.B * s.H);
  const double F = double(features_of(feature, s.E, R)), M = double(s.M), E = double(s.E);
  const double positions = heads * double(s.N + s.S) / 2, C = scan_chunk;
  const double pairs = causal ? C / 2 : 0, sums = double(sums_of(feature, i64(F), s.M));
  const bool random = is_random(feature), levels = has_levels(feature);
  const bool powers = feature == Feature::elu || feature == Feature::exponential || levels;
  const double projections = random ? 2 * E * double(R) : 0, omega = random ? E * double(R) : 0;
  const double maxima = levels ? double(s.N) + (causal ? double(s.N) : 1) : 0;
  const double find_level = levels && !causal ? 1 : 0;
  // The scratch of one task in backward.
  const double rows = C * (2 * E + 3 * F + M + C + 5) + C * (2 * M + 1) +
                      C * (C + 2 * std::max(F, M) + F + E + 1) + omega + (random ? 2 * C : 0);
  return {.forward_operations = positions * (4 * F * M + 2 * pairs * (F + M) +
                                             (2 + find_level) * projections),
          .backward_operations = positions * (10 * F * M + 6 * pairs * (F + M) +
                                              (causal ? 6 : 4) * projections),
          .exponentials = powers ? positions * F * (causal ? 6 : 4) : 0,
          .saved_bytes = heads * (double(s.N) * item + maxima * item + (causal ? 0 : 8 * sums)) +
                         omega * item,
          .working_bytes = item * (rows + 4 * sums + F * M) + 8 * (causal ? 2 : 3) * sums,
          .cuda_working_bytes =
              item * (heads * (double(s.N + s.S) * F + double(s.N) * (M + 1) +
                               double(std::max(s.N, s.S)) * F) +
                      heads * std::ceil(double(std::max(s.N, s.S)) / C) * sums)};
}

}  // namespace weft
