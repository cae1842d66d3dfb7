// Draws and decisions of the clustering of queries, and its definition by plain loops; the rules
// are in clusters.h.
#include "ops/attention/clustered/clusters.h"

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <numeric>

#include "ops/attention/definitions.h"
#include "ops/matmul/matmul.h"
#include "ops/normals/normals.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "ops/select/sort_rows.h"
#include "ops/views/views.h"
#include "runtime/dispatch.h"

namespace weft {
namespace {

Tensor drawn_planes(const RandomKey& random, i64 bits, i64 E, const Tensor& like) {
  const Tensor planes = Tensor::empty({bits, E + 1}, like.dtype(), like.device());
  draw_normals(random.further(DrawPurpose::planes), 2, planes);
  return planes;
}

// C of the positions 0 … length − 1 without replacement, from the first again if C > length.
std::vector<i64> drawn_positions(const RandomKey& random, i64 length, i64 clusters) {
  const RandomKey key = random.further(DrawPurpose::positions);
  std::vector<i64> order(static_cast<std::size_t>(std::max<i64>(length, 1)));
  std::iota(order.begin(), order.end(), i64{0});
  const std::size_t drawn = std::min(order.size(), static_cast<std::size_t>(clusters));
  for (std::size_t i = 0; i < drawn; ++i) {
    const auto left = static_cast<std::uint32_t>(order.size() - i);
    std::swap(order[i], order[i + below(key.words(i).word[0], left)]);
  }
  std::vector<i64> positions;
  for (std::size_t c = 0; c < static_cast<std::size_t>(clusters); ++c) {
    positions.push_back(order[c % order.size()]);
  }
  return positions;
}

// The draws of a call, or the given ones.
struct Draws {
  Tensor planes;     // [bits, E + 1], of q's type
  Tensor positions;  // [B, C] i64, below the item's length
  Tensor longest;    // [C] i64, those of the longest item: what is reported

  Draws(const AttentionSpec& spec, const AttentionCall& call, const Tensor& lengths,
        const Tensor& q) {
    const Mechanism& mechanism = spec.mechanism();
    const i64 B = q.size(0), N = q.size(1), E = q.size(3);
    const i64 C = spec.integer("clusters"), bits = spec.integer("bits");
    planes = given_choice(mechanism, call, "planes", {bits, E + 1}, q.dtype());
    if (!planes.defined()) planes = drawn_planes(call.random, bits, E, q);
    if (spec.integer("hash_bias") == 0) {
      planes = planes.clone();
      planes.slice(1, E, E + 1).fill(0);
    }
    const Tensor given = given_choice(mechanism, call, "positions", {C});
    positions = Tensor::empty({B, C}, DType::i64);
    std::map<i64, std::vector<i64>> by_length;
    const auto of_length = [&](i64 length) -> const std::vector<i64>& {
      std::vector<i64>& drawn = by_length[length];
      if (drawn.empty()) drawn = drawn_positions(call.random, length, C);
      return drawn;
    };
    i64 most = B == 0 ? N : 0;
    for (i64 b = 0; b < B; ++b) {
      const i64 length = length_of(lengths, b, N);
      most = std::max(most, length);
      for (i64 c = 0; c < C; ++c) {
        positions.data<i64>()[b * C + c] = given.defined()
                                               ? given.data<i64>()[c] % std::max<i64>(length, 1)
                                               : of_length(length)[static_cast<std::size_t>(c)];
      }
    }
    if (call.chosen != nullptr) {
      longest = given.defined() ? given : Tensor::from(of_length(most), {C});
    }
  }
};

// Labels that the caller gave; undefined if there are none.
Tensor given_labels(const AttentionSpec& spec, const AttentionCall& call, const Tensor& q) {
  return given_choice(spec.mechanism(), call, "labels", {q.size(0), q.size(2), q.size(1)});
}

template <class T>
QueryClusters<T> problem(const AttentionSpec& spec, const Tensor& lengths, const Tensor& q,
                         const Draws& draws) {
  return {q.view<const T, 4>(), draws.planes.view<const T, 2>(), draws.positions.data<i64>(),
          numbers_of(lengths),  spec.integer("clusters"),        spec.integer("iterations")};
}

}  // namespace

std::vector<OptionSheet> cluster_options() {
  const auto whole = [](const char* name, const char* initial, const char* help, double least,
                        double most, std::vector<std::string> tried) {
    return OptionSheet{.name = name, .initial = initial, .help = help, .least = least, .most = most,
                       .tried = std::move(tried)};
  };
  return {whole("clusters", "100", "groups of queries in each head", 1, double(most_clusters),
                {"1", "7"}),
          whole("bits", "32", "random planes that hash a query", 1, double(most_hash_bits), {"63"}),
          whole("iterations", "10", "assignments of K-means", 1, 1000, {"1"}),
          flag_option("hash_bias", true, "1: planes with random thresholds; 0: through the origin"),
          temperature_option()};
}

std::vector<AttentionChoice> cluster_choices() {
  return {{.name = "planes", .shape = "bits E+1", .integer = false},
          {.name = "positions",
           .shape = "C",
           .sizes = [](const AttentionSpec& spec,
                       const AttentionSizes&) { return Shape{spec.integer("clusters")}; },
           .values = [](const ChoicePlace&) { return AttentionChoice::unbounded; }},
          {.name = "labels",
           .shape = "B H N",
           .sizes = [](const AttentionSpec&,
                       const AttentionSizes& s) { return Shape{s.B, s.H, s.N}; },
           .values =
               [](const ChoicePlace& at) {
                 const Tensor& lengths = at.call.causal ? at.call.lengths : at.call.query_lengths;
                 return at.place[2] < length_of(lengths, at.place[0], at.sizes.N)
                            ? at.spec.integer("clusters")
                            : AttentionChoice::no_such_element;
               }},
          {.name = "hashes", .shape = "B H N", .accepted = false}};
}

namespace {

Tensor decide_labels(const Cpu&, const AttentionSpec& spec, const AttentionCall& call,
                     const Tensor& lengths, const Tensor& q) {
  const bool reporting = call.chosen != nullptr;
  const Tensor given = given_labels(spec, call, q);
  if (given.defined() && !reporting) return given.to(DType::i32);
  const Draws draws(spec, call, lengths, q);
  const Shape shape{q.size(0), q.size(2), q.size(1)};
  const Tensor labels = given.defined() ? given.to(DType::i32) : Tensor::empty(shape, DType::i32);
  const Tensor hashes = reporting ? Tensor::empty(shape, DType::i64) : Tensor{};
  dispatch(q, [&](auto, auto type) {
    using T = decltype(type);
    ClusterKernels<Cpu, T>::cluster(
        {}, problem<T>(spec, lengths, q, draws),
        given.defined() ? View<std::int32_t, 3>{} : labels.view<std::int32_t, 3>(),
        reporting ? hashes.view<i64, 3>() : View<i64, 3>{});
  });
  if (reporting) {
    report_choice(call, "planes", draws.planes);
    report_choice(call, "positions", draws.longest);
    report_choice(call, "labels", labels.to(DType::i64));
    report_choice(call, "hashes", hashes);
  }
  return labels;
}

// The draws of a call on a CUDA device, or the given ones.
struct DeviceDraws {
  Tensor planes;     // [bits, E + 1], of q's type
  Tensor positions;  // [B + 1, C] i64; the last row is that of the longest item
  Tensor given;      // positions that the caller gave

  template <class Device>
  DeviceDraws(const Device& device, const AttentionSpec& spec, const AttentionCall& call,
              const Tensor& lengths, const Tensor& q) {
    const Mechanism& mechanism = spec.mechanism();
    const i64 B = q.size(0), E = q.size(3);
    const i64 C = spec.integer("clusters"), bits = spec.integer("bits");
    planes = given_choice(mechanism, call, "planes", {bits, E + 1}, q.dtype());
    const bool drawn = !planes.defined();
    if (drawn) planes = drawn_planes(call.random, bits, E, q);
    if (spec.integer("hash_bias") == 0) {
      if (!drawn) planes = planes.clone();
      planes.slice(1, E, E + 1).fill(0);
    }
    given = given_choice(mechanism, call, "positions", {C});
    positions = Tensor::empty({B + 1, C}, DType::i64, q.device());
    ClusterChoiceKernels<Device>::draw_positions(
        device,
        {call.random, given.defined() ? given.data<i64>() : nullptr, numbers_of(lengths), B,
         q.size(1), C},
        positions.data<i64>());
  }

  Tensor longest() const {
    if (given.defined()) return given;
    const i64 B = positions.size(0) - 1;
    return positions.slice(0, B, B + 1).reshape({positions.size(1)}).clone();
  }
};

// For q on a CUDA device: nothing is read back.
template <class Device>
Tensor decide_labels(const Device& device, const AttentionSpec& spec, const AttentionCall& call,
                     const Tensor& lengths, const Tensor& q) {
  const Tensor given = given_labels(spec, call, q);
  if (given.defined() && call.chosen == nullptr) return given.to(DType::i32);
  const Shape shape{q.size(0), q.size(2), q.size(1)};
  const Tensor labels =
      given.defined() ? given.to(DType::i32) : Tensor::empty(shape, DType::i32, q.device());
  const DeviceDraws draws(device, spec, call, lengths, q);
  const Tensor hashes = Tensor::empty(shape, DType::i64, q.device());
  dispatch(q, [&](auto, auto type) {
    using T = decltype(type);
    ClusterKernels<Device, T>::cluster(
        device,
        {q.view<const T, 4>(), draws.planes.view<const T, 2>(), draws.positions.data<i64>(),
         numbers_of(lengths), spec.integer("clusters"), spec.integer("iterations")},
        given.defined() ? View<std::int32_t, 3>{} : labels.view<std::int32_t, 3>(),
        hashes.view<i64, 3>());
  });
  if (call.chosen != nullptr) {
    report_choice(call, "planes", draws.planes);
    report_choice(call, "positions", draws.longest());
    report_choice(call, "labels", labels.to(DType::i64));
    report_choice(call, "hashes", hashes);
  }
  return labels;
}

// K-means by the rule, over the hashes of one batch item and head.
std::vector<i64> means_of(const std::vector<std::uint64_t>& hashes,
                          std::vector<std::uint64_t> centroids, i64 iterations) {
  std::vector<i64> labels(hashes.size());
  for (i64 t = 0; t < iterations; ++t) {
    std::vector<std::array<i64, 64>> more(centroids.size());  // ones minus zeros
    std::vector<i64> sizes(centroids.size());
    for (std::size_t i = 0; i < hashes.size(); ++i) {
      const auto nearest =
          std::min_element(centroids.begin(), centroids.end(), [&](auto a, auto b) {
            return std::popcount(hashes[i] ^ a) < std::popcount(hashes[i] ^ b);
          });
      labels[i] = nearest - centroids.begin();
      const auto c = static_cast<std::size_t>(labels[i]);
      ++sizes[c];
      for (std::size_t r = 0; r < 64; ++r) more[c][r] += (hashes[i] >> r & 1) != 0 ? 1 : -1;
    }
    if (t + 1 == iterations) break;
    for (std::size_t c = 0; c < centroids.size(); ++c) {
      if (sizes[c] == 0) continue;
      centroids[c] = 0;
      for (std::size_t r = 0; r < 64; ++r) centroids[c] |= std::uint64_t{more[c][r] > 0} << r;
    }
  }
  return labels;
}

}  // namespace

Tensor decide_labels(const AttentionSpec& spec, const AttentionCall& call, const Tensor& lengths,
                     const Tensor& q) {
  return dispatch_device(q.device(), [&](auto device) {
    return decide_labels(device, spec, call, lengths, q);
  });
}

Tensor reference_labels(const AttentionSpec& spec, const AttentionCall& call, const Tensor& lengths,
                        const Tensor& q) {
  if (const Tensor given = given_labels(spec, call, q); given.defined()) return given;
  const Draws draws(spec, call, lengths, q);
  const i64 B = q.size(0), N = q.size(1), H = q.size(2), E = q.size(3);
  const i64 C = spec.integer("clusters");
  const Tensor labels = Tensor::zeros({B, H, N}, DType::i64);
  const Tensor wide = q.to(DType::f64), planes = draws.planes.to(DType::f64);
  const View<double, 4> x = wide.view<double, 4>();
  const View<double, 2> plane = planes.view<double, 2>();
  for (i64 row = 0; row < B * H; ++row) {
    std::vector<std::uint64_t> hashes;
    for (i64 i = 0; i < length_of(lengths, row / H, N); ++i) {
      std::uint64_t code = 0;
      for (i64 r = 0; r < plane.size(0); ++r) {
        double product = 0;
        for (i64 e = 0; e < E; ++e) product += x(row / H, i, row % H, e) * plane(r, e);
        if (product > plane(r, E)) code |= std::uint64_t{1} << r;
      }
      hashes.push_back(code);
    }
    if (hashes.empty()) continue;
    std::vector<std::uint64_t> centroids;
    for (i64 c = 0; c < C; ++c) {
      const i64 position = draws.positions.data<i64>()[row / H * C + c];
      centroids.push_back(hashes[static_cast<std::size_t>(position)]);
    }
    const std::vector<i64> found = means_of(hashes, centroids, spec.integer("iterations"));
    std::copy(found.begin(), found.end(), labels.data<i64>() + row * N);
  }
  return labels;
}

Tensor membership(const Tensor& labels, const Tensor& lengths, i64 clusters, DType type) {
  const i64 B = labels.size(0), H = labels.size(1), N = labels.size(2);
  const Tensor belongs = Tensor::zeros({B, H, N, clusters}, DType::f64);
  for (i64 row = 0; row < B * H; ++row) {
    for (i64 i = row * N; i < row * N + length_of(lengths, row / H, N); ++i) {
      belongs.data<double>()[i * clusters + labels.data<i64>()[i]] = 1;
    }
  }
  return belongs.to(type);
}

Variable means_of_members(const Tensor& membership, const Variable& q) {
  const Variable g = membership, members = column(sum(g, 2));  // n_c, [B, H, C, 1]
  const Variable one = Tensor::full({}, 1, q.value().dtype());
  return div(matmul(transpose(g, 2, 3), q), maximum(members, one));
}

double hash_operations(const AttentionSpec& spec, const AttentionSizes& s) {
  return 2 * double(s.B * s.N * s.H) * double(s.E * spec.integer("bits"));
}

double cluster_bytes(const AttentionSpec& spec, const AttentionSizes& s, DType type) {
  const double item = double(size_of(type)), C = spec.number("clusters"), E = double(s.E);
  const double bits = spec.number("bits"), words = bits <= 32 ? 1 : 2;
  const double width = std::max(bits, 8.0);
  return item * (bits * (E + 1) + width * (E + 1 + 64)) + 8 * double(s.B) * C +
         4 * words * double(s.N) + 4 * C * (33 * words + 1);
}

double cuda_cluster_bytes(const AttentionSpec& spec, const AttentionSizes& s, DType type) {
  const double item = double(size_of(type)), C = spec.number("clusters");
  return item * spec.number("bits") * double(s.E + 1) + 8 * double(s.B + 1) * C +
         8 * double(s.B * s.H * s.N);
}

double cuda_order_bytes(const AttentionSpec& spec, const AttentionSizes& s, double others) {
  const double heads = double(s.B * s.H), N = double(s.N);
  const double sorted = 4 * heads * (N + spec.number("clusters") + 1);
  return sorted + std::max(others, sort_rows_bytes(heads * N));
}

}  // namespace weft
