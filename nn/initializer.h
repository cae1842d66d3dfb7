// Draws the starts of parameters.
//
// The numbers are keyed by (seed, name of the parameter, index): a parameter starts the same in
// whatever order a model is built and whatever else it holds.
#pragma once

#include "nn/module.h"

namespace weft {

// Fills `target` (f32 or f64). As in Keras, the fans of a matrix [in, out] are its axes, those of a
// convolution [window, in, out] the axes times the window, those of a vector its length.
void draw(const Initializer& initializer, const std::string& name, std::uint64_t seed,
          const Tensor& target);

// Draws every parameter of a module.
template <class Module>
void initialize(Module& module, std::uint64_t seed) {
  each_parameter(module, [&](const std::string& name, Parameter& parameter) {
    draw(parameter.initializer, name, seed, parameter.value());
  });
}

// "glorot uniform", "normal 0.05", … for tables.
std::string text_of(const Initializer& initializer);

}  // namespace weft
