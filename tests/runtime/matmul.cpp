#include "runtime/matmul.h"

#include <omp.h>

#include <thread>

#include "runtime/gemm.h"
#include "runtime/gemm_builtin.h"
#include "tests/check.h"
#include "tests/threads.h"

namespace weft {
namespace {

// Σ_k a[.., i, k] b[.., k, j] by a plain loop in f64; b of two axes is broadcast over a.
Tensor plain_product(const Tensor& a, const Tensor& b) {
  Shape shape = a.shape();
  shape[a.rank() - 1] = b.size(-1);
  const i64 m = a.size(-2), k = a.size(-1), n = b.size(-1);
  const std::vector<double> left = a.to(DType::f64).to_vector<double>();
  const std::vector<double> right = b.to(DType::f64).to_vector<double>();
  std::vector<double> c(static_cast<std::size_t>(shape.count()));
  for (i64 row = 0; row < shape.count() / std::max<i64>(n, 1); ++row) {
    const i64 matrix = b.rank() == 2 ? 0 : row / m;
    for (i64 l = 0; l < k; ++l) {
      const double x = left[static_cast<std::size_t>(row * k + l)];
      for (i64 j = 0; j < n; ++j) {
        c[static_cast<std::size_t>(row * n + j)] +=
            x * right[static_cast<std::size_t>((matrix * k + l) * n + j)];
      }
    }
  }
  return Tensor::from(c, shape);
}

double tolerance_of(DType type, i64 depth = 1) {
  if (type == DType::f64) return tolerance::forward_f64;
  return depth < 4096 ? tolerance::forward_f32 : tolerance::forward_f32_long;
}

void check_product(const Tensor& a, const Tensor& b) {
  CAPTURE(fmt::format("{} {} × {} {}", name_of(a.dtype()), a.shape(), b.shape(), b.strides()));
  CHECK(relative_error(matmul(a, b), plain_product(a, b)) <= tolerance_of(a.dtype(), a.size(-1)));
}

TEST_SUITE("runtime") {

TEST_CASE("products of any size agree with the plain loop") {
  for (const DType type : {DType::f32, DType::f64}) {
    for (const i64 m : {1, 3, 64, 259}) {
      for (const i64 k : {1, 7, 65}) {
        for (const i64 n : {1, 5, 16, 33, 130}) {
          check_product(random_normal({m, k}, type, 1), random_normal({k, n}, type, 2));
        }
      }
    }
  }
}

// The right-hand side exceeds the size from which the library is used.
TEST_CASE("large products agree with the plain loop, however they lie in memory") {
  for (const DType type : {DType::f32, DType::f64}) {
    const Tensor a = random_normal({37, 301}, type, 1), b = random_normal({301, 307}, type, 2);
    for (const Tensor& left : {a, scattered(a), a.transpose(0, 1).clone().transpose(0, 1)}) {
      for (const Tensor& right : {b, scattered(b), b.transpose(0, 1).clone().transpose(0, 1)}) {
        check_product(left, right);
      }
    }
    check_product(random_normal({1, 600}, type, 3), random_normal({600, 300}, type, 4));
    check_product(random_normal({13, 2}, type, 3), random_normal({2, 70000}, type, 4));
    check_product(random_normal({5, 90000}, type, 5), random_normal({90000, 1}, type, 6));
  }
}

TEST_CASE("transposed, sliced and overlapping small operands") {
  for (const DType type : {DType::f32, DType::f64}) {
    const Tensor a = random_normal({9, 14}, type, 1), b = random_normal({14, 11}, type, 2);
    for (const Tensor& left : {a, scattered(a), a.transpose(0, 1).clone().transpose(0, 1)}) {
      for (const Tensor& right : {b, scattered(b), b.transpose(0, 1).clone().transpose(0, 1)}) {
        check_product(left, right);
      }
    }
    check_product(random_normal({1, 14}, type, 3).expand({9, 14}), b);
    check_product(a, random_normal({14, 1}, type, 3).expand({14, 11}));
  }
}

TEST_CASE("batches, with one right-hand side for each matrix or for all") {
  for (const DType type : {DType::f32, DType::f64}) {
    const Tensor a = random_normal({2, 3, 5, 7}, type, 1);
    check_product(a, random_normal({7, 4}, type, 2));
    check_product(a, random_normal({2, 3, 7, 4}, type, 3));
    check_product(scattered(a), scattered(random_normal({2, 3, 7, 4}, type, 3)));
    // Heads as views of [B, N, H·E]: no copy is made of them.
    const Tensor q = random_normal({2, 5, 21}, type, 4).reshape({2, 5, 3, 7}).transpose(1, 2);
    check_product(q, q.transpose(-2, -1));
  }
}

TEST_CASE("a product on top of what is there, in rows with gaps") {
  for (const DType type : {DType::f32, DType::f64}) {
    for (const i64 n : {6, 300}) {
      const Tensor a = random_normal({8, 300}, type, 1), b = random_normal({300, n}, type, 2);
      const Tensor wide = random_normal({8, n + 5}, type, 3), before = wide.clone();
      const Tensor target = wide.slice(1, 2, 2 + n);
      matmul_into(a, b, target, true);
      const Tensor sum = plain_product(a, b);
      const Tensor difference = target.to(DType::f64);
      for (i64 i = 0; i < 8; ++i) {
        for (i64 j = 0; j < n; ++j) {
          difference.view<double, 2>()(i, j) -=
              before.to(DType::f64).slice(1, 2, 2 + n).view<double, 2>()(i, j);
        }
      }
      CHECK(relative_error(difference, sum) <= 2 * tolerance_of(type));
      CHECK(same_bits(wide.slice(1, 0, 2), before.slice(1, 0, 2)));
      CHECK(same_bits(wide.slice(1, 2 + n, 5 + n), before.slice(1, 2 + n, 5 + n)));
    }
  }
}

TEST_CASE("empty products") {
  for (const DType type : {DType::f32, DType::f64}) {
    const Tensor none = matmul(Tensor::empty({3, 0}, type), Tensor::empty({0, 4}, type));
    CHECK(same_bits(none, Tensor::zeros({3, 4}, type)));
    CHECK(matmul(Tensor::empty({0, 5}, type), Tensor::empty({5, 4}, type)).count() == 0);
    CHECK(matmul(random_normal({2, 5}, type, 1), Tensor::empty({5, 0}, type)).count() == 0);
    CHECK(matmul(Tensor::empty({0, 2, 5}, type), Tensor::empty({0, 5, 3}, type)).count() == 0);
  }
}

TEST_CASE("the bits do not depend on the number of threads") {
  for (const DType type : {DType::f32, DType::f64}) {
    const Tensor a = random_normal({3, 600, 40}, type, 1), small = random_normal({40, 50}, type, 2);
    const Tensor wide = random_normal({40, 2000}, type, 3);
    const auto products = [&](int team) {
      const ThreadsOf scope(team);
      return std::vector{matmul(a, small), matmul(a, wide)};
    };
    const std::vector<Tensor> one = products(1), two = products(2), five = products(5);
    for (std::size_t i = 0; i < one.size(); ++i) {
      CHECK(same_bits(one[i], two[i]));
      CHECK(same_bits(one[i], five[i]));
    }
  }
}

TEST_CASE("a product has the same bits on any thread of a program, and leaves its OpenMP alone") {
  const Tensor a = random_normal({64, 2048}, DType::f32, 1),
               b = random_normal({2048, 64}, DType::f32, 2);
  const Tensor a16 = a.to(DType::bf16), b16 = b.to(DType::bf16);
  const Tensor wanted = matmul(a, b), wanted16 = matmul(a16, b16);
  Tensor got, got16;
  int after = 0;
  std::thread([&] {
    omp_set_num_threads(4);
    got = matmul(a, b);
    got16 = matmul(a16, b16);
    after = omp_get_max_threads();
  }).join();
  CHECK(same_bits(got, wanted));
  CHECK(same_bits(got16, wanted16));
  CHECK(after == 4);
}

// The replacement of a missing library, whatever this build has.
TEST_CASE_TEMPLATE("the built-in product of large matrices", T, float, double) {
  const Tensor a = random_normal({31, 401}, dtype_of<T>, 1),
               b = random_normal({401, 203}, dtype_of<T>, 2);
  const Tensor at = a.transpose(0, 1).clone(), bt = b.transpose(0, 1).clone();
  const Tensor wanted = plain_product(a, b);
  for (const bool left : {false, true}) {
    for (const bool right : {false, true}) {
      const Tensor c = Tensor::empty({31, 203}, dtype_of<T>);
      gemm_builtin<T>(left, right, 31, 203, 401, (left ? at : a).template data<T>(),
                      left ? 31 : 401, (right ? bt : b).template data<T>(), right ? 401 : 203, 0,
                      c.data<T>(), 203);
      CHECK(relative_error(c, wanted) <= tolerance_of(dtype_of<T>));
    }
  }
}

TEST_CASE("sizes and types that do not fit are refused") {
  const Tensor a = random_normal({2, 3}, DType::f32, 1);
  CHECK_ERROR(matmul(a, random_normal({4, 3}, DType::f32, 2)),
              "[2,3] and the last but one of [4,3]");
  CHECK_ERROR(matmul(a, random_normal({3, 3}, DType::f64, 2)), "got f32 × f64");
  CHECK_ERROR(
      matmul(random_normal({2, 2, 3}, DType::f32, 1), random_normal({3, 3, 3}, DType::f32, 1)),
      "the batches of [2,2,3] and [3,3,3] differ");
  CHECK_ERROR(matmul_into(a, a.transpose(0, 1), Tensor::empty({2, 3}, DType::f32)),
              "gives [2,2], the target is [2,3]");
  CHECK(blas_size(2147483647) == 2147483647);
  CHECK_ERROR(blas_size(i64{1} << 31), "of up to 2147483647 rows and columns, got 2147483648");
}

}  // TEST_SUITE("runtime")
}  // namespace
}  // namespace weft
