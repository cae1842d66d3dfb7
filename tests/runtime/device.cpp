// Tensors on a CUDA device, real or emulated: their device, and that copies and sums are those of
// the CPU.

#include "autograd/gradcheck.h"
#include "runtime/allocator.h"
#include "runtime/arithmetic.h"
#include "tests/check.h"
#include "tests/cuda_there.h"

namespace weft {
namespace {

constexpr Device cuda{DeviceType::cuda, 0};
constexpr DType all_types[] = {DType::f32, DType::f64, DType::bf16,
                               DType::i32, DType::i64, DType::u8};

// A tensor of each type with numbers that all of them hold.
Tensor numbers(const Shape& shape, DType type) {
  const Tensor x = Tensor::empty(shape, DType::i64);
  for (i64 i = 0; i < x.count(); ++i) x.data<i64>()[i] = i * 7 % 101;
  return x.to(type);
}

TEST_SUITE("runtime") {

TEST_CASE("device: where there is none, an error says so") {
  if (!cuda_is_there()) CHECK_ERROR(Tensor::empty({3}, DType::f32, cuda), no_cuda);
}

TEST_CASE("device: there and back, all types and shapes") {
  if (!cuda_is_there()) return;
  for (const DType type : all_types) {
    for (const Shape& shape : {Shape{}, Shape{0}, Shape{7}, Shape{3, 0, 2}, Shape{5, 33, 4}}) {
      const Tensor x = numbers(shape, type);
      const Tensor there = x.to(cuda);
      CHECK(there.device() == cuda);
      CHECK(there.dtype() == type);
      CHECK(same_bits(there.to(Device{}), x));
      CHECK(same_bits(x.to(Device{}), x));
      CHECK(there.to(cuda).same_storage(there));
    }
  }
}

TEST_CASE("device: strided copies and conversions are those of the CPU") {
  if (!cuda_is_there()) return;
  for (const DType from : all_types) {
    for (const DType to : all_types) {
      const Tensor x = numbers({4, 9, 6}, from), there = x.to(cuda);
      const auto view = [](const Tensor& t) { return t.transpose(0, 2).slice(1, 2, 7); };
      CHECK(same_bits(view(there).to(to).to(Device{}), view(x).to(to)));
      const Tensor target = Tensor::zeros({6, 9, 4}, to), far = target.to(cuda);
      view(target.transpose(0, 2)).copy_from(view(x));
      view(far.transpose(0, 2)).copy_from(view(x));  // from the CPU
      CHECK(same_bits(far.to(Device{}), target));
    }
  }
}

TEST_CASE("device: fills, sums, single elements") {
  if (!cuda_is_there()) return;
  for (const DType type : {DType::f32, DType::f64}) {
    const Tensor x = random_normal({700, 3}, type, 1), y = random_normal({700, 3}, type, 2);
    const Tensor far_x = x.to(cuda), far_y = y.to(cuda);
    CHECK(same_bits(added(far_x, far_y).to(Device{}), added(x, y)));
    add_into(far_x.slice(1, 1, 3), far_y.slice(1, 0, 2));
    add_into(x.slice(1, 1, 3), y.slice(1, 0, 2));
    CHECK(same_bits(far_x.to(Device{}), x));
    far_x.slice(0, 5, 9).fill(2.5);
    x.slice(0, 5, 9).fill(2.5);
    CHECK(same_bits(far_x.to(Device{}), x));
    CHECK(Tensor::full({1}, -3, type, cuda).item() == -3);
    CHECK(far_y.to(DType::f64).to_vector<double>() == y.to(DType::f64).to_vector<double>());
  }
}

TEST_CASE("device: memory is counted and comes again") {
  if (!cuda_is_there()) return;
  CachingAllocator& memory = allocator(cuda);
  const MemoryCounts before = memory.counts();
  const void* first = nullptr;
  {
    const Tensor x = Tensor::empty({1000}, DType::f64, cuda);
    first = x.bytes();
    CHECK(memory.counts().live >= before.live + 8000);
  }
  CHECK(memory.counts().live == before.live);
  const std::uint64_t asked = memory.counts().system_allocations;
  const Tensor again = Tensor::empty({1000}, DType::f64, cuda);
  CHECK(again.bytes() == first);
  CHECK(memory.counts().system_allocations == asked);
}

TEST_CASE("device: what cannot be") {
  if (!cuda_is_there()) return;
  CHECK_ERROR(Tensor::empty({3}, DType::f32, Device{DeviceType::cuda, 7}), "there is no device 7");
}

}  // TEST_SUITE("runtime")

}  // namespace
}  // namespace weft
