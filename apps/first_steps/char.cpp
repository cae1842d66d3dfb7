// Trains a universal transformer on the characters of a text file, and samples from it.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "autograd/tape.h"
#include "nn/optimizer.h"
#include "nn/universal_transformer.h"
#include "ops/pointwise/pointwise.h"

using namespace weft;

constexpr std::int64_t windows = 8, length = 64;  // B and N of a training step
using Random = std::mt19937_64;

struct Batch {
  Tensor ids, next;  // [B, N]: each character, and the one after it
};

// Windows of length + 1 characters from random positions of the text.
Batch draw_windows(const std::vector<std::int64_t>& text, Random& random) {
  std::uniform_int_distribution<std::size_t> place(0, text.size() - length - 1);
  std::vector<std::int64_t> drawn;
  for (std::int64_t b = 0; b < windows; ++b) {
    const std::int64_t* begin = text.data() + place(random);
    drawn.insert(drawn.end(), begin, begin + length + 1);
  }
  const Tensor all = Tensor::from(drawn, {windows, length + 1});
  return {all.slice(1, 0, length), all.slice(1, 1, length + 1)};
}

// Reads `prompt`, then generates `count` characters, each drawn from the model's distribution.
std::string sample(const UniversalTransformer& model, const std::string& characters,
                   const std::string& prompt, int count, Random& random) {
  UniversalTransformer::State state = model.start();
  std::vector<std::int64_t> ids;
  for (const char c : prompt) ids.push_back(std::int64_t(characters.find(c)));
  std::string written = prompt;
  for (int i = 0; i < count; ++i) {
    std::vector<float> weights = model.step(state, ids).to_vector<float>();  // logits [V]
    for (float& weight : weights) weight = std::exp(weight);
    ids = {std::discrete_distribution<std::int64_t>(weights.begin(), weights.end())(random)};
    written += characters[std::size_t(ids[0])];
  }
  return written;
}

// The text of a file; empty if it cannot be read.
std::string read_text(const std::string& path) {
  if (std::filesystem::is_directory(path)) return "";
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A whole number; 0 if the word is none.
int whole_number(const std::string& word) {
  const char* const end = word.data() + word.size();
  int number = 0;
  const auto [stop, error] = std::from_chars(word.data(), end, number);
  return error == std::errc() && stop == end ? number : 0;
}

int main(int argc, char** argv) {
  const std::string text = read_text(argc > 1 ? argv[1] : "");
  if (text.size() <= length) {
    std::fprintf(
        stderr,
        "char: wanted a text of more than %d bytes, got %zu; give a file: char FILE [STEPS]\n",
        int(length), text.size());
    return 2;
  }
  const int steps = argc > 2 ? whole_number(argv[2]) : 600;
  if (steps < 1) {
    std::fprintf(stderr, "char: wanted 1 or more STEPS, got %s\n", argv[2]);
    return 2;
  }
  std::string characters = text;  // the vocabulary: each byte that occurs, once
  std::sort(characters.begin(), characters.end());
  characters.erase(std::unique(characters.begin(), characters.end()), characters.end());
  std::vector<std::int64_t> ids;
  for (const char c : text) ids.push_back(std::int64_t(characters.find(c)));

  UniversalTransformer model({.vocabulary = std::int64_t(characters.size()),
                              .width = 64,
                              .depth = 3,
                              .heads = 4,
                              .length = length,
                              .attention = "full",
                              .encoding = "conv",
                              .output_dropout = 0},
                             1);
  const auto adam = make_optimizer("adam", parameters(model));
  Random random(1);
  for (int step = 1; step <= steps; ++step) {
    const Batch batch = draw_windows(ids, random);
    zero_gradients(model);
    Context context(true, 1, std::uint32_t(step));  // training mode; seed and step key dropout
    Tape tape;
    const UniversalTransformer::Loss loss = model.loss(context, batch.ids, batch.next);
    tape.backward(add(loss.cross_entropy, loss.penalty));
    adam->step(0.003);
    if (step % 100 == 0 || step == steps) {
      std::printf("step %d  %.3f bits a character\n", step,
                  loss.cross_entropy.value().item() / std::log(2.0));
    }
  }
  std::printf("\n%s\n", sample(model, characters, text.substr(0, 20), 400, random).c_str());
}
