// Draws the initial values of parameters.
//
// The numbers are keyed by (seed, name of the parameter, index): a parameter starts the same in
// whatever order a model is built and whatever else it contains.
#pragma once

#include <span>

#include "nn/module.h"

namespace weft {

// Fills `target` (f32 or f64). As in Keras, the fans of a matrix [in, out] are its axes, those of a
// convolution [window, in, out] the axes times the window, those of a vector its length.
void draw(const Initializer& initializer, const std::string& name, std::uint64_t seed,
          const Tensor& target);

// Fills a buffer. Its content after step `step` is a function of (seed, step, name); step 0 is the
// start.
void draw(const NamedBuffer& buffer, std::uint64_t seed, std::uint32_t step);

// Draws every parameter and every buffer of a module.
template <class Module>
void initialize(Module& module, std::uint64_t seed) {
  each_parameter(module, [&](const std::string& name, Parameter& parameter) {
    draw(parameter.initializer, name, seed, parameter.value());
  });
  for (const NamedBuffer& buffer : buffers(module)) draw(buffer, seed, 0);
}

// Redraws the buffers that are due before step 1, 2, …: with `redraw` = r those before the steps
// r + 1, 2 r + 1, …. Training loops call it before every step; it is not part of a step that is
// captured as a CUDA graph.
void redraw(std::span<const NamedBuffer> buffers, std::uint64_t seed, std::uint32_t step);

// The same for buffers that are drawn as for step `from`, and wanted as for step `to`, which may be
// an earlier one.
void redraw(std::span<const NamedBuffer> buffers, std::uint64_t seed, std::uint32_t from,
            std::uint32_t to);

// "glorot uniform", "normal 0.05", … for tables.
std::string text_of(const Initializer& initializer);

}  // namespace weft
