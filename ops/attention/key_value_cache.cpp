#include "ops/attention/key_value_cache.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "autograd/tape.h"
#include "ops/attention/engines/pairs/attention.h"
#include "ops/attention/scores.h"
#include "ops/gather/gather.h"
#include "ops/views/views.h"

namespace weft {
namespace {

class ChosenKeysCache final : public KeyValueCache {
 public:
  ChosenKeysCache(const AttentionSpec& spec, const AttentionSizes& sizes, DType type, i64 capacity,
                  KeysOfQuery keys)
      : KeyValueCache(spec, sizes, type, capacity), keys_(std::move(keys)) {}

 private:
  // Gathers the rows of every head's keys; a head with fewer keys than another repeats a row that
  // the bias hides.
  Tensor newest(std::span<const Tensor> inputs) const override {
    const i64 H = sizes_.H, oldest = seen_ - capacity_;
    std::vector<std::vector<i64>> keys;
    std::size_t most = 0;
    for (i64 h = 0; h < H; ++h) {
      keys.push_back(keys_(h, seen_ - 1));
      std::vector<i64>& list = keys.back();
      list.erase(list.begin(), std::lower_bound(list.begin(), list.end(), oldest));
      most = std::max(most, list.size());
    }
    const i64 count = static_cast<i64>(most);
    std::vector<i64> rows;           // [count, H]
    std::vector<double> hidden;      // [H, count]
    bool ragged = false;
    for (std::size_t place = 0; place < most; ++place) {
      for (const auto& list : keys) {
        rows.push_back(place < list.size() ? list[place] % capacity_ : 0);
      }
    }
    for (const auto& list : keys) {
      ragged |= list.size() < most;
      for (std::size_t place = 0; place < most; ++place) {
        hidden.push_back(place < list.size() ? 0 : -std::numeric_limits<double>::infinity());
      }
    }
    const Tensor index = Tensor::from(rows, {1, count, H, 1}).to(inputs[0].device());
    const Variable bias =
        ragged ? Tensor::from(hidden, {1, H, 1, count}).to(type_).to(inputs[0].device())
               : Variable{};
    const PairsCall call{spec_.mechanism().name.c_str(), temperature_of(spec_, sizes_.E)};
    return pairs_attention(call, inputs[0], {gather(k_, 1, index), gather(v_, 1, index)},
                           {.biased = ragged}, bias)
        .value();
  }

  KeysOfQuery keys_;
};

}  // namespace

KeyValueCache::KeyValueCache(const AttentionSpec& spec, const AttentionSizes& s, DType type,
                             i64 capacity)
    : spec_(spec), sizes_(s), type_(type), capacity_(capacity) {
  const AttentionInputs sheets = attention_inputs(spec);
  bias_ = std::find_if(sheets.begin(), sheets.end(),
                       [](const AttentionInput& input) { return input.role == Role::bias; }) -
          sheets.begin();
  require(capacity >= 1, "{}: decoding wants room for at least one position, got {}",
          spec.mechanism().name, capacity);
}

Tensor KeyValueCache::step(std::span<const Tensor> inputs) {
  if (!k_.defined()) {
    const Device device = inputs[0].device();
    k_ = Tensor::empty({sizes_.B, capacity_, sizes_.H, sizes_.E}, type_, device);
    v_ = Tensor::empty({sizes_.B, capacity_, sizes_.H, sizes_.M}, type_, device);
  }
  const Tape::Pause pause;
  const i64 n = inputs[0].size(1);
  if (n == 1) return one(inputs);
  // The last axis of a bias counts positions from the first one on.
  const auto positions = [&](i64 begin, i64 end) {
    std::vector<Tensor> part;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (!inputs[i].defined()) {
        part.emplace_back();
        continue;
      }
      part.push_back(i == bias_ ? inputs[i].slice(2, begin, end).slice(3, 0, seen_ + end - begin)
                                : inputs[i].slice(1, begin, end));
    }
    return part;
  };
  const Tensor out = Tensor::empty({sizes_.B, n, sizes_.H, sizes_.M}, type_, inputs[0].device());
  i64 done = 0;
  if (seen_ == 0) {
    done = std::min(n, capacity_);
    out.slice(1, 0, done).copy_from(prompt(positions(0, done)));
  }
  for (; done < n; ++done) {
    out.slice(1, done, done + 1).copy_from(one(positions(done, done + 1)));
  }
  return out;
}

// The first positions: causal attention among them.
Tensor KeyValueCache::prompt(std::span<const Tensor> inputs) {
  seen_ = inputs[0].size(1);
  k_.slice(1, 0, seen_).copy_from(inputs[1]);
  v_.slice(1, 0, seen_).copy_from(inputs[2]);
  const std::vector<Variable> list(inputs.begin(), inputs.end());
  return attend(spec_, {.causal = true}, list).out.value();
}

Tensor KeyValueCache::one(std::span<const Tensor> inputs) {
  const i64 row = seen_++ % capacity_;
  k_.slice(1, row, row + 1).copy_from(inputs[1]);
  v_.slice(1, row, row + 1).copy_from(inputs[2]);
  return newest(inputs);
}

Tensor KeyValueCache::newest(std::span<const Tensor> inputs) const {
  const i64 held = std::min(seen_, capacity_);
  std::vector<Variable> list = {inputs[0], k_.slice(1, 0, held), v_.slice(1, 0, held)};
  if (bias_ < inputs.size() && inputs[bias_].defined()) list.push_back(bias_of_held(inputs[bias_]));
  return attend(spec_, {}, list).out.value();
}

// Of a bias over all positions, the columns of the positions that are kept, in the order of the
// ring.
Tensor KeyValueCache::bias_of_held(const Tensor& bias) const {
  if (seen_ <= capacity_) return bias;
  const Tensor held = bias.slice(3, seen_ - capacity_, seen_);
  const i64 oldest = seen_ % capacity_;  // its row
  const Variable parts[] = {held.slice(3, capacity_ - oldest, capacity_),
                            held.slice(3, 0, capacity_ - oldest)};
  return oldest == 0 ? held : concatenate(parts, 3).value();
}

i64 KeyValueCache::bytes() const {
  return sizes_.B * capacity_ * sizes_.H * (sizes_.E + sizes_.M) * i64(size_of(type_));
}

OrderedCache::OrderedCache(const AttentionSpec& spec, const AttentionSizes& sizes, DType type,
                           i64 kept, bool whole)
    : spec_(spec), sizes_(sizes), type_(type), kept_(kept), whole_(whole) {
  require(kept >= 1, "{}: decoding wants room for at least one position, got {}",
          spec.mechanism().name, kept);
}

Tensor OrderedCache::step(std::span<const Tensor> inputs) {
  const Tape::Pause pause;
  const i64 n = inputs[0].size(1);
  const Tensor out = Tensor::empty({sizes_.B, n, sizes_.H, sizes_.M}, type_, inputs[0].device());
  for (i64 done = 0; done < n;) {
    // As many as have room; one at a time once each drops a position that those before it see.
    const i64 room = whole_ ? kept_ : std::max<i64>(kept_ - held_, 1);
    const i64 part = std::min(n - done, room);
    out.slice(1, done, done + part).copy_from(some(inputs, done, done + part));
    done += part;
  }
  return out;
}

// The outputs of new positions, at most as many as are kept.
Tensor OrderedCache::some(std::span<const Tensor> inputs, i64 begin, i64 end) {
  if (!k_.defined()) {
    const Device device = inputs[0].device();
    k_ = Tensor::empty({sizes_.B, 2 * kept_, sizes_.H, sizes_.E}, type_, device);
    v_ = Tensor::empty({sizes_.B, 2 * kept_, sizes_.H, sizes_.M}, type_, device);
  }
  const i64 n = end - begin, before = std::min(held_, kept_);
  if (held_ + n > 2 * kept_) {
    for (const Tensor& x : {k_, v_}) {
      const Tensor last = x.slice(1, held_ - before, held_).clone();
      x.slice(1, 0, before).copy_from(last);
    }
    held_ = before;
  }
  k_.slice(1, held_, held_ + n).copy_from(inputs[1].slice(1, begin, end));
  v_.slice(1, held_, held_ + n).copy_from(inputs[2].slice(1, begin, end));
  held_ += n;
  // One position sees kept_ − 1 others; several, all that are kept.
  const i64 first = std::max<i64>(held_ - n - (n == 1 ? kept_ - 1 : before), 0);
  return attended(inputs[0].slice(1, begin, end), k_.slice(1, first, held_),
                  v_.slice(1, first, held_), inputs.subspan(3));
}

i64 OrderedCache::bytes() const {
  return sizes_.B * 2 * kept_ * sizes_.H * (sizes_.E + sizes_.M) * i64(size_of(type_));
}

std::unique_ptr<DecodingState> decode_by_cache(const AttentionSpec& spec,
                                               const AttentionSizes& sizes, DType type,
                                               i64 capacity) {
  return std::make_unique<KeyValueCache>(spec, sizes, type, capacity);
}

std::unique_ptr<DecodingState> decode_by_keys(const AttentionSpec& spec,
                                              const AttentionSizes& sizes, DType type, i64 capacity,
                                              KeysOfQuery keys) {
  return std::make_unique<ChosenKeysCache>(spec, sizes, type, capacity, std::move(keys));
}

}  // namespace weft
