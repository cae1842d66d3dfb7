// Checkpoints: named tensors and named strings in a safetensors file.
//
//     offset 0      8 bytes, little endian   n, the length of the header
//     offset 8      n bytes of JSON          {"__metadata__":{"key":"text",…},
//                                             "name":{"dtype":"F32","shape":[2,3],
//                                                     "data_offsets":[begin,end]},…}
//                                            padded with spaces so that 8 + n divides by 8
//     offset 8 + n  the elements             row-major, little endian, offsets count from here
//
// The tensors tile the data: the first begins at 0, each begins where another ends, the last ends
// with the file. (The format: https://github.com/huggingface/safetensors.) F16, which no tensor
// of weft has, is converted to f32.
//
// The reader trusts nothing. Every size is compared with the file's real one before memory is
// allocated, and whatever breaks a rule above is an error that names the file and the place.
#pragma once

#include <map>
#include <span>
#include <string>

#include "nn/module.h"
#include "runtime/tensor.h"

namespace weft {

struct Checkpoint {
  std::map<std::string, Tensor> tensors;
  std::map<std::string, std::string> metadata;
};

// Writes the file atomically (nn/file.h). Tensors are in order of falling element size, then by
// name, as the format's own writer sorts them: equal contents give equal bytes.
void write_checkpoint(const Checkpoint& checkpoint, const std::string& path);

Checkpoint read_checkpoint(const std::string& path);

// Tensors by name, on the CPU.
std::map<std::string, Tensor> tensors_of(std::span<const NamedTensor> tensors);

// These tensors, each that has a place of its name in that place's type.
std::map<std::string, Tensor> in_types_of(std::span<const NamedTensor> places,
                                          std::map<std::string, Tensor> tensors);

// Copies `tensors` into those of `own`, which must have the same names, shapes and types; otherwise
// nothing is copied, and the error begins with `source` (a file, say).
void load_tensors(const std::map<std::string, Tensor>& own,
                  const std::map<std::string, Tensor>& tensors, const std::string& source);
void load_tensors(std::span<const NamedTensor> own, const std::map<std::string, Tensor>& tensors,
                  const std::string& source);

// Whether no element of a floating type is NaN or infinite.
bool all_finite(const Tensor& tensor);

}  // namespace weft
