// How far each channel is shifted: J_c by the rules of csp.h, or as given.
#pragma once

#include <cmath>
#include <cstdint>

#include "ops/attention/length.h"

namespace weft {

enum class CspShift { none, linear, power, head, custom };

struct CspShiftRule {
  CspShift shift = CspShift::linear;
  bool code = false;                // the released code's variant of the paper's rule
  i64 layer = 0, layers = 1;
  static constexpr i64 head_step = 8;

  // J of channel c, from 0, of head h among C channels, for a sequence of N > 0 positions. It is a
  // constexpr template so that device code can call it.
  template <class Integer>
  constexpr Integer operator()(Integer c, Integer h, Integer C, Integer N) const {
    // If N^x is an integer, rounding must not decide: devices differ in the last bits of the
    // result.
    constexpr double whole = 1 - 0x1p-44;
    const double place = double(layer * C + c), all = double(layers * C);
    switch (shift) {
      case CspShift::linear:
        return (code ? 2 * (c > 1 ? c - 1 : 0) : c * ((N + C - 1) / C)) % N;
      case CspShift::power:
        if (code) return Integer(std::ceil(std::pow(double(N), place / all) * whole)) % N;
        return (std::llround(std::pow(double(N), all > 1 ? place / (all - 1) : 0)) - 1) % N;
      case CspShift::head: return head_step * h % N;
      case CspShift::none:
      case CspShift::custom: break;
    }
    return 0;
  }
};

// J of every channel, for sequences of N positions or of `lengths`, given or by the rule.
struct CspShiftTable {
  CspShiftRule rule;
  i64 N = 0, heads = 1, C = 0;
  const i64* given = nullptr;    // [C], or null
  const i64* lengths = nullptr;  // as many as the table has rows, or null for one row

  template <class Integer>
  constexpr std::int32_t operator()(Integer row, Integer c) const {
    const Integer length = length_of(lengths, row, N);
    if (length == 0) return 0;
    if (given == nullptr) return static_cast<std::int32_t>(rule(c, c * heads / C, C, length));
    return static_cast<std::int32_t>((given[c] % length + length) % length);
  }
};

}  // namespace weft
