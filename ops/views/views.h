// Differentiable views: the same elements with other shapes and strides. Only concatenate copies,
// and reshape where no strides give the new shape (after a transpose, say).
//
//     reshape      y = x in another shape                      dx = dy in the shape of x
//     transpose    two axes change places                      dx = dy with them changed back
//     slice        y = x[.., begin … end − 1, ..]              dx = dy there, 0 elsewhere
//     expand       axes of size 1 (and new ones) repeat        dx = dy summed over them
//     concatenate  y = the inputs side by side along an axis   dx_i = the part of dy that x_i fills
//     split        the reverse of concatenate                  dx = the dy_i side by side
//
// Only shapes are saved. The gradients that reach split often are views of one tensor (a kernel
// that writes dq, dk and dv into one buffer); that tensor is then dx, without a copy.
#pragma once

#include <span>
#include <vector>

#include "autograd/variable.h"

namespace weft {

// All throw if shapes do not fit; a negative axis counts from the end.
Variable reshape(const Variable& x, const Shape& shape);
Variable transpose(const Variable& x, int a, int b);
Variable slice(const Variable& x, int axis, i64 begin, i64 end);
Variable expand(const Variable& x, const Shape& shape);
Variable concatenate(std::span<const Variable> parts, int axis);
std::vector<Variable> split(const Variable& x, int axis, const std::vector<i64>& sizes);

}  // namespace weft
