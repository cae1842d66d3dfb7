// Properties of clustered attention alone (page: ops/attention/clustered/clustered.h), and for the
// clusters that all of that family share (clusters.h).
#include <algorithm>
#include <bit>
#include <cmath>
#include <set>

#include "tests/attention/run_attention.h"
#include "tests/attention/sample.h"
#include "tests/threads.h"

namespace weft {
namespace {

Tensor integers(const std::vector<i64>& values, const Shape& shape) {
  return Tensor::from(values, shape);
}

// Labels [B, H, N] with g_i = f(i).
template <class F>
Tensor labels_of(i64 B, i64 H, i64 N, const F& f) {
  const Tensor labels = Tensor::zeros({B, H, N}, DType::i64);
  for (i64 i = 0; i < labels.count(); ++i) labels.data<i64>()[i] = f(i % N);
  return labels;
}

AttentionCall given(const std::string& name, const Tensor& value) {
  AttentionCall call;
  call.given[name] = value;
  return call;
}

// K-means by its rule, implemented independently: codes of one head, and the labels after each
// iteration.
std::vector<std::vector<i64>> hamming_means(const std::vector<i64>& codes,
                                            std::vector<i64> centroids, int iterations) {
  std::vector<std::vector<i64>> all;
  const auto far = [](i64 a, i64 b) { return std::popcount(std::uint64_t(a ^ b)); };
  for (int t = 0; t < iterations; ++t) {
    std::vector<i64> labels;
    for (const i64 code : codes) {
      i64 best = 0;
      for (std::size_t c = 0; c < centroids.size(); ++c) {
        if (far(code, centroids[c]) < far(code, centroids[std::size_t(best)])) best = i64(c);
      }
      labels.push_back(best);
    }
    all.push_back(labels);
    for (std::size_t c = 0; c < centroids.size(); ++c) {
      i64 majority = 0;
      const auto size = std::count(labels.begin(), labels.end(), i64(c));
      for (int r = 0; r < 63; ++r) {
        i64 ones = 0;
        for (std::size_t i = 0; i < codes.size(); ++i) {
          ones += labels[i] == i64(c) && (codes[i] >> r & 1);
        }
        if (ones > size - ones) majority |= i64{1} << r;
      }
      if (size > 0) centroids[c] = majority;
    }
  }
  return all;
}

TEST_SUITE("attention") {

TEST_CASE("clustered: a cluster for every query is full attention") {
  const QueryKeyValue in(2, 70, 83, 3, 4, 5);
  const AttentionCall call = given("labels", labels_of(2, 3, 70, [](auto i) { return 69 - i; }));
  check_close(attended_run("clustered:clusters=70", in.list(), call),
              attended_run("full", in.list()));
}

TEST_CASE("clustered: equal queries give full attention") {
  QueryKeyValue in(2, 40, 83, 3, 4, 5);
  in.q = in.q.slice(1, 0, 1).expand({2, 40, 3, 4}).clone();
  check_close(attended("clustered:clusters=9", in.list()), attended("full", in.list()));
}

TEST_CASE("clustered: one cluster gives the attention of the mean query") {
  const QueryKeyValue in(2, 45, 83, 3, 4, 5);
  Tensor mean = Tensor::zeros({2, 1, 3, 4}, DType::f64);
  for (i64 b = 0; b < 2; ++b) {
    for (i64 i = 0; i < 45; ++i) {
      for (i64 j = 0; j < 12; ++j) {
        mean.data<double>()[b * 12 + j] += in.q.data<double>()[(b * 45 + i) * 12 + j] / 45;
      }
    }
  }
  check_close(attended("clustered:clusters=1", in.list()),
              attended("full", {mean, in.k, in.v}).expand({2, 45, 3, 5}).clone());
}

TEST_CASE("clustered: as many different rows as clusters at most") {
  const QueryKeyValue in(1, 300, 83, 2, 6, 5);
  const Tensor out = attended("clustered:clusters=7", in.list());
  for (i64 h = 0; h < 2; ++h) {
    std::set<std::vector<double>> rows;
    for (i64 i = 0; i < 300; ++i) {
      rows.insert(out.slice(1, i, i + 1).slice(2, h, h + 1).to_vector<double>());
    }
    CHECK(rows.size() <= 7);
    CHECK(rows.size() >= 3);
  }
}

// The largest singular value, by power iteration with KᵀK.
double spectral_norm(const std::vector<double>& k, std::size_t E) {
  std::vector<double> x(E, 1.0);
  double norm = 0;
  for (int t = 0; t < 300; ++t) {
    std::vector<double> next(E, 0.0);
    for (std::size_t s = 0; s < k.size() / E; ++s) {
      double product = 0;
      for (std::size_t e = 0; e < E; ++e) product += k[s * E + e] * x[e];
      for (std::size_t e = 0; e < E; ++e) next[e] += product * k[s * E + e];
    }
    norm = 0;
    for (const double value : next) norm += value * value;
    norm = std::sqrt(norm);
    for (std::size_t e = 0; e < E; ++e) x[e] = next[e] / norm;
  }
  return std::sqrt(norm);
}

// Proposition 1 with τ: ‖a_c − a_i‖₂ <= τ ‖q̄_c − q_i‖₂ ‖K‖₂.
TEST_CASE("clustered: attention is as near as the query is to the mean") {
  const i64 N = 60, S = 50, E = 5;
  QueryKeyValue in(1, N, S, 1, E, S);
  in.v = unit_values(1, S, 1);
  const double norm = spectral_norm(in.k.to_vector<double>(), std::size_t(E));
  for (const double temperature : {0.05, 0.4472, 1.3}) {
    const std::string option = fmt::format("temperature={}", temperature);
    const std::string spec = "clustered:clusters=8," + option;
    const Tensor labels = chosen(spec, in.list()).at("labels");
    const Tensor held = attended(spec, in.list()), exact = attended("full:" + option, in.list());
    const View<double, 4> c = held.view<double, 4>(), full = exact.view<double, 4>();
    for (i64 i = 0; i < N; ++i) {
      double distance = 0, moved = 0, size = 0;
      std::vector<double> mean(std::size_t(E), 0.0);
      for (i64 j = 0; j < N; ++j) {
        if (labels.data<i64>()[j] != labels.data<i64>()[i]) continue;
        ++size;
        for (i64 e = 0; e < E; ++e) mean[std::size_t(e)] += in.q.data<double>()[j * E + e];
      }
      for (i64 e = 0; e < E; ++e) {
        const double difference = mean[std::size_t(e)] / size - in.q.data<double>()[i * E + e];
        distance += difference * difference;
      }
      for (i64 s = 0; s < S; ++s) {
        const double difference = c(0, i, 0, s) - full(0, i, 0, s);
        moved += difference * difference;
      }
      CHECK(std::sqrt(moved) <= temperature * std::sqrt(distance) * norm / 2 + 1e-14);
    }
  }
}

TEST_CASE("clustered: more clusters come nearer to full attention") {
  const QueryKeyValue in(2, 256, 256, 2, 8, 8);
  const Tensor wanted = attended("full", in.list());
  double before = 1e9;
  for (const int clusters : {1, 16, 128, 250}) {
    const double error = relative_error(
        attended(fmt::format("clustered:clusters={},bits=63", clusters), in.list()), wanted);
    CHECK(error < before);
    before = error;
  }
}

TEST_CASE("clusters: a bit is on which side of its plane the query lies") {
  const QueryKeyValue in(2, 33, 33, 3, 6, 5);
  for (const std::string option : {"bits=5", "bits=32", "bits=63", "bits=63,hash_bias=0"}) {
    const Choices choices = chosen("clustered:" + option, in.list());
    const Tensor& planes = choices.at("planes");
    const View<double, 2> plane = planes.view<double, 2>();
    const View<double, 4> q = in.q.view<double, 4>();
    const i64* hash = choices.at("hashes").data<i64>();
    for (i64 row = 0; row < 2 * 3 * 33; ++row, ++hash) {
      i64 code = 0;
      for (i64 r = 0; r < plane.size(0); ++r) {
        double product = 0;
        for (i64 e = 0; e < 6; ++e) product += q(row / 99, row % 33, row / 33 % 3, e) * plane(r, e);
        if (product > plane(r, 6)) code |= i64{1} << r;
      }
      CHECK(*hash == code);
    }
    const bool biased = option.find("hash_bias") == std::string::npos;
    CHECK((plane(0, 6) != 0) == biased);
    // Planes of other steps differ; those of the same step are the same.
    AttentionCall later;
    later.random.step = 1;
    CHECK(same_bits(chosen("clustered:" + option, in.list()).at("planes"), planes));
    CHECK_FALSE(same_bits(chosen("clustered:" + option, in.list(), later).at("planes"), planes));
  }
}

// Planes whose hashes are the signs of the coordinates: query i has the bits of codes[i].
AttentionCall by_signs(const std::vector<i64>& positions) {
  std::vector<double> planes;
  for (int r = 0; r < 3; ++r) {
    for (int e = 0; e < 4; ++e) planes.push_back(r == e ? 1 : 0);
  }
  AttentionCall call = given("planes", Tensor::from(planes, {3, 4}));
  call.given["positions"] = integers(positions, {i64(positions.size())});
  return call;
}

std::vector<i64> labels_by_signs(const std::vector<i64>& codes, const std::vector<i64>& positions,
                                 int iterations) {
  const auto N = i64(codes.size());
  QueryKeyValue in(1, N, N, 1, 3, 2);
  for (i64 i = 0; i < N; ++i) {
    for (i64 e = 0; e < 3; ++e) {
      in.q.view<double, 4>()(0, i, 0, e) = codes[std::size_t(i)] >> e & 1 ? 0.5 : -0.5;
    }
  }
  const std::string spec =
      fmt::format("clustered:clusters={},bits=3,iterations={}", positions.size(), iterations);
  const Choices choices = chosen(spec, in.list(), by_signs(positions));
  CHECK(choices.at("hashes").to_vector<i64>() == codes);
  return choices.at("labels").to_vector<i64>();
}

using Labels = std::vector<i64>;

TEST_CASE("clusters: equal distances go to the lowest cluster, equal counts to the bit 0") {
  // 1 and 2 have the same distance from 0 as from 3.
  CHECK(labels_by_signs({0b000, 0b011, 0b001, 0b010}, {0, 1}, 1) == Labels{0, 1, 0, 0});
  CHECK(labels_by_signs({0b000, 0b011, 0b001, 0b010}, {1, 0}, 1) == Labels{1, 0, 0, 0});
  // Cluster 0 contains 000 and 001: bit 0 is 0, so that 001 has the same distance from it as from
  // 011.
  CHECK(labels_by_signs({0b000, 0b011, 0b001}, {0, 1}, 2) == Labels{0, 1, 0});
  // If the tied bit were 1, cluster 0 would be 001 and take 011 from the cluster of 111.
  CHECK(labels_by_signs({0b000, 0b001, 0b111, 0b011}, {0, 2}, 2) == Labels{0, 0, 1, 1});
}

TEST_CASE("clusters: an empty cluster keeps its code") {
  // Clusters 0 and 1 both start at 000; 0 takes all, moves to 001, and 1 gets 000 back.
  CHECK(labels_by_signs({0b000, 0b111, 0b001, 0b001}, {0, 0, 1}, 1) == Labels{0, 2, 0, 0});
  CHECK(labels_by_signs({0b000, 0b111, 0b001, 0b001}, {0, 0, 1}, 2) == Labels{1, 2, 0, 0});
  CHECK(labels_by_signs({0b000, 0b111, 0b001, 0b001}, {0, 4, 1}, 2) == Labels{1, 2, 0, 0});
}

TEST_CASE("clusters: K-means as its rule says, for any number of threads") {
  const i64 N = 500, H = 2;
  const QueryKeyValue in(1, N, N, H, 8, 2, DType::f32);
  for (const int bits : {7, 32, 33, 63}) {
    for (const int clusters : {1, 20, 100}) {
      for (const int iterations : {1, 2, 7}) {
        if (few_here() && (clusters == 20) != (iterations == 2)) continue;
        const std::string spec =
            fmt::format("clustered:clusters={},bits={},iterations={}", clusters, bits, iterations);
        const Choices choices = chosen(spec, in.list());
        for (const int team : {1, 2, 3}) {
          const ThreadsOf scope(team);
          CHECK(same_bits(chosen(spec, in.list()).at("labels"), choices.at("labels")));
        }
        for (i64 h = 0; h < H; ++h) {
          const auto row = [&](const char* name) {
            return choices.at(name).slice(1, h, h + 1).to_vector<i64>();
          };
          const std::vector<i64> codes = row("hashes");
          std::vector<i64> centroids;
          for (const i64 at : choices.at("positions").to_vector<i64>()) {
            centroids.push_back(codes[std::size_t(at)]);
          }
          CHECK(row("labels") == hamming_means(codes, centroids, iterations).back());
        }
      }
    }
  }
}

TEST_CASE("clusters: the sum of distances to the majority never rises") {
  const i64 N = 400;
  const QueryKeyValue in(1, N, N, 1, 8, 2);
  const std::vector<i64> codes = chosen("clustered", in.list()).at("hashes").to_vector<i64>();
  i64 before = 1 << 30, first = 0;
  for (int iterations = 1; iterations <= 12; ++iterations) {
    const std::vector<i64> labels =
        chosen(fmt::format("clustered:clusters=12,iterations={}", iterations), in.list())
            .at("labels")
            .to_vector<i64>();
    i64 sum = 0;
    for (i64 c = 0; c < 12; ++c) {
      const i64 size = std::count(labels.begin(), labels.end(), c);
      for (int r = 0; r < 32; ++r) {
        i64 ones = 0;
        for (std::size_t i = 0; i < codes.size(); ++i) {
          ones += labels[i] == c && (codes[i] >> r & 1);
        }
        sum += std::min(ones, size - ones);
      }
    }
    CHECK(sum <= before);
    if (iterations == 1) first = sum;
    before = sum;
  }
  CHECK(before < first);
}

TEST_CASE("clusters: positions are drawn without replacement, and padding does not matter") {
  const QueryKeyValue in(2, 90, 90, 2, 5, 3);
  const auto positions_of = [&](const std::string& spec, const std::vector<Tensor>& inputs) {
    return chosen(spec, inputs).at("positions").to_vector<i64>();
  };
  for (const int clusters : {1, 50, 90}) {
    const std::vector<i64> all =
        positions_of(fmt::format("clustered:clusters={}", clusters), in.list());
    CHECK(std::set<i64>(all.begin(), all.end()).size() == std::size_t(clusters));
    CHECK(*std::min_element(all.begin(), all.end()) >= 0);
    CHECK(*std::max_element(all.begin(), all.end()) < 90);
  }
  const std::vector<i64> more = positions_of("clustered:clusters=200", in.list());
  for (std::size_t c = 90; c < 200; ++c) CHECK(more[c] == more[c - 90]);

  AttentionCall padded;
  padded.query_lengths = lengths_of({61, 90});
  const auto cut = [](const Tensor& x) { return x.slice(0, 0, 1).slice(1, 0, 61); };
  for (const std::string spec : {"clustered:clusters=13", "clustered"}) {
    const Tensor labels = chosen(spec, in.list(), padded).at("labels");
    CHECK(same_bits(labels.slice(0, 0, 1).slice(2, 0, 61).clone(),
                    chosen(spec, {cut(in.q), cut(in.k), cut(in.v)}).at("labels")));
  }
}

TEST_CASE("clusters: planes and positions handed in give the labels again") {
  const QueryKeyValue in(2, 90, 40, 2, 5, 3);
  const Choices choices = chosen("clustered:clusters=11", in.list());
  AttentionCall call;
  call.random = {77, 8, 9};
  CHECK_FALSE(same_bits(chosen("clustered:clusters=11", in.list(), call).at("labels"),
                        choices.at("labels")));
  call.given["planes"] = choices.at("planes");
  // Positions are taken modulo the length.
  const Tensor positions = choices.at("positions").clone();
  for (i64 c = 0; c < 11; ++c) positions.data<i64>()[c] += 90 * c;
  call.given["positions"] = positions;
  const Choices again = chosen("clustered:clusters=11", in.list(), call);
  CHECK(same_bits(again.at("labels"), choices.at("labels")));
  CHECK(same_bits(again.at("hashes"), choices.at("hashes")));
}

TEST_CASE("clustered: more clusters than queries, one query, no query") {
  const QueryKeyValue in(2, 30, 40, 2, 16, 3);
  // In 16 dimensions 63 planes distinguish all queries: every one has its own cluster.
  check_close(attended("clustered:clusters=64,bits=63", in.list()), attended("full", in.list()));
  const std::vector<Tensor> one{in.q.slice(1, 0, 1), in.k, in.v};
  check_close(attended("clustered", one), attended("full", one));
  AttentionCall call;
  call.lengths = lengths_of({0, 40});
  call.query_lengths = lengths_of({30, 0});
  const Run none = attended_run("clustered", in.list(), call);
  for (const Tensor& x :
       {none.outputs[0], none.gradients[0], none.gradients[1], none.gradients[2]}) {
    CHECK(same_bits(x, Tensor::zeros(x.shape(), DType::f64)));
  }
}

TEST_CASE("clustered: bad options and choices") {
  const QueryKeyValue in(1, 6, 6, 2, 3, 2);
  CHECK_ERROR(AttentionSpec("clustered:clusters=0"), "clusters is a number in [1, 4096]");
  CHECK_ERROR(AttentionSpec("clustered:clusters=4097"), "[1, 4096], got '4097'");
  CHECK_ERROR(AttentionSpec("clustered:bits=64"), "bits is a number in [1, 63]");
  CHECK_ERROR(AttentionSpec("clustered:iterations=0"), "iterations is a number in [1, 1000]");
  const auto fails = [&](const AttentionCall& call, const char* part) {
    CHECK_ERROR(attended("clustered:clusters=4,bits=5", in.list(), call), part);
  };
  fails(given("labels", labels_of(1, 2, 6, [](auto i) { return i - 1; })),
        "the given labels[0, 0, 0] is -1; wanted 0 … 3");
  fails(given("labels", labels_of(1, 2, 6, [](auto i) { return i; })), "is 4; wanted 0 … 3");
  fails(given("labels", labels_of(1, 2, 5, [](auto) { return 0; })), "labels");
  fails(given("positions", integers({0, 1, 2}, {3})), "positions");
  fails(given("positions", integers({0, 1, 2, -7}, {4})),
        "the given positions[3] is -7; wanted at least 0");
  fails(given("planes", Tensor::zeros({5, 3}, DType::f64)), "planes");
  fails(given("planes", Tensor::zeros({5, 4}, DType::f32)), "f64");
  fails(given("hashes", Tensor::zeros({1, 2, 6}, DType::i64)), "hashes cannot be given");
}

}  // TEST_SUITE("attention")

}  // namespace
}  // namespace weft
