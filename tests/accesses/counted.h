// What a launch adds to the counts of its accesses.
#pragma once

#include "runtime/cuda/emulated/accesses/traffic.h"

// Of all lines in this space.
template <class F>
weft::emulated::accesses::Counts counted(weft::emulated::accesses::Space space, const F& f) {
  using namespace weft::emulated::accesses;
  const auto sum = [&] {
    Counts all;
    for (const Row& row : traffic().rows()) {
      if (row.space == space) all += row.counts;
    }
    return all;
  };
  set_mode(Mode::traffic);
  const Counts before = sum();
  f();
  Counts after = sum();
  set_mode(Mode::races);
  after.requests -= before.requests, after.lanes -= before.lanes;
  after.sectors -= before.sectors, after.least_sectors -= before.least_sectors;
  after.passes -= before.passes, after.least_passes -= before.least_passes;
  return after;
}
