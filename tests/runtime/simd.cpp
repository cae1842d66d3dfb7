#include "runtime/simd.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "runtime/pack.h"
#include "runtime/tile.h"
#include "runtime/transpose.h"
#include "tests/check.h"

namespace weft {
namespace {

template <class T>
T first_lane(Pack<T> x) {
  return simd::hn::GetLane(x.vector());
}

// Equal, or within some units in the last place.
template <class T>
bool close(T got, double wanted, double units) {
  if (std::isnan(wanted)) return std::isnan(got);
  const T rounded = static_cast<T>(wanted);
  if (std::isinf(rounded) || rounded == 0) return got == rounded;
  const double least = std::numeric_limits<T>::min();
  return std::abs(double(got) - wanted) <=
         units * std::numeric_limits<T>::epsilon() * std::max(std::abs(wanted), least);
}

const std::vector<double> points = [] {
  const double infinity = std::numeric_limits<double>::infinity();
  std::vector<double> list{0.0,  -0.0, infinity, -infinity, std::nan(""), 1.0,   -1.0, 88.7,
                           88.8, 89.5, -103.0,   -105.0,    709.7,        709.9, 711., -750.,
                           1e4,  -1e4, 1e18,     -1e18,     1e30,         -1e30, 1e-30};
  for (int i = -400; i <= 400; ++i) list.push_back(i * 0.0517);
  return list;
}();

// How many of these elements map() converts otherwise than convert() does, or writes behind them.
template <class To, class From>
i64 wrongly_converted(const std::vector<From>& from, i64 begin, i64 count) {
  const To behind(7.0f);
  std::vector<To> to(static_cast<std::size_t>(count) + 1, behind);
  map(
      count, to.data(), [](auto x) { return x; }, from.data() + begin);
  const auto differ = [](To a, To b) { return std::memcmp(&a, &b, sizeof(To)) != 0; };
  i64 wrong = differ(to.back(), behind);
  for (i64 i = 0; i < count; ++i) {
    const auto at = static_cast<std::size_t>(i), given = static_cast<std::size_t>(begin + i);
    wrong += differ(to[at], convert<To>(from[given]));
  }
  return wrong;
}

TEST_SUITE("runtime") {

TEST_CASE_TEMPLATE("vector functions agree with the standard ones everywhere", T, float, double) {
  for (const double point : points) {
    const T x = static_cast<T>(point);
    const double exact = x;
    CAPTURE(exact);
    CHECK(close(first_lane<T>(exp(Pack<T>(x))), std::exp(exact), 2));
    const double units = sizeof(T) == 4 || !std::isfinite(exact) ? 2 : 2 + std::abs(exact);
    CHECK(close(first_lane<T>(exp2(Pack<T>(x))), std::exp2(exact), units));
    CHECK(close(first_lane<T>(log(Pack<T>(x))), std::log(exact), 2));
    CHECK(close(first_lane<T>(tanh(Pack<T>(x))), std::tanh(exact), 4));
    CHECK(close(first_lane<T>(erfc(Pack<T>(x))), std::erfc(exact), 8));
    CHECK(
        close(first_lane<T>(simd::sigmoid<T>(Pack<T>(x).vector())), 1 / (1 + std::exp(-exact)), 4));
  }
}

TEST_CASE("vectors of bf16 are widened and rounded as single numbers are") {
  std::vector<bf16> narrow;   // all
  std::vector<float> floats;  // those beside each, ties and NaN among them
  for (std::uint32_t high = 0; high < 1 << 16; ++high) {
    narrow.emplace_back().bits = static_cast<std::uint16_t>(high);
    for (const std::uint32_t low : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      floats.push_back(std::bit_cast<float>((high << 16) + low));
    }
  }
  CHECK(wrongly_converted<float>(narrow, 0, std::ssize(narrow)) == 0);
  CHECK(wrongly_converted<bf16>(floats, 0, std::ssize(floats)) == 0);
  for (i64 count = 0; count <= 2 * simd::lanes<float>; ++count) {
    CHECK(wrongly_converted<float>(narrow, 0x4001, count) == 0);
    CHECK(wrongly_converted<bf16>(floats, 6 * 0x4001, count) == 0);
  }
  const auto part = [&](auto d) {  // vectors of fewer lanes
    const auto lanes = static_cast<std::size_t>(simd::hn::Lanes(d));
    for (std::size_t i = 0; i + lanes <= floats.size(); i += lanes) {
      std::array<bf16, simd::lanes<float>> got;
      simd::store_as(d, simd::load_as(d, floats.data() + i), got.data());
      const auto back = simd::load_as(d, got.data());
      std::array<float, simd::lanes<float>> wide;
      simd::store_as(d, back, wide.data());
      for (std::size_t lane = 0; lane < lanes; ++lane) {
        const bf16 wanted(floats[i + lane]);
        if (got[lane].bits != wanted.bits) return false;
        if (std::bit_cast<std::uint32_t>(wide[lane]) >> 16 != wanted.bits) return false;
      }
    }
    return true;
  };
  CHECK(part(simd::hn::CappedTag<float, 8>{}));
  CHECK(part(simd::hn::CappedTag<float, 4>{}));
}

TEST_CASE(
    "powers of e and of two in f32 are right to 1.2 units everywhere between 0 and infinity") {
  constexpr double units = 1.2;
  int wrong = 0, checked = 0;
  for (double x = -151; x < 129; x += 0.000713, ++checked) {
    const auto number = static_cast<float>(x);
    const double exact = number;
    const bool small = exact > -104 && exact < 89;
    wrong += !close(first_lane<float>(exp2(Pack<float>(number))), std::exp2(exact), units);
    wrong += small && !close(first_lane<float>(exp(Pack<float>(number))), std::exp(exact), units);
  }
  CHECK(checked > 300000);
  CHECK(wrong == 0);
  for (int n = -149; n < 128; ++n) {
    const auto number = static_cast<float>(n);
    CHECK(first_lane<float>(exp2(Pack<float>(number))) == std::ldexp(1.0f, n));
    CHECK(first_lane<float>(exp2(Pack<float>(std::nextafter(number, -200.0f)))) <=
          std::ldexp(1.0f, n));
  }
}

TEST_CASE_TEMPLATE("partial loads, stores and sums touch their elements only", T, float, double) {
  constexpr i64 most = 3 * simd::lanes<T>;
  for (i64 count = 0; count <= most; ++count) {
    std::vector<T> from(static_cast<std::size_t>(most)), to(static_cast<std::size_t>(most), T(-1));
    std::iota(from.begin(), from.end(), T(1));
    map<T>(
        count, to.data(), [](Pack<T> x) { return x + x; }, from.data());
    for (i64 i = 0; i < most; ++i) {
      CHECK(to[static_cast<std::size_t>(i)] == (i < count ? T(2 * (i + 1)) : T(-1)));
    }
    const double total = double(count) * double(count + 1) / 2;
    CHECK(simd::sum_in_f64(from.data(), count) == total);
    CHECK(simd::dot(from.data(), from.data(), count) == T(total * double(2 * count + 1) / 3));
    if (count <= simd::lanes<T>) {
      CHECK(simd::sum_of_lanes<T>(first(Pack<T>(3.0), count).vector()) == T(3 * count));
    }
  }
}

TEST_CASE("a sum of f32 is gathered in f64") {
  std::vector<float> x(100003, 0.1f);
  x[0] = 1e7f;
  const double wanted = 1e7 + 100002 * double(0.1f);
  CHECK(std::abs(simd::sum_in_f64(x.data(), 100003) / wanted - 1) < tolerance::forward_f64);
}

// The largest distance of a tile product from its definition in f64; A is transposed, B and C have
// gaps, which must not change.
template <class T>
double worst_of_tile_product(i64 rows, i64 columns, i64 depth, bool add) {
  const Tensor a = random_normal({depth + 1, rows + 2}, dtype_of<T>, 1);
  const Tensor b = random_normal({depth + 1, columns + 3}, dtype_of<T>, 2);
  const Tensor c = random_normal({rows, columns + 1}, dtype_of<T>, 3), before = c.clone();
  tile_product<T>(rows, columns, depth, {a.data<T>(), 1, rows + 2}, {b.data<T>(), columns + 3},
                  {c.data<T>(), columns + 1}, add);
  double worst = 0;
  for (i64 i = 0; i < rows; ++i) {
    for (i64 j = 0; j <= columns; ++j) {
      double sum = add || j == columns ? double(before.view<T, 2>()(i, j)) : 0;
      for (i64 k = 0; k < depth && j < columns; ++k) {
        sum += double(a.view<T, 2>()(k, i)) * double(b.view<T, 2>()(k, j));
      }
      worst = worse(worst, std::abs(sum - double(c.view<T, 2>()(i, j))));
    }
  }
  return worst;
}

// Sizes around every width of the tile, and around the rows and the depth of a panel.
TEST_CASE_TEMPLATE("tile products of any size", T, float, double) {
  for (const i64 rows : {1, 2, 5, 13, 25, 64, 67}) {
    for (const i64 columns : {1, 3, 8, 17, 37, 70}) {
      for (const i64 depth : {0, 1, 7, 33, 270}) {
        for (const bool add : {false, true}) {
          CAPTURE(rows);
          CAPTURE(columns);
          CAPTURE(depth);
          CAPTURE(add);
          const double scale = std::sqrt(double(depth) + 1) * 4;
          CHECK(worst_of_tile_product<T>(rows, columns, depth, add) <=
                scale * (sizeof(T) == 4 ? tolerance::forward_f32 : tolerance::forward_f64));
        }
      }
    }
  }
}

// From rows with gaps to rows with gaps, which must not change.
TEST_CASE_TEMPLATE("transposes of any size", T, float, double) {
  for (const i64 rows : {0, 1, 3, 4, 8, 13, 32, 47}) {
    for (const i64 columns : {0, 1, 4, 6, 8, 21}) {
      CAPTURE(rows);
      CAPTURE(columns);
      const Tensor from = random_normal({rows, columns + 2}, dtype_of<T>, 1);
      const Tensor to = random_normal({columns, rows + 3}, dtype_of<T>, 2), before = to.clone();
      transpose<T>(rows, columns, {from.data<T>(), columns + 2}, {to.data<T>(), rows + 3});
      i64 wrong = 0;
      for (i64 j = 0; j < columns; ++j) {
        for (i64 i = 0; i < rows + 3; ++i) {
          const T wanted = i < rows ? from.view<T, 2>()(i, j) : before.view<T, 2>()(j, i);
          wrong += to.view<T, 2>()(j, i) != wanted;
        }
      }
      CHECK(wrong == 0);
    }
  }
}

}  // TEST_SUITE("runtime")
}  // namespace
}  // namespace weft
