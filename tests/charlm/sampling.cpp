// How tokens are drawn: temperature, then the top_k largest, then the nucleus of top_p.
#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/core.h>

#include "apps/language/model.h"
#include "tests/check.h"
#include "tests/program.h"

using namespace weft;

namespace {

const std::vector<float> logits = {0.3f, -1.2f, 2.0f, 0.9f, -0.4f, 1.7f, 0.0f, 1.1f, -2.5f, 0.6f};

// The probabilities, by the definition: each cut is renormalised.
std::vector<double> probabilities(const SamplingOptions& o, std::size_t first) {
  std::vector<double> p(logits.size(), 0.0);
  for (std::size_t i = first; i < p.size(); ++i) p[i] = std::exp(logits[i] / o.temperature);
  const auto normalise = [&] {
    const double sum = std::accumulate(p.begin(), p.end(), 0.0);
    for (double& x : p) x /= sum;
  };
  const auto keep = [&](std::size_t count) {
    std::vector<double> sorted = p;
    std::sort(sorted.rbegin(), sorted.rend());
    for (double& x : p) x = x >= sorted[count - 1] ? x : 0;
    normalise();
  };
  normalise();
  if (o.top_k > 0) keep(std::min(p.size() - first, static_cast<std::size_t>(o.top_k)));
  std::vector<double> sorted = p;
  std::sort(sorted.rbegin(), sorted.rend());
  std::size_t count = 0;
  for (double sum = 0; count < p.size() && sum < o.top_p && sorted[count] > 0;) {
    sum += sorted[count++];
  }
  keep(count);
  return p;
}

}  // namespace

TEST_SUITE("charlm") {

TEST_CASE("sampling: a prompt read at once gives what token by token gives") {
  for (const char* encoding : {"position", "conv"}) {
    for (const char* attention : {"full", "agglomerative", "topk:topk=3"}) {
      CAPTURE(encoding);
      CAPTURE(attention);
      const UniversalTransformer network({.vocabulary = 7,
                                          .width = 8,
                                          .depth = 2,
                                          .heads = 2,
                                          .length = 10,
                                          .attention = attention,
                                          .encoding = encoding,
                                          .conv_width = 3},
                                         1);
      std::vector<i64> prompt;
      for (i64 i = 0; i < 37; ++i) prompt.push_back(i * i % 7);  // longer than the model
      Generator stepped(network), at_once(network);
      Tensor wanted;
      for (const i64 id : prompt) wanted = stepped.read(id);
      CHECK(relative_error(at_once.read(prompt), wanted) < tolerance::forward_f32_long);
      // Both are at the same position.
      for (const i64 id : {3, 1, 6}) {
        const Tensor next = stepped.read(id);
        CHECK(relative_error(at_once.read(id), next) < tolerance::forward_f32_long);
      }
    }
  }
}

TEST_CASE("sampling: what is drawn follows the definition") {
  const Tensor values = Tensor::from(logits, {10});
  struct Case {
    SamplingOptions options;
    std::size_t left;  // how many can be drawn
  };
  const Case cases[] = {{{.temperature = 0.7}, 10},
                        {{.top_k = 4}, 4},
                        {{.top_p = 0.5}, 2},
                        {{.temperature = 2, .top_p = 0.5}, 3},  // flatter: more of them
                        {{.temperature = 0.8, .top_k = 3, .top_p = 0.8}, 2},
                        {{.top_p = 1e-9}, 1}};
  for (const auto& [options, left] : cases) {
    CAPTURE(fmt::format("{} {} {}", options.temperature, options.top_k, options.top_p));
    for (const std::size_t first : {0u, 1u}) {
      const std::vector<double> wanted = probabilities(options, first);
      const auto possible =
          std::count_if(wanted.begin(), wanted.end(), [](double p) { return p > 0; });
      if (first == 0) CHECK(static_cast<std::size_t>(possible) == left);
      constexpr int draws = 20'000;
      std::vector<int> seen(wanted.size(), 0);
      for (int i = 0; i < draws; ++i) {
        const i64 id =
            draw(values, options, static_cast<i64>(first), static_cast<std::uint64_t>(i));
        ++seen[static_cast<std::size_t>(id)];
      }
      for (std::size_t i = 0; i < wanted.size(); ++i) {
        const double p = wanted[i], deviation = std::sqrt(draws * p * (1 - p));
        CHECK(std::abs(seen[i] - draws * p) <= 5 * deviation);  // exactly 0 where p is
      }
    }
  }
}

TEST_CASE("sampling: texts of one seed differ, and the first is what it was alone") {
  const Tensor values = Tensor::from(logits, {10});
  const auto drawn = [&](const SamplingOptions& options) {
    std::vector<i64> ids;
    for (std::uint64_t i = 0; i < 50; ++i) ids.push_back(draw(values, options, 0, i));
    return ids;
  };
  CHECK(drawn({.seed = 3}) == drawn({.seed = 3, .sample = 0}));
  CHECK(drawn({.seed = 3}) != drawn({.seed = 3, .sample = 1}));
  CHECK(drawn({.seed = 3, .sample = 1}) != drawn({.seed = 3, .sample = 2}));
  CHECK(drawn({.seed = 3, .sample = 1}) != drawn({.seed = 4}));
}

TEST_CASE("sampling: --samples writes several, each below its heading" * not_sanitized()) {
  const TemporaryFolder folder;
  for (const char* name : {"charlm", "wordlm"}) {
    const std::string program = built(std::string("apps/") + name), out = folder.path(name);
    Words train = {"--out", out, "--batch", "2", "--length", "16", "--width", "16", "--heads", "2",
                   "--steps", "3", "--quiet"};
    if (name == std::string("charlm")) {
      train = train + Words{"--validation-batches", "1", "--test-batches", "1"};
    }
    const ProgramRun trained = run_program(program, train);
    REQUIRE_MESSAGE(trained.status == 0, trained.err);
    const auto sample = [&](const Words& more) {
      return run_program(program, Words{"sample", "--checkpoint", out, "--tokens", "30",
                                        "--prompt", "the ", "--seed", "7"} + more);
    };
    const std::string one = sample({}).out;
    const ProgramRun run = sample({"--samples", "3"});
    REQUIRE_MESSAGE(run.status == 0, run.err);
    std::vector<std::string> texts;
    std::size_t at = 0;
    for (int i = 1; i <= 3; ++i) {
      const std::string heading = fmt::format("--- sample {} of 3 ---\n", i);
      REQUIRE(run.out.substr(at).starts_with(heading));
      const std::size_t begin = at + heading.size();
      at = i < 3 ? run.out.find(fmt::format("--- sample {} of 3 ---\n", i + 1)) : run.out.size();
      REQUIRE(at != std::string::npos);
      texts.push_back(run.out.substr(begin, at - begin));
    }
    CHECK(texts[0] == one);
    CHECK(texts[1] != texts[0]);
    CHECK(texts[2] != texts[1]);
    CHECK(sample({"--samples", "3"}).out == run.out);
    CHECK(sample({"--top-p", "1e-9"}).out == sample({"--temperature", "0"}).out);
    check_refused(sample({"--samples", "0"}), "--samples: wanted a number of at least 1");
    for (const char* bad : {"0", "1.5", "-1", "nan"}) {
      check_refused(sample({"--top-p", bad}), "--top-p: wanted a number above 0");
    }
  }
}

}  // TEST_SUITE("charlm")
