// Sorts over a whole CUDA device, real or emulated.
#include "runtime/cuda/algorithms.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "runtime/allocator.h"
#include "runtime/cuda/graph.h"
#include "tests/check.h"
#include "tests/cuda_there.h"

namespace weft {
namespace {

constexpr Device gpu{DeviceType::cuda, 0};

// Numbers of Key as a tensor that has their bits.
template <class Key>
Tensor tensor_of(const std::vector<Key>& keys) {
  using Signed = std::make_signed_t<Key>;
  const std::vector<Signed> bits(keys.begin(), keys.end());
  return Tensor::from(bits, {static_cast<i64>(bits.size())});
}
template <class Key>
std::vector<Key> numbers_of(const Tensor& x) {
  const auto bits = x.to_vector<std::make_signed_t<Key>>();
  return {bits.begin(), bits.end()};
}

template <class Key>
struct Pairs {
  Tensor keys, values;  // on the device

  explicit Pairs(const std::vector<Key>& from)
      : keys(tensor_of(from).to(gpu)),
        values(Tensor::empty({keys.count()}, DType::i32, gpu)) {
    restart(from);
  }
  void restart(const std::vector<Key>& from) {
    keys.copy_from(tensor_of(from));
    std::vector<std::int32_t> places(from.size());
    std::iota(places.begin(), places.end(), 0);
    values.copy_from(Tensor::from(places, values.shape()));
  }
  void sort() const {
    auto* const words = reinterpret_cast<Key*>(keys.data<std::make_signed_t<Key>>());
    sort_by_key("test", Cuda{}, keys.count(), words, values.data<std::int32_t>());
  }
  // Checks that these are the pairs of `from`, sorted by key, stable.
  void check(const std::vector<Key>& from) const {
    std::vector<std::int32_t> order(from.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
      return from[static_cast<std::size_t>(a)] < from[static_cast<std::size_t>(b)];
    });
    std::vector<Key> sorted = from;
    std::sort(sorted.begin(), sorted.end());
    CHECK(values.to_vector<std::int32_t>() == order);
    CHECK(numbers_of<Key>(keys) == sorted);
  }
};

// Keys up to `most`, that one too.
template <class Key>
std::vector<Key> random_keys(std::size_t count, Key most, unsigned seed) {
  std::mt19937_64 random(seed);
  std::uniform_int_distribution<Key> draw(0, most);
  std::vector<Key> keys(count);
  for (Key& key : keys) key = draw(random);
  return keys;
}

TEST_SUITE("runtime") {

TEST_CASE_TEMPLATE("sort_by_key: rising keys, equal ones as they were", Key, std::uint32_t,
                   std::uint64_t) {
  if (!cuda_is_there()) return;
  for (const std::size_t count : {0u, 1u, 2u, 33u, 1000u, 5000u, 70000u}) {
    for (const Key most : {Key{0}, Key{1}, Key{5}, Key{70000}, ~Key{0}}) {
      CAPTURE(count);
      CAPTURE(most);
      const std::vector<Key> keys = random_keys(count, most, static_cast<unsigned>(count + 1));
      const Pairs<Key> pairs(keys);
      pairs.sort();
      pairs.check(keys);
    }
  }
}

TEST_CASE_TEMPLATE("sort_by_key: rising and falling keys, and those of either end", Key,
                   std::uint32_t, std::uint64_t) {
  if (!cuda_is_there()) return;
  std::vector<Key> keys(3000);
  std::iota(keys.begin(), keys.end(), ~Key{0} - 2999);
  for (int times = 0; times < 2; ++times) {
    const Pairs<Key> pairs(keys);
    pairs.sort();
    pairs.check(keys);
    std::reverse(keys.begin(), keys.end());
  }
  for (std::size_t i = 0; i < keys.size(); ++i)
    keys[i] = i % 3 == 0 ? ~Key{0} : static_cast<Key>(i % 3 - 1);
  const Pairs<Key> pairs(keys);
  pairs.sort();
  pairs.check(keys);
}

TEST_CASE("sort_by_key: a captured sort sorts what stands in memory then") {
  if (!cuda_is_there()) return;
  const std::vector<std::uint64_t> first = random_keys<std::uint64_t>(3000, 400, 1);
  const std::vector<std::uint64_t> second = random_keys<std::uint64_t>(3000, ~0ull, 2);
  Pairs<std::uint64_t> pairs(first);
  CudaGraph graph(Cuda{});
  graph.run([&] { pairs.sort(); });
  pairs.check(first);
  pairs.restart(first);
  graph.capture([&] { pairs.sort(); });
  CHECK(numbers_of<std::uint64_t>(pairs.keys) == first);
  graph.replay();
  pairs.check(first);
  pairs.restart(second);
  graph.replay();
  pairs.check(second);
}

TEST_CASE("sort_by_key: scratch is counted, goes, and is about what the pairs have") {
  if (!cuda_is_there()) return;
  const std::size_t count = 100000, bytes = 8 * count;
  const Pairs<std::uint32_t> pairs(random_keys<std::uint32_t>(count, ~0u, 3));
  const std::size_t live = allocator(gpu).counts().live;
  allocator(gpu).reset_peak();
  pairs.sort();
  const MemoryCounts counts = allocator(gpu).counts();
  CHECK(counts.live == live);
  CHECK(counts.peak - live >= bytes);
  CHECK(counts.peak - live <= bytes * 5 / 4);
}

}  // TEST_SUITE("runtime")

}  // namespace
}  // namespace weft
