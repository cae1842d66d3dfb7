// --detect-anomaly: the first value that is not finite is named, whatever computes it.
#include "apps/training/anomaly.h"

#include <limits>

#include "apps/training/saved_training.h"
#include "autograd/apply.h"
#include "autograd/tape.h"
#include "doctest/doctest.h"
#include "tests/charlm/tiny.h"
#include "tests/charlm/toy.h"
#include "tests/files.h"
#include "tests/numbers.h"
#include "tests/resume.h"

using namespace weft;

namespace {

// √x, whose derivative at 0 is infinite.
struct SquareRoot {
  static constexpr const char* name = "square_root";
  struct Saved {
    Tensor y;
  };
  Tensor forward(Saved& saved, const Tensor& x) const {
    return saved.y = each(x, [](double value) { return std::sqrt(value); });
  }
  Tensor backward(const Saved& saved, const Tensor& dout) const {
    const double factor = dout.to_vector<double>()[0];
    return each(saved.y, [&](double y) { return factor / (2 * y); });
  }
  template <class F>
  static Tensor each(const Tensor& x, const F& f) {
    std::vector<double> values = x.to_vector<double>();
    for (double& value : values) value = f(value);
    return Tensor::from(values, x.shape());
  }
};

// The report for the step that computes f(x).
template <class F>
std::string anomaly(const std::vector<double>& x, const F& f) {
  const Variable leaf = Variable::leaf(Tensor::from(x, {static_cast<i64>(x.size())}));
  const AnomalyWatch watch({{"x", leaf, {}}}, 7);
  return error_of([&] {
    Tape tape;
    tape.backward(f(leaf));
  });
}

}  // namespace

TEST_SUITE("charlm") {

TEST_CASE("anomaly: the op, the step and the tensor, forward and backward") {
  const auto loss = [](const Variable& x) { return sum(exp(x)); };
  CHECK(anomaly({1, 2}, loss).empty());
  CHECK(anomaly({1, 1000, -1000}, loss) ==
        "step 7: exp (op 1): its output 0 [3] is not finite: 1 of its 3 values, the first of them, "
        "inf, at 1");
  CHECK(anomaly({1, infinite}, loss) ==
        "step 7: exp (op 1): the parameter x [2] is not finite: 1 of its 2 values, the first of "
        "them, inf, at 1");
  // A finite value whose gradient is not finite.
  const auto root = [](const Variable& x) {
    return sum(scale(apply(SquareRoot{}, scale(x, 2)), 3));
  };
  CHECK(anomaly({1, 4}, root).empty());
  CHECK(anomaly({4, 0, 1, 0}, root) ==
        "step 7: square_root, backward: the gradient of its input 0 [4] is not finite: 2 of its 4 "
        "values, the first of them, inf, at 1");
  // Two finite gradients whose sum is not.
  const auto both = [](const Variable& x) { return sum(add(scale(x, 1e308), scale(x, 1e308))); };
  CHECK(
      contains(anomaly({0}, both), "scale, backward: the gradient of the parameter x [1] is not"));
}

TEST_CASE("anomaly: the first one ends the training, on every device") {
  for (const Way& way : ways()) {
    CAPTURE(way.graph);
    for (const bool backward : {false, true}) {
      CAPTURE(backward);
      const TemporaryFolder folder;
      Toy toy(way);
      toy.options.detect_anomaly = true;
      const auto bad = [](double good, double other) {
        return [=](std::uint32_t step) { return step < 3 ? good : other; };
      };
      if (backward) {
        toy.bend = bad(0, 1e30);
      } else {
        toy.factor = bad(1, infinite);
      }
      TrainResult result;
      {
        RunFolder run(folder.path("run"), Start::fresh);
        result = toy.run(run);
      }
      CHECK(result.ending == Ending::not_finite);
      CHECK(result.steps == 3);
      CHECK(result.skipped == 0);
      const auto log = lines(read_file(folder.path("run/metrics.jsonl")));
      CHECK(log.back()["kind"] == "anomaly");
      CHECK(log.back()["step"] == 3);
      const std::string what = log.back()["what"];
      CHECK_MESSAGE(contains(what, backward ? "step 3: scale, backward: the gradient of its input 0"
                                            : "step 3: mul (op "),
                    what);
      CHECK(contains(what, backward ? "[] is not finite" : "its output 0 [] is not finite: 1 of"));
    }
  }
}

TEST_CASE("anomaly: where there is none, the same bits") {
  for (const Way& way : ways()) {
    const TemporaryFolder folder;
    float weights[2];
    for (const bool detect : {false, true}) {
      Toy toy(way);
      toy.options.detect_anomaly = detect;
      RunFolder run(folder.path(detect ? "detect" : "plain"), Start::fresh);
      CHECK(toy.run(run, "adam").ending == Ending::complete);
      weights[detect] = toy.weight();
    }
    CHECK(weights[0] == weights[1]);
    CHECK(without_times(read_file(folder.path("plain/metrics.jsonl"))) ==
          without_times(read_file(folder.path("detect/metrics.jsonl"))));
  }
}

TEST_CASE("anomaly: no mechanism makes a value that is not finite") {
  const TemporaryFolder folder;
  for (const std::string attention :
       {"full", "agglomerative", "shared-full", "shared-full:normalize_keys=1", "topk:topk=4",
        "lsh:rounds=1,chunk=4,buckets=4", "i-clustered-causal:clusters=3,topk=4",
        "conditional:length=8/full"}) {
    CAPTURE(attention);
    const ProgramRun run = charlm_program(
        tiny_model + Words{"--attention", attention, "--allow-leaky", "--steps", "3", "--act",
                           "--dropout", "0.2", "--optimizer", "adadelta", "--detect-anomaly"});
    CHECK_MESSAGE(run.status == 0, run.err);
  }
}

// What a training says that goes on, for one step, from a checkpoint whose feed_forward.weight1 has
// this element.
ProgramRun from_weight(float value, const std::string& out, const Words& more) {
  const Words words = tiny_model + more + Words{"--out", out, "--epoch-steps", "3"};
  REQUIRE(charlm_program(words + Words{"--epochs", "1"}).status == 0);
  SavedTraining saved = read_last_training(out);
  remove_training(out, name_of(saved));
  Tensor& weight = saved.model.tensors.at("block.feed_forward.weight1");
  weight = weight.clone();
  weight.data<float>()[5] = value;
  saved.best = name_of(saved);
  write_training(saved, out);
  return charlm_program(words +
                        Words{"--epochs", "2", "--resume", "--detect-anomaly", "--json-lines"});
}

TEST_CASE("anomaly: a weight of a checkpoint") {
  const TemporaryFolder folder;
  const ProgramRun run =
      from_weight(std::numeric_limits<float>::quiet_NaN(), folder.path("run"), {});
  CHECK(run.status == 4);
  CHECK_MESSAGE(contains(run.err,
                         "the parameter block.feed_forward.weight1 [16,64] is not finite: "
                         "1 of its 1024 values, the first of them, nan, at 5"),
                run.err);
  CHECK(run.err.rfind("step 4: ", 0) == 0);
  CHECK(lines(run.out).back()["kind"] == "anomaly");
}

TEST_CASE("anomaly: an overflow in bf16, by its op") {
  const TemporaryFolder folder;
  const ProgramRun run = from_weight(3.39e38f, folder.path("run"), {"--precision", "bf16"});
  CHECK(run.status == 4);
  CHECK_MESSAGE(contains(run.err, "step 4: feed_forward (op "), run.err);
  CHECK_MESSAGE(contains(run.err, " is not finite: "), run.err);
}

}  // TEST_SUITE("charlm")
