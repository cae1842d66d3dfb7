// Properties of Longformer attention alone (mechanism page:
// ops/attention/longformer/longformer.h).
#include "ops/attention/definitions.h"
#include "ops/pointwise/pointwise.h"
#include "tests/attention/run_attention.h"
#include "tests/attention/sample.h"
#include "tests/threads.h"

namespace weft {
namespace {

// q, k and v, and those of the further projections.
struct LongformerInputs {
  QueryKeyValue own;
  Tensor q, k, v;

  LongformerInputs(i64 B, i64 N, i64 H, i64 E, i64 M)
      : own(B, N, N, H, E, M),
        q(random_normal({B, N, H, E}, DType::f64, 4)),
        k(random_normal({B, N, H, E}, DType::f64, 5)),
        v(random_normal({B, N, H, M}, DType::f64, 6)) {}
  std::vector<Tensor> list() const { return {own.q, own.k, own.v, q, k, v}; }
  std::vector<Tensor> further() const { return {q, k, v}; }
};

using Marks = std::function<bool(i64 b, i64 i)>;

// Two dense softmaxes with the pattern, implemented independently from the paper: that of a
// position that is not global, and that of one that is.
Run dense(i64 window, i64 dilation, const Marks& global, const LongformerInputs& in,
          const AttentionCall& call) {
  const i64 B = in.q.size(0), N = in.q.size(1), E = in.q.size(3);
  const auto near = [&](i64 b, i64, i64 i, i64 j) {
    bool shown = false;
    for (i64 step = -window; step <= window; ++step) shown = shown || j == i + step * dilation;
    return !global(b, i) && (shown || global(b, j));
  };
  const auto f = [&](std::span<const Variable> x) {
    const double temperature = 1 / std::sqrt(double(E));
    const auto everything = [&](i64 b, i64, i64 i, i64) { return global(b, i); };
    const Tensor few = self_visibility(call, B, 1, N, near);
    const Tensor all = self_visibility(call, B, 1, N, everything);
    return std::vector{add(attention_over(few, temperature, call, x[0], x[1], x[2]),
                           attention_over(all, temperature, call, x[3], x[4], x[5]))};
  };
  return run(f, in.list(), 17, Device{});
}

Tensor mask_of(i64 B, i64 N, const Marks& global) {
  const Tensor mask = Tensor::empty({B, N}, DType::i64);
  for (i64 at = 0; at < B * N; ++at) mask.data<i64>()[at] = global(at / N, at % N);
  return mask;
}

// Every mask of a call, and lengths of which one is 0.
std::vector<AttentionCall> calls(i64 N) {
  std::vector<AttentionCall> all;
  for (const bool causal : {false, true}) {
    for (const bool cut : {false, true}) {
      AttentionCall call;
      call.causal = causal;
      if (cut) call.lengths = lengths_of({N, N / 2, 0});
      all.push_back(call);
    }
  }
  return all;
}

TEST_SUITE("attention") {

TEST_CASE("longformer: it is dense attention under the pattern of the paper") {
  const ThreadsOf one(1);
  const i64 longest = few_wanted() ? 70 : 141;
  struct Case {
    i64 N, window, dilation, globals;
  };
  for (const Case& c : {Case{5, 1, 1, 2}, Case{5, 9, 7, 1}, Case{longest, 9, 1, 3},
                        Case{longest, 4, 3, 7}, Case{longest, 0, 1, 66}, Case{longest, 70, 1, 0},
                        Case{longest, 2, 30, 200}, Case{longest, 3, 1000, 1}}) {
    const LongformerInputs in(3, c.N, 2, 4, 5);
    const std::string spec = fmt::format("longformer:window={},dilation={},global_tokens={}",
                                         c.window, c.dilation, c.globals);
    CAPTURE(spec);
    for (const AttentionCall& call : calls(c.N)) {
      CAPTURE(call.causal);
      CAPTURE(call.lengths.defined());
      const Marks first = [&](i64, i64 i) { return i < c.globals; };
      check_close(attended_run(spec, in.list(), call),
                  dense(c.window, c.dilation, first, in, call));
    }
  }
}

TEST_CASE("longformer: global positions that are handed in, others for each item") {
  const ThreadsOf one(1);
  const i64 longest = few_wanted() ? 70 : 141;
  const Marks some = [](i64 b, i64 i) { return (i * 7 + b * 3) % 11 == 0; };
  const Marks only_one_item = [](i64 b, i64 i) { return b == 1 && (i == 0 || i == 4); };
  const Marks behind_the_lengths = [](i64 b, i64 i) { return b == 2 && i > 3; };
  const Marks all = [](i64, i64) { return true; };
  for (const auto& global : {some, only_one_item, behind_the_lengths, all}) {
    for (const i64 N : {i64{5}, longest}) {
      const LongformerInputs in(3, N, 2, 4, 5);
      for (AttentionCall call : calls(N)) {
        call.given["global_mask"] = mask_of(3, N, global);
        for (const i64 dilation : {1, 4}) {
          if (fewest_on_device() && (dilation == 1) == call.causal) continue;
          const std::string spec = fmt::format("longformer:window=5,dilation={}", dilation);
          CAPTURE(spec);
          CAPTURE(N);
          CAPTURE(call.causal);
          CAPTURE(call.lengths.defined());
          check_close(attended_run(spec, in.list(), call), dense(5, dilation, global, in, call));
          AttentionCall dropping = call;
          dropping.dropout = 0.3;
          check_close(attended_run(spec, in.list(), dropping),
                      defined_run(spec, in.list(), dropping));
        }
      }
    }
  }
}

TEST_CASE("longformer: a mask of the first positions is the option, to the bit") {
  const LongformerInputs in(2, 30, 2, 4, 5);
  const Tensor mask = mask_of(2, 30, [](i64, i64 i) { return i < 4; });
  for (const i64 shorter : {30, 2}) {
    AttentionCall call = causal();
    call.dropout = 0.2;
    call.lengths = lengths_of({shorter, 30});
    const Run wanted = attended_run("longformer:window=3,global_tokens=4", in.list(), call);
    call.given["global_mask"] = mask;
    check_same_bits(attended_run("longformer:window=3,global_tokens=0", in.list(), call), wanted);
  }
}

TEST_CASE("longformer: a window over everything, and all positions global, are full attention") {
  const LongformerInputs in(2, 70, 2, 4, 5);
  for (const AttentionCall& call : {AttentionCall{}, causal()}) {
    check_close(attended("longformer:window=70,global_tokens=0", in.own.list(), call),
                attended("full", in.own.list(), call));
    check_close(attended("longformer:window=3,global_tokens=70", in.list(), call),
                attended("full", in.further(), call));
  }
}

TEST_CASE("longformer: no query but a global one reads the further projections") {
  const i64 N = 20;
  const LongformerInputs in(1, N, 1, 3, 2);
  const Tensor out = attended("longformer:window=2,global_tokens=3", in.list());
  const LongformerInputs other(1, N, 1, 3, 2);
  for (const Tensor& x : other.further()) x.fill(0.5);
  const Tensor moved = attended("longformer:window=2,global_tokens=3", other.list());
  CHECK(same_bits(moved.slice(1, 3, N), out.slice(1, 3, N)));
  for (i64 i = 0; i < 3; ++i) {
    CHECK_FALSE(same_bits(moved.slice(1, i, i + 1), out.slice(1, i, i + 1)));
  }
}

TEST_CASE("longformer: its cost counts the keys that each query sees") {
  for (const i64 N : {5, 12, 70}) {
    for (const i64 window : {0, 4, 80}) {
      for (const i64 dilation : {1, 3, 30}) {
        if (window == 0 && dilation > 1) continue;
        for (const i64 globals : {0, 3, 80}) {
          for (const bool causal : {false, true}) {
            const std::string spec = fmt::format(
                "longformer:window={},dilation={},global_tokens={}", window, dilation, globals);
            CAPTURE(spec);
            CAPTURE(N);
            CAPTURE(causal);
            // All queries are ordinary ones, too, before the global ones replace them.
            const auto ordinary = [&](i64 i, i64 j) {
              const bool near = std::abs(i - j) % dilation == 0 &&
                                std::abs(i - j) <= window * dilation && (!causal || j <= i);
              return j < globals || near;
            };
            const auto global = [&](i64 i, i64 j) { return i < globals && (!causal || j <= i); };
            CHECK(counted_pairs(spec, N, causal) ==
                  pairs_where(N, ordinary) + pairs_where(N, global));
          }
        }
      }
    }
  }
}

TEST_CASE("longformer: what it refuses") {
  const LongformerInputs in(2, 9, 1, 2, 2);
  const auto with_mask = [&](const Tensor& mask) {
    AttentionCall call;
    call.given["global_mask"] = mask;
    return call;
  };
  CHECK_ERROR(attended("longformer:window=-1", in.list()),
              "attention longformer: window is a number in [0, 16777216], got '-1'");
  CHECK_ERROR(attended("longformer:window=0,dilation=2", in.list()),
              "attention longformer: dilation=2 has an effect only with window!=0");
  CHECK_ERROR(attended("longformer:dilation=0", in.list()),
              "attention longformer: dilation is a number in [1, 16777216], got '0'");
  CHECK_ERROR(attended("longformer", in.own.list()), "longformer: the input q_global is missing");
  CHECK_ERROR(attended("longformer", in.list(), with_mask(Tensor::zeros({2, 8}, DType::i64))),
              "longformer: the given global_mask must be [2,9] of i64, got [2,8] of i64");
  CHECK_ERROR(attended("longformer", in.list(), with_mask(Tensor::full({2, 9}, 2, DType::i64))),
              "longformer: the given global_mask[0, 0] is 2; wanted 0 … 1");
  const AttentionCall last = with_mask(mask_of(2, 9, [](i64, i64 i) { return i == 8; }));
  CHECK_ERROR(
      attended("longformer:global_tokens=0", in.own.list(), last),
      "longformer: wanted all of q_global, k_global and v_global, or none where no position "
      "is global; got 0 of them, with 1 global positions");
}

}  // TEST_SUITE("attention")

}  // namespace
}  // namespace weft
