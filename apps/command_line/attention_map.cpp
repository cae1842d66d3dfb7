#include "apps/command_line/attention_map.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include <fmt/core.h>

#include "apps/command_line/settings.h"
#include "apps/data/picture.h"
#include "apps/data/unicode.h"
#include "autograd/tape.h"
#include "nn/checkpoint.h"
#include "runtime/listed.h"

namespace weft {
namespace {

constexpr int letters = 14, small_letters = 12;
constexpr Colour grey{90, 90, 90};
constexpr double decades = 4;  // range of the logarithmic scale

// A colour map from white to dark blue, even in lightness.
Colour shade(double share) {
  constexpr std::array<std::array<double, 3>, 5> stops{
      {{255, 255, 255}, {190, 215, 235}, {95, 160, 210}, {25, 95, 165}, {8, 35, 85}}};
  const double place = std::clamp(share, 0.0, 1.0) * (stops.size() - 1);
  const auto low = std::min<std::size_t>(static_cast<std::size_t>(place), stops.size() - 2);
  const auto mixed = [&](std::size_t i) {
    const double part = place - static_cast<double>(low);
    return static_cast<std::uint8_t>(
        std::lround(stops[low][i] * (1 - part) + stops[low + 1][i] * part));
  };
  return {mixed(0), mixed(1), mixed(2)};
}

// The distance between ticks, 1, 2 or 5 times a power of ten, for about six ticks.
i64 tick_step(i64 count) {
  i64 step = 1;
  for (int i = 0; step * 6 < count; ++i) step = i % 3 == 1 ? step / 2 * 5 : step * 2;
  return step;
}

// A weight's position on the colour scale, in [0, 1]; `most` is the largest weight of all maps or
// of the row. The next function is its inverse.
double share_of(const std::string& scale, double weight, double most) {
  if (weight <= 0 || most <= 0) return 0;
  if (scale == "sqrt") return std::sqrt(weight / most);
  if (scale == "log") return std::max(0.0, 1 + std::log10(weight / most) / decades);
  return weight / most;
}
double weight_at(const std::string& scale, double share, double most) {
  if (scale == "sqrt") return share * share * most;
  if (scale == "log") return most * std::pow(10, decades * (share - 1));
  return share * (scale == "row" ? 1 : most);
}

// Cells of a matrix along an axis: several cells per pixel, or several pixels per cell.
struct Axis {
  i64 cells, pooled, pixels;
  Axis(i64 count, i64 longest, i64 most_pixels)
      : cells(count),
        pooled((longest + most_pixels - 1) / most_pixels),
        pixels(std::clamp<i64>(most_pixels / longest, 1, 48)) {}
  i64 size() const { return pooled > 1 ? (cells + pooled - 1) / pooled : cells * pixels; }
  i64 place(i64 cell) const { return pooled > 1 ? cell / pooled : cell * pixels; }
  i64 width() const { return pooled > 1 ? 1 : pixels; }
};

// The token as a label of at most 12 characters, with '?' for control characters and for bytes that
// are not UTF-8.
std::string shown(const std::string& token) {
  constexpr int most = 12;
  std::string text, begin;  // all, and all but the last of the most
  int count = 0;
  for (std::size_t at = 0; at < token.size();) {
    const CodePoint c = code_point_of_any(token, at);
    if (++count == most) begin = text;
    const bool replaced = c.value < ' ' || c.value == 0x7f || c.value == 0xfffd;
    text += c.value == ' ' ? "_" : replaced ? "?" : token.substr(at, c.bytes);
    at += c.bytes;
  }
  return count <= most ? text : begin + "~";
}

bool is_one_letter(const std::string& text) {
  return !text.empty() && code_point_of_any(text, 0).bytes == text.size();
}

// Draws one picture of all maps.
class Drawing {
 public:
  Drawing(const std::vector<Tensor>& maps, const MapPicture& what)
      : what_(what),
        columns_(static_cast<i64>(std::ceil(std::sqrt(static_cast<double>(maps.size()))))),
        down_(maps[0].size(0), std::max(maps[0].size(0), maps[0].size(1)), most_pixels()),
        across_(maps[0].size(1), std::max(maps[0].size(0), maps[0].size(1)), most_pixels()) {
    for (const Tensor& map : maps) maps_.push_back(map.to(DType::f64).packed());
    for (const Tensor& map : maps_) {
      for (const double value : map.to_vector<double>()) most_ = std::max(most_, value);
    }
    const bool room = down_.pooled == 1 && down_.pixels >= small_letters - 2;
    if (room && static_cast<i64>(what.tokens.size()) == down_.cells) {
      for (const std::string& token : what.tokens) tokens_.push_back(shown(token));
    }
    for (const std::string& token : tokens_) {
      left_ = std::max(left_, text_width(token, small_letters) + 40);
    }
  }

  Picture draw() const {
    const auto count = static_cast<i64>(maps_.size());
    const i64 rows = (count + columns_ - 1) / columns_, cell_across = left_ + across_.size(),
              cell_down = down_.size() + top + bottom;
    const i64 plot = columns_ * cell_across + gap + bar + right;
    Picture picture(std::max(plot, text_width(what_.title, letters) + 40), 32 + rows * cell_down);
    picture.write(picture.width() / 2, 24, what_.title, letters, Picture::Align::centre);
    for (i64 i = 0; i < count; ++i) {
      panel(picture, static_cast<std::size_t>(i), i % columns_ * cell_across + left_,
            32 + i / columns_ * cell_down + top);
    }
    scale_bar(picture, columns_ * cell_across + gap, 32 + top);
    return picture;
  }

 private:
  static constexpr i64 top = 28, bottom = 56, gap = 24, bar = 18, right = 84;

  i64 most_pixels() const { return columns_ == 1 ? 1000 : 480; }

  void panel(Picture& picture, std::size_t map, i64 x, i64 y) const {
    picture.fill(x - 1, y - 1, across_.size() + 2, down_.size() + 2, grey);
    picture.fill(x, y, across_.size(), down_.size(), {255, 255, 255});
    cells(picture, maps_[map].view<double, 2>(), x, y);
    picture.write(x + across_.size() / 2, y - 10, fmt::format("head {}", what_.heads[map]), letters,
                  Picture::Align::centre);
    picture.write(x - 10, y - 10, "query", small_letters, Picture::Align::right);
    picture.write(x + across_.size() / 2, y + down_.size() + 42, "key", letters,
                  Picture::Align::centre);
    keys(picture, x, y + down_.size());
    queries(picture, x, y);
  }

  void cells(Picture& picture, const View<double, 2>& w, i64 x, i64 y) const {
    std::vector<double> shares(static_cast<std::size_t>(across_.size() * down_.size()), 0);
    for (i64 i = 0; i < down_.cells; ++i) {
      double most = what_.scale == "row" ? 0 : most_;
      for (i64 j = 0; what_.scale == "row" && j < across_.cells; ++j) {
        most = std::max(most, w(i, j));
      }
      for (i64 j = 0; j < across_.cells; ++j) {  // cells that share a pixel: it shows the largest
        double& share =
            shares[static_cast<std::size_t>(down_.place(i) * across_.size() + across_.place(j))];
        share = std::max(share, share_of(what_.scale, w(i, j), most));
        picture.fill(x + across_.place(j), y + down_.place(i), across_.width(), down_.width(),
                     shade(share));
      }
    }
  }

  // Labels the keys, below `y`: by their tokens if each is one character, else by their numbers.
  void keys(Picture& picture, i64 x, i64 y) const {
    const bool letter = !tokens_.empty() && down_.cells == across_.cells &&
                        std::all_of(tokens_.begin(), tokens_.end(), is_one_letter);
    const i64 step = letter ? 1 : tick_step(across_.cells);
    for (i64 j = 0; j < across_.cells; j += step) {
      const i64 at = x + across_.place(j) + across_.width() / 2;
      if (!letter) picture.fill(at, y + 1, 1, 5, grey);
      picture.write(at, y + (letter ? 15 : 20),
                    letter ? tokens_[static_cast<std::size_t>(j)] : std::to_string(j),
                    small_letters, Picture::Align::centre);
    }
  }

  void queries(Picture& picture, i64 x, i64 y) const {
    const i64 step = tokens_.empty() ? tick_step(down_.cells) : 1;
    for (i64 i = 0; i < down_.cells; i += step) {
      const i64 at = y + down_.place(i) + down_.width() / 2;
      if (tokens_.empty()) picture.fill(x - 6, at, 5, 1, grey);
      picture.write(x - 10, at + 4,
                    tokens_.empty() ? std::to_string(i) : tokens_[static_cast<std::size_t>(i)],
                    small_letters, Picture::Align::right);
    }
  }

  void scale_bar(Picture& picture, i64 x, i64 y) const {
    const i64 height = down_.size();
    for (i64 i = 0; i < height; ++i) {
      picture.fill(x, y + height - 1 - i, bar, 1,
                   shade((static_cast<double>(i) + 0.5) / static_cast<double>(height)));
    }
    for (const double share : {0.0, 0.5, 1.0}) {
      const auto up = static_cast<i64>(std::lround(share * static_cast<double>(height)));
      const double weight = weight_at(what_.scale, share, most_);
      picture.write(x + bar + 6, y + height - up + 5, fmt::format("{:.3g}", weight), small_letters);
    }
    picture.write(x, y - 10, what_.scale == "row" ? "of row" : "weight", letters);
  }

  const MapPicture& what_;
  i64 columns_;
  Axis down_, across_;
  std::vector<Tensor> maps_;  // f64
  double most_ = 0;
  std::vector<std::string> tokens_;  // row labels; empty: numbers
  i64 left_ = 72;                    // left margin of a panel, for its labels
};

// The index of the input that holds the values, which the attention matrix multiplies.
std::size_t values_of(const AttentionSpec& spec) {
  const AttentionInputs inputs = attention_inputs(spec);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].axes.ends_with(" M")) return i;
  }
  fail("--map: {} has no values", spec.text());
}

}  // namespace

std::vector<Tensor> attention_maps(const AttentionSpec& spec, const AttentionCall& call,
                                   std::span<const Variable> inputs, i64 item,
                                   const std::vector<i64>& heads) {
  const Mechanism& mechanism = spec.mechanism();
  std::vector<std::string> decided;
  for (const AttentionChoice& choice : mechanism.choices) decided.push_back(choice.name);
  require(mechanism.linear_in_values,
          "--map: the output of {} is not linear in its values, it has no attention matrix{}{}",
          mechanism.name, decided.empty() ? "" : "; what it decides is ", listed(decided));
  std::vector<Variable> variables(inputs.begin(), inputs.end());
  const std::size_t place = values_of(spec);
  const Tensor& values = inputs[place].value();
  const i64 B = values.size(0), S = values.size(1), H = values.size(2);
  const Tensor unit = Tensor::zeros({B, S, H, S}, values.dtype());
  for (i64 j = 0; j < S; ++j) unit.slice(1, j, j + 1).slice(3, j, j + 1).fill(1);
  variables[place] = unit.to(values.device());
  const Tape::Pause pause;
  const Tensor out = attend(spec, call, variables).out.value();
  std::vector<Tensor> maps;
  for (const i64 head : heads) {
    maps.push_back(out.slice(0, item, item + 1)
                       .slice(2, head, head + 1)
                       .clone()
                       .to(Device{})
                       .reshape({out.size(1), out.size(3)}));
  }
  return maps;
}

std::vector<i64> heads_named(const std::string& text, i64 count, const char* option) {
  std::vector<i64> heads;
  const auto number = [&](const std::string& word) {
    i64 head = -1;
    const auto [end, status] = std::from_chars(word.data(), word.data() + word.size(), head);
    require(status == std::errc{} && end == word.data() + word.size() && head >= 0 && head < count,
            "{}: wanted heads of 0 … {}, some of them as 0,2-3, or all; got {}", option, count - 1,
            text);
    return head;
  };
  const std::string all = fmt::format("0-{}", count - 1), list = text == "all" ? all : text;
  for (const std::string& word : parts_between(list, ',')) {
    const std::size_t dash = word.find('-', 1);
    const i64 first = number(word.substr(0, dash));
    const i64 last = dash == std::string::npos ? first : number(word.substr(dash + 1));
    require(first <= last, "{}: the heads {} run backwards", option, word);
    for (i64 head = first; head <= last; ++head) heads.push_back(head);
  }
  return heads;
}

void check_scale(const std::string& scale) {
  check_word("scale", scale, {"linear", "row", "sqrt", "log"});
}

void write_maps(const std::vector<Tensor>& maps, const MapPicture& picture,
                const std::string& path) {
  if (path.ends_with(".safetensors")) {
    const Shape& one = maps[0].shape();
    const auto count = static_cast<i64>(maps.size());
    const Tensor all = Tensor::empty({count, one[0], one[1]}, maps[0].dtype());
    for (i64 i = 0; i < count; ++i) {
      all.slice(0, i, i + 1)
          .copy_from(maps[static_cast<std::size_t>(i)].reshape({1, one[0], one[1]}));
    }
    write_checkpoint({{{"map", count == 1 ? maps[0] : all}}, {{"title", picture.title}}}, path);
    return;
  }
  require(path.ends_with(".png"), "--map {}: wanted a name that ends with .png or .safetensors",
          path);
  Drawing(maps, picture).draw().save(path);
}

}  // namespace weft
