// The tensors of a person's file, as mechanisms take them.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ops/attention/mechanism.h"

namespace weft {

// Where heads stand in the tensors of a file: [B, N, H, E], weft's own, or [B, H, N, E], that of
// PyTorch's scaled_dot_product_attention.
enum class Layout { bnhe, bhne };
Layout layout_named(const std::string& text);  // throws for other words

struct Given {
  std::string path;
  std::map<std::string, Tensor> tensors;
  Layout layout = Layout::bnhe;
  DType type = DType::f32;  // what the inputs are taken as
};

// A safetensors file, or a folder of NAME.npy. f16 becomes f32. `dtype`: f32 or f64; empty: what
// the first floating tensor of `inputs` that is there has; throws where that is neither.
Given read_given(const std::string& path, Layout layout, const std::string& dtype,
                 const AttentionInputs& inputs);

// Exchanges the axes of positions and heads of a tensor with these axes ("B N H E") where the
// layout has them the other way: from the file, and back. Others stay as they are.
Tensor in_layout(const Tensor& tensor, const std::string& axes, Layout layout);

// The input as the mechanism takes it; undefined where the file has none of its name. Heads that
// the mechanism joins may stand as one axis, [B, N, H·M], which counts as one head.
Tensor input_of(const Given& given, const Mechanism& mechanism, const AttentionInput& input);

// Throws where the tensor is not one of integers.
Tensor integers_of(const Given& given, const std::string& name);

// The lengths and query lengths that the file holds.
void take_lengths(const Given& given, AttentionCall& call);

// "2 items, 128 positions, 4 heads of 16".
std::string described(const AttentionSpec& spec, const AttentionSizes& sizes);
// A sentence for inputs of more heads than positions: they may be of the other layout. Else empty.
std::string layout_doubt(const AttentionSizes& sizes, Layout layout);

}  // namespace weft
