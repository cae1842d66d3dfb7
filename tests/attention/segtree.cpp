// Properties of SegTree attention alone (mechanism page: ops/attention/segtree/segtree.h).
#include <cmath>

#include "ops/attention/definitions.h"
#include "ops/dropout/mask.h"
#include "ops/matmul/matmul.h"
#include "ops/pointwise/pointwise.h"
#include "ops/softmax/softmax.h"
#include "ops/views/views.h"
#include "tests/attention/run_attention.h"
#include "tests/attention/sample.h"

namespace weft {
namespace {

struct TypedEdge {
  i64 from, type;
};

// The tree built level by level from its description.
struct PlainTree {
  std::vector<i64> first{0}, size;              // of the rows of a level
  std::vector<std::vector<TypedEdge>> in = {};  // by row

  PlainTree(i64 n, bool causal) : size{n} {
    while (size.back() > 1) {
      first.push_back(first.back() + size.back());
      size.push_back((size.back() + 1) / 2);
    }
    const auto levels = std::size(size);
    for (std::size_t l = 0; l < levels; ++l) {
      for (i64 u = 0; u < size[l]; ++u) {
        in.push_back({{first[l] + u, 0}});
        for (i64 i = 0; l > 0 && i < n; ++i) {
          if (i >> l == u) in.back().push_back({i, i64(3 * l)});
        }
      }
    }
    for (i64 i = 0; i < n; ++i) {
      for (const bool right : {false, true}) {
        for (std::size_t l = 0; l < levels && !(right && causal); ++l) {
          const i64 beside = (i >> l) + (right ? 1 : -1);
          // The level below covers the near half already.
          const bool half = l > 0 && ((i >> (l - 1)) % 2 == 1) == right;
          const std::size_t level = half ? l - 1 : l;
          const i64 u = half ? 2 * beside + right : beside;
          if (u < 0 || u >= size[level]) continue;
          in[std::size_t(i)].push_back({first[level] + u, i64(3 * l) + 1 + right});
        }
      }
    }
  }
  i64 rows() const { return std::ssize(in); }
  i64 levels() const { return std::ssize(size); }
  // The leaves that a row covers.
  std::vector<i64> leaves(i64 row) const {
    std::size_t l = 0;
    while (row >= first[l] + size[l]) ++l;
    std::vector<i64> list;
    for (i64 i = (row - first[l]) << l; i < std::min(size[0], (row - first[l] + 1) << l); ++i) {
      list.push_back(i);
    }
    return list;
  }
};

// The edges of the mechanism: for a query of 0 all of its edges have the same weight. For each row
// the number of edges into it from each other row.
std::vector<std::vector<i64>> edges_of(i64 n, bool is_causal) {
  const PlainTree tree(n, is_causal);
  const i64 T = tree.rows();
  AttentionCall call;
  call.causal = is_causal;
  const Tensor none = Tensor::zeros({1, T, 1, 1}, DType::f64);
  const Tensor relative = normal({3 * tree.levels(), 1}, 4);
  const Tensor map = attended("segtree", {none, none, unit_values(1, T, 1), relative}, call);
  std::vector<std::vector<i64>> times;
  for (i64 i = 0; i < T; ++i) {
    double least = 1;
    for (i64 j = 0; j < T; ++j) {
      const double weight = map.view<double, 4>()(0, i, 0, j);
      if (weight > 0) least = std::min(least, weight);
    }
    times.emplace_back();
    for (i64 j = 0; j < T; ++j) {
      times.back().push_back(std::lround(map.view<double, 4>()(0, i, 0, j) / least));
    }
  }
  return times;
}

std::string spec_of(double temperature) {
  return fmt::format("segtree:temperature={}", temperature);
}

// q, k, v of all rows, and relative.
std::vector<Tensor> inputs_of(i64 B, i64 rows, i64 H, i64 E, i64 M, i64 types) {
  std::vector<Tensor> inputs = QueryKeyValue(B, rows, rows, H, E, M).list();
  inputs.push_back(normal({types, E}, 4));
  return inputs;
}

// Attention over the whole matrix, restricted to the edges.
Differentiable dense(i64 leaves, const AttentionCall& call, double temperature) {
  return [=](std::span<const Variable> in) {
    const i64 B = in[0].size(0), T = in[0].size(1), H = in[0].size(2), types = in[3].size(0);
    const Tensor seen = Tensor::zeros({B, 1, T, T}, DType::f64);
    const Tensor left = Tensor::zeros({B, H, T, T}, DType::f64);
    const Tensor of_type = Tensor::zeros({types, B, 1, T, T}, DType::f64);
    const DropoutMask mask(call.random, call.dropout, leaves + 1, H * T);
    for (i64 b = 0; b < B; ++b) {
      const i64 n = call.lengths.defined() ? call.lengths.to_vector<i64>()[std::size_t(b)] : leaves;
      if (n == 0) continue;
      const PlainTree tree(n, call.causal);
      for (i64 i = 0; i < tree.rows(); ++i) {
        i64 rank = 0;
        for (const TypedEdge& edge : tree.in[std::size_t(i)]) {
          seen.view<double, 4>()(b, 0, i, edge.from) = 1;
          of_type.view<double, 5>()(edge.type, b, 0, i, edge.from) = 1;
          for (i64 h = 0; h < H; ++h) {
            left.view<double, 4>()(b, h, i, edge.from) =
                mask.keeps((b * H + h) * T + i, rank) ? mask.factor : 0;
          }
          ++rank;
        }
      }
    }
    const Variable q = transpose(in[0], 1, 2), k = transpose(in[1], 1, 2);
    Variable z = matmul(q, transpose(k, 2, 3));
    for (i64 t = 0; t < types; ++t) {
      const Variable product = matmul(q, transpose(slice(in[3], 0, t, t + 1), 0, 1));
      z = add(z, mul(product, of_type.slice(0, t, t + 1).reshape({B, 1, T, T})));
    }
    const Variable a = softmax(masked(scale(z, temperature), seen));
    return std::vector{transpose(matmul(mul(a, left), transpose(in[2], 1, 2)), 1, 2)};
  };
}

TEST_SUITE("attention") {

TEST_CASE(
    "segtree: the edges into a leaf stand for each position once, none of them later if causal") {
  std::vector<i64> lengths{1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 16, 21, 32, 64, 100};
  if (few_wanted()) lengths = {1, 2, 5, 7, 13, 16};
  for (const i64 n : lengths) {
    for (const bool is_causal : {true, false}) {
      CAPTURE(n);
      CAPTURE(is_causal);
      const PlainTree tree(n, is_causal);
      const std::vector<std::vector<i64>> edges = edges_of(n, is_causal);
      REQUIRE(std::ssize(edges) == tree.rows());
      i64 all = 0;
      for (i64 i = 0; i < tree.rows(); ++i) {
        std::vector<i64> covered(std::size_t(n), 0), wanted(std::size_t(n), 0);
        for (i64 j = 0; j < tree.rows(); ++j) {
          const i64 times = edges[std::size_t(i)][std::size_t(j)];
          all += times;
          if (i >= n && i == j) continue;  // a node's edge to itself
          for (const i64 leaf : tree.leaves(j)) covered[std::size_t(leaf)] += times;
        }
        const std::vector<i64> own = tree.leaves(i);
        if (i >= n) {
          for (const i64 leaf : own) wanted[std::size_t(leaf)] = 1;
        } else {
          std::fill_n(wanted.begin(), is_causal ? i + 1 : n, 1);
        }
        CHECK(covered == wanted);
        CHECK(edges[std::size_t(i)][std::size_t(i)] == 1);
      }
      if (n == 64 && is_causal) CHECK(all == 832);
    }
  }
}

TEST_CASE("segtree: it is dense attention along the edges of the tree, with its types") {
  const bool few = few_wanted();
  for (const i64 n : few ? std::vector<i64>{7, 20} : std::vector<i64>{1, 2, 7, 13, 34}) {
    const PlainTree tree(n, false);
    const std::vector<Tensor> inputs = inputs_of(2, tree.rows(), 2, 3, 4, 3 * tree.levels() + 2);
    for (const bool is_causal : {false, true}) {
      for (const bool cut : {false, true}) {
        for (const double rate : {0.0, 0.3}) {
          if (few && cut == (rate > 0)) continue;
          CAPTURE(n);
          AttentionCall call;
          call.causal = is_causal;
          call.dropout = rate;
          call.random = {4, 5, 6};
          if (cut) call.lengths = lengths_of({n - n / 3, n});
          const Run wanted = run(dense(n, call, 0.6), inputs, 17, Device{});
          const Run got = attended_run(spec_of(0.6), inputs, call);
          check_close(got, wanted);
          const Tensor unused = got.gradients[3].slice(0, 3 * tree.levels(), 3 * tree.levels() + 2);
          for (const double x : unused.to_vector<double>()) CHECK(x == 0);
        }
      }
    }
  }
}

// Lists with more edges than a warp has lanes, and nodes with as many outgoing edges.
TEST_CASE("segtree: a long sequence") {
  const i64 n = 300;
  if (fewest_on_device()) return;
  const PlainTree tree(n, false);
  const std::vector<Tensor> inputs = inputs_of(1, tree.rows(), 1, 2, 3, 3 * tree.levels());
  check_close(attended_run("segtree", inputs), defined_run("segtree", inputs));
}

TEST_CASE("segtree: one leaf is its own root, and gives its value") {
  const std::vector<Tensor> inputs = inputs_of(2, 1, 2, 3, 4, 3);
  const Run got = attended_run("segtree", inputs);
  CHECK(same_bits(got.outputs[0], inputs[2]));
  for (const std::size_t x : {0, 1, 3}) {
    for (const double gradient : got.gradients[x].to_vector<double>()) CHECK(gradient == 0);
  }
}

TEST_CASE("segtree: an item has the tree of its own length") {
  const i64 n = 13, rows = PlainTree(n, false).rows();
  const std::vector<Tensor> inputs = inputs_of(n + 1, rows, 1, 3, 2, 15);
  std::vector<i64> lengths;
  for (i64 length = 0; length <= n; ++length) lengths.push_back(length);
  const AttentionCall call = with_lengths(lengths);
  const Tensor all = attended("segtree", inputs, call);
  for (i64 length = 1; length <= n; ++length) {
    CAPTURE(length);
    const i64 own = PlainTree(length, false).rows();
    std::vector<Tensor> alone{inputs[3]};
    for (const int x : {2, 1, 0}) {
      const Tensor item = inputs[std::size_t(x)].slice(0, length, length + 1).slice(1, 0, own);
      alone.insert(alone.begin(), item);
    }
    check_close(all.slice(0, length, length + 1).slice(1, 0, own), attended("segtree", alone));
  }
}

TEST_CASE("segtree: what it refuses") {
  const auto of_rows = [](i64 rows, i64 types) { return inputs_of(1, rows, 1, 2, 2, types); };
  CHECK_ERROR(attended("segtree", of_rows(5, 9)),
              "segtree: no sequence has 5 rows; 2 positions have 3, 3 have 6; got q [1,5,1,2], k");
  CHECK_ERROR(attended("segtree", of_rows(11, 11)),
              "segtree: relative must be [3·levels(N_max), E] with 3·levels(N_max) = 12; got");
  CHECK_ERROR(attended("segtree", of_rows(11, 12), with_lengths({6})),
              "segtree: lengths holds 6, outside 0 … 5");
  std::vector<Tensor> unequal = of_rows(11, 12);
  unequal[1] = normal({1, 6, 1, 2}, 2), unequal[2] = normal({1, 6, 1, 2}, 3);
  CHECK_ERROR(attended("segtree", unequal), "segtree: cannot attend across two sequences");
}

}  // TEST_SUITE("attention")

}  // namespace
}  // namespace weft
