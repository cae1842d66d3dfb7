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
// Types: <f4, <f8, <i4, <i8 and |u1, which are f32, f64, i32, i64 and u8; <f2 is
// read as f32, and |b1, NumPy's bool, as u8. NumPy has no bf16.
#pragma once

#include <string>

#include "runtime/tensor.h"

namespace weft {

// Version 1.0, row-major, the very bytes of np.save. The file appears whole or not at all
// (nn/file.h). Throws for bf16.
void write_npy(const Tensor& tensor, const std::string& path);

// The reader takes nothing on trust: the header is read as this one dict and never evaluated, and
// what it claims is compared with the file's size before memory is asked for. Throws, naming the
// file and the place, for whatever else the file holds, bytes behind the elements included. A
// column-major tensor is a view with such strides.
Tensor read_npy(const std::string& path);

}  // namespace weft
