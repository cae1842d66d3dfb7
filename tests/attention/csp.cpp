// Properties of channel-wise sample permutation alone (mechanism page: ops/attention/csp/csp.h).
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "ops/attention/csp/csp.h"
#include "tests/attention/run_attention.h"
#include "tests/attention/sample.h"
#include "tests/threads.h"

namespace weft {
namespace {

struct Result {
  Tensor out, src, shifts;
};

Result csp(const std::string& spec, const Tensor& v, AttentionCall call = {},
           Device device = tested_device()) {
  Choices chosen;
  call.chosen = &chosen;
  const std::vector<Variable> inputs{v.to(device)};
  const Tensor out = attend(AttentionSpec(spec), call, inputs).out.value();
  const Tensor shifts = chosen.contains("shifts") ? chosen.at("shifts").to(Device{}) : Tensor{};
  return {out.to(Device{}), chosen.at("src").to(Device{}), shifts};
}

double at(const Tensor& x, i64 b, i64 n, i64 c) {
  return x.view<const double, 4>()(b, n, c / x.size(3), c % x.size(3));
}

i64 source(const Result& r, i64 b, i64 n, i64 c) { return r.src.view<const i64, 3>()(b, n, c); }

std::vector<double> column(const Tensor& x, i64 c, i64 begin, i64 end) {
  std::vector<double> list;
  for (i64 n = begin; n < end; ++n) list.push_back(at(x, 0, n, c));
  return list;
}

std::vector<double> sorted(std::vector<double> list) {
  std::sort(list.begin(), list.end());
  return list;
}

Tensor of_column(const std::vector<double>& values) {
  return Tensor::from(values, {1, static_cast<i64>(values.size()), 1, 1});
}

AttentionCall with_shifts(const std::vector<i64>& shifts) {
  AttentionCall call;
  call.given["shifts"] = Tensor::from(shifts, {static_cast<i64>(shifts.size())});
  return call;
}

Tensor rows_permuted(const Tensor& x, const std::vector<i64>& order) {
  const Tensor y = Tensor::empty(x.shape(), x.dtype());
  for (i64 n = 0; n < x.size(1); ++n) {
    const i64 from = order[static_cast<std::size_t>(n)];
    y.slice(1, n, n + 1).copy_from(x.slice(1, from, from + 1));
  }
  return y;
}

std::vector<i64> some_order(i64 N) {
  std::vector<i64> order(static_cast<std::size_t>(N));
  for (i64 n = 0; n < N; ++n) order[static_cast<std::size_t>(n)] = (7 * n + 3) % N;
  return order;
}

const std::vector<std::string> csp_specs{"csp",
                                         "csp:shift=none",
                                         "csp:shift=power",
                                         "csp:shift=head",
                                         "csp:rule=code,order=ascending",
                                         "csp:shift=power,rule=code",
                                         "csp:group=1",
                                         "csp:group=3",
                                         "csp:group=8,order=descending",
                                         "csp:group=64",
                                         "csp:group=65",
                                         "csp:groups=1",
                                         "csp:groups=3,order=ascending",
                                         "csp:groups=1000",
                                         "csp:sort=0",
                                         "csp-shift",
                                         "csp-shift:rule=code",
                                         "csp-sort",
                                         "csp-sort:groups=1,order=descending",
                                         "csp-sort:group=5"};

TEST_SUITE("attention") {

TEST_CASE("csp: every channel's sources are a permutation, and the output is what they say") {
  const ThreadsOf one(1);
  for (const i64 N : {1, 2, 7, 64, 131}) {
    const Tensor v = random_normal({3, N, 3, 7}, DType::f64, 1);
    const AttentionCall call = with_lengths({N, N / 2, 0});
    for (const std::string& spec : csp_specs) {
      CAPTURE(spec);
      const Result r = csp(spec, v, call);
      bool bijective = true, equal = true;
      for (i64 b = 0; b < 3; ++b) {
        const i64 length = call.lengths.data<i64>()[b];
        for (i64 c = 0; c < 21; ++c) {
          std::set<i64> seen;
          for (i64 n = 0; n < N; ++n) {
            const i64 from = source(r, b, n, c);
            seen.insert(from);
            bijective &= n < length ? from >= 0 && from < length : from == n;
            equal &= at(r.out, b, n, c) == (n < length ? at(v, b, from, c) : 0);
          }
          bijective &= static_cast<i64>(seen.size()) == N;
        }
      }
      CHECK(bijective);
      CHECK(equal);
    }
  }
}

TEST_CASE("csp: the samples of a column and its norm stay") {
  const Tensor v = random_normal({1, 131, 3, 7}, DType::f64, 1);
  for (const std::string& spec : csp_specs) {
    CAPTURE(spec);
    const Tensor out = csp(spec, v).out;
    for (i64 c = 0; c < 21; ++c) {
      const std::vector<double> before = sorted(column(v, c, 0, 131));
      const std::vector<double> after = sorted(column(out, c, 0, 131));
      CHECK(before == after);
      CHECK(std::inner_product(before.begin(), before.end(), before.begin(), 0.0) ==
            std::inner_product(after.begin(), after.end(), after.begin(), 0.0));
    }
  }
}

// Independent naive code for the shift, the groups and the two orders.
TEST_CASE("csp: shifted and sorted by hand") {
  for (const i64 G : {2, 3, 8, 40, 70, 131}) {
    for (const DType type : {DType::f32, DType::f64}) {
      const Tensor v = random_normal({1, 131, 2, 20}, DType::f64, 5).to(type).to(DType::f64);
      const std::string group = fmt::format(":group={}", G);
      const Tensor up = csp("csp" + group + ",order=ascending", v.to(type)).out.to(DType::f64);
      const Tensor down = csp("csp" + group + ",order=descending", v.to(type)).out.to(DType::f64);
      const Tensor same = csp("csp" + group, v.to(type)).out.to(DType::f64);
      for (i64 c = 0; c < 40; ++c) {
        const i64 J = c * 4 % 131;  // ⌈131 / 40⌉ = 4
        std::vector<double> u;
        for (i64 n = 0; n < 131; ++n) u.push_back(at(v, 0, (n - J + 131) % 131, c));
        for (i64 n = 0; n < 131; n += G) {
          const i64 end = std::min<i64>(n + G, 131);
          std::vector<double> group_up(u.begin() + n, u.begin() + end);
          std::sort(group_up.begin(), group_up.end());
          CHECK(column(up, c, n, end) == group_up);
          const std::vector<double> first = column(v, 0, n, end);
          std::vector<double> aligned;
          for (const double x : first) {
            const auto rank =
                std::count_if(first.begin(), first.end(), [&](double y) { return y < x; });
            aligned.push_back(group_up[static_cast<std::size_t>(rank)]);
          }
          CHECK(column(same, c, n, end) == aligned);
          std::reverse(group_up.begin(), group_up.end());
          CHECK(column(down, c, n, end) == group_up);
        }
      }
    }
  }
}

TEST_CASE("csp: the reference order is a permutation of rows of the ascending one") {
  const Tensor v = random_normal({1, 64, 1, 9}, DType::f64, 2);
  for (const i64 G : {2, 4, 64}) {
    const Tensor a = csp(fmt::format("csp:group={}", G), v).out;
    const Tensor b = csp(fmt::format("csp:group={},order=ascending", G), v).out;
    std::vector<i64> order;
    for (i64 n = 0; n < 64; ++n) {
      const std::vector<double> group = column(v, 0, n / G * G, n / G * G + G);
      const double own = at(v, 0, n, 0);
      order.push_back(n / G * G + std::count_if(group.begin(), group.end(),
                                                [&](double x) { return x < own; }));
    }
    CHECK(same_bits(a, rows_permuted(b, order)));
  }
}

TEST_CASE("csp: complete sorting is equivariant, and without a reference invariant") {
  const Tensor v = random_normal({2, 50, 2, 3}, DType::f64, 3);
  const std::vector<i64> order = some_order(50);
  const Tensor moved = rows_permuted(v, order);
  CHECK(same_bits(csp("csp-sort:groups=1", moved).out,
                  rows_permuted(csp("csp-sort:groups=1", v).out, order)));
  CHECK(same_bits(csp("csp-sort:groups=1,order=ascending", moved).out,
                  csp("csp-sort:groups=1,order=ascending", v).out));
  CHECK(same_bits(csp("csp:groups=1,order=ascending", v).out,
                  csp("csp-sort:groups=1,order=ascending", v).out));
}

TEST_CASE("csp: a shift by J is undone by one by N - J") {
  const Tensor v = random_normal({2, 11, 2, 3}, DType::f64, 3);
  const Result there = csp("csp-shift", v);
  std::vector<i64> back = there.shifts.to_vector<i64>();
  for (i64& J : back) J = 11 - J;
  CHECK_FALSE(same_bits(there.out, v));
  CHECK(same_bits(csp("csp-shift:shift=custom", there.out, with_shifts(back)).out, v));
}

TEST_CASE("csp: shift and sort commute exactly when shifts are multiples of the group") {
  const Tensor v = random_normal({1, 24, 1, 1}, DType::f64, 3);
  for (const i64 J : {0, 1, 2, 3, 4, 5, 6, 8, 9, 12}) {
    const AttentionCall call = with_shifts({J});
    const Tensor shifted_first = csp("csp:shift=custom,order=ascending,group=4", v, call).out;
    const Tensor sorted_first = csp(
        "csp-shift:shift=custom", csp("csp-sort:order=ascending,group=4", v).out, call).out;
    CHECK(same_bits(shifted_first, sorted_first) == (J % 4 == 0));
  }
}

TEST_CASE("csp: no permutation of a group agrees more with the reference") {
  for (i64 G = 2; G <= 5; ++G) {
    const Tensor v = random_normal({1, 20, 1, 4}, DType::f64, 40 + static_cast<std::uint64_t>(G));
    const Tensor out = csp(fmt::format("csp:group={}", G), v).out;
    for (i64 c = 0; c < 4; ++c) {
      for (i64 n = 0; n < 20; n += G) {
        const i64 end = std::min<i64>(20, n + G);
        const std::vector<double> first = column(v, 0, n, end), got = column(out, c, n, end);
        const auto agreement = [&](const std::vector<double>& list) {
          return std::inner_product(first.begin(), first.end(), list.begin(), 0.0);
        };
        std::vector<double> list = sorted(got);
        double best = -infinite;
        do {
          best = std::max(best, agreement(list));
        } while (std::next_permutation(list.begin(), list.end()));
        CHECK(agreement(got) >= best - 1e-12);
      }
    }
  }
}

TEST_CASE("csp: backward gathers through the inverse") {
  const Tensor v = random_normal({2, 37, 3, 7}, DType::f64, 1);
  for (const std::string& spec : csp_specs) {
    CAPTURE(spec);
    AttentionCall call = with_lengths({37, 20});
    const Result r = csp(spec, v, call);
    const Tensor dout = random_normal(v.shape(), DType::f64, 9);
    const Tensor wanted = Tensor::zeros(v.shape(), DType::f64);
    for (i64 b = 0; b < 2; ++b) {
      for (i64 n = 0; n < call.lengths.data<i64>()[b]; ++n) {
        for (i64 c = 0; c < 21; ++c) {
          wanted.view<double, 4>()(b, source(r, b, n, c), c / 7, c % 7) = at(dout, b, n, c);
        }
      }
    }
    CHECK(same_bits(run_for(dout, mechanism_of(spec, call), {v}).gradients[0], wanted));
  }
}

std::vector<i64> shifts_of(const std::string& spec, i64 N, i64 H, i64 M,
                           const AttentionCall& call = {}) {
  return csp(spec, Tensor::zeros({1, N, H, M}, DType::f64), call).shifts.to_vector<i64>();
}

TEST_CASE("csp: the shifts of the rules") {
  using List = std::vector<i64>;
  CHECK(shifts_of("csp:shift=none", 10, 1, 3) == List{0, 0, 0});
  CHECK(shifts_of("csp", 10, 1, 4) == List{0, 3, 6, 9});
  CHECK(shifts_of("csp", 5, 2, 4) == List{0, 1, 2, 3, 4, 0, 1, 2});
  CHECK(shifts_of("csp:rule=code", 10, 1, 7) == List{0, 0, 2, 4, 6, 8, 0});
  CHECK(shifts_of("csp:shift=head", 20, 4, 2) == List{0, 0, 8, 8, 16, 16, 4, 4});
  CHECK(shifts_of("csp:shift=head", 20, 1, 16) ==
        List{0, 0, 8, 8, 16, 16, 4, 4, 12, 12, 0, 0, 8, 8, 16, 16});
  CHECK(shifts_of("csp:shift=head", 20, 1, 3) == List{0, 16, 0});  // of heads 1, 3 and 6
  CHECK(shifts_of("csp:shift=power", 9, 1, 3) == List{0, 2, 8});
  CHECK(shifts_of("csp:shift=power", 9, 1, 1) == List{0});
  const List released = shifts_of("csp:rule=code", 64, 8, 64);
  CHECK(std::set<i64>(released.begin(), released.end()).size() == 32);
  for (const bool code : {false, true}) {
    List all;
    for (int layer = 0; layer < 6; ++layer) {
      AttentionCall call;
      call.layer = layer;
      call.layers = 6;
      const List some = shifts_of(code ? "csp:shift=power,rule=code" : "csp:shift=power", 1024, 1,
                                  64, call);
      all.insert(all.end(), some.begin(), some.end());
    }
    CHECK(std::is_sorted(all.begin(), all.end()));
    CHECK(all.front() == (code ? 1 : 0));
    CHECK(all.back() == (code ? 1006 : 1023));
    if (code) CHECK(std::set<i64>(all.begin(), all.end()).size() == 216);
  }
}

TEST_CASE("csp: channels of distinct shifts give min(C, N) maps") {
  for (const i64 N : {5, 16, 40}) {
    const Result r = csp("csp-shift", random_normal({1, N, 1, 16}, DType::f64, 1));
    std::set<std::vector<i64>> maps;
    for (i64 c = 0; c < 16; ++c) {
      std::vector<i64> map;
      for (i64 n = 0; n < N; ++n) map.push_back(source(r, 0, n, c));
      maps.insert(map);
    }
    const i64 step = (N + 15) / 16;
    std::set<i64> shifts;
    for (i64 c = 0; c < 16; ++c) shifts.insert(c * step % N);
    CHECK(maps.size() == shifts.size());
  }
}

double median(std::vector<double> list) {
  std::sort(list.begin(), list.end());
  return list[list.size() / 2];
}

// Theorem 1 for one layer, out = CSP(X W), in the norms that it multiplies: the largest sum of a
// column about its median, and that of a row about the midpoints of the columns.
TEST_CASE("csp: a layer brings the samples together no faster than its matrix can") {
  constexpr i64 N = 40, C = 6;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const Tensor x = random_normal({1, N, 1, C}, DType::f64, seed);
    const Tensor w = random_normal({C, C}, DType::f64, 100 + seed);
    const Tensor v = Tensor::zeros({1, N, 1, C}, DType::f64);
    double beta = 0;  // the largest sum of a column of |W|
    for (i64 c = 0; c < C; ++c) {
      double sum = 0;
      for (i64 e = 0; e < C; ++e) {
        const double weight = w.view<const double, 2>()(e, c);
        sum += std::abs(weight);
        for (i64 n = 0; n < N; ++n) {
          v.view<double, 4>()(0, n, 0, c) += at(x, 0, n, e) * weight;
        }
      }
      beta = std::max(beta, sum);
    }
    const auto spread = [&](const Tensor& t) {
      double most = 0;
      for (i64 c = 0; c < C; ++c) {
        const std::vector<double> list = column(t, c, 0, N);
        const double middle = median(list);
        double sum = 0;
        for (const double value : list) sum += std::abs(value - middle);
        most = std::max(most, sum);
      }
      return most;
    };
    double distance = 0;  // the largest between two rows of X, in the 1-norm
    for (i64 n = 0; n < N; ++n) {
      for (i64 m = 0; m < n; ++m) {
        double sum = 0;
        for (i64 c = 0; c < C; ++c) sum += std::abs(at(x, 0, n, c) - at(x, 0, m, c));
        distance = std::max(distance, sum);
      }
    }
    for (const std::string& spec : csp_specs) {
      const Tensor out = csp(spec, v).out;
      double widths = 0;
      for (i64 c = 0; c < C; ++c) {
        const std::vector<double> list = sorted(column(out, c, 0, N));
        widths += (list.back() - list.front()) / 2;
      }
      CHECK(spread(out) <= beta * spread(x) * (1 + 1e-12));
      CHECK(widths <= double(C) * beta * distance / 2 * (1 + 1e-12));
    }
  }
}

TEST_CASE("csp: ties keep their order, NaN comes last, zeros of both signs are equal") {
  const std::vector<double> values{not_a_number, 2, -infinite,    0,    -0.0,
                                   infinite,     2, not_a_number, -0.0, 0};
  const auto order = [&](i64 G, const std::string& word, DType type) {
    const Result r =
        csp(fmt::format("csp-sort:group={},order={}", G, word), of_column(values).to(type));
    return r.src.to_vector<i64>();
  };
  std::vector<double> filled = values;
  for (const DType type : {DType::f32, DType::f64}) {
    for (const i64 G : {10, 65}) {
      CHECK(order(G, "ascending", type) == std::vector<i64>{2, 3, 4, 8, 9, 1, 6, 5, 0, 7});
      CHECK(order(G, "descending", type) == std::vector<i64>{5, 1, 6, 3, 4, 8, 9, 2, 0, 7});
      CHECK(order(G, "reference", type) == std::vector<i64>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
    }
    CHECK(order(2, "ascending", type) == std::vector<i64>{1, 0, 2, 3, 4, 5, 6, 7, 8, 9});
    CHECK(order(2, "descending", type) == std::vector<i64>{1, 0, 3, 2, 5, 4, 6, 7, 8, 9});
  }
}

// Long enough for whole vectors and for the sort of large groups, against a naive stable sort.
TEST_CASE("csp: many ties and values that are not finite") {
  const double alphabet[] = {not_a_number, -infinite, infinite, 0, -0.0, 1, 1, -1, 2};
  for (const i64 G : {2, 37, 100, 300}) {
    for (const DType type : {DType::f32, DType::f64}) {
      CAPTURE(G);
      std::vector<double> values;
      for (std::uint64_t n = 0; n < 601; ++n) {
        values.push_back(alphabet[below(RandomKey{3}.words(n).word[0], 9)]);
      }
      std::vector<i64> wanted(601);
      std::iota(wanted.begin(), wanted.end(), 0);
      for (i64 n = 0; n < 601; n += G) {
        std::stable_sort(wanted.begin() + n, wanted.begin() + std::min<i64>(601, n + G),
                         [&](i64 a, i64 b) {
                           const double x = values[std::size_t(a)], y = values[std::size_t(b)];
                           return std::isnan(y) ? !std::isnan(x) : x < y;
                         });
      }
      const Result r = csp(fmt::format("csp-sort:group={},order=ascending", G),
                           of_column(values).to(type));
      CHECK(r.src.to_vector<i64>() == wanted);
    }
  }
}

// The sources of the outputs of channel c, shifted and in groups of G, by std::stable_sort.
std::vector<i64> sources_by_stable_sort(const Tensor& v, i64 c, const std::vector<i64>& shifts,
                                        i64 G, const std::string& order) {
  const i64 N = v.size(1), J = shifts[static_cast<std::size_t>(c)];
  const auto from = [&](i64 n, i64 shift) { return (n - shift + N) % N; };
  const auto ranked = [&](i64 begin, i64 channel, i64 shift) {
    std::vector<i64> list(static_cast<std::size_t>(std::min(G, N - begin)));
    std::iota(list.begin(), list.end(), begin);
    std::stable_sort(list.begin(), list.end(), [&](i64 a, i64 b) {
      const double x = at(v, 0, from(a, shift), channel), y = at(v, 0, from(b, shift), channel);
      if (std::isnan(x) || std::isnan(y)) return !std::isnan(x);
      return order == "descending" ? y < x : x < y;
    });
    return list;
  };
  std::vector<i64> src(static_cast<std::size_t>(N));
  for (i64 begin = 0; begin < N; begin += G) {
    const std::vector<i64> own = ranked(begin, c, J);
    std::vector<i64> to(own.size());
    std::iota(to.begin(), to.end(), begin);
    if (order == "reference") to = ranked(begin, 0, shifts[0]);
    for (std::size_t r = 0; r < own.size(); ++r) src[std::size_t(to[r])] = from(own[r], J);
  }
  return src;
}

// Every third sample from a few values, so that there are ties, and all channels differ.
Tensor with_ties(i64 N, i64 C) {
  const double alphabet[] = {not_a_number, -infinite, infinite, 0, -0.0, 1, -1};
  const Tensor v = random_normal({1, N, 1, C}, DType::f32, 12).to(DType::f64);
  for (i64 i = 0; i < N * C; i += 3) {
    const auto word = RandomKey{7}.words(static_cast<std::uint64_t>(i)).word[0];
    v.data<double>()[i] = alphabet[below(word, 7)];
  }
  return v;
}

// Sources, output and gradient of samples with ties.
void check_sources(i64 N, i64 G, const std::vector<i64>& shifts, DType type,
                   const std::string& rule, Device device = {}) {
  const i64 C = static_cast<i64>(shifts.size());
  const Tensor v = with_ties(N, C);
  const AttentionCall call = rule == "custom" ? with_shifts(shifts) : AttentionCall{};
  for (const std::string order : {"ascending", "descending", "reference"}) {
    if (G == 1 && order != "reference") continue;  // refused: one sample has one order
    const std::string spec = fmt::format("csp:shift={},group={},order={}", rule, G, order);
    CAPTURE(spec);
    CAPTURE(N);
    const Result r = csp(spec, v.to(type), call, device);
    const Tensor wanted = Tensor::empty(v.shape(), DType::f64);
    bool equal = true;
    for (i64 c = 0; c < C; ++c) {
      const std::vector<i64> src = sources_by_stable_sort(v, c, shifts, G, order);
      for (i64 n = 0; n < N; ++n) {
        const i64 from = src[static_cast<std::size_t>(n)];
        equal &= source(r, 0, n, c) == from;
        wanted.view<double, 4>()(0, n, 0, c) = at(v, 0, from, c);
      }
    }
    CHECK(equal);
    CHECK(same_bits(r.out, wanted.to(type)));
    const Run back = run_for(r.out, mechanism_of(spec, call), {v.to(type)}, device);
    CHECK(same_bits(back.gradients[0], v.to(type)));
  }
}

TEST_CASE("csp: long sequences whose shifts lie close together, about the end, or anywhere") {
  if (tested_device() != Device{}) return;  // only for the CPU
  for (const i64 N : {4097, 9001}) {
    for (const i64 G : {1, 2}) {
      if (few_here() && (N == 4097) != (G == 1)) continue;
      const auto check = [&](i64 C, const auto& shift) {
        std::vector<i64> shifts;
        for (i64 c = 0; c < C; ++c) shifts.push_back(shift(c) % N);
        check_sources(N, G, shifts, DType::f32, "custom");
        if (!few_here()) check_sources(N, G, shifts, DType::f64, "custom");
      };
      check(1, [](auto) { return 3000; });
      const i64 C = few_here() ? 9 : 35;
      check(C, [](auto c) { return 500 + 7 * c; });
      check(C, [=](auto c) { return N - 100 + 37 * c * c % 401; });
      check(C, [](auto c) { return 13 + 911 * c * c; });
    }
  }
}

TEST_CASE("csp: groups about every power of two, and blocks that are no whole vectors") {
  if (tested_device() != Device{}) return;  // only for the CPU
  const auto check = [](i64 N, i64 C, i64 G, DType type) {
    std::vector<i64> shifts;
    for (i64 c = 0; c < C; ++c) shifts.push_back(c * ((N + C - 1) / C) % N);
    check_sources(N, G, shifts, type, "linear");
  };
  for (const DType type : {DType::f32, DType::f64}) {
    for (const i64 G : {3,  4,  5,  7,   8,   9,   15,  16,  17,  31,  33,
                        63, 64, 65, 127, 128, 129, 255, 256, 257, 513, 1000}) {
      if (few_here() && G % 3 != 2) continue;  // 5, 8, 17, 65, 128, 257
      check(G, 3, G, type);
      check(2 * G + G / 2, 11, G, type);
    }
    for (const i64 N : {2047, 2048, 2049, 5000}) {  // around the size of the tiles of pairs
      if (few_here() && (N == 2049) != (type == DType::f32)) continue;
      check(N, 19, 1, type);
      check(N, 19, 2, type);
    }
    check(1, 5, 1000, type);
    check(2, 5, 1000, type);
    if (few_here() && type == DType::f64) continue;
    check(4096, 17, 4096, type);
    check(4097, 9, 4097, type);
    if (!few_here()) check(40000, 2, 40000, type);
  }
}

// Many times the threads of a device's block, and more; with a last group that is short.
TEST_CASE("csp: groups that no shared memory holds, on every device") {
  const ThreadsOf one(1);
  for (const DType type : {DType::f32, DType::f64}) {
    if (tested_is_emulated() && few_here() && type == DType::f32) continue;
    check_sources(4097, 4097, {0, 2049}, type, "linear", tested_device());
    check_sources(8192, 8192, {0, 4096}, type, "linear", tested_device());
    check_sources(11000, 5003, {0, 5500}, type, "linear", tested_device());
  }
  const Tensor equal = Tensor::full({1, 6000, 1, 1}, -0.0, DType::f32);
  equal.data<float>()[4000] = 0;
  const std::vector<i64> src = csp("csp:groups=1,order=descending", equal).src.to_vector<i64>();
  CHECK(std::is_sorted(src.begin(), src.end()));
}

TEST_CASE("csp: the number of threads changes nothing") {
  const i64 N = fewest_on_device() ? 300 : 2500;  // the device's kernels ask for no threads
  const Tensor v = random_normal({3, N, 3, 13}, DType::f32, 4);
  const Tensor dout = random_normal(v.shape(), DType::f32, 5);
  const AttentionCall call = with_lengths({N, 3 * N / 5, 1});
  for (const std::string spec : {"csp", "csp-shift", "csp:group=70", "csp-sort:groups=1"}) {
    CAPTURE(spec);
    const auto run = [&](int threads) {
      const ThreadsOf some(threads);
      return run_for(dout, mechanism_of(spec, call), {v});
    };
    check_same_bits(run(4), run(1));
  }
}

TEST_CASE("csp: the preset of the released operator") {
  const Tensor v = random_normal({2, 12, 3, 4}, DType::f64, 1);
  CHECK(same_bits(csp("csp:preset=released", v).out, csp("csp:rule=code,order=ascending", v).out));
  CHECK(same_bits(csp("csp:preset=released,shift=power,group=3", v).out,
                  csp("csp:rule=code,order=ascending,shift=power,group=3", v).out));
  CHECK(same_bits(csp("csp:preset=paper", v).out, csp("csp", v).out));
  CHECK_FALSE(same_bits(csp("csp:preset=released", v).out, csp("csp", v).out));
  CHECK_ERROR(csp("csp:preset=released,order=descending", v), "omit rule and order");
  CHECK_ERROR(csp("csp:preset=released,shift=head", v),
              "csp: preset=released is a variant of shift=linear and shift=power, got shift=head");
}

TEST_CASE("csp: a group longer than the sequence is the sequence") {
  const Tensor v = random_normal({1, 9, 2, 2}, DType::f64, 1);
  CHECK(same_bits(csp("csp:group=500", v).out, csp("csp:groups=1", v).out));
  CHECK(same_bits(csp("csp:group=1", v).out, csp("csp-shift", v).out));
  CHECK(same_bits(csp("csp:groups=3", v).out, csp("csp:group=3", v).out));
  const Tensor single = random_normal({2, 1, 3, 2}, DType::f64, 1);
  for (const std::string& spec : csp_specs) CHECK(same_bits(csp(spec, single).out, single));
}

TEST_CASE("csp: more positions than 16 bits count") {
  const ThreadsOf one(1);
  constexpr i64 N = 70001;
  const Tensor v = random_normal({1, N, 1, 2}, DType::f64, 8);
  const Result r = csp("csp:groups=1,order=ascending", v);
  for (i64 c = 0; c < 2; ++c) {
    CHECK(column(r.out, c, 0, N) == sorted(column(v, c, 0, N)));
  }
  AttentionCall call;
  call.given["src"] = r.src;
  check_same_bits(run_for(r.out, mechanism_of("csp:groups=1,order=ascending", call), {v}),
                  {{r.out}, {v}});
}

TEST_CASE("csp: every device finds the same permutations, of short, long and very long groups") {
  const ThreadsOf one(1);
  const i64 N = 9001;
  const AttentionCall call = with_lengths({N, 700});
  for (const DType type : {DType::f32, DType::f64}) {
    const Tensor v = with_ties(2 * N, 3).to(type).reshape({2, N, 1, 3});
    for (const char* const spec :
         {"csp:groups=1", "csp:groups=2", "csp:groups=2,order=descending", "csp:groups=13",
          "csp:group=40", "csp:shift=power,rule=code"}) {
      CAPTURE(spec);
      const bool descending = std::string(spec).find("descending") != std::string::npos;
      if (tested_is_emulated() && few_here() && descending != (type == DType::f32)) continue;
      const Result here = csp(spec, v, call, Device{}), there = csp(spec, v, call);
      CHECK(same_bits(there.src, here.src));
      CHECK(same_bits(there.shifts, here.shifts));
      CHECK(same_bits(there.out, here.out));
    }
  }
}

TEST_CASE("csp: what cannot be") {
  const Tensor v = random_normal({1, 4, 1, 2}, DType::f64, 1);
  CHECK_ERROR(csp("csp:group=4,groups=2", v), "csp: group=4");
  CHECK_ERROR(csp("csp:sort=0,group=4", v), "csp: sort=0 sorts nothing");
  for (const std::string spec : {"csp:group=1,order=descending", "csp-sort:order=ascending,group=1",
                                 "csp:group=1,sinkhorn=3"}) {
    CHECK_ERROR(AttentionSpec(spec), "has an effect only with group!=1");
  }
  CHECK_ERROR(csp("csp:group=0", v), "group is a number in [1,");
  CHECK_ERROR(csp("csp:group=2.5", v), "whole number");
  CHECK_ERROR(csp("csp:shift=custom", v), "csp: shift=custom needs the choice shifts [2]");
  CHECK_ERROR(csp("csp:shift=head,rule=code", v), "csp: rule=code");
  CHECK_ERROR(csp("csp:shift=custom", v, with_shifts({1, -2})), "csp: the given shifts[1] is -2");
  CHECK_ERROR(csp("csp:shift=custom", v, with_shifts({1, 2, 3})), "csp: the given shifts must be");
  CHECK_ERROR(csp("csp-sort", v, with_shifts({1, 2})), "csp-sort: shifts cannot be given");
  CHECK_ERROR(csp("csp-shift:group=2", v), "there is no option 'group'");
  CHECK_ERROR(csp("csp-sort:shift=none", v), "there is no option 'shift'");
  AttentionCall call;
  call.layer = 2;
  CHECK_ERROR(csp("csp:shift=power", v, call), "csp: shift=power counts all layers");
  call = {};
  call.given["src"] = Tensor::zeros({1, 4, 2}, DType::i64);
  CHECK_ERROR(csp("csp", v, call), "csp: the given src[0, 1, 0] is 0; used before");
  call.given["src"] = Tensor::full({1, 4, 2}, 4, DType::i64);
  CHECK_ERROR(csp("csp", v, call), "csp: the given src[0, 0, 0] is 4; wanted 0 … 3");
}

}  // TEST_SUITE("attention")

}  // namespace
}  // namespace weft
