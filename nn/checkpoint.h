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
// here is made of, is read as f32.
//
// The reader takes nothing on trust. Every size is compared with the file's real one before memory
// is asked for, and whatever breaks a rule above is an error that names the file and the place.
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

// Writes the file whole or not at all (nn/file.h). Tensors stand by falling size of their
// elements, then by name, as the format's own writer has them: equal contents give equal bytes.
void write_checkpoint(const Checkpoint& checkpoint, const std::string& path);

Checkpoint read_checkpoint(const std::string& path);

// Tensors by their names, on the CPU.
std::map<std::string, Tensor> tensors_of(std::span<const NamedTensor> tensors);

// Copies `tensors` into those of `own`. They must be the same by name, shape and type; `source`
// (a file, say) begins the error where they are not, and then nothing is copied.
void load_tensors(const std::map<std::string, Tensor>& own,
                  const std::map<std::string, Tensor>& tensors, const std::string& source);
void load_tensors(std::span<const NamedTensor> own, const std::map<std::string, Tensor>& tensors,
                  const std::string& source);

// Whether no element of a floating type is a NaN or an infinity.
bool all_finite(const Tensor& tensor);

}  // namespace weft
