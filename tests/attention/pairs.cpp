// The engine for pairs by itself: its patterns against full attention with a dense mask that the
// tests build.
#include <cmath>
#include <limits>

#include "ops/attention/engines/pairs/attention.h"
#include "ops/gather/gather.h"
#include "ops/matmul/matmul.h"
#include "ops/pointwise/pointwise.h"
#include "ops/softmax/softmax.h"
#include "ops/views/views.h"
#include "runtime/error.h"
#include "tests/attention/run_attention.h"
#include "tests/attention/sample.h"
#include "tests/roundings.h"
#include "tests/threads.h"

namespace weft {
namespace {

using HeadSees = std::function<bool(i64 h, i64 i, i64 j)>;

// 0 where the query sees the key, −∞ elsewhere: [1, H, N, S].
Tensor dense_bias(i64 H, i64 N, i64 S, DType type, const HeadSees& sees) {
  const Tensor bias = Tensor::zeros({1, H, N, S}, DType::f64);
  const View<double, 4> view = bias.view<double, 4>();
  for (i64 h = 0; h < H; ++h) {
    for (i64 i = 0; i < N; ++i) {
      for (i64 j = 0; j < S; ++j) {
        if (!sees(h, i, j)) view(0, h, i, j) = -std::numeric_limits<double>::infinity();
      }
    }
  }
  return bias.to(type);
}

// Output and gradients of q, k, v by the engine, and by the definition of full attention. Lengths
// of keys apply to queries, too, unless queries have their own.
void check_pattern(const QueryKeyValue& in, const std::vector<PairsPart>& parts,
                   const HeadSees& sees, double forward, double backward,
                   const Tensor& lengths = {}, Tensor query_lengths = {}) {
  const i64 H = in.q.size(2), N = in.q.size(1), S = in.k.size(1);
  if (!query_lengths.defined()) query_lengths = lengths;
  const auto moved = [](const Tensor& x) { return x.defined() ? x.to(tested_device()) : x; };
  const Run got = run(
      [&](std::span<const Variable> x) {
        const PairsCall call{.temperature = 0.6, .query_lengths = moved(query_lengths)};
        const PairsSource source{x[1], x[2], moved(lengths)};
        return std::vector{pairs_attention(call, x[0], std::span(&source, 1), parts)};
      },
      in.list());
  AttentionCall masks;
  masks.lengths = lengths;
  masks.query_lengths = query_lengths;
  std::vector<Tensor> inputs = in.list();
  inputs.push_back(dense_bias(H, N, S, in.q.dtype(), sees));
  Run wanted = defined_run("full:temperature=0.6", inputs, masks);
  wanted.gradients.resize(3);  // of q, k and v
  check_close(got, wanted, forward, backward);
}

void check_pattern(const QueryKeyValue& in, const std::vector<PairsPart>& parts,
                   const HeadSees& sees, const Tensor& lengths = {}) {
  check_pattern(in, parts, sees, tolerance::forward_f64, tolerance::backward_f64, lengths);
}

constexpr double half_unit = tolerance::half_unit_bf16;

// Output and gradients of bf16 against those of f64 on the same numbers, each element within the
// roundings that pairs.h names: of the weights, of dz, of the results and, through the stored
// output, of δ. `e` bounds the relative errors of f32.
struct StoredBounds {
  View<double, 4> q, k, v, dout, out;  // [B, N or S, H, width]
  View<double, 4> all, kept;           // a and d a [B, N, H, S]
  double temperature, e;
  View<double, 4> of_out, of_q, of_k, of_v;  // written

  void find(i64 b, i64 h) const {
    const i64 N = q.size(1), S = k.size(1), E = q.size(3), M = v.size(3);
    const double u = half_unit;
    for (i64 i = 0; i < N; ++i) {
      double of_delta = 0, delta = 0;
      for (i64 m = 0; m < M; ++m) {
        double sum = 0;
        for (i64 j = 0; j < S; ++j) sum += kept(b, i, h, j) * std::abs(v(b, j, h, m));
        of_out(b, i, h, m) = (u + e) * sum + u * std::abs(out(b, i, h, m));
        of_delta += std::abs(dout(b, i, h, m)) * of_out(b, i, h, m);
        delta += dout(b, i, h, m) * out(b, i, h, m);
      }
      for (i64 j = 0; j < S; ++j) {
        const double a = all(b, i, h, j), d = a == 0 ? 0 : kept(b, i, h, j) / a;
        double product = 0, size = 0;
        for (i64 m = 0; m < M; ++m) {
          const double term = d * dout(b, i, h, m) * v(b, j, h, m);
          product += term, size += std::abs(term);
          of_v(b, j, h, m) += (u + e) * kept(b, i, h, j) * std::abs(dout(b, i, h, m));
        }
        const double dz = std::abs(a * (product - delta));
        const double of_dz = (u + e) * dz + a * (of_delta + e * size);
        for (i64 n = 0; n < E; ++n) {
          of_q(b, i, h, n) += temperature * (of_dz + e * dz) * std::abs(k(b, j, h, n));
          of_k(b, j, h, n) += temperature * (of_dz + e * dz) * std::abs(q(b, i, h, n));
        }
      }
    }
  }
};

// Attention of q, k, v and a bias, if there is one, with dropout at this rate.
using StoredOp = std::function<Variable(std::span<const Variable>, double dropout)>;

constexpr double stored_temperature = 0.4;

// The relative errors of f32: scores reach 30; their sums have E + 2 rounding errors, and those of
// weights S.
double f32_errors(i64 E, i64 S) { return std::ldexp(1, -24) * (30.0 * double(E + 2) + double(S)); }

struct StoredCase {
  i64 N, S, E, M;
  double dropout = 0;
  Shape bias = {};
  bool apart = false;  // the inputs are not contiguous
};

// Output, then the gradients of the inputs. On the CPU unless they are bf16: the emulated device is
// slow, and other cases cover its kernels in f64.
std::vector<Tensor> stored_run(const StoredOp& op, double dropout,
                               const std::vector<Tensor>& inputs, const Tensor& dout) {
  const auto f = [&](std::span<const Variable> x) { return std::vector{op(x, dropout)}; };
  return run_for(dout, f, inputs, dout.dtype() == DType::bf16 ? tested_device() : Device{}).all();
}

void check_stored(const StoredOp& op, const StoredCase& of) {
  const auto& [N, S, E, M, dropout, bias_shape, apart] = of;
  CAPTURE(fmt::format("N {}, S {}, E {}, M {}", N, S, E, M));
  const auto number = [&](const Shape& shape, std::uint64_t seed) {
    return random_normal(shape, DType::f32, seed).to(DType::bf16);
  };
  std::vector<Tensor> narrow{number({2, N, 2, E}, 1), number({2, S, 2, E}, 2),
                             number({2, S, 2, M}, 3)};
  if (bias_shape.rank() > 0) narrow.push_back(random_normal(bias_shape, DType::f32, 4));
  std::vector<Tensor> wide, given;
  for (const Tensor& x : narrow) {
    wide.push_back(x.to(DType::f64));
    given.push_back(apart ? scattered(x) : x);
  }
  const Tensor dout = number({2, N, 2, M}, 5), wide_dout = dout.to(DType::f64);
  const std::vector<Tensor> got = stored_run(op, dropout, given, dout);
  const std::vector<Tensor> wanted = stored_run(op, dropout, wide, wide_dout);
  std::vector<Tensor> of_weights = wide;
  of_weights[2] = unit_values(2, S, 2);
  const Tensor any = Tensor::zeros({2, N, 2, S}, DType::f64);
  const Tensor kept = stored_run(op, dropout, of_weights, any)[0];
  const Tensor all = stored_run(op, 0, of_weights, any)[0];
  std::vector<Tensor> bounds;
  for (const i64 i : {0, 1, 2, 3}) bounds.push_back(Tensor::zeros(wanted[i].shape(), DType::f64));
  const double e = f32_errors(E, S);
  const StoredBounds find{wide[0].view<double, 4>(),
                          wide[1].view<double, 4>(),
                          wide[2].view<double, 4>(),
                          wide_dout.view<double, 4>(),
                          wanted[0].view<double, 4>(),
                          all.view<double, 4>(),
                          kept.view<double, 4>(),
                          stored_temperature,
                          e,
                          bounds[0].view<double, 4>(),
                          bounds[1].view<double, 4>(),
                          bounds[2].view<double, 4>(),
                          bounds[3].view<double, 4>()};
  for (i64 b = 0; b < 2; ++b) {
    for (i64 h = 0; h < 2; ++h) find.find(b, h);
  }
  for (std::size_t x = 0; x < 4; ++x) {
    CAPTURE(x);
    CHECK(got[x].dtype() == DType::bf16);
    CHECK(beyond_bounds(got[x], wanted[x], bounds[x], 1, true) == "");
    // Roundings are independent, so that in the mean several are less than the worst of two.
    CHECK(relative_error(got[x], wanted[x]) <= (x == 0 ? 1 : 2) * half_unit);
  }
  if (bias_shape.rank() > 0) {
    CHECK(got[4].dtype() == DType::f32);
    CHECK(relative_error(got[4], wanted[4]) <= half_unit);
  }
}

void check_stored(const std::string& spec, i64 N, i64 S, i64 E, i64 M,
                  const AttentionCall& call = {}, bool biased = false) {
  CAPTURE(spec);
  const AttentionSpec parsed(spec + fmt::format("temperature={}", stored_temperature));
  const double dropout = call.dropout;
  const StoredOp op = [&](std::span<const Variable> in, double rate) {
    AttentionCall own = call;
    own.dropout = rate;
    for (Tensor* lengths : {&own.lengths, &own.query_lengths}) {
      if (lengths->defined()) *lengths = lengths->to(in[0].value().device());
    }
    return attend(parsed, own, in).out;
  };
  check_stored(op, {N, S, E, M, dropout, biased ? Shape{1, 2, N, S} : Shape{}});
}

// One part with the pairs of a band, or of a mask.
struct StoredPart {
  PairsPart part;
  Tensor lengths = {}, query_lengths = {};
  i64 origin = -1;
  Tensor mask = {};
};

// Its attention of q, k, v and a bias, if there is one, on their device.
Variable attend_part(const StoredPart& with, std::span<const Variable> in, double dropout) {
  const Device device = in[0].value().device();
  const auto moved = [&](const Tensor& x) { return x.defined() ? x.to(device) : x; };
  const PairsCall call{.temperature = stored_temperature,
                       .query_lengths = moved(with.query_lengths),
                       .dropout = dropout,
                       .random = RandomKey{3, 4},
                       .origin = with.origin};
  PairsPart part = with.part;
  part.biased = in.size() > 3;
  if (with.mask.defined()) {
    part.lists = std::make_shared<const TileListTensors>(
        tiles_of_mask(with.mask, {.queries = in[0].size(1), .keys = in[1].size(1)}, device));
  }
  const PairsSource source{in[1], in[2], moved(with.lengths)};
  return pairs_attention(call, in[0], source, part, in.size() > 3 ? in[3] : Variable{});
}

void check_stored(const StoredPart& with, const StoredCase& of) {
  check_stored(
      [&](std::span<const Variable> in, double rate) { return attend_part(with, in, rate); }, of);
}

TEST_SUITE("attention") {

TEST_CASE("pairs: bf16 is f64 of the same numbers, but for the roundings") {
  const ThreadsOf one(1);
  const Tensor lengths = lengths_of({67, 21});
  for (const auto& [E, M] : {std::pair<i64, i64>{16, 16}, {64, 64}, {40, 24}, {5, 7}, {8, 8}}) {
    check_stored("full:", 67, 67, E, M, {.causal = true});
    check_stored("full:", 67, 130, E, M);
    check_stored("full:", 67, 67, E, M, {.lengths = lengths, .query_lengths = lengths});
  }
  check_stored("full:", 67, 67, 16, 8, {.dropout = 0.3, .random = RandomKey{3, 4}});
  check_stored("full:", 67, 67, 16, 8, {.causal = true}, true);
  check_stored("full:", 3, 90, 16, 24);
  check_stored("full:", 130, 67, 128, 96);
  check_stored("local:context=20,", 67, 67, 16, 16, {.causal = true});
  check_stored("bigbird:block=16,", 96, 96, 16, 16);
}

TEST_CASE("pairs: bf16 with heads of every width that CUDA has kernels for, and others") {
  const ThreadsOf one(1);
  const Band past{.end = {.slope = 1, .offset = 31}};
  for (const i64 width : {16, 32, 64, 128, 40, 136}) {
    check_stored(StoredPart{{.band = past}}, {70, 100, width, width});
  }
  check_stored(StoredPart{{.band = past}}, {70, 100, 128, 20});
  check_stored(StoredPart{{.band = past}}, {70, 100, 12, 100});
  check_stored(StoredPart{{.band = past}}, {70, 100, 40, 24, 0.3, {1, 2, 70, 100}, true});
  check_stored(StoredPart{{.band = past}}, {70, 100, 128, 128, 0.3, {2, 1, 70, 100}});
}

TEST_CASE("pairs: bf16 and every kind of part") {
  const ThreadsOf one(1);
  const i64 N = 140, S = 130;
  const Tensor keys = lengths_of({S - 9, S - 80});
  const Tensor queries = lengths_of({N - 70, N});
  const auto check = [&](const StoredPart& part, double dropout = 0) {
    check_stored(part, {N, S, 16, 24, dropout});
  };
  check({{.band = Band::window(70, 3)}, keys, queries}, 0.2);
  check({{.band = Band::window(9, 0, 4)}});
  check({{.band = Band::blocks(64)}});
  check({{.band = Band::blocks(7)}}, 0.2);
  check({{.band = {.end = {.slope = 11, .step = 30}}}});
  check({{.band = Band::window(30, 2), .classes = 2, .first_key = 5}, keys, queries}, 0.2);
  check({{.band = {.end = {.slope = 1}}, .classes = 30}, keys});
  // Whole tiles, empty ones and random ones; another pattern for each head.
  const Tensor mask = Tensor::zeros({2, N, S}, DType::u8);
  for (i64 h = 0; h < 2; ++h) {
    for (i64 i = 0; i < N; ++i) {
      for (i64 j = 0; j < S; ++j) {
        const i64 kind = (h + i / 64 + 2 * (j / 64)) % 3;
        mask.data<std::uint8_t>()[(h * N + i) * S + j] =
            kind == 0 || (kind == 1 && (i * 7919 + j * 104729 + h * 31) % 5 == 0);
      }
    }
  }
  check({.part = {}, .mask = mask}, 0.2);
  check({.part = {}, .lengths = keys, .query_lengths = queries, .mask = mask});
  check_stored(StoredPart{.part = {}, .mask = mask}, {N, S, 16, 24, 0, {1, 2, N, S}});
  // A bias by distance.
  check_stored(StoredPart{{}, keys, {}, N - 1}, {N, S, 16, 24, 0.2, {2, N + S - 1}});
  check_stored(StoredPart{{.band = Band::window(30, 7)}, {}, queries, 30},
               {N, S, 128, 24, 0, {1, 38}});
  check_stored(StoredPart{{}, {}, {}, 2}, {3, S, 16, 16, 0, {2, S + 2}});
  // The largest blocks of queries and tiles of keys.
  check_stored(StoredPart{}, {260, 140, 16, 24, 0, {1, 2, 260, 140}});
  check_stored(StoredPart{}, {260, 140, 16, 24, 0.2, {1, 2, 260, 140}});
  // No keys, and few queries.
  check_stored(StoredPart{{}, lengths_of({0, 5})}, {5, 9, 16, 16});
  check_stored(StoredPart{{.band = {.end = {.slope = 9}}}}, {1, 9, 16, 16});
  // Few queries, whose keys are worked on in ranges.
  const Band band{.first = {.slope = 300, .offset = 9}, .end = {.slope = 200, .offset = 200}};
  check_stored(StoredPart{{.band = band}}, {3, 700, 16, 21, 0.2});
  const Tensor most = lengths_of({610, 0});
  check_stored(StoredPart{{}, most}, {1, 700, 40, 128, 0, {1, 2, 1, 700}});
}

// Enough batch items, heads, queries and keys for the blocks of 128 queries that CUDA has for bf16.
TEST_CASE("pairs: bf16 and many queries") {
  const ThreadsOf one(1);
  const i64 B = 8, N = 130, S = 290, H = 16;
  const auto run = [&](const StoredPart& with, const Tensor(&in)[4], double dropout) {
    const Device device = in[0].dtype() == DType::bf16 ? tested_device() : Device{};
    std::vector<Variable> inputs;
    for (const Tensor& x : in) {
      if (x.defined()) inputs.push_back(x.to(device));
    }
    return attend_part(with, inputs, dropout).value().to(Device{});
  };
  const auto check = [&](const StoredPart& with, i64 E, i64 M, double dropout = 0,
                         bool biased = false) {
    CAPTURE(fmt::format("E {}, M {}", E, M));
    const auto number = [&](i64 length, i64 width, std::uint64_t seed) {
      return random_normal({B, length, H, width}, DType::f32, seed).to(DType::bf16);
    };
    const Tensor bias = biased ? random_normal({1, H, N, S}, DType::f32, 4) : Tensor{};
    const Tensor narrow[] = {number(N, E, 1), number(S, E, 2), number(S, M, 3), bias};
    const Tensor wide[] = {narrow[0].to(DType::f64), narrow[1].to(DType::f64),
                           narrow[2].to(DType::f64), biased ? bias.to(DType::f64) : bias};
    // The bounds of StoredBounds, but for the rounding of the output.
    const Tensor of_sizes[] = {wide[0], wide[1], magnitude(wide[2]), wide[3]};
    const double e = f32_errors(E, S);
    CHECK(beyond_bounds(run(with, narrow, dropout), run(with, wide, dropout),
                        run(with, of_sizes, dropout), half_unit + e, true) == "");
  };
  Tensor keys = Tensor::zeros({B}, DType::i64), queries = Tensor::zeros({B}, DType::i64);
  for (i64 b = 0; b < B; ++b) {
    keys.data<i64>()[b] = b == 0 ? S : 19 * (b - 1);
    queries.data<i64>()[b] = N - 17 * b;
  }
  check({{}, keys, queries}, 64, 64);
  check({{.band = {.end = {.slope = 1, .offset = 200}}}, keys, queries}, 128, 128, 0.2);
  check({{.band = Band::window(40, 300)}, keys, queries}, 40, 56, 0.2, true);
}

TEST_CASE("pairs: where a staircase first rises above a number") {
  for (const Staircase& s :
       {Staircase{.slope = 1, .offset = -3}, Staircase{.slope = 3, .step = 5, .offset = 2},
        Staircase{.slope = 7, .step = 2, .offset = -4}, Staircase{.offset = 4},
        Staircase{.slope = 1, .offset = -9, .least = 2}}) {
    for (i64 j = -5; j < 60; ++j) {
      i64 first = 0;
      while (first < 1000 && s.at(first) <= j) ++first;
      CAPTURE(j);
      CHECK(s.first_above(j) == (first == 1000 ? Staircase::infinite : first));
    }
  }
}

TEST_CASE("pairs: bands") {
  const ThreadsOf one(1);
  const i64 N = tested_is_emulated() ? 150 : 337;
  const QueryKeyValue in(2, N, N, 2, 5, 6);
  const std::vector<i64> lengths{N, N - 70};
  const Tensor two = lengths_of(lengths);
  check_pattern(in, {{.band = Band::window(70, 3)}},
                [](i64, i64 i, i64 j) { return i - 70 <= j && j <= i + 3; });
  check_pattern(in, {{.band = Band::window(2, 90)}},
                [](i64, i64 i, i64 j) { return i - 2 <= j && j <= i + 90; }, two);
  check_pattern(in, {{.band = Band::window(9, 0, 4)}},
                [](i64, i64 i, i64 j) { return std::max<i64>(i - 9, 4) <= j && j <= i; });
  for (const i64 size : {2, 7, 64, 100}) {
    check_pattern(in, {{.band = Band::blocks(size)}},
                  [&](i64, i64 i, i64 j) { return i / size == j / size; }, two);
  }
  // Earlier positions as summaries: ⌊i / 30⌋ of 11 keys.
  check_pattern(in, {{.band = {.end = {.slope = 11, .step = 30}}}},
                [](i64, i64 i, i64 j) { return j < 11 * (i / 30); });
}

TEST_CASE("pairs: few queries, whose keys are worked on in ranges") {
  const i64 S = tested_is_emulated() ? 700 : 2500;  // more than a range
  for (const i64 N : {1, 3}) {
    CAPTURE(N);
    const QueryKeyValue in(2, N, S, 3, 5, 21);
    const Band band{.first = {.slope = 300, .offset = 9}, .end = {.slope = 200, .offset = S - 500}};
    const HeadSees sees = [&](i64, i64 i, i64 j) {
      return 300 * i + 9 <= j && j < 200 * i + S - 500;
    };
    check_pattern(in, {{.band = band}}, sees);
    // Beside another part, before it and after it; query 0 has no key in the second.
    const PairsPart rest{.band = {.end = {.slope = 9}}};
    const HeadSees both = [&](i64 h, i64 i, i64 j) { return j < 9 * i || sees(h, i, j); };
    check_pattern(in, {{.band = band}, rest}, both);
    check_pattern(in, {rest, {.band = band}}, both);
    check_pattern(
        in, {{}}, [](i64, i64, i64) { return true; }, tolerance::forward_f64,
        tolerance::backward_f64, lengths_of({S - 90, 0}), lengths_of({N - 1, N}));
  }
}

TEST_CASE("pairs: a band in f32, where heads of eight have a kernel of their own") {
  const ThreadsOf one(1);
  const i64 N = tested_is_emulated() ? 100 : 300;
  for (const i64 width : {8, 16}) {
    const QueryKeyValue in(1, N, N, 2, width, width, DType::f32);
    for (const i64 before : {1, 40, 129}) {
      check_pattern(in, {{.band = Band::window(before, 6)}},
                    [&](i64, i64 i, i64 j) { return i - before <= j && j <= i + 6; },
                    tolerance::forward_f32, tolerance::backward_f32);
    }
  }
}

TEST_CASE("pairs: residue classes, and two parts under one softmax") {
  const ThreadsOf one(1);
  const i64 N = tested_is_emulated() ? 90 : 230;
  const QueryKeyValue in(2, N, N, 2, 5, 6);
  const Tensor two = lengths_of({N, N - 21});
  for (const i64 l : {2, 5, 70}) {
    CAPTURE(l);
    check_pattern(in, {{.band = Band::window(3, 2), .classes = l}},
                  [&](i64, i64 i, i64 j) {
                    return (i - j) % l == 0 && i - 3 * l <= j && j <= i + 2 * l;
                  },
                  two);
    const PairsPart near{.band = Band::window(l - 1, 0)};
    const PairsPart far{.band = {.end = {.slope = 1}}, .classes = l};
    for (const auto& parts : {std::vector{near, far}, std::vector{far, near}}) {
      check_pattern(
          in, parts, [&](i64, i64 i, i64 j) { return j <= i && (i - j < l || (i - j) % l == 0); },
          two);
    }
  }
}

TEST_CASE("pairs: the first keys in a part of their own, whatever their class") {
  const ThreadsOf one(1);
  for (const i64 N : {i64{4}, tested_is_emulated() ? i64{90} : i64{230}}) {
    const QueryKeyValue in(2, N, N, 2, 5, 6);
    const Tensor two = lengths_of({N, N - N / 4});
    for (const i64 l : {1, 4, 30}) {
      for (const i64 first : {1, 3, 70}) {
        CAPTURE(l);
        CAPTURE(first);
        const PairsPart near{.band = Band::window(3, 2), .classes = l, .first_key = first};
        const PairsPart far{.band = {.end = {.offset = first}}};
        check_pattern(in, {near, far},
                      [&](i64, i64 i, i64 j) {
                        return j < first || ((i - j) % l == 0 && i - 3 * l <= j && j <= i + 2 * l);
                      },
                      two);
      }
    }
  }
}

TEST_CASE("pairs: lists of tiles") {
  const ThreadsOf one(1);
  const i64 N = tested_is_emulated() ? 130 : 200, S = N - 25;
  const QueryKeyValue in(2, N, S, 3, 5, 6);
  for (const i64 of : {2, 60}) {
    // Whole tiles, empty ones and random ones; another pattern for each head.
    const HeadSees sees = [&](i64 h, i64 i, i64 j) {
      const i64 kind = (h + i / 64 + 2 * (j / 64)) % 3;
      return kind == 0 || (kind == 1 && (i * 7919 + j * 104729 + h * 31) % of == 0);
    };
    const Tensor mask = Tensor::zeros({3, N, S}, DType::u8);
    for (i64 h = 0; h < 3; ++h) {
      for (i64 i = 0; i < N; ++i) {
        for (i64 j = 0; j < S; ++j) mask.data<std::uint8_t>()[(h * N + i) * S + j] = sees(h, i, j);
      }
    }
    const MaskedPairs pairs{.queries = N, .keys = S};
    const auto lists =
        std::make_shared<const TileListTensors>(tiles_of_mask(mask, pairs, tested_device()));
    check_pattern(in, {{.lists = lists}}, sees);
  }
  CHECK_THROWS_WITH_AS(
      tiles_of_mask(Tensor::zeros({4}, DType::u8), {.queries = 4, .keys = 5}, Device{}),
      doctest::Contains("wanted a mask of bytes [4, 5], [H, 4, 5] or [B, H, 4, 5], got u8 [4]"),
      Error);
}

TEST_CASE("pairs: a pair that stands in two parts is refused") {
  const i64 N = 60;
  const QueryKeyValue in(1, N, N, 1, 2, 2);
  const PairsSource own{in.k, in.v};
  const PairsSource sources[] = {own, own};
  const auto both = [&](const PairsPart& one, const PairsPart& two) {
    return pairs_attention({.name = "mine"}, in.q, sources, std::vector{one, two});
  };
  // Every band against the pairs that it shares with another one.
  const Band bands[] = {
      Band::window(4, 2), Band::causal(),         {.first = {.slope = 1, .offset = 1}},
      Band::blocks(9),    Band::window(2, 0, 30), {.end = {.slope = 1}}};
  int refused = 0;
  for (const Band& first : bands) {
    for (const Band& second : bands) {
      for (const auto& [l, m, from] : {std::array<i64, 3>{1, 1, 0}, {1, 7, 0}, {7, 1, 0},
                                       {7, 7, 0}, {1, 1, 40}, {7, 1, 54}, {7, 7, 30}}) {
        bool twice = false;
        for (i64 i = 0; i < N; ++i) {
          for (i64 j = 0; j < N; ++j) {
            const auto sees = [&](const Band& band, i64 classes) {
              return (i - j) % classes == 0 && band.first.at(i / classes) <= j / classes &&
                     j / classes < band.end.at(i / classes);
            };
            twice |= j >= from && sees(first, l) && sees(second, m);
          }
        }
        const PairsPart one{.band = first, .classes = l, .first_key = from};
        const PairsPart two{.band = second, .classes = m};
        refused += twice;
        if (twice) {
          CHECK_ERROR(both(one, two), "mine: query ");
        } else {
          CHECK(both(one, two).size(1) == N);
        }
        PairsPart other = two;
        other.source = 1;
        CHECK(both(one, other).size(1) == N);
      }
    }
  }
  CHECK(refused > 20);
  CHECK_ERROR(both({.band = Band::causal()}, {.band = Band::window(0, 3)}),
              "mine: query 0 sees key 0 in two parts; every pair may stand in one");
}

// Output and gradients of q, k, v and a table by distance [heads, D], by the engine and by the
// definition of full attention with the table expanded to all pairs. Apart: rows of the table are
// not contiguous.
void check_by_distance(const QueryKeyValue& in, const PairsPart& part, const HeadSees& sees,
                       i64 heads, i64 D, i64 origin, bool apart = false) {
  const i64 H = in.q.size(2), N = in.q.size(1), S = in.k.size(1);
  const Tensor table = random_normal({heads, D}, DType::f64, 4).to(in.q.dtype());
  std::vector<Tensor> inputs = in.list();
  inputs.push_back(apart ? table.transpose(0, 1).packed().transpose(0, 1) : table);
  const Run got = run(
      [&](std::span<const Variable> x) {
        PairsPart biased = part;
        biased.biased = true;
        const PairsSource source{x[1], x[2]};
        return std::vector{
            pairs_attention({.temperature = 0.6, .origin = origin}, x[0], source, biased, x[3])};
      },
      inputs);
  const Tensor places = Tensor::zeros({heads, N * S}, DType::i64);
  for (i64 place = 0; place < heads * N * S; ++place) {
    const i64 distance = origin + place % S - place / S % N;
    places.data<i64>()[place] = std::clamp<i64>(distance, 0, D - 1);  // of a hidden pair
  }
  const Run wanted = run(
      [&](std::span<const Variable> x) {
        const Variable spread = reshape(gather(x[3], 1, places), {1, heads, N, S});
        const Variable bias = add(spread, dense_bias(H, N, S, in.q.dtype(), sees));
        const Variable list[] = {x[0], x[1], x[2], bias};
        return std::vector{defined(AttentionSpec("full:temperature=0.6"), {}, list).out};
      },
      inputs, 17, Device{});
  check_close(got, wanted);
}

TEST_CASE("pairs: a bias by distance, and its gradient") {
  const ThreadsOf one(1);
  const i64 N = tested_is_emulated() ? 75 : 150, S = N + 60;
  const QueryKeyValue in(2, N, S, 3, 5, 6);
  const HeadSees all = [](i64, i64, i64) { return true; };
  check_by_distance(in, {}, all, 3, N + S - 1, N - 1);
  check_by_distance(in, {}, all, 3, N + S + 8, N + 4, true);
  check_by_distance(in, {}, all, 1, N + S + 8, N + 4);  // one table for all heads, with room
  const HeadSees window = [](i64, i64 i, i64 j) { return i - 30 <= j && j <= i + 7; };
  check_by_distance(in, {.band = Band::window(30, 7)}, window, 3, 38, 30);
  // A memory of S − N keys before the queries, as models with memory have it.
  const Band past{.end = {.slope = 1, .offset = S - N + 1}};
  check_by_distance(
      in, {.band = past}, [&](i64, i64 i, i64 j) { return j <= i + S - N; }, 3, S, N - 1);
  // Behind keys that no query sees.
  const QueryKeyValue square(2, 64, 64, 2, 5, 6);
  check_by_distance(
      square, {.band = Band::causal(), .first_key = 8},
      [](i64, i64 i, i64 j) { return 8 <= j && j <= i; }, 2, 127, 63);
  const QueryKeyValue few(2, 3, 90, 2, 5, 6);
  check_by_distance(few, {}, all, 2, 92, 2);
  CHECK_THROWS_WITH_AS(
      check_by_distance(in, {.band = Band::window(30, 7)}, window, 3, 37, 30),
      doctest::Contains("the bias has distances -30 to 6, the pairs have -30 to 7"), Error);
}

TEST_CASE("pairs: scores that are given have heads of no width") {
  const ThreadsOf one(1);
  const i64 N = 70, S = 90, H = 2;
  const QueryKeyValue in(2, N, S, H, 1, 6);
  const std::vector<Tensor> inputs{in.v, random_normal({2, H, N, S}, DType::f64, 5)};
  const Run got = run(
      [&](std::span<const Variable> x) {
        const Tensor q = Tensor::zeros({2, N, H, 0}, DType::f64, tested_device());
        const Tensor k = Tensor::zeros({2, S, H, 0}, DType::f64, tested_device());
        return std::vector{pairs_attention({}, q, {k, x[0]}, {.biased = true}, x[1])};
      },
      inputs);
  const Run wanted = run(
      [&](std::span<const Variable> x) {
        return std::vector{transpose(matmul(softmax(x[1]), transpose(x[0], 1, 2)), 1, 2)};
      },
      inputs, 17, Device{});
  check_close(got, wanted);
}

TEST_CASE("pairs: parts with keys of their own") {
  const ThreadsOf one(1);
  const i64 N = 75;
  const QueryKeyValue in(2, N, N, 2, 5, 6);
  // The same keys once as one sequence and once cut in two.
  const Run got = run(
      [&](std::span<const Variable> x) {
        const PairsSource sources[] = {{slice(x[1], 1, 0, 20), slice(x[2], 1, 0, 20)},
                                       {slice(x[1], 1, 20, N), slice(x[2], 1, 20, N)}};
        const PairsPart parts[] = {{.source = 1}, {.source = 0}};
        return std::vector{pairs_attention({.temperature = 0.6}, x[0], sources, parts)};
      },
      in.list());
  const Run wanted = defined_run("full:temperature=0.6", in.list());
  check_close(got.outputs[0], wanted.outputs[0]);
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(relative_error(got.gradients[i], wanted.gradients[i]) <= tolerance::backward_f64);
  }
}

}

}  // namespace
}  // namespace weft
