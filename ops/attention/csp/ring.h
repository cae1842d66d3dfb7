// The part of the columns of a block of channels that a tile needs.
//
// Channel i is shifted by J_i. Counted from a shift J, its delay is d_i = (J_i − J) mod N, and
//
//     shifted_i(n) = x_i((n − J_i) mod N) = x_i((t − J) mod N),   t = n − d_i
//
// is the sample of time t. The spread max_i d_i is smallest if J is after the widest gap between
// shifts on the circle of positions. A tile of outputs n … n + tile − 1 needs only the times
// n − spread … n + tile − 1: a ring buffer of R = spread + tile elements holds them, time t at
// index t mod R. Times t and t + N are one sample: forward begins `spread` times before 0, backward
// ends as many after N, so that these samples are visited twice. If that costs too much, R = N.
#pragma once

#include <algorithm>
#include <vector>

#include "ops/attention/csp/columns.h"
#include "ops/attention/csp/problem.h"
#include "runtime/scratch.h"

namespace weft {

// Positions whose pairs are sorted together.
constexpr i64 csp_tile(i64 N) { return std::min<i64>(N, 2048); }

struct CspDelays {
  i64 N, J = 0, spread = 0;

  // Of shifts in [0, N), one at least.
  CspDelays(std::vector<i64> shifts, i64 N) : N(N) {
    std::sort(shifts.begin(), shifts.end());
    i64 before = shifts.back() - N, widest = 0;
    for (const i64 each : shifts) {
      if (each - before > widest) widest = each - before, J = each;
      before = each;
    }
    spread = N - widest;
  }
  i64 operator()(i64 shift) const { return shift < J ? shift - J + N : shift - J; }
  bool whole() const { return 2 * (spread + csp_tile(N)) > N; }
  i64 places() const { return whole() ? N : spread + csp_tile(N); }
};

template <class T>
class CspRing {
 public:
  CspRing(const CspDelays& delays, i64 columns)
      : delays_(delays),
        places_(delays.places()),
        room_(column_room<T>(places_)),
        samples_(columns * room_) {}

  T* data() const { return samples_.data(); }
  i64 room() const { return room_; }

  // Calls f(position, place, count) for the times begin … end − 1, a contiguous run at a time.
  template <class F>
  void each_run(i64 begin, i64 end, const F& f) const {
    for (i64 t = begin, count = 0; t < end; t += count) {
      const i64 position = modulo(t - delays_.J, delays_.N), place = modulo(t, places_);
      count = std::min({end - t, delays_.N - position, places_ - place});
      f(position, place, count);
    }
  }

  // y = column i after its shift, at n … end − 1.
  void read(i64 i, i64 shift, i64 n, i64 end, T* y) const {
    T* const x = data() + i * room_;
    const i64 place = modulo(n - delays_(shift), places_);
    const i64 first = std::min(end - n, places_ - place);
    std::copy(x + place, x + place + first, y);
    std::copy(x, x + (end - n - first), y + first);
  }

  // The inverse.
  void write(i64 i, i64 shift, i64 n, i64 end, const T* y) const {
    T* const x = data() + i * room_;
    const i64 place = modulo(n - delays_(shift), places_);
    const i64 first = std::min(end - n, places_ - place);
    std::copy(y, y + first, x + place);
    std::copy(y + first, y + (end - n), x);
  }

 private:
  static i64 modulo(i64 t, i64 N) { return (t % N + N) % N; }

  CspDelays delays_;
  i64 places_, room_;
  Scratch<T> samples_;
};

}  // namespace weft
