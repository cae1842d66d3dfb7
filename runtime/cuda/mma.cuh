// Products on tensor cores, and what feeds them: for .cu files, compute capability 8.0 and later.
//
// A warp multiplies small matrices together. C [16 × 8] in f32 += A [16 × 16] B [16 × 8] in bf16,
// whose products are exact in f32 and whose sums are f32, in an order that is not specified. Lane l
// holds, with g = l / 4 and t = l mod 4 (PTX ISA, "Matrix fragments for mma.m16n8k16"):
//
//     register of A      0           1               2               3           each two columns
//     row                g           g + 8           g               g + 8
//     columns            2t, 2t+1    2t, 2t+1        2t+8, 2t+9      2t+8, 2t+9
//
//     register of B      0: rows 2t, 2t + 1 of column g         1: rows 2t + 8, 2t + 9 of column g
//     element of C       0, 1: row g, columns 2t, 2t + 1        2, 3: row g + 8, the same columns
//
// A register has the element of lower index in its lower half. So two neighbouring fragments of C,
// rounded to bf16, are a fragment of A: a product can be the left side of the next one.
//
//     pack(low, high)                  two floats rounded to bf16, in one register
//     mma_m16n8k16(c, a, b0, b1)       c += a b
//     exp2_flushed(x)                  2^x, or 0 below 2^-126, within 2 units in the last place
//
// shared_address(x) is the address of x in shared memory, to which offsets in bytes are added; all
// lanes of a warp ask for the same. flip(address, bits) is its exclusive or with `bits`, below the
// alignment of shared memory. The following take addresses.
//
// ldmatrix_x4(m, row) loads four matrices of 8 × 8 from shared memory: lane l names the 16 bytes of
// row l mod 8 of matrix l / 8, and gets the elements 2t and 2t + 1 of row g of each matrix; trans,
// the elements g of rows 2t and 2t + 1, those of the transposed matrix.
//
// cp_async(to, from, bytes) begins a copy of 16 bytes from global to shared memory, of which the
// first `bytes` are read and the others are zeros. The thread itself may read them after
// cp_async_commit() and cp_async_wait<n>(), which waits for all but the last n groups committed;
// other threads after a barrier behind that.
//
// All lanes of a warp have to take part in mma_m16n8k16 and ldmatrix; addresses are multiples
// of 16.
#pragma once

#include "runtime/cuda/launch.h"

#include <mma_instructions.h>  // of native/ or of emulated/
