// What sort_rows.cuh takes, for the fact sheets of mechanisms that sort.
#pragma once

namespace weft {

// Bytes of scratch for `places` places of all rows: a composite key each, and the sort's copy of
// key and place.
constexpr double sort_rows_bytes(double places) { return 12 * places; }

}  // namespace weft
