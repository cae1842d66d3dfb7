#include "ops/attention/key_value_cache.h"

#include "autograd/tape.h"

namespace weft {

KeyValueCache::KeyValueCache(const AttentionSpec& spec, const AttentionSizes& s, DType type,
                             std::int64_t capacity)
    : spec_(spec), sizes_(s), type_(type), capacity_(capacity) {
  require(capacity >= 1, "{}: decoding wants room for at least one position, got {}",
          spec.mechanism().name, capacity);
}

Tensor KeyValueCache::step(std::span<const Tensor> inputs) {
  if (!k_.defined()) {
    const Device device = inputs[0].device();
    k_ = Tensor::empty({sizes_.B, capacity_, sizes_.H, sizes_.E}, type_, device);
    v_ = Tensor::empty({sizes_.B, capacity_, sizes_.H, sizes_.M}, type_, device);
  }
  const std::int64_t row = seen_++ % capacity_;
  k_.slice(1, row, row + 1).copy_from(inputs[1]);
  v_.slice(1, row, row + 1).copy_from(inputs[2]);
  const std::int64_t held = std::min(seen_, capacity_);
  const Variable list[] = {inputs[0], k_.slice(1, 0, held), v_.slice(1, 0, held)};
  const Tape::Pause pause;
  return attend(spec_, {}, list).value();
}

std::int64_t KeyValueCache::bytes() const {
  return sizes_.B * capacity_ * sizes_.H * (sizes_.E + sizes_.M) * std::int64_t(size_of(type_));
}

std::unique_ptr<DecodingState> decode_by_cache(const AttentionSpec& spec,
                                               const AttentionSizes& sizes, DType type,
                                               std::int64_t capacity) {
  return std::make_unique<KeyValueCache>(spec, sizes, type, capacity);
}

}  // namespace weft
