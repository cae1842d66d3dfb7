// Mechanisms on the emulated device under other orders of threads.
#include "tests/orders.h"

#include "tests/attention/run_attention.h"
#include "tests/attention/sample.h"
#include "tests/threads.h"

namespace weft {
namespace {

TEST_SUITE("attention") {

TEST_CASE("every mechanism: the same bits in any order of threads") {
  if (tested_device() == Device{}) return;
  const ThreadsOf one(1);
  // More positions than a tile has.
  const i64 long_N = few_on_device() ? 67 : 131;
  const AttentionSizes all[] = {{.B = 2, .N = long_N, .S = long_N, .H = 2, .E = 8, .M = 9},
                                {.B = 1, .N = 70, .S = 135, .H = 3, .E = 5, .M = 8}};
  for (const AttentionSizes& sizes : all) {
    for (const Sample& sample : samples(with_few_heads(sizes), DType::f32)) {
      CAPTURE(sample.text);
      const Run usual = sample.run();
      under_other_orders([&] { check_same_bits(sample.run(), usual); });
    }
  }
  // Longer than a block can sort.
  const std::vector<Tensor> v{normal({1, 4200, 1, 2}, 1, DType::f32)};
  const Run usual = attended_run("csp-sort:groups=1", v);
  under_other_orders([&] { check_same_bits(attended_run("csp-sort:groups=1", v), usual); });
}

TEST_CASE("pairs: bf16 has the same bits in any order of threads") {
  if (tested_device() == Device{}) return;
  const ThreadsOf one(1);
  const QueryKeyValue in(2, 135, 135, 2, 40, 16, DType::bf16);
  const AttentionCall call{.causal = true, .dropout = 0.2};
  for (const char* const spec : {"full", "local:context=30"}) {
    const auto ran = [&] {
      return run(mechanism_of(spec, call), in.list(), 17, tested_device(), DType::bf16);
    };
    const Run usual = ran();
    under_other_orders([&] { check_same_bits(ran(), usual); });
  }
}

TEST_CASE(
    "topk: keys equal to the k-th largest do not displace a larger one in any order of threads") {
  if (tested_device() == Device{}) return;
  const ThreadsOf one(1);
  // After a warp has reduced its row, 1 is the threshold; of the next 32 keys one is above it.
  const Tensor k = Tensor::full({1, 100, 1, 1}, 1, DType::f64);
  k.slice(1, 73, 74).fill(2);
  const std::vector<Tensor> inputs{Tensor::full({1, 1, 1, 1}, 1, DType::f64), k,
                                   normal({1, 100, 1, 2}, 3)};
  under_other_orders([&] {
    CHECK(chosen("topk:topk=3", inputs).at("topk").to_vector<i64>() == std::vector<i64>{0, 1, 73});
  });
}

TEST_CASE("every mechanism: heads and batch do not count along y and z of a grid") {
  if (tested_device() == Device{}) return;
  const ThreadsOf one(1);
  // As 65,537 are to 65,535.
  struct Rows {
    Rows() { emulated::set_most_rows(7); }
    ~Rows() { emulated::set_most_rows(65535); }
  };
  const AttentionSizes all[] = {{.B = 9, .N = 3, .S = 3, .H = 1, .E = 2, .M = 2},
                                {.B = 1, .N = 3, .S = 3, .H = 9, .E = 2, .M = 2},
                                {.B = 3, .N = 3, .S = 3, .H = 3, .E = 2, .M = 2},
                                {.B = 1, .N = 70, .S = 70, .H = 1, .E = 2, .M = 2}};
  for (const AttentionSizes& sizes : all) {
    for (const Sample& sample : samples(sizes, DType::f32)) {
      CAPTURE(sample.text);
      const Run usual = sample.run();
      const Rows limited;
      check_same_bits(sample.run(), usual);
    }
  }
}

// As GPUs of compute capability 8.6, 8.9 and 12.0 have it.
TEST_CASE("every mechanism: 99 KB of shared memory are enough") {
  if (tested_device() == Device{}) return;
  const ThreadsOf one(1);
  struct Less {
    Less() { emulated::set_most_shared(99 * 1024); }
    ~Less() { emulated::set_most_shared(emulated::most_shared_bytes); }
  };
  const AttentionSizes wide{.B = 1, .N = 12, .S = 12, .H = 1, .E = 72, .M = 72};
  for (const DType type : {DType::f32, DType::f64}) {
    const bool wide_type = type == DType::f64;
    for (const Sample& sample : samples(wide, type)) {
      CAPTURE(sample.text);
      const auto in_bf16 = [&] {
        return run(sample.attend(), sample.stored_in(DType::bf16), 17, tested_device(),
                   DType::bf16);
      };
      const Run usual = sample.run(), usual_bf16 = wide_type ? Run{} : in_bf16();
      const Less limited;  // tiles may be smaller, and add in another order
      check_close(sample.run(), usual, wide_type ? tolerance::forward_f64 : tolerance::forward_f32,
                  wide_type ? tolerance::backward_f64 : tolerance::backward_f32);
      if (wide_type) continue;
      const double each = tolerance::half_unit_bf16;  // each of both rounds its weights
      check_close(in_bf16(), usual_bf16, 2 * each, 2 * each);
    }
  }
}

}  // TEST_SUITE("attention")

}  // namespace
}  // namespace weft
