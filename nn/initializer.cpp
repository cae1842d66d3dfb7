#include "nn/initializer.h"

#include <cmath>

#include "ops/normals/normals.h"
#include "runtime/random.h"

namespace weft {
namespace {

struct Fans {
  double in, out;
};

Fans fans(const Shape& shape) {
  if (shape.rank() < 2) {
    const double count = static_cast<double>(shape.count());
    return {count, count};
  }
  double window = 1;
  for (int axis = 0; axis + 2 < shape.rank(); ++axis) window *= static_cast<double>(shape[axis]);
  return {window * static_cast<double>(shape[shape.rank() - 2]),
          window * static_cast<double>(shape.back())};
}

// FNV-1a, 64 bits (G. Fowler, L. C. Noll, K.-P. Vo).
std::uint64_t hash(const std::string& text) {
  std::uint64_t value = 0xcbf29ce484222325u;
  for (const char letter : text) {
    value = (value ^ static_cast<unsigned char>(letter)) * 0x100000001b3u;
  }
  return value;
}

// A stream with the highest bit set; the layers of a step count theirs from 0 up.
RandomKey key_of(const std::string& name, std::uint64_t seed) {
  const std::uint64_t word = hash(name);
  return {seed, static_cast<std::uint32_t>(word),
          static_cast<std::uint32_t>(word >> 32) | 0x80000000u};
}

// The name by which a parameter is drawn.
std::string drawn_name(const Initializer& initializer, const std::string& name) {
  if (initializer.like == nullptr) return name;
  const std::size_t end = name.rfind('.');
  require(end != std::string::npos && end > 0,
          "initializer: {} is no parameter of a module, which could start like '{}'", name,
          initializer.like);
  const std::size_t before = name.rfind('.', end - 1);
  const std::size_t begin = before == std::string::npos ? 0 : before + 1;
  return name.substr(0, begin) + initializer.like + name.substr(end);
}

template <class F>
void fill(const Tensor& target, const F& value_of) {
  std::vector<double> values(static_cast<std::size_t>(target.count()));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = value_of(i);
  target.copy_from(Tensor::from(values, target.shape()));
}

void fill_uniform(const Tensor& target, RandomKey key, double limit) {
  fill(target, [&](std::uint64_t i) {
    const double unit = (key.words(i / 4).word[i % 4] + 0.5) * 0x1p-32;
    return limit * (2 * unit - 1);
  });
}

}  // namespace

void draw(const Initializer& initializer, const std::string& name, std::uint64_t seed,
          const Tensor& target) {
  const RandomKey key = key_of(drawn_name(initializer, name), seed);
  const Fans fan = fans(target.shape());
  switch (initializer.kind) {
    case Initializer::zeros:
      return target.fill(0);
    case Initializer::constant:
      return target.fill(initializer.scale);
    case Initializer::uniform:
      return fill_uniform(target, key, initializer.scale);
    case Initializer::normal:
      return fill(target, [&](std::uint64_t i) {
        return initializer.scale * normal_number(key, 2, static_cast<i64>(i));
      });
    case Initializer::glorot_uniform:
      return fill_uniform(target, key, std::sqrt(6 / (fan.in + fan.out)));
    case Initializer::he_uniform:
      return fill_uniform(target, key, std::sqrt(6 / fan.in));
    case Initializer::alternating: {
      const i64 last = target.shape().back();
      return fill(target, [&](std::uint64_t i) {
        const double middle = static_cast<i64>(i) % last % 2 == 0 ? 1 : -1;
        return middle + initializer.scale * normal_number(key, 2, static_cast<i64>(i));
      });
    }
  }
  fail("initializer: {} has the unknown kind {}", name, static_cast<int>(initializer.kind));
}

void draw(const NamedBuffer& buffer, std::uint64_t seed, std::uint32_t step) {
  const Tensor& value = buffer.buffer.value;
  RandomKey key = key_of(buffer.name, seed);
  key.step ^= step;
  const Tensor drawn = Tensor::empty(value.shape(), value.dtype());
  buffer.buffer.draw(key, drawn);
  value.copy_from(drawn);
}

void redraw(std::span<const NamedBuffer> buffers, std::uint64_t seed, std::uint32_t step) {
  redraw(buffers, seed, step - 1, step);
}

void redraw(std::span<const NamedBuffer> buffers, std::uint64_t seed, std::uint32_t from,
            std::uint32_t to) {
  for (const NamedBuffer& named : buffers) {
    const i64 period = named.buffer.redraw;
    const auto drawn_at = [&](std::uint32_t step) {  // 0: by initialize()
      return step <= period ? 0 : static_cast<std::uint32_t>((step - 1) / period * period + 1);
    };
    if (period > 0 && drawn_at(from) != drawn_at(to)) draw(named, seed, drawn_at(to));
  }
}

std::string text_of(const Initializer& initializer) {
  if (initializer.like != nullptr) return fmt::format("as {}", initializer.like);
  switch (initializer.kind) {
    case Initializer::zeros:
      return "zeros";
    case Initializer::constant:
      return fmt::format("constant {}", initializer.scale);
    case Initializer::uniform:
      return fmt::format("uniform ±{}", initializer.scale);
    case Initializer::normal:
      return fmt::format("normal {}", initializer.scale);
    case Initializer::glorot_uniform:
      return "glorot uniform";
    case Initializer::he_uniform:
      return "he uniform";
    case Initializer::alternating:
      return fmt::format("1, -1, 1, ... with normal {}", initializer.scale);
  }
  return "?";
}

}  // namespace weft
