// Mechanisms from outside the tree: of plain ops, and with kernels for the CPU alone.
#include <nlohmann/json.hpp>

#include "apps/charlm/commands.h"
#include "autograd/apply.h"
#include "ops/attention/definitions.h"
#include "ops/attention/scores.h"
#include "ops/dropout/dropout.h"
#include "ops/matmul/matmul.h"
#include "ops/pointwise/pointwise.h"
#include "ops/softmax/softmax.h"
#include "ops/views/views.h"
#include "runtime/dispatch.h"
#include "tests/check.h"
#include "tests/cuda_there.h"
#include "tests/files.h"
#include "tests/json_lines.h"

namespace weft {
namespace {

// --- full attention in plain ops, whose output is a transposed view of its product; no costs, no
// kernel

Attended plain_attention(const AttentionSpec&, const AttentionCall& call,
                         std::span<const Variable> inputs) {
  const Variable q = transpose(inputs[0], 1, 2), k = transpose(inputs[1], 1, 2);
  const Variable z = scale(matmul(q, transpose(k, 2, 3)), 1 / std::sqrt(double(q.size(3))));
  const Variable a = softmax(masked(z, visibility(call, q.size(0), q.size(2), k.size(2))));
  return transpose(matmul(a, transpose(inputs[2], 1, 2)), 1, 2);
}

const Registration plain{Mechanism{.name = "test-plain",
                                   .title = "softmax attention of plain ops",
                                   .paper = "",
                                   .equations = "",
                                   .kind = Kind::composition,
                                   .inputs = query_key_value,
                                   .masks = {.causal = true},
                                   .strictly_causal = true,
                                   .scaling = "N S",
                                   .attend = plain_attention}};

// --- the mean of the values so far, with kernels for Cpu and no declaration for Cuda

template <class T>
void mean_forward(const Cpu&, View<const T, 4> v, View<T, 4> out) {
  for (i64 b = 0; b < v.size(0); ++b) {
    for (i64 h = 0; h < v.size(2); ++h) {
      for (i64 m = 0; m < v.size(3); ++m) {
        T sum = 0;
        for (i64 i = 0; i < v.size(1); ++i) {
          out(b, i, h, m) = (sum += v(b, i, h, m)) / static_cast<T>(i + 1);
        }
      }
    }
  }
}

template <class T>
void mean_backward(const Cpu&, View<const T, 4> dout, View<T, 4> dv) {
  for (i64 b = 0; b < dv.size(0); ++b) {
    for (i64 h = 0; h < dv.size(2); ++h) {
      for (i64 m = 0; m < dv.size(3); ++m) {
        T sum = 0;
        for (i64 i = dv.size(1); i-- > 0;) {
          dv(b, i, h, m) = sum += dout(b, i, h, m) / static_cast<T>(i + 1);
        }
      }
    }
  }
}

struct MeanSoFar {
  static constexpr const char* name = "test-cpu-mean";
  struct Saved {};
  Tensor forward(Saved&, const Tensor& v) const {
    const Tensor out = Tensor::empty_like(v);
    dispatch(v, [&](auto device, auto type) {
      using T = decltype(type);
      mean_forward<T>(device, v.view<const T, 4>(), out.view<T, 4>());
    });
    return out;
  }
  Tensor backward(const Saved&, const Tensor& dout) const {
    const Tensor dv = Tensor::empty_like(dout);
    dispatch(dout, [&](auto device, auto type) {
      using T = decltype(type);
      mean_backward<T>(device, dout.view<const T, 4>(), dv.view<T, 4>());
    });
    return dv;
  }
};

Attended attend_mean(const AttentionSpec&, const AttentionCall&, std::span<const Variable> inputs) {
  return apply(MeanSoFar{}, inputs[0]);
}

const Registration cpu_mean{Mechanism{.name = "test-cpu-mean",
                                      .title = "the mean of the values so far",
                                      .paper = "",
                                      .equations = "",
                                      .inputs =
                                          [](const AttentionSpec&, const AttentionSizes&) {
                                            return AttentionInputs{
                                                {.name = "v", .axes = "B N H M"}};
                                          },
                                      .masks = {.causal = true},
                                      .causal_only = true,
                                      .strictly_causal = true,
                                      .scaling = "N",
                                      .attend = attend_mean,
                                      .reference = attend_mean}};

// --- a forward whose output is not what its fact sheet says: one position is missing

const Registration cut{Mechanism{
    .name = "test-cut",
    .title = "values without the last",
    .paper = "",
    .equations = "",
    .kind = Kind::composition,
    .inputs = query_key_value,
    .scaling = "N",
    .attend = [](const AttentionSpec&, const AttentionCall&,
                 std::span<const Variable> inputs) -> Attended {
      return slice(inputs[2], 1, 0, inputs[2].size(1) - 1);
    }}};

// The training losses that a short run of charlm logs.
std::vector<double> losses(const std::string& attention, const std::string& device = "cpu") {
  const TemporaryFolder folder;
  charlm::TrainCommand command;
  charlm::Settings& s = command.settings;
  s.model = {.vocabulary = s.model.vocabulary,
             .width = 16,
             .depth = 2,
             .heads = 2,
             .length = 16,
             .attention = attention,
             .attention_dropout = 0,
             .residual_dropout = 0,
             .output_dropout = 0,
             .act = false};
  s.batch = 8;
  s.steps = 40;
  s.epoch_steps = 40;
  s.validation_batches = s.test_batches = 1;
  s.split = "90/9/1";
  s.lr = 0.01;
  command.run.out = folder.path("run");
  command.run.device = device;
  command.run.report_steps = 10;
  command.run.quiet = true;
  const int status = charlm::run_train(command);
  CHECK(status == 0);
  return logged(folder.path("run"), "train", "loss");
}

TEST_SUITE("charlm") {

TEST_CASE("a mechanism of plain ops trains as the kernel that computes the same") {
  const std::vector<double> full = losses("full"), own = losses("test-plain");
  REQUIRE(own.size() == 4);
  for (std::size_t i = 0; i < own.size(); ++i)
    CHECK(own[i] == doctest::Approx(full[i]).epsilon(1e-3));
  CHECK(own.back() < own.front() - 0.1);
  const Variable x = random_normal({1, 3, 1, 2}, DType::f64, 1);
  CHECK_ERROR(defined(AttentionSpec("test-plain"), {.causal = true}, {{x, x, x}}),
              "test-plain: its fact sheet has no `reference`, a definition in plain ops");
}

TEST_CASE("a mechanism whose output has another shape than its fact sheet says is refused") {
  const Variable x = random_normal({2, 3, 1, 4}, DType::f32, 1);
  CHECK_ERROR(attend(AttentionSpec("test-cut"), {}, {{x, x, x}}),
              "test-cut: its fact sheet says an output [2,3,1,4], its forward made [2,2,1,4]");
}

TEST_CASE("a mechanism with kernels for the CPU alone trains there, and says so elsewhere") {
  const std::vector<double> own = losses("test-cpu-mean");
  CHECK(own.back() < own.front() - 0.1);
  CHECK_GRADIENTS(
      [](std::span<const Variable> in) { return std::vector{apply(MeanSoFar{}, in[0])}; },
      std::vector{random_normal({2, 5, 2, 3}, DType::f64, 1)});
  if (!cuda_is_there()) {
    CHECK_ERROR(losses("test-cpu-mean", "cuda"), no_cuda);
    return;
  }
  CHECK_ERROR(losses("test-cpu-mean", "cuda"),
              "this op has kernels for the CPU only, none for CUDA devices; use --device cpu, or "
              "move the tensors with to(Device{}); in test-cpu-mean: [8,16,2,8]");
}

}  // TEST_SUITE("charlm")
}  // namespace
}  // namespace weft
