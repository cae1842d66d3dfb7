// PathFinder of Long Range Arena: two dashed curves among shorter ones, and two discs at ends of
// curves; the label is 1 where both discs are on one curve.
// D. Linsley, J. Kim, V. Veerabadran, C. Windolf, T. Serre, "Learning long-range spatial
// dependencies with horizontal gated recurrent units", NeurIPS 2018, arXiv 1805.08315, and their
// program, snakes2.py of github.com/drewlinsley/pathfinder; with the parameters of the set
// pathfinder32, "hard", of Y. Tay et al., ICLR 2021, arXiv 2011.04006, section 2.2.5: 32 × 32
// pixels, curves of 14 dashes, five distractors of 4.
//
// A dash is a line of length 2 and thickness ½. A curve is a sequence of dashes, each with a pivot
// c one pixel before it and a direction v, integer vectors with y before x. With [r]_a = a·r/|r|
// rounded to the nearest integers, and W = { v : 8 ≤ |v|² ≤ 10 }, the 16 points on the circle of
// radius 3:
//
//     c_{k+1} = c_k + [v_k]_4                                two pixels behind the end of dash k
//     P(v_{k+1} = v) ∝ max(0, cos(v, v_k))²                  over v ∈ W with c_{k+1} + v free
//     dash k+1: from its head c_{k+1} + v_{k+1} two pixels back along v_{k+1}
//
//     occupied(dash) = pixels with ¾ of their area within one pixel of its line
//     free point: it and its four neighbours are neither occupied nor in the border of one pixel
//
// A dash is drawn again, up to twice, if its own pixels are occupied or in the border; then the
// curve is given up. No dash is compared with the one before it in its curve. The targets:
//
//     tail_1 uniform in the middle 4 × 4 pixels   tail_2 = tail_1 + [r]_7   v uniform directions
//     both grow in turn to 14 dashes; if one is given up, both begin again
//
// Then five distractors, each begun at a uniform point where its first dash fits, up to five times;
// one that cannot be placed is left out. Discs of radius 1.5: one on the tail of a random target,
// one on the last head of the same target (label 1) or of the other (label 0).
//
//     value = max over marks of contrast · coverage       contrast: targets 1.5, distractors 2,
//     pixel = 255 · value / (largest value), rounded      discs 1
//
// Coverage is that of 2 × 2 samples a pixel. The published contrasts are kept: distractors are
// brighter than targets, so that the targets can be told without following them. They say nothing
// about the label. A curve is not always followed without doubt, as in the published set.
//
// Differences from the published program, whose pictures cannot be had again without its versions
// of SciPy, OpenCV and Pillow:
// - Pictures are shrunk by the mean of samples instead of Lanczos' filter: at most 9 grey levels.
//   Occupied pixels are a set instead of a grey picture.
// - All roundings are to the nearest. The program rounds candidates toward the upper left, pivots
//   toward the lower right.
// - It compares a dash with all others but the newest of both targets, which then can cross. Here
//   only the newest of its own curve is left out.
// - It wants the first dash with its margin within the middle 4 × 4 pixels, where only some
//   directions fit. Here its tail is within, and its direction is uniform.
// - Directions of first dashes are those of points of a disc, not whole degrees.
//
// A picture is a function of the seed, the part and its number in the part. It is computed in
// integers and with the square root and quotients of IEEE 754, and is the same on every machine.
#pragma once

#include <array>

#include "apps/lra/sequences.h"

namespace weft::lra {

struct Point {
  i64 y = 0, x = 0;
};

// In halves of a pixel; pixel (y, x) has the half pixels 2y, 2y + 1 and 2x, 2x + 1.
struct Dash {
  Point from;  // even: the first tail of a curve, or the dash's head
  Point reach;
};

struct PathFinderPicture {
  std::array<std::uint8_t, 1024> pixels = {};
  std::uint8_t label = 0;
  std::vector<std::vector<Dash>> curves;  // two targets, then distractors
  std::array<Point, 2> discs;             // their centres in pixels
};

// `part`: 0 to train, 1 to validate, 2 to test.
PathFinderPicture drawn_pathfinder_picture(std::uint64_t seed, std::uint32_t part,
                                           std::uint32_t number);

SequenceTask drawn_pathfinder(std::uint64_t seed, const PartCounts& counts);

}  // namespace weft::lra
