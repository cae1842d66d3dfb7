// The tensors of a user's file, in the shapes that mechanisms take.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ops/attention/mechanism.h"

namespace weft {

// The layout of a file's tensors: weft's [B, N, H, E], or [B, H, N, E] as PyTorch's
// scaled_dot_product_attention has it.
enum class Layout { bnhe, bhne };
Layout layout_named(const std::string& text);  // throws for other names

struct Given {
  std::string path;
  std::map<std::string, Tensor> tensors;
  Layout layout = Layout::bnhe;
  DType type = DType::f32;  // the inputs are converted to it
};

// Reads a safetensors file, or a folder of NAME.npy. f16 becomes f32. `dtype` is f32 or f64; empty:
// the type of the first floating-point tensor of `inputs` in the file; throws if that is neither.
Given read_given(const std::string& path, Layout layout, const std::string& dtype,
                 const AttentionInputs& inputs);

// Swaps the position and head axes of a tensor with these axes ("B N H E") if the layout is bhne;
// the swap is its own inverse. Tensors without both axes are returned unchanged.
Tensor in_layout(const Tensor& tensor, const std::string& axes, Layout layout);

// The input in the mechanism's shape; undefined if the file has no tensor of its name. If the
// mechanism concatenates its heads, [B, N, H·M] is accepted too, as one head.
Tensor input_of(const Given& given, const Mechanism& mechanism, const AttentionInput& input);

// Throws if the tensor does not hold integers.
Tensor integers_of(const Given& given, const std::string& name);

// The file's lengths and query lengths, if it has any, go into the call. With as many queries as
// keys, lengths alone are those of both: one sequence attends to itself. A mechanism that takes no
// query lengths applies them so by itself.
void take_lengths(const Given& given, const Masks& masks, const AttentionSizes& sizes,
                  AttentionCall& call);

// "2 items, 128 positions, 4 heads of 16".
std::string described(const AttentionSpec& spec, const AttentionSizes& sizes);
// A warning that the inputs may have the other layout, if there are more heads than positions;
// empty otherwise.
std::string layout_doubt(const AttentionSizes& sizes, Layout layout);

}  // namespace weft
