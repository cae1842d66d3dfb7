// Shared by mechanisms with scores τ q · k: inputs, temperature and lengths.
#pragma once

#include "ops/attention/length.h"
#include "ops/attention/mechanism.h"

namespace weft {

// An option that is 0 or 1. `with`: as of every OptionSheet.
OptionSheet flag_option(const std::string& name, bool initial, const std::string& help,
                        const std::string& with = {});
// τ: the option `temperature`, or 1/√E.
OptionSheet temperature_option(const std::string& with = {});
double temperature_of(const AttentionSpec& spec, i64 E);
// C of a block's output: its option `width`, or d where that is 0.
i64 width_of(const AttentionSpec& spec, const AttentionSizes& sizes);

// q, k and v, columns of one matrix: Mechanism::inputs of many mechanisms.
AttentionInputs query_key_value(const AttentionSpec& spec, const AttentionSizes& sizes);

// An input that is learnt; and U(±1/√in), PyTorch's initialisation of a linear map from `in`
// numbers.
AttentionInput learnt(const std::string& name, const std::string& axes, const Shape& shape,
                      Initializer weight);
Initializer uniform_by_fan_in(i64 in);
// The number of elements of the inputs of this role.
i64 count_of(const AttentionInputs& inputs, Role role);

// Entry t of a parameter along its first axis, without that axis.
Variable entry_of(const Variable& all, i64 t);

// x [B, n, width]; in backward the unused inputs get gradients of zeros.
Variable with_zero_gradients(const Variable& x, std::span<const Variable> unused);

// The key of attention number `number` among those that one call makes: the first has the call's
// own, and every 56 of the others a seed of their own.
RandomKey attention_key(RandomKey call, i64 number);

// Lengths [B] on the CPU for kernels; and the length of batch item b (length.h).
inline const i64* numbers_of(const Tensor& lengths) {
  return lengths.defined() ? lengths.data<i64>() : nullptr;
}
inline i64 length_of(const Tensor& lengths, i64 b, i64 all) {
  return length_of(numbers_of(lengths), b, all);
}

}  // namespace weft
