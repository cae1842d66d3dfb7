// Properties of Synthesizer alone (mechanism page: ops/attention/synthesizer/synthesizer.h).
#include <cmath>

#include "tests/attention/run_attention.h"
#include "tests/attention/sample.h"
#include "tests/threads.h"

namespace weft::synthesizer_tests {
namespace {

constexpr i64 H = 2, E = 3, M = 4, F = 5, rank = 6, factor = 4;

// A call's inputs by name, for N positions and learnt tensors for N_max.
struct Synthesized {
  std::string mode;
  bool dot;
  QueryKeyValue in;
  Tensor hidden;
  std::vector<Tensor> learnt;

  Synthesized(std::string named, bool with_products, i64 B, i64 N, i64 N_max)
      : mode(std::move(named)), dot(with_products), in(B, N, N, H, E, M) {
    const i64 columns = (N_max + factor - 1) / factor;
    std::vector<Shape> shapes;
    if (mode == "random") shapes = {{H, N_max, N_max}};
    if (mode == "factorized-random") shapes = {{H, N_max, rank}, {H, rank, N_max}};
    if (mode == "dense") shapes = {{H, F, N_max}, {H, N_max}};
    if (mode == "factorized-dense") {
      shapes = {{H, F, factor}, {H, factor}, {H, F, columns}, {H, columns}};
    }
    for (const Shape& shape : shapes) learnt.push_back(normal(shape, 10 + learnt.size()));
    if (mode.ends_with("dense")) hidden = normal({B, N, H, F}, 9);
  }

  std::string spec() const { return "synthesizer:mode=" + mode + (dot ? ",dot=1" : ""); }
  std::vector<Tensor> list() const {
    std::vector<Tensor> all = dot ? in.list() : std::vector{in.v};
    if (hidden.defined()) all.push_back(hidden);
    all.insert(all.end(), learnt.begin(), learnt.end());
    return all;
  }

  double relu_of_hidden(i64 b, i64 h, i64 i, i64 f) const {
    return std::max(hidden.view<const double, 4>()(b, i, h, f), 0.0);
  }
  // relu(h_i) w + b of one column.
  double made(std::size_t matrix, i64 b, i64 h, i64 i, i64 column) const {
    double sum = learnt[matrix + 1].view<const double, 2>()(h, column);
    for (i64 f = 0; f < F; ++f) {
      sum += relu_of_hidden(b, h, i, f) * learnt[matrix].view<const double, 3>()(h, f, column);
    }
    return sum;
  }
  double score(i64 b, i64 h, i64 i, i64 j) const {
    double z = 0;
    for (i64 e = 0; dot && e < E; ++e) {
      z += in.q.view<const double, 4>()(b, i, h, e) * in.k.view<const double, 4>()(b, j, h, e) /
           std::sqrt(double(E));
    }
    if (mode == "random") return z + learnt[0].view<const double, 3>()(h, i, j);
    if (mode == "dense") return z + made(0, b, h, i, j);
    if (mode == "factorized-dense") {
      return z + made(0, b, h, i, j % factor) * made(2, b, h, i, j / factor);
    }
    for (i64 f = 0; f < rank; ++f) {
      z += learnt[0].view<const double, 3>()(h, i, f) * learnt[1].view<const double, 3>()(h, f, j);
    }
    return z;
  }

  // The equations as loops.
  Tensor by_loops(const AttentionCall& call) const {
    const i64 B = in.v.size(0), N = in.v.size(1);
    const Tensor out = Tensor::zeros({B, N, H, M}, DType::f64);
    for (i64 b = 0; b < B; ++b) {
      const i64 n = call.lengths.defined() ? call.lengths.to_vector<i64>()[std::size_t(b)] : N;
      for (i64 h = 0; h < H; ++h) {
        for (i64 i = 0; i < n; ++i) {
          double sum = 0;
          std::vector<double> o(std::size_t(M), 0);
          for (i64 j = 0; j < (call.causal ? i + 1 : n); ++j) {
            const double weight = std::exp(score(b, h, i, j));
            sum += weight;
            for (i64 m = 0; m < M; ++m) {
              o[std::size_t(m)] += weight * in.v.view<const double, 4>()(b, j, h, m);
            }
          }
          for (i64 m = 0; m < M; ++m) {
            out.view<double, 4>()(b, i, h, m) = o[std::size_t(m)] / sum;
          }
        }
      }
    }
    return out;
  }
};

template <class Body>
void each_kind(const Body& body) {
  for (const char* mode : {"random", "factorized-random", "dense", "factorized-dense"}) {
    for (const bool dot : {false, true}) {
      CAPTURE(mode);
      CAPTURE(dot);
      body(mode, dot);
    }
  }
}

TEST_SUITE("attention") {

TEST_CASE("synthesizer: it is the softmax of its equations") {
  each_kind([](const char* mode, bool dot) {
    const Synthesized x(mode, dot, 3, 37, 39);
    for (const bool causal : {false, true}) {
      AttentionCall call;
      call.causal = causal;
      check_close(attended(x.spec(), x.list(), call), x.by_loops(call));
      call.lengths = lengths_of({37, 20, 0});
      check_close(attended(x.spec(), x.list(), call), x.by_loops(call));
    }
  });
}

TEST_CASE("synthesizer: gradients with products beside what is learnt") {
  const ThreadsOf one(1);
  each_kind([](const char* mode, bool dot) {
    const Synthesized x(mode, dot, 2, 5, 7);
    CHECK_GRADIENTS(mechanism_of(x.spec()), x.list(), 3, 1e-6, 60);
    AttentionCall call = causal();
    call.lengths = lengths_of({5, 3});
    call.dropout = 0.3;
    call.random = {1, 2, 3};
    CHECK_GRADIENTS(mechanism_of(x.spec(), call), x.list(), 3, 1e-6, 60);
    check_close(attended_run(x.spec(), x.list(), call), defined_run(x.spec(), x.list(), call));
  });
}

TEST_CASE("synthesizer: what is learnt is zero: means of values, or full attention") {
  each_kind([](const char* mode, bool dot) {
    Synthesized x(mode, dot, 2, 70, 70);
    for (const Tensor& learnt : x.learnt) learnt.fill(0);
    const Run got = attended_run(x.spec(), x.list());
    if (dot) {
      const Run wanted = attended_run("full", x.in.list());
      check_close(got.outputs[0], wanted.outputs[0]);
      for (std::size_t i = 0; i < 3; ++i) {
        CHECK(relative_error(got.gradients[i], wanted.gradients[i]) <= tolerance::backward_f64);
      }
      return;
    }
    const Tensor none = Tensor::zeros({2, 70, H, E}, DType::f64);
    check_close(got.outputs[0], attended("full", {none, none, x.in.v}));
  });
}

TEST_CASE("synthesizer: random weights are the same whatever is read") {
  for (const char* mode : {"random", "factorized-random", "dense"}) {
    const i64 N = 20;
    Synthesized x(mode, false, 2, N, N);
    x.in.v = unit_values(2, N, H);
    const Tensor weights = attended(x.spec(), x.list());
    const bool same = same_bits(weights.slice(0, 0, 1), weights.slice(0, 1, 2));
    CHECK(same == (mode != std::string("dense")));  // whose `hidden` is another in each item
  }
}

TEST_CASE("synthesizer: factors are those of a matrix") {
  const i64 N = 30;
  const Synthesized x("factorized-random", false, 2, N, N);
  Synthesized whole("random", false, 2, N, N);
  const View<double, 3> matrix = whole.learnt[0].view<double, 3>();
  const auto left = x.learnt[0].view<const double, 3>(),
             right = x.learnt[1].view<const double, 3>();
  for (i64 h = 0; h < H; ++h) {
    for (i64 i = 0; i < N; ++i) {
      for (i64 j = 0; j < N; ++j) {
        matrix(h, i, j) = 0;
        for (i64 f = 0; f < rank; ++f) matrix(h, i, j) += left(h, i, f) * right(h, f, j);
      }
    }
  }
  const Run got = attended_run(x.spec(), x.list()),
            wanted = attended_run(whole.spec(), whole.list());
  check_close(got.outputs[0], wanted.outputs[0]);
  const auto dmatrix = wanted.gradients[1].view<const double, 3>();
  const Tensor dleft = Tensor::zeros({H, N, rank}, DType::f64);
  const Tensor dright = Tensor::zeros({H, rank, N}, DType::f64);
  for (i64 h = 0; h < H; ++h) {
    for (i64 i = 0; i < N; ++i) {
      for (i64 j = 0; j < N; ++j) {
        for (i64 f = 0; f < rank; ++f) {
          dleft.view<double, 3>()(h, i, f) += dmatrix(h, i, j) * right(h, f, j);
          dright.view<double, 3>()(h, f, j) += dmatrix(h, i, j) * left(h, i, f);
        }
      }
    }
  }
  CHECK(relative_error(got.gradients[1], dleft) <= tolerance::backward_f64);
  CHECK(relative_error(got.gradients[2], dright) <= tolerance::backward_f64);
}

TEST_CASE("synthesizer: what is learnt for later positions takes no part") {
  each_kind([](const char* mode, bool dot) {
    const Synthesized x(mode, dot, 2, 12, 31);
    Synthesized cut = x;
    // The axes that count positions: those of 31, or of the ⌈31 / factor⌉ columns.
    for (Tensor& learnt : cut.learnt) {
      for (int axis = 1; axis < learnt.rank(); ++axis) {
        if (learnt.size(axis) == 31) learnt = learnt.slice(axis, 0, 12);
        if (learnt.size(axis) == 8) learnt = learnt.slice(axis, 0, 3);
      }
    }
    const Run longer = attended_run(x.spec(), x.list()),
              enough = attended_run(x.spec(), cut.list());
    CHECK(same_bits(longer.outputs[0], enough.outputs[0]));
    for (std::size_t i = 0; i < longer.gradients.size(); ++i) {
      const Tensor &all = longer.gradients[i], &wanted = enough.gradients[i];
      Tensor part = all;
      for (int axis = 0; axis < all.rank(); ++axis) part = part.slice(axis, 0, wanted.size(axis));
      CHECK(relative_error(part, wanted) == 0);
      double whole = 0, counted = 0;
      for (const double g : all.to_vector<double>()) whole += std::abs(g);
      for (const double g : wanted.to_vector<double>()) counted += std::abs(g);
      CHECK(whole == doctest::Approx(counted));
    }
  });
}

TEST_CASE("synthesizer: what stands beyond the lengths is not read, in any mode") {
  each_kind([](const char* mode, bool dot) {
    const Synthesized x(mode, dot, 2, 37, 37);
    const AttentionCall call = with_lengths({37, 20});
    std::vector<Tensor> garbled = x.list();
    for (Tensor& input : garbled) {
      const bool projected = input.rank() == 4;
      if (projected) input = filled(input, 1, 20, 37, std::nan(""), 1);
    }
    check_same_bits(attended_run(x.spec(), garbled, call), attended_run(x.spec(), x.list(), call));
  });
}

TEST_CASE("synthesizer: decoding, in every mode, up to N_max positions") {
  each_kind([](const char* mode, bool dot) {
    const i64 N = 21;
    const Synthesized x(mode, dot, 2, N, N);
    const std::vector<Tensor> whole = x.list();
    const std::vector<Variable> variables(whole.begin(), whole.end());
    const AttentionSpec spec = bound(AttentionSpec(x.spec()), causal(), variables).spec;
    const AttentionSizes sizes{.B = 2, .N = N, .S = N, .H = H, .E = E, .M = M, .N_max = N};
    const auto state = spec.mechanism().decode(spec, sizes, DType::f64, N);
    const Tensor wanted = attended(x.spec(), x.list(), causal());
    const auto inputs = [&](i64 begin, i64 end) {
      std::vector<Tensor> list = on_device(x.list());
      const std::size_t projected = list.size() - x.learnt.size();
      for (std::size_t i = 0; i < projected; ++i) list[i] = list[i].slice(1, begin, end);
      return list;
    };
    for (const auto& [begin, end] : {std::pair<i64, i64>{0, 9}, {9, 10}, {10, 17}, {17, 21}}) {
      check_close(state->step(inputs(begin, end)).to(Device{}), wanted.slice(1, begin, end));
    }
    CHECK_ERROR(state->step(inputs(0, 1)),
                "synthesizer: its learnt tensors are for 21 positions, got 22");
  });
}

TEST_CASE("synthesizer: what it refuses") {
  const auto refuses = [](const Synthesized& x, const std::string& options, const char* message) {
    CHECK_ERROR(attended(x.spec() + options, x.list()), message);
  };
  for (const char* mode : {"random", "factorized-random", "dense"}) {
    refuses({mode, false, 1, 12, 11}, "",
            "synthesizer: its learnt tensors are for 11 positions, got 12");
  }
  const Synthesized factorized("factorized-dense", false, 1, 17, 16);
  refuses(factorized, "",
          "synthesizer: w2b must be [H, hidden, ⌈N_max/factor⌉] with ⌈N_max/factor⌉ = 5");
  Synthesized uneven("factorized-dense", false, 1, 12, 12);
  uneven.learnt[3] = normal({H, 4}, 3);
  refuses(uneven, "",
          "synthesizer: w2b is [2,5,3] and b2b [2,4]; wanted the same number of columns");
  const Synthesized dense("dense", false, 1, 12, 12);
  refuses(dense, ",hidden=6",
          "synthesizer: hidden is [B, N, H, hidden] with hidden = 5, but the option says hidden=6");
  refuses(dense, ",dot=1", "synthesizer: ");
  refuses({"factorized-random", false, 1, 12, 12}, ",rank=7", "but the option says rank=7");
  for (const auto& [option, wanted] :
       {std::pair{"rank=7", "mode=factorized-random"},
        {"mode=factorized-random,factor=3", "mode=factorized-dense"},
        {"mode=factorized-random,hidden=3", "mode=dense|factorized-dense"},
        {"mode=dense,temperature=2", "dot=1"}}) {
    CHECK_ERROR(AttentionSpec(fmt::format("synthesizer:{}", option)),
                fmt::format(" has an effect only with {}", wanted).c_str());
  }
  CHECK_NOTHROW(AttentionSpec("synthesizer:mode=factorized-dense,hidden=3,factor=2"));
  CHECK_ERROR(attended("synthesizer:mode=sparse", dense.list()),
              "attention synthesizer: mode is one of random, factorized-random, dense, "
              "factorized-dense, got 'sparse'");
}

}  // TEST_SUITE("attention")

}  // namespace
}  // namespace weft::synthesizer_tests
