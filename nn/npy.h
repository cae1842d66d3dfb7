// .npy: one tensor in a file, as NumPy's np.save writes it and np.load reads it.
//
//     offset 0       93 4E 55 4D 50 59   0x93 and "NUMPY"
//     offset 6       1 0, 2 0 or 3 0     the version
//     offset 8       n                   the length of the header, little endian: 2 bytes in
//                                        version 1, 4 bytes in versions 2 and 3
//     then n bytes   {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }
//                                        a Python dict, padded with spaces and ended by a new
//                                        line so that the elements begin at a multiple of 64
//     then           the elements        row-major; column-major where fortran_order is True
//
// (The format: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html.)
//
// Types: <f4, <f8, <i4, <i8 and |u1, which are f32, f64, i32, i64 and u8; <f2 is converted to f32,
// and |b1, NumPy's bool, to u8. NumPy has no bf16.
#pragma once

#include <string>

#include "runtime/tensor.h"

namespace weft {

// Version 1.0, row-major, the same bytes as np.save. The file is written atomically (nn/file.h).
// Throws for bf16.
void write_npy(const Tensor& tensor, const std::string& path);

// The reader trusts nothing: the header is parsed as this one dict and never evaluated, and its
// sizes are compared with the file's before memory is allocated. Throws, naming the file and the
// place, for anything else in the file, including bytes behind the elements. A column-major tensor
// becomes a view with such strides.
Tensor read_npy(const std::string& path);

}  // namespace weft
