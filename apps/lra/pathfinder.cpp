#include "apps/lra/pathfinder.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>

#include "runtime/random.h"

namespace weft::lra {
namespace {

constexpr i64 size = 32, target_dashes = 14, distractor_dashes = 4, distractors = 5;
constexpr i64 dash_trials = 3, distractor_trials = 5;
constexpr std::uint8_t target_contrast = 3, distractor_contrast = 4, disc_contrast = 2;  // halves

Point operator+(Point a, Point b) { return {a.y + b.y, a.x + b.x}; }
Point operator-(Point a) { return {-a.y, -a.x}; }
Point twice(Point a) { return {2 * a.y, 2 * a.x}; }
Point halved(Point a) { return {a.y / 2, a.x / 2}; }
i64 dot(Point a, Point b) { return a.y * b.y + a.x * b.x; }

// [r]_a
Point along(Point r, double a) {
  const double norm = std::sqrt(static_cast<double>(dot(r, r)));
  return {std::lround(a * static_cast<double>(r.y) / norm),
          std::lround(a * static_cast<double>(r.x) / norm)};
}

struct Direction {
  Point v, step;  // step = [v]_4

  explicit Direction(Point v) : v(v), step(along(v, 4)) {}
};

// W
const std::vector<Direction>& circle() {
  static const std::vector<Direction> directions = [] {
    std::vector<Direction> all;
    for (i64 y = -3; y <= 3; ++y) {
      for (i64 x = -3; x <= 3; ++x) {
        if (y * y + x * x >= 8 && y * y + x * x <= 10) all.emplace_back(Point{y, x});
      }
    }
    return all;
  }();
  return directions;
}

// What a line between half pixels covers, relative to the pixel that it begins in.
struct Stencil {
  static constexpr i64 around = 3, width = 2 * around + 1;
  std::array<std::array<std::uint8_t, width>, width> covered = {};  // half pixels of each pixel
  std::array<std::uint64_t, width> occupied = {};                   // by row, bit x + around
};

Stencil stencil_of(Point reach) {
  constexpr i64 span = 2 * Stencil::width;
  bool near[span][span] = {};
  Stencil stencil;
  const i64 last = std::max<i64>(1, std::max(std::abs(reach.y), std::abs(reach.x)));
  const auto part = [&](i64 all, i64 i) {  // i all / last, rounded; halves away from the start
    return (all < 0 ? -1 : 1) * ((2 * i * std::abs(all) + last) / (2 * last));
  };
  for (i64 i = 0; i <= last; ++i) {
    const i64 y = part(reach.y, i) + 2 * Stencil::around;
    const i64 x = part(reach.x, i) + 2 * Stencil::around;
    ++stencil.covered[static_cast<std::size_t>(y / 2)][static_cast<std::size_t>(x / 2)];
    for (i64 dy = -2; dy <= 2; ++dy) {
      for (i64 dx = -2; dx <= 2; ++dx) {
        if (dy * dy + dx * dx <= 4) near[y + dy][x + dx] = true;
      }
    }
  }
  for (i64 y = 0; y < Stencil::width; ++y) {
    for (i64 x = 0; x < Stencil::width; ++x) {
      const int share = near[2 * y][2 * x] + near[2 * y][2 * x + 1] + near[2 * y + 1][2 * x] +
                        near[2 * y + 1][2 * x + 1];
      if (share >= 3) stencil.occupied[static_cast<std::size_t>(y)] |= std::uint64_t{1} << x;
    }
  }
  return stencil;
}

const Stencil& stencil(Point reach) {
  static const std::vector<Stencil> all = [] {
    std::vector<Stencil> list;
    for (i64 y = -4; y <= 4; ++y) {
      for (i64 x = -4; x <= 4; ++x) list.push_back(stencil_of({y, x}));
    }
    return list;
  }();
  return all[static_cast<std::size_t>(9 * (reach.y + 4) + reach.x + 4)];
}

bool within(Point p) { return p.y >= 0 && p.y < size && p.x >= 0 && p.x < size; }

// The occupied pixels, with the border and all pixels outside.
class Occupied {
 public:
  Occupied() {
    rows_.fill(~std::uint64_t{0});
    for (i64 y = 1; y < size - 1; ++y) {
      row(y) = ~(((std::uint64_t{1} << (size - 2)) - 1) << (around + 1));
    }
  }
  bool fits(const Dash& dash) const {
    const Point at = halved(dash.from);
    const Stencil& own = stencil(dash.reach);
    for (i64 r = 0; r < Stencil::width; ++r) {
      if ((own.occupied[static_cast<std::size_t>(r)] << at.x & row(at.y + r - around)) != 0) {
        return false;
      }
    }
    return true;
  }
  // The pixels at which a dash with this reach fits.
  std::vector<Point> fitting(Point reach) const {
    const Stencil& own = stencil(reach);
    std::vector<Point> found;
    for (i64 y = 0; y < size; ++y) {
      std::uint64_t hit = 0;
      for (i64 r = 0; r < Stencil::width; ++r) {
        const std::uint64_t there = row(y + r - around);
        for (std::uint64_t bits = own.occupied[static_cast<std::size_t>(r)]; bits != 0;
             bits &= bits - 1) {
          hit |= there >> std::countr_zero(bits);
        }
      }
      for (std::uint64_t bits = ~hit & ((std::uint64_t{1} << size) - 1); bits != 0;
           bits &= bits - 1) {
        found.push_back({y, std::countr_zero(bits)});
      }
    }
    return found;
  }
  void add(const Dash& dash) {
    const Point at = halved(dash.from);
    const Stencil& own = stencil(dash.reach);
    for (i64 r = 0; r < Stencil::width; ++r) {
      row(at.y + r - around) |= own.occupied[static_cast<std::size_t>(r)] << at.x;
    }
  }
  bool free(Point p) const {
    const auto bit = [&](i64 y, i64 x) { return row(y) >> (x + around) & 1; };
    return within(p) && !(bit(p.y, p.x) | bit(p.y - 1, p.x) | bit(p.y + 1, p.x) |
                          bit(p.y, p.x - 1) | bit(p.y, p.x + 1));
  }

 private:
  static constexpr i64 around = Stencil::around;
  std::uint64_t& row(i64 y) { return rows_[static_cast<std::size_t>(y + around)]; }
  const std::uint64_t& row(i64 y) const { return rows_[static_cast<std::size_t>(y + around)]; }

  std::array<std::uint64_t, size + 2 * around> rows_;
};

class Curve {
 public:
  // Begins with a dash from `tail`. The direction need not be in W.
  Curve(Point tail, const Direction& direction)
      : dashes_{{twice(tail), direction.step}},
        pivot_(tail + along(-direction.v, 1)),
        direction_(direction) {}

  const std::vector<Dash>& dashes() const { return dashes_; }
  const Dash& newest() const { return dashes_.back(); }
  i64 length() const { return static_cast<i64>(dashes_.size()); }
  Point tail() const { return halved(dashes_.front().from); }
  Point head() const { return halved(dashes_.back().from); }

  // Appends a dash. `others` is what the dashes occupy, without this curve's newest. Returns
  // whether there was one that fits.
  template <class Draw>
  bool extend(const Occupied& others, const Draw& draw) {
    constexpr i64 unit = 360;  // a multiple of 8, 9 and 10
    const Point pivot = pivot_ + direction_.step;
    std::array<i64, 16> up_to;
    i64 total = 0;
    for (std::size_t i = 0; i < up_to.size(); ++i) {
      const Point v = circle()[i].v;
      const i64 product = std::max<i64>(0, dot(v, direction_.v));
      if (others.free(pivot + v)) total += product * product * (unit / dot(v, v));
      up_to[i] = total;
    }
    if (total == 0) return false;
    for (i64 trial = 0; trial < dash_trials; ++trial) {
      const i64 drawn = draw(static_cast<std::uint32_t>(total));
      const Direction& direction = circle()[static_cast<std::size_t>(
          std::upper_bound(up_to.begin(), up_to.end(), drawn) - up_to.begin())];
      const Dash dash{twice(pivot + direction.v), -direction.step};
      if (!others.fits(dash)) continue;
      dashes_.push_back(dash);
      pivot_ = pivot;
      direction_ = direction;
      return true;
    }
    return false;
  }

 private:
  std::vector<Dash> dashes_;
  Point pivot_;
  Direction direction_;
};

class Drawing {
 public:
  explicit Drawing(const RandomKey& key) : key_(key) {}

  PathFinderPicture picture() {
    PathFinderPicture picture;
    Occupied occupied;
    while (!grow_targets(occupied)) {
    }
    for (i64 i = 0; i < distractors; ++i) grow_distractor(occupied);
    const std::uint32_t first = draw(2), second = draw(2);
    picture.label = first == second;
    picture.discs = {curves_[first].tail(), curves_[second].head()};
    paint(picture);
    for (const Curve& curve : curves_) picture.curves.push_back(curve.dashes());
    return picture;
  }

 private:
  std::uint32_t draw(std::uint32_t bound) {
    if (taken_ % 4 == 0) drawn_ = key_.words(taken_ / 4);
    return below(drawn_.word[taken_++ % 4], bound);
  }
  Direction draw_direction() {
    constexpr i64 radius = 64;
    for (;;) {
      const Point r{i64{draw(2 * radius + 1)} - radius, i64{draw(2 * radius + 1)} - radius};
      if (dot(r, r) > 0 && dot(r, r) <= radius * radius) return Direction(r);
    }
  }

  // Extends a curve, where `occupied` has all dashes but its newest and `other`.
  bool extend(Curve& curve, Occupied& occupied, const Dash* other) {
    const Dash before = curve.newest();
    Occupied others = occupied;
    if (other != nullptr) others.add(*other);
    if (!curve.extend(others, [&](std::uint32_t bound) { return draw(bound); })) return false;
    occupied.add(before);
    return true;
  }

  bool grow_targets(Occupied& occupied) {
    occupied = {};
    const Point middle{size / 2 - 2 + draw(4), size / 2 - 2 + draw(4)};
    Curve one(middle, draw_direction());
    const Point apart = along(draw_direction().v, 7);
    Curve two(middle + apart, draw_direction());
    Occupied with_one;
    with_one.add(one.newest());
    if (!with_one.fits(two.newest())) return false;
    for (i64 i = 1; i < target_dashes; ++i) {
      if (!extend(one, occupied, &two.newest()) || !extend(two, occupied, &one.newest())) {
        return false;
      }
    }
    occupied.add(one.newest());
    occupied.add(two.newest());
    curves_ = {std::move(one), std::move(two)};
    return true;
  }

  void grow_distractor(Occupied& occupied) {
    for (i64 trial = 0; trial < distractor_trials; ++trial) {
      const Direction direction = draw_direction();
      const std::vector<Point> tails = occupied.fitting(direction.step);
      if (tails.empty()) continue;
      Curve curve(tails[draw(static_cast<std::uint32_t>(tails.size()))], direction);
      Occupied grown = occupied;
      while (curve.length() < distractor_dashes && extend(curve, grown, nullptr)) {
      }
      if (curve.length() < distractor_dashes) continue;
      grown.add(curve.newest());
      occupied = grown;
      curves_.push_back(std::move(curve));
      return;
    }
  }

  void paint(PathFinderPicture& picture) const {
    std::array<std::uint8_t, 1024> values = {};  // in eighths
    const auto mark = [&](i64 y, i64 x, std::uint8_t value) {
      std::uint8_t& at = values[static_cast<std::size_t>(y * size + x)];
      at = std::max(at, value);
    };
    for (std::size_t i = 0; i < curves_.size(); ++i) {
      const std::uint8_t contrast = i < 2 ? target_contrast : distractor_contrast;
      for (const Dash& dash : curves_[i].dashes()) {
        const Point corner = halved(dash.from) + Point{-Stencil::around, -Stencil::around};
        const Stencil& own = stencil(dash.reach);
        for (i64 y = 0; y < Stencil::width; ++y) {
          for (i64 x = 0; x < Stencil::width; ++x) {
            const std::uint8_t covered =
                own.covered[static_cast<std::size_t>(y)][static_cast<std::size_t>(x)];
            if (covered > 0) {
              mark(corner.y + y, corner.x + x, static_cast<std::uint8_t>(contrast * covered));
            }
          }
        }
      }
    }
    for (const Point disc : picture.discs) paint_disc(disc, mark);
    const int largest = *std::max_element(values.begin(), values.end());
    for (std::size_t p = 0; p < values.size(); ++p) {
      picture.pixels[p] = static_cast<std::uint8_t>((510 * values[p] + largest) / (2 * largest));
    }
  }

  template <class Mark>
  static void paint_disc(Point centre, const Mark& mark) {
    for (i64 y = std::max<i64>(0, centre.y - 2); y <= std::min(size - 1, centre.y + 2); ++y) {
      for (i64 x = std::max<i64>(0, centre.x - 2); x <= std::min(size - 1, centre.x + 2); ++x) {
        int covered = 0;
        for (int i = 0; i < 4; ++i) {
          const Point from = twice({y - centre.y, x - centre.x}) + Point{i / 2, i % 2};
          covered += dot(from, from) <= 9;  // 1.5 pixels are three halves
        }
        mark(y, x, static_cast<std::uint8_t>(disc_contrast * covered));
      }
    }
  }

  RandomKey key_;
  std::uint64_t taken_ = 0;
  Philox drawn_ = {};
  std::vector<Curve> curves_;
};

}  // namespace

PathFinderPicture drawn_pathfinder_picture(std::uint64_t seed, std::uint32_t part,
                                           std::uint32_t number) {
  return Drawing({seed, number, part}).picture();
}

SequenceTask drawn_pathfinder(std::uint64_t seed, const PartCounts& counts) {
  SequenceTask task;
  task.source = "builtin";
  task.classes = {"two curves", "one curve"};
  task.longest = size * size;
  const std::array<std::pair<Sequences*, i64>, 3> parts = {{{&task.train, counts.train},
                                                            {&task.validation, counts.validation},
                                                            {&task.test, counts.test}}};
  for (std::uint32_t part = 0; part < 3; ++part) {
    for (i64 i = 0; i < parts[part].second; ++i) {
      const PathFinderPicture picture =
          drawn_pathfinder_picture(seed, part, static_cast<std::uint32_t>(i));
      parts[part].first->add(picture.pixels, picture.label);
    }
  }
  return task;
}

}  // namespace weft::lra
