// Image of Long Range Arena: pictures of CIFAR-10 as sequences of their grey pixels; the label is
// what is seen. Y. Tay et al., ICLR 2021, arXiv 2011.04006, section 2.2.4.
//
//     x_{32 row + column} = ⌊(0.2989 R + 0.5870 G + 0.1140 B) · 255.5 / 255⌋
//
// are 1,024 symbols of 256. The formula is that of TensorFlow's rgb_to_grayscale for bytes. It is
// computed in integers; TensorFlow computes it in f32, which can differ by one where the exact
// value is next to an integer.
//
// 45,000 pictures to train, 5,000 to validate, 10,000 to test. The validation part is the last
// tenth of the training files, in their order. The published one is the last tenth in the order of
// TensorFlow Datasets, which has other pictures.
#pragma once

#include "apps/lra/sequences.h"

namespace weft::lra {

// Reads the binary version of CIFAR-10 (apps/data/cifar.h). Throws, naming file and record.
SequenceTask read_image(const std::string& folder);

}  // namespace weft::lra
