// The engine for scans by itself: bf16 against f64 of the same numbers, element by element.
#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/attention/engines/scan/attention.h"
#include "tests/attention/run_attention.h"
#include "tests/roundings.h"
#include "tests/threads.h"

namespace weft {
namespace {

using Numbers = std::vector<double>;

struct ScanCase {
  i64 N, S, E, M;
  i64 R = 0;  // rows of Ω
  bool causal = false;
  std::vector<i64> keys = {}, queries = {};
};

// The features of a row and the slopes that lead back from them: what is proportional to φ or to a
// step.
struct ScanRow {
  Numbers x, phi, slope;  // phi without the maximum of keys where there are levels
  double top = 0;         // that maximum
  double sine = 0, cosine = 0;
};

// Bounds on the errors of out, dq, dk and dv in bf16, from the roundings that scan.h names: of
// factors of φq, φk, S, G, a and da, of dN, and of the results. Features are positive, so that
// errors of a product of features are relative ones. `e` bounds the relative errors of f32.
class ScanBounds {
 public:
  ScanBounds(const ScanCall& call, const ScanCase& of, const std::vector<Tensor>& in,
             const Tensor& dout, const Tensor& out)
      : call_(call), of_(of), in_(in), dout_(dout), out_(out) {
    for (const Tensor& x : {out, in[0], in[1], in[2]}) {
      bounds_.push_back(Tensor::zeros(x.shape(), DType::f64));
    }
    for (i64 b = 0; b < out.size(0); ++b) {
      for (i64 h = 0; h < out.size(2); ++h) find(b, h);
    }
  }
  const std::vector<Tensor>& bounds() const { return bounds_; }

 private:
  static constexpr double u = tolerance::half_unit_bf16;
  static constexpr double thrice = 3 * u + 4 * u * u;  // (1 + u)³ − 1

  // Features reach e^30, and their exponents are sums over E.
  double e() const {
    return std::ldexp(1, -23) * double(30 * (of_.E + 2) + of_.N + of_.S + width());
  }
  i64 width() const { return features_of(call_.feature, of_.E, of_.R); }

  ScanRow row(bool query, i64 b, i64 i, i64 h, i64 longest) const {
    const View<double, 4> from = in_[query ? 0 : 1].view<double, 4>();
    ScanRow r;
    for (i64 n = 0; n < of_.E; ++n) r.x.push_back(call_.scale * from(b, i, h, n));
    if (is_random(call_.feature)) return random_row(query, r);
    const double most = *std::max_element(r.x.begin(), r.x.end());
    const double angle = std::acos(-1.0) / 2 / double(longest) * double(i);
    r.sine = std::sin(angle), r.cosine = std::cos(angle);
    for (const double x : r.x) {
      const double power = std::exp(x), above = std::max(x, 0.0);
      switch (call_.feature) {
        case Feature::elu:
          r.phi.push_back(x > 0 ? x + 1 : power), r.slope.push_back(x > 0 ? 1 : power);
          break;
        case Feature::exponential:
          r.phi.push_back(query ? std::exp(x - most) : power), r.slope.push_back(r.phi.back());
          break;
        default:
          r.phi.push_back(above), r.slope.push_back(x > 0 ? 1 : 0);
      }
    }
    if (call_.feature != Feature::cosine) return r;
    Numbers both;
    for (const double factor : {r.sine, r.cosine}) {
      for (const double phi : r.phi) both.push_back(factor * phi);
    }
    r.phi = both;
    return r;
  }

  ScanRow random_row(bool query, ScanRow r) const {
    const View<float, 2> omega = call_.omega.view<float, 2>();
    double half = 0;
    for (const double x : r.x) half += x * x / 2;
    for (i64 f = 0; f < of_.R; ++f) {
      double product = 0;
      for (i64 n = 0; n < of_.E; ++n) product += double(omega(f, n)) * r.x[std::size_t(n)];
      r.phi.push_back(product);
    }
    const bool levels = has_levels(call_.feature);
    if (call_.feature == Feature::random_hyperbolic) {
      for (i64 f = 0; f < of_.R; ++f) r.phi.push_back(-r.phi[std::size_t(f)]);
    }
    r.top = *std::max_element(r.phi.begin(), r.phi.end());
    for (double& phi : r.phi) {
      const double power = levels ? std::exp(phi - (query ? r.top : half)) : std::max(phi, 0.0);
      r.slope.push_back(levels ? power : phi > 0 ? 1 : 0);
      phi = power + (query || !levels ? call_.constant : 0);
    }
    if (call_.feature == Feature::random_hyperbolic) r.top -= half;
    return r;
  }

  // The bound on dx of that on dφ.
  void lead_back(const ScanRow& r, bool query, const Numbers& of_phi, const View<double, 4>& to,
                 i64 b, i64 i, i64 h) const {
    double all = 0;
    Numbers t;
    for (std::size_t f = 0; f < of_phi.size() && f < r.slope.size(); ++f) {
      t.push_back(of_phi[f] * r.slope[f]), all += t.back();
    }
    const auto largest = std::max_element(r.x.begin(), r.x.end()) - r.x.begin();
    for (i64 n = 0; n < of_.E; ++n) {
      const auto at = std::size_t(n);
      double& bound = to(b, i, h, n);
      if (is_random(call_.feature)) {
        const View<float, 2> omega = call_.omega.view<float, 2>();
        for (std::size_t f = 0; f < t.size(); ++f) {
          bound += call_.scale * t[f] * std::abs(double(omega(i64(f) % of_.R, n)));
        }
        if (has_levels(call_.feature)) bound += call_.scale * all * std::abs(r.x[at]);
      } else if (call_.feature == Feature::cosine) {
        bound = r.slope[at] * (r.sine * of_phi[at] + r.cosine * of_phi[at + r.x.size()]);
      } else {
        bound = t[at];
        if (call_.feature == Feature::exponential && query && n == largest) bound += all;
      }
    }
  }

  void find(i64 b, i64 h) const {
    const auto count = [&](const std::vector<i64>& lengths, i64 all) {
      return lengths.empty() ? all : std::min(all, lengths[std::size_t(b)]);
    };
    const i64 keys = count(of_.keys, of_.S), queries = keys > 0 ? count(of_.queries, of_.N) : 0;
    const i64 M = of_.M;
    const auto F = std::size_t(width());
    const View<double, 4> v = in_[2].view<double, 4>(), dout = dout_.view<double, 4>(),
                          out = out_.view<double, 4>();
    View<double, 4> of[4];
    for (std::size_t x = 0; x < 4; ++x) of[x] = bounds_[x].view<double, 4>();
    std::vector<ScanRow> key_rows;
    std::vector<Numbers> of_keys(static_cast<std::size_t>(keys), Numbers(F));
    for (i64 j = 0; j < keys; ++j) key_rows.push_back(row(false, b, j, h, std::max(keys, queries)));
    const bool levels = has_levels(call_.feature);
    for (i64 i = 0; i < queries; ++i) {
      const ScanRow q = row(true, b, i, h, std::max(keys, queries));
      const i64 end = of_.causal ? std::min(i + 1, keys) : keys;
      double level = levels ? -std::numeric_limits<double>::infinity() : 0, D = 0;
      for (i64 j = 0; levels && j < end; ++j) level = std::max(level, key_rows[std::size_t(j)].top);
      const double factor = std::exp(-level);
      const double constant = call_.feature == Feature::random_exponential ? call_.constant : 0;
      const auto phi_k = [&](i64 j, std::size_t f) {
        return key_rows[std::size_t(j)].phi[f] * factor + constant;
      };
      Numbers a;
      for (i64 j = 0; j < end; ++j) {
        a.push_back(0);
        for (std::size_t f = 0; f < F; ++f) a.back() += q.phi[f] * phi_k(j, f);
        D += a.back();
      }
      const double n = std::max(D + call_.added, call_.least);
      const double of_n = (thrice + e()) * D / n;  // relative, as of dN
      const double of_dN = of_n + u + 2 * u * of_n;
      double dD = 0, of_dD = 0;
      for (i64 m = 0; m < M; ++m) {
        double sum = 0;
        for (i64 j = 0; j < end; ++j) sum += a[std::size_t(j)] * std::abs(v(b, j, h, m));
        const double o = std::abs(out(b, i, h, m)), dN = std::abs(dout(b, i, h, m)) / n;
        const double before = ((thrice + e()) * sum / n + of_n * o) * (1 + of_n);
        of[0](b, i, h, m) = before;
        const double of_stored = before + u * (o + before);
        of_dD += dN * (of_dN * o + (1 + of_dN) * of_stored);
        dD += dN * o;
      }
      if (D + call_.added <= call_.least) dD = of_dD = 0;
      Numbers of_q(F);
      for (i64 j = 0; j < end; ++j) {
        double size = 0;
        for (i64 m = 0; m < M; ++m) {
          const double dN = std::abs(dout(b, i, h, m)) / n;
          size += dN * std::abs(v(b, j, h, m));
          of[3](b, j, h, m) += (of_dN + thrice * (1 + of_dN) + 2 * e()) * a[std::size_t(j)] * dN;
        }
        const double of_da =
            (1 + thrice) * (of_dN * size + of_dD) + (thrice + 2 * e()) * (size + dD);
        for (std::size_t f = 0; f < F; ++f) {
          of_q[f] += of_da * phi_k(j, f);
          of_keys[std::size_t(j)][f] += of_da * q.phi[f] * factor;
        }
      }
      lead_back(q, true, of_q, of[1], b, i, h);
    }
    for (i64 j = 0; j < keys; ++j) {
      lead_back(key_rows[std::size_t(j)], false, of_keys[std::size_t(j)], of[2], b, j, h);
    }
  }

  const ScanCall& call_;
  const ScanCase& of_;
  const std::vector<Tensor>& in_;
  Tensor dout_, out_;
  std::vector<Tensor> bounds_;
};

// Output, then the gradients of q, k and v.
std::vector<Tensor> scan_run(ScanCall call, const ScanCase& of, const std::vector<Tensor>& in,
                             const Tensor& dout, Device device) {
  const auto lengths = [&](const std::vector<i64>& given) {
    return given.empty() ? Tensor{} : lengths_of(given).to(device);
  };
  call.causal = of.causal;
  call.lengths = lengths(of.keys);
  call.query_lengths = lengths(of.queries);
  if (call.omega.defined()) call.omega = call.omega.to(accumulator_of(dout.dtype())).to(device);
  const auto f = [&](std::span<const Variable> x) {
    return std::vector{scan_attention(call, x[0], x[1], x[2])};
  };
  return run_for(dout, f, in, device).all();
}

void check_scan(ScanCall call, const ScanCase& of, bool apart = false) {
  const auto& [N, S, E, M, R, causal, keys, queries] = of;
  CAPTURE(fmt::format("feature {}, N {}, S {}, E {}, M {}, R {}, causal {}", int(call.feature), N,
                      S, E, M, R, causal));
  const auto number = [&](const Shape& shape, std::uint64_t seed) {
    return random_normal(shape, DType::f32, seed).to(DType::bf16);
  };
  const std::vector<Tensor> narrow{number({2, N, 2, E}, 1), number({2, S, 2, E}, 2),
                                   number({2, S, 2, M}, 3)};
  const Tensor dout = number({2, N, 2, M}, 4), wide_dout = dout.to(DType::f64);
  std::vector<Tensor> wide, given;
  for (const Tensor& x : narrow) {
    wide.push_back(x.to(DType::f64));
    given.push_back(apart ? scattered(x) : x);
  }
  if (R > 0) call.omega = random_normal({R, E}, DType::f32, 5);
  const std::vector<Tensor> wanted = scan_run(call, of, wide, wide_dout, Device{});
  const std::vector<Tensor> got = scan_run(call, of, given, dout, tested_device());
  const ScanBounds bounds(call, of, wide, wide_dout, wanted[0]);
  for (std::size_t x = 0; x < 4; ++x) {
    CAPTURE(x);
    CHECK(got[x].dtype() == DType::bf16);
    CHECK(beyond_bounds(got[x], wanted[x], bounds.bounds()[x], 1, true) == "");
  }
  // Roundings are independent, so that in the mean several are less than the worst of two.
  CHECK(relative_error(got[0], wanted[0]) <= tolerance::half_unit_bf16);
}

constexpr double scan_scale = 0.5;

// The features of linear, cosformer and performer.
std::vector<ScanCall> scan_calls() {
  return {{.feature = Feature::elu, .added = 1e-6},
          {.feature = Feature::relu, .added = 1e-6},
          {.feature = Feature::exponential, .added = 1e-6},
          {.feature = Feature::cosine, .least = 1e-6},
          {.feature = Feature::random_exponential, .scale = scan_scale, .constant = 1e-4},
          {.feature = Feature::random_hyperbolic, .scale = scan_scale},
          {.feature = Feature::random_relu, .scale = scan_scale, .constant = 1e-3}};
}

TEST_SUITE("attention") {

TEST_CASE("scan: bf16 is f64 of the same numbers, but for the roundings") {
  const ThreadsOf one(1);
  const std::vector<i64> some{67, 21}, others{40, 67};
  for (const ScanCall& call : scan_calls()) {
    const i64 R = is_random(call.feature) ? 9 : 0;
    check_scan(call, {67, 130, 16, 16, R});
    check_scan(call, {130, 130, 16, 24, R, true});
    check_scan(call, {67, 67, 5, 7, R, true, some, others}, true);
    check_scan(call, {67, 67, 8, 8, R, false, some, others});
  }
}

TEST_CASE("scan: bf16 with heads of every width of tiles, and wider ones") {
  const ThreadsOf one(1);
  for (const i64 width : {32, 64, 80}) {
    for (const bool causal : {false, true}) {
      check_scan({.feature = Feature::elu, .added = 1e-6}, {70, 70, width, width, 0, causal});
      check_scan({.feature = Feature::cosine, .least = 1e-6}, {70, 70, width, 20, 0, causal});
      check_scan({.feature = Feature::random_exponential, .scale = 0.3, .constant = 1e-4},
                 {70, 70, 16, width, width + 3, causal});
    }
  }
  check_scan({.feature = Feature::elu, .added = 1e-6}, {3, 70, 16, 16, 0, false, {0, 70}});
}

}  // TEST_SUITE("attention")

}  // namespace
}  // namespace weft
