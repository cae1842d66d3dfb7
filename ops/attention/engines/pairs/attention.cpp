// The op on the engine for pairs. Equations: pairs.h.
#include "ops/attention/engines/pairs/attention.h"

#include "autograd/apply.h"
#include "ops/attention/engines/pairs/narrow.h"
#include "ops/attention/engines/pairs/pairs.h"
#include "ops/attention/scores.h"
#include "ops/cast/cast.h"
#include "ops/reduce/reduce.h"
#include "runtime/dispatch.h"

namespace weft {
namespace {

// Whether the kernels take bf16 as it is stored. Otherwise apply() widens it to f32: of several
// parts, of heads that are too wide, and where products of f32 stay in registers (narrow.h).
bool takes_stored(const Variable& q, std::span<const PairsSource> sources,
                  std::span<const PairsPart> parts) {
  const auto is_bf16 = [](const Variable& x) { return x.value().dtype() == DType::bf16; };
  if (parts.size() != 1 || sources.size() != 1 || !is_bf16(q)) return false;
  const PairsSource& source = sources[parts[0].source];
  if (!is_bf16(source.k) || !is_bf16(source.v)) return false;
  const i64 E = q.size(3), M = source.v.size(3);
  return dispatch_device(q.value().device(), [&]<class D>(const D& device) {
    if constexpr (std::is_same_v<D, Cpu>) {
      return !(simd::has_bf16_dot && narrow::possible<float>(E, M));
    } else {
      return std::max(E, M) <= widest_stored_head(device);
    }
  });
}

struct PairsOp {
  PairsCall call;
  std::vector<PairsPart> parts;
  std::vector<Tensor> lengths = {};     // of each source
  std::vector<i64> first_columns = {};  // of each part, in the dropout mask
  i64 columns = 0;                      // of that mask
  const char* name = call.name;

  // q, then k and v of each source, then the bias.
  struct Saved {
    std::vector<Tensor> inputs;
    Tensor out, log_sums;

    const Tensor& q() const { return inputs[0]; }
    const Tensor& k(std::size_t source) const { return inputs[1 + 2 * source]; }
    const Tensor& v(std::size_t source) const { return inputs[2 + 2 * source]; }
    const Tensor& bias() const { return inputs.back(); }
  };

  // The bias seen as [B, H, N, S].
  template <class T>
  View<const T, 4> bias_of(const Tensor& bias, const Tensor& q, const Tensor& k) const {
    const i64 B = q.size(0), N = q.size(1), H = q.size(2), S = k.size(1);
    if (call.origin < 0) return bias.expand({B, H, N, S}).view<const T, 4>();
    return by_distance(bias.expand({B, H, bias.size(1)}).view<const T, 3>(), call.origin, N, S);
  }

  template <class S>
  Pairs<S> problem(const Saved& saved, std::size_t number) const {
    using T = Accumulator<S>;
    const PairsPart& part = parts[number];
    const Tensor &q = saved.q(), &k = saved.k(part.source);
    const bool biased = part.biased && saved.bias().defined();
    return {.q = q.view<const S, 4>(),
            .k = k.view<const S, 4>(),
            .v = saved.v(part.source).view<const S, 4>(),
            .bias = biased ? bias_of<T>(saved.bias(), q, k) : View<const T, 4>{},
            .lengths = numbers_of(lengths[part.source]),
            .query_lengths = numbers_of(call.query_lengths),
            .temperature = static_cast<T>(call.temperature),
            .band = part.band,
            .lists = part.lists ? part.lists->lists() : TileLists{},
            .classes = part.classes,
            .first_key = part.first_key,
            .dropout = call.dropout,
            .random = call.random,
            .first_column = first_columns[number],
            .columns = columns};
  }

  std::array<Tensor, 1> forward(Saved& saved, std::span<const Tensor> inputs) const {
    saved.inputs.assign(inputs.begin(), inputs.end());
    const Tensor& q = saved.q();
    const i64 B = q.size(0), N = q.size(1), H = q.size(2), M = saved.v(0).size(3);
    saved.out = Tensor::empty({B, N, H, M}, q.dtype(), q.device());
    const DType sums = accumulator_of(q.dtype());
    dispatch_floating(q, [&](auto device, auto type) {
      using S = decltype(type);
      using T = Accumulator<S>;
      for (std::size_t part = 0; part < parts.size(); ++part) {
        const Tensor before = saved.log_sums;
        saved.log_sums = Tensor::empty({B, H, N}, sums, q.device());
        PairsKernels<decltype(device), S>::forward(
            device, problem<S>(saved, part),
            part > 0 ? before.view<const T, 3>() : View<const T, 3>{}, saved.out.view<S, 4>(),
            saved.log_sums.view<T, 3>());
      }
    });
    return {saved.out};
  }

  std::vector<Tensor> backward(const Saved& saved, Wants wants, const Tensor& dout) const {
    std::vector<Tensor> gradients;
    for (std::size_t input = 0; input + 1 < saved.inputs.size(); ++input) {
      gradients.push_back(Tensor::empty_like(saved.inputs[input]));
    }
    const std::size_t last = saved.inputs.size() - 1;
    Tensor dbias;
    std::vector<bool> written(lengths.size());
    dispatch_floating(dout, [&](auto device, auto type) {
      using S = decltype(type);
      using T = Accumulator<S>;
      for (std::size_t number = 0; number < parts.size(); ++number) {
        const PairsPart& part = parts[number];
        const bool biased = part.biased && saved.bias().defined() && wants[last];
        BiasGradient<T> bias_gradient{.origin = call.origin};
        if (biased) {
          const Tensor& q = saved.q();
          Shape shape{q.size(0), q.size(2), q.size(1), saved.k(part.source).size(1)};
          if (call.origin >= 0) shape = {q.size(0), q.size(2), saved.bias().size(1)};
          dbias = Tensor::zeros(shape, accumulator_of(q.dtype()), q.device());
          call.origin < 0 ? void(bias_gradient.pairs = dbias.view<T, 4>())
                          : void(bias_gradient.distances = dbias.view<T, 3>());
        }
        PairsBackwardKernels<decltype(device), S>::backward(
            device, problem<S>(saved, number), saved.out.view<const S, 4>(),
            saved.log_sums.view<const T, 3>(), dout.view<const S, 4>(),
            {.queries = number > 0, .keys = written[part.source]}, gradients[0].view<S, 4>(),
            gradients[1 + 2 * part.source].view<S, 4>(),
            gradients[2 + 2 * part.source].view<S, 4>(), bias_gradient);
        written[part.source] = true;
      }
    });
    gradients.push_back(dbias.defined() ? sum_to(dbias, saved.bias().shape()) : dbias);
    return gradients;
  }
};

struct StoredPairsOp : PairsOp {
  static constexpr bool takes_bf16 = true;
};

// Throws unless a table of D numbers by distance covers every pair of the part.
void check_distances(const PairsCall& call, const PairsPart& part, i64 N, i64 S, i64 D) {
  require(part.classes == 1, "{}: a bias by distance needs a part in place, got {} classes",
          call.name, part.classes);
  i64 least = 0, most = -1;  // of j − i
  for (i64 i = 0; i < N; ++i) {
    const i64 first = part.lists ? 0 : std::max(part.band.first.at(i), part.first_key);
    const i64 end = part.lists ? S : std::min(S, part.band.end.at(i));
    if (first >= end) continue;
    least = std::min(least, first - i);
    most = std::max(most, end - 1 - i);
  }
  require(call.origin + least >= 0 && call.origin + most < D,
          "{}: the bias has distances {} to {}, the pairs have {} to {}", call.name, -call.origin,
          D - 1 - call.origin, least, most);
}

struct Interval {
  i64 begin, end;
};

// The keys that query i sees by the band of a part of 1 or `classes` classes, counted along its
// class.
Interval keys_seen(const PairsPart& part, i64 i, i64 classes, i64 keys) {
  const i64 c = i % classes, along = part.classes == classes ? i / classes : i;
  const i64 begin = part.band.first.at(along), end = std::min(part.band.end.at(along), keys);
  const auto steps = [&](i64 j) { return j <= c ? 0 : (j - c + classes - 1) / classes; };
  if (part.classes == classes) {
    return {std::max(begin, steps(part.first_key)), std::min(end, steps(keys))};
  }
  return {steps(std::max(begin, part.first_key)), steps(end)};
}

// Refuses two bands that show a pair of the same source twice. Lists, which may be in the memory of
// a device, and parts with different numbers of classes are not checked.
void check_apart(const PairsCall& call, i64 N, i64 keys, const PairsPart& one,
                 const PairsPart& two) {
  const i64 classes = std::max(one.classes, two.classes);
  const bool comparable = std::min(one.classes, two.classes) == 1 || one.classes == two.classes;
  if (one.lists || two.lists || one.source != two.source || !comparable) return;
  for (i64 i = 0; i < N; ++i) {
    const Interval a = keys_seen(one, i, classes, keys), b = keys_seen(two, i, classes, keys);
    const i64 both = std::max(a.begin, b.begin);
    require(both >= std::min(a.end, b.end),
            "{}: query {} sees key {} in two parts; every pair may stand in one", call.name, i,
            i % classes + both * classes);
  }
}

}  // namespace

Variable pairs_attention(const PairsCall& call, const Variable& q,
                         std::span<const PairsSource> sources, std::span<const PairsPart> parts,
                         const Variable& bias) {
  PairsOp op{call, {parts.begin(), parts.end()}};
  std::vector<Variable> inputs{q};
  for (const PairsSource& source : sources) {
    op.lengths.push_back(source.lengths);
    inputs.push_back(source.k);
    inputs.push_back(source.v);
  }
  for (std::size_t two = 0; two < parts.size(); ++two) {
    for (std::size_t one = 0; one < two; ++one) {
      const i64 keys = sources[parts[one].source].k.size(1);
      check_apart(call, q.size(1), keys, parts[one], parts[two]);
    }
  }
  for (const PairsPart& part : parts) {
    op.first_columns.push_back(next_mask_columns(op.columns));
    const i64 keys = sources[part.source].k.size(1);
    op.columns = op.first_columns.back() + (keys + part.classes - 1) / part.classes;
    if (part.biased && bias.defined() && call.origin >= 0) {
      check_distances(call, part, q.size(1), keys, bias.size(1));
    }
  }
  const bool stored = takes_stored(q, sources, parts);
  inputs.push_back(stored && bias.defined() ? cast(bias, DType::f32) : bias);
  return stored ? apply_list(StoredPairsOp{op}, inputs)[0] : apply_list(op, inputs)[0];
}

Variable pairs_attention(const PairsCall& call, const Variable& q, const PairsSource& source,
                         const PairsPart& part, const Variable& bias) {
  return pairs_attention(call, q, std::span(&source, 1), std::span(&part, 1), bias);
}

double pairs_of(const PairsPart& part, i64 N, i64 keys) {
  i64 pairs = 0;
  for (i64 i = 0; i < N; ++i) {
    const Interval seen = keys_seen(part, i, part.classes, keys);
    pairs += std::max<i64>(seen.end - seen.begin, 0);
  }
  return double(pairs);
}

AttentionCost pairs_cost(const AttentionSizes& s, double pairs, DType type) {
  const double item = double(size_of(accumulator_of(type)));
  const bool is_narrow = type == DType::f32 && narrow::possible<float>(s.E, s.M);
  const i64 keys = is_narrow || type == DType::bf16 ? narrow::most_keys : tile_side;
  return {.forward_operations = 2 * pairs * double(s.E + s.M),
          .backward_operations = pairs * double(6 * s.E + 4 * s.M),
          .exponentials = 2 * pairs,
          .saved_bytes = double(s.B * s.H * s.N) * item,
          .working_bytes =
              item * double((3 * s.E + 2 * s.M + 2) * (s.N + 64) + keys * 2 * (s.E + s.M + 64)),
          .cuda_working_bytes = double(s.B * s.H * s.N) * item};
}

}  // namespace weft
