// The scratch of sort_rows.cuh, for the fact sheets of mechanisms that sort.
#pragma once

namespace weft {

// Bytes of scratch for `places` elements of all rows: a composite key each, and the sort's copy of
// key and index.
constexpr double sort_rows_bytes(double places) { return 12 * places; }

}  // namespace weft
