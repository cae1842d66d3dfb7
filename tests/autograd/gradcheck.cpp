#include "autograd/gradcheck.h"

#include <cmath>

#include "autograd/apply.h"
#include "ops/pointwise/pointwise.h"
#include "tests/check.h"

namespace weft {
namespace {

// y = x³ and z = Σ_j x_ij over the last axis, with one fault of the backward at a time.
enum class Fault {
  none,
  sign,
  factor,
  missing_term,
  wrong_index,
  one_element,
  forgotten,
  not_finite,
  shape
};

struct CubeAndSum {
  static constexpr const char* name = "cube_and_sum";
  Fault fault;
  struct Saved {
    Tensor x;
  };

  std::array<Tensor, 2> forward(Saved& saved, const Tensor& x) const {
    saved.x = x.packed();
    const i64 rows = x.size(0), columns = x.size(1);
    const Tensor y = Tensor::empty(x.shape(), DType::f64), z = Tensor::zeros({rows}, DType::f64);
    const auto from = saved.x.view<const double, 2>();
    for (i64 i = 0; i < rows; ++i) {
      for (i64 j = 0; j < columns; ++j) {
        y.view<double, 2>()(i, j) = std::pow(from(i, j), 3);
        z.view<double, 1>()(i) += from(i, j);
      }
    }
    return {y, z};
  }

  Tensor backward(const Saved& saved, const Tensor& dy, const Tensor& dz) const {
    if (fault == Fault::forgotten) return {};
    const i64 rows = saved.x.size(0), columns = saved.x.size(1);
    const Tensor dx = Tensor::empty(saved.x.shape(), DType::f64);
    const auto x = saved.x.view<const double, 2>();
    for (i64 i = 0; i < rows; ++i) {
      for (i64 j = 0; j < columns; ++j) {
        const double factor = fault == Fault::factor ? 3.0001 : 3;
        double d = dy.view<double, 2>()(i, j) * factor * x(i, j) * x(i, j);
        if (fault == Fault::sign) d = -d;
        if (fault != Fault::missing_term) {
          d += dz.view<double, 1>()(fault == Fault::wrong_index ? (i + 1) % rows : i);
        }
        if (fault == Fault::one_element && i == 1 && j == 2) d += 1e-3;
        if (fault == Fault::not_finite && i == 1) d = std::nan("");
        dx.view<double, 2>()(i, j) = d;
      }
    }
    return fault == Fault::shape ? dx.reshape({columns, rows}) : dx;
  }
};

GradientError check(Fault fault, const Tensor& x) {
  const auto f = [fault](std::span<const Variable> in) {
    const auto outputs = apply(CubeAndSum{fault}, in[0]);
    return std::vector<Variable>(outputs.begin(), outputs.end());
  };
  return gradcheck(f, std::vector{x});
}

// Rows of y sum to 0, so that a backward which returns nothing but zeros fits L = Σ y.
struct Centred {
  static constexpr const char* name = "centred";
  struct Saved {};
  Tensor forward(Saved&, const Tensor& x) const {
    const Tensor y = x.clone();
    const auto v = y.view<double, 1>();
    const double mean = (v(0) + v(1) + v(2)) / 3;
    for (int i = 0; i < 3; ++i) v(i) -= mean;
    return y;
  }
  Tensor backward(const Saved&, const Tensor& dy) const {
    return Tensor::zeros(dy.shape(), dy.dtype());
  }
};

TEST_SUITE("autograd") {

TEST_CASE("gradcheck passes what is right and catches what is wrong") {
  const Tensor x = random_normal({3, 5}, DType::f64, 5);
  CHECK(check(Fault::none, x).worst <= tolerance::gradcheck);
  CHECK(check(Fault::none, scattered(x)).worst <= tolerance::gradcheck);
  for (const Fault fault : {Fault::sign, Fault::factor, Fault::missing_term, Fault::wrong_index,
                            Fault::one_element, Fault::forgotten}) {
    CAPTURE(static_cast<int>(fault));
    CHECK(check(fault, x).worst > 10 * tolerance::gradcheck);
  }
  CHECK_ERROR(check(Fault::not_finite, x), "the gradient of input 0 is not finite");
  CHECK_ERROR(check(Fault::shape, x), "a gradient is [5,3] of f64 on cpu, but its value [3,5]");
}

TEST_CASE("gradcheck says where the worst element is") {
  const GradientError error = check(Fault::one_element, random_normal({3, 5}, DType::f64, 5));
  CHECK(error.where.find("input 0 [3,5] element 7") != std::string::npos);
}

TEST_CASE("gradcheck refuses a difference that is not finite, wherever it stands") {
  const auto f = [](std::span<const Variable> in) { return std::vector{log(in[0])}; };
  for (const std::vector<double>& x : {std::vector<double>{1e-7, 1, 2}, {1, 2, 1e-7}}) {
    CHECK_ERROR(gradcheck(f, std::vector{Tensor::from(x, {3})}), "is not finite");
  }
}

TEST_CASE("a plain sum would be blind; random weights are not") {
  const auto f = [](std::span<const Variable> in) { return std::vector{apply(Centred{}, in[0])}; };
  CHECK(gradcheck(f, std::vector{random_normal({3}, DType::f64, 2)}).worst > 0.1);
}

TEST_CASE("inputs that are not f64 are constants") {
  const Tensor factor = Tensor::from(std::vector<double>{2, 3}, {2}).to(DType::i64);
  const auto f = [](std::span<const Variable> in) {
    return std::vector{mul(in[0], Variable(in[1].value().to(DType::f64)))};
  };
  CHECK_GRADIENTS(f, std::vector{random_normal({2}, DType::f64, 2), factor});
}

TEST_CASE("random tensors are the same for a seed, and differ between seeds") {
  const Tensor a = random_normal({40}, DType::f64, 1), b = random_normal({40}, DType::f64, 2);
  CHECK(same_bits(a, random_normal({40}, DType::f64, 1)));
  CHECK(relative_error(a, b) > 0.5);
  for (const double u : random_uniform({200}, DType::f64, 3, -2, 5).to_vector<double>()) {
    CHECK((u >= -2 && u < 5));
  }
}

}  // TEST_SUITE("autograd")
}  // namespace
}  // namespace weft
