// Accuracies, singular values, and settings.
#include "apps/vision/evaluate.h"
#include "apps/vision/task.h"

#include <cmath>
#include <limits>

#include "apps/command_line/configuration.h"
#include "apps/training/accuracy.h"
#include "apps/vision/spectrum.h"
#include "ops/matmul/matmul.h"
#include "tests/check.h"
#include "tests/files.h"

using namespace weft;
using namespace weft::vision;

namespace {

// A matrix with orthonormal rows: Gram-Schmidt on random ones.
std::vector<std::vector<double>> orthonormal(i64 rows, i64 columns, std::uint64_t seed) {
  const std::vector<double> numbers =
      random_normal({rows, columns}, DType::f64, seed).to_vector<double>();
  std::vector<std::vector<double>> q;
  for (i64 i = 0; i < rows; ++i) {
    const auto from = numbers.begin() + i * columns;
    std::vector<double> row(from, from + columns);
    for (int twice = 0; twice < 2; ++twice) {
      for (const auto& other : q) {
        double product = 0;
        for (std::size_t k = 0; k < row.size(); ++k) product += row[k] * other[k];
        for (std::size_t k = 0; k < row.size(); ++k) row[k] -= product * other[k];
      }
    }
    double square = 0;
    for (const double v : row) square += v * v;
    for (double& v : row) v /= std::sqrt(square);
    q.push_back(row);
  }
  return q;
}

// Σ_k σ_k u_k v_kᵀ, [n, m]
Tensor with_singular_values(const std::vector<double>& values, i64 n, i64 m) {
  const auto r = static_cast<i64>(values.size());
  const auto u = orthonormal(r, n, 1), v = orthonormal(r, m, 2);
  std::vector<double> sum(std::size_t(n * m));
  for (std::size_t k = 0; k < values.size(); ++k) {
    for (std::size_t i = 0; i < std::size_t(n); ++i) {
      for (std::size_t j = 0; j < std::size_t(m); ++j) {
        sum[i * std::size_t(m) + j] += values[k] * u[k][i] * v[k][j];
      }
    }
  }
  return Tensor::from(sum, {n, m});
}

}  // namespace

TEST_SUITE("vision") {

TEST_CASE("top-k: counted by hand, with ties and numbers that are none") {
  const Tensor logits = Tensor::from(std::vector<float>{1, 3, 2, 0,   // label 1: first
                                                        1, 3, 2, 0,   // label 2: second
                                                        5, 5, 5, 5,   // label 0: first of equals
                                                        5, 5, 5, 5},  // label 2: third of equals
                                     {4, 4});
  const Tensor labels = Tensor::from(std::vector<i64>{1, 2, 0, 2}, {4});
  CHECK(count_top(logits, labels, 1) == 2);
  CHECK(count_top(logits, labels, 2) == 3);
  CHECK(count_top(logits, labels, 3) == 4);
  const float none = std::numeric_limits<float>::quiet_NaN();
  const Tensor broken = Tensor::from(std::vector<float>{none, none, 1, none}, {2, 2});
  CHECK(count_top(broken, Tensor::from(std::vector<i64>{0, 1}, {2}), 2) == 0);
}

TEST_CASE("top-k: an untrained model is right by chance") {
  Settings settings;
  settings.model.layers = 1;
  settings.model.width = 16;
  settings.model.hidden = 16;
  const Model model = new_model(settings);
  const PictureSet set{"builtin", {}, drawn_pictures(2, 600), {}};
  std::vector<i64> all;
  for (i64 i = 0; i < 600; ++i) all.push_back(i);
  const Measure measured = measure(model, set.test, all, [](double) {});
  CHECK(figure_of(measured, "top_1") < 25);
  CHECK(figure_of(measured, "top_5") > 30);
  CHECK(figure_of(measured, "top_5") < 70);
  CHECK_ERROR(figure_of(measured, "top_2"), "nothing measured top_2");
}

TEST_CASE("measure: means do not depend on the batches") {
  Settings settings;
  settings.model.layers = 1;
  Model model = new_model(settings);
  const Pictures pictures = drawn_pictures(2, 50);
  std::vector<i64> which;
  for (i64 i = 0; i < 50; i += 2) which.push_back(i);
  model.settings.batch = 25;
  const Measure whole = measure(model, pictures, which, [](double) {});
  model.settings.batch = 7;
  const Measure parts = measure(model, pictures, which, [](double) {});
  CHECK(std::abs(whole.loss / parts.loss - 1) < tolerance::forward_f32);
  CHECK(figure_of(whole, "top_5") == figure_of(parts, "top_5"));
}

TEST_CASE("division: validation out of training, and an error where nothing is left") {
  const PictureSet set{"builtin", drawn_pictures(1, 100), drawn_pictures(2, 10), {}};
  Settings settings;
  settings.validation = 30;
  const Parts parts = divide(set, settings);
  CHECK(parts.train.size() == 70);
  CHECK(parts.validation.size() == 30);
  CHECK(parts.test.size() == 10);
  settings.validation = 37;
  CHECK_ERROR(divide(set, settings),
              "--validation: holding out 37 of 100 training pictures leaves no "
              "batch of 64");
}

TEST_CASE("singular values: those that the matrix was made of, small ones too") {
  const std::vector<double> values{7, 3, 3, 1, 1e-3, 1e-6};
  for (const auto& [n, m] : {std::pair{6, 6}, {6, 31}, {31, 6}, {9, 14}}) {
    const std::vector<double> found = singular_values(with_singular_values(values, n, m));
    REQUIRE(found.size() == std::size_t(std::min(n, m)));
    for (std::size_t i = 0; i < found.size(); ++i) {
      const double wanted = i < values.size() ? values[i] : 0;
      CHECK(std::abs(found[i] - wanted) < 1e-14 * 7);
    }
  }
  CHECK(singular_values(Tensor::zeros({3, 4}, DType::f32)) == std::vector<double>{0, 0, 0});
  CHECK_ERROR(singular_values(Tensor::full({2, 2}, NAN, DType::f64)), "is not finite");
}

TEST_CASE("presets: the paper's numbers of parameters") {
  CHECK(presets().size() == 12);
  const auto count = [](const char* name) {
    return parameter_count(*new_model(preset(name)).network);
  };
  CHECK(count("cifar10-full") == 9'523'722);
  CHECK(count("cifar10-shift") == 6'377'994);
  CHECK(count("cifar10-sort") == 6'377'994);
  CHECK(count("cifar10-csp-wide") == 9'523'722);
  CHECK(count("cifar100-full") == 9'649'764);
  CHECK(count("cifar100-shift-heads") == 6'504'036);
  CHECK(count("cifar100-csp-wide") == 9'649'764);
  Settings small = preset("cifar10-csp");
  small.model.patch = 2;  // the paper's Table 5
  CHECK(parameter_count(*new_model(small).network) == 6'457'866);
  CHECK_ERROR(preset("cifar10-cps"), "did you mean cifar10-csp?");
}

TEST_CASE("settings: through JSON and back; by epochs the rate changes between them alone") {
  const Settings settings = preset("cifar100-csp-wide");
  const Configuration all = configuration_of(settings);
  CHECK(configuration_of(settings_from_json<Settings>(text_of(all), "x")) == all);
  const TrainOptions options = training_options(preset("cifar10-csp"), 10);
  CHECK(options.steps == 1000);
  CHECK(options.learning_rate(1) == 1e-4);
  CHECK(options.learning_rate(10) == 1e-4);
  for (const auto& [step, progress] :
       {std::pair{11, 0.01}, std::pair{501, 0.5}, std::pair{1000, 0.99}}) {
    CAPTURE(step);
    const double wanted = 0.5e-4 * (1 + std::cos(M_PI * progress));
    CHECK(options.learning_rate(step) == doctest::Approx(wanted).epsilon(1e-9).scale(0));
  }
}

}  // TEST_SUITE("vision")
