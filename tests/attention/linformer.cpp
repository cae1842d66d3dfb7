// Properties of Linformer attention alone (mechanism page: ops/attention/linformer/linformer.h).
#include "runtime/arithmetic.h"
#include "tests/attention/loops.h"

namespace weft {
namespace {

Tensor identity(i64 rows, i64 columns) {
  const Tensor matrix = Tensor::zeros({rows, columns}, DType::f64);
  for (i64 i = 0; i < std::min(rows, columns); ++i) matrix.view<double, 2>()(i, i) = 1;
  return matrix;
}

struct Linformed {
  QueryKeyValue in;
  Tensor proj_k, proj_v;

  Linformed(i64 B, i64 N, i64 S, i64 rows, i64 rank)
      : in(B, N, S, 2, 3, 4), proj_k(normal({rows, rank}, 8)), proj_v(normal({rows, rank}, 9)) {}
  std::vector<Tensor> list() const { return {in.q, in.k, in.v, proj_k, proj_v}; }
  std::vector<Tensor> shared() const { return {in.q, in.k, in.v, proj_k}; }
};

// The equations as loops.
loops::Function linformer_by_loops(const AttentionCall& call) {
  return [=](const std::vector<Tensor>& in) {
    const auto q = in[0].view<double, 4>(), k = in[1].view<double, 4>(),
               v = in[2].view<double, 4>();
    const auto P = in[3].view<double, 2>(), R = in[4].view<double, 2>();
    const i64 B = q.size(0), N = q.size(1), H = q.size(2), E = q.size(3);
    const i64 S = k.size(1), M = v.size(3), rank = P.size(1);
    const Tensor result = Tensor::zeros({B, N, H, M}, DType::f64);
    const auto out = result.view<double, 4>();
    const double temperature = 1 / std::sqrt(double(E));
    const auto count = [](const Tensor& lengths, i64 b, i64 all) {
      return lengths.defined() ? lengths.to_vector<i64>()[std::size_t(b)] : all;
    };
    for (i64 b = 0; b < B; ++b) {
      const i64 keys = count(call.lengths, b, S), queries = count(call.query_lengths, b, N);
      for (i64 h = 0; h < H; ++h) {
        for (i64 i = 0; i < queries; ++i) {
          loops::Row z(std::size_t(rank), 0.0);
          for (i64 r = 0; r < rank; ++r) {
            for (i64 j = 0; j < keys; ++j) {
              for (i64 e = 0; e < E; ++e) {
                z[std::size_t(r)] += temperature * q(b, i, h, e) * P(j, r) * k(b, j, h, e);
              }
            }
          }
          const loops::Row a = loops::softmax(z);
          for (i64 r = 0; r < rank; ++r) {
            for (i64 j = 0; j < keys; ++j) {
              for (i64 m = 0; m < M; ++m) {
                out(b, i, h, m) += a[std::size_t(r)] * R(j, r) * v(b, j, h, m);
              }
            }
          }
        }
      }
    }
    return result;
  };
}

TEST_SUITE("attention") {

TEST_CASE("linformer: it is the sums of its equations, and its gradients are their slopes") {
  for (const auto& [N, S, rank] : {std::array<i64, 3>{11, 11, 4}, {6, 15, 7}, {9, 5, 2}}) {
    CAPTURE(S);
    const Linformed x(3, N, S, S + 2, rank);
    AttentionCall call;
    const Tensor dout = normal({3, N, 2, 4}, 5);
    for (const bool cut : {false, true}) {
      if (cut) call.lengths = lengths_of({S, S - 4, 0});
      if (cut) call.query_lengths = lengths_of({2, N, N});
      loops::check("linformer", x.list(), call, linformer_by_loops(call));
      // proj_k for both: its gradient is the sum of the two.
      Linformed same = x;
      same.proj_v = x.proj_k;
      const Run apart = run_for(dout, mechanism_of("linformer", call), same.list());
      const Run shared = run_for(dout, mechanism_of("linformer:share_kv=1", call), x.shared());
      REQUIRE(shared.gradients.size() == 4);  // no proj_v
      CHECK(relative_error(shared.outputs[0], apart.outputs[0]) == 0);
      CHECK(relative_error(shared.gradients[3], added(apart.gradients[3], apart.gradients[4])) <=
            tolerance::backward_f64);
    }
  }
}

TEST_CASE("linformer: with the identity it is full attention") {
  Linformed x(2, 70, 70, 70, 70);
  x.proj_k = x.proj_v = identity(70, 70);
  Run got = attended_run("linformer", x.list());
  got.gradients.resize(3);  // of q, k and v
  check_close(got, attended_run("full", x.in.list()));
}

TEST_CASE("linformer: one slot gives every query the same") {
  const Linformed x(1, 20, 20, 20, 1);
  const Tensor out = attended("linformer", x.list());
  for (i64 i = 1; i < 20; ++i) check_close(out.slice(1, i, i + 1), out.slice(1, 0, 1));
}

TEST_CASE("linformer: rows behind the sequence take no part") {
  const Linformed x(2, 12, 12, 30, 5);
  std::vector<Tensor> cut = x.list();
  cut[3] = cut[3].slice(0, 0, 12), cut[4] = cut[4].slice(0, 0, 12);
  const Run longer = attended_run("linformer", x.list()), enough = attended_run("linformer", cut);
  CHECK(same_bits(longer.outputs[0], enough.outputs[0]));
  for (const std::size_t i : {3, 4}) {
    CHECK(same_bits(longer.gradients[i].slice(0, 0, 12), enough.gradients[i]));
    for (const double g : longer.gradients[i].slice(0, 12, 30).to_vector<double>()) CHECK(g == 0);
  }
}

TEST_CASE("linformer: what it refuses") {
  const auto refuses = [](const Linformed& x, const std::string& spec, const char* message,
                          const AttentionCall& call = {}) {
    CHECK_ERROR(attended(spec, x.list(), call), message);
  };
  refuses({1, 12, 12, 11, 3}, "linformer",
          "linformer: its learnt tensors are for 11 positions, got 12");
  // The matrices are over keys: there may be more queries.
  CHECK(attended("linformer", Linformed(1, 20, 11, 11, 3).list()).size(1) == 20);
  refuses({1, 20, 12, 11, 3}, "linformer",
          "linformer: its learnt tensors are for 11 positions, got 12");
  refuses({1, 12, 12, 12, 3}, "linformer:rank=4",
          "linformer: proj_k is [N_max, rank] with rank = 3, but the option says rank=4");
  refuses({1, 12, 12, 12, 3}, "linformer:rank=256",
          "linformer: proj_k is [N_max, rank] with rank = 3, but the option says rank=256");
  refuses({1, 12, 12, 12, 3}, "linformer:rank=0", "linformer: rank is a number in [1, ");
  refuses({1, 12, 12, 12, 0}, "linformer", "linformer: rank is a number in [1, ");
  refuses({1, 12, 12, 12, 3}, "linformer", "linformer: has no causal form", causal());
  refuses({1, 12, 12, 12, 3}, "linformer:share_kv=1", "linformer: wanted at most 4 inputs");
  Linformed uneven(1, 12, 12, 12, 3);
  uneven.proj_v = normal({13, 3}, 2);
  refuses(uneven, "linformer", "linformer: proj_v is [N_max, rank] with N_max = 13");
}

}  // TEST_SUITE("attention")

}  // namespace
}  // namespace weft
