// The one list of tolerances, by element type and purpose. Errors are relative in the Frobenius
// norm, ‖got − wanted‖ / ‖wanted‖, unless a line says otherwise.
#pragma once

namespace weft::tolerance {

// f64 backward against central differences: the largest difference over the largest gradient.
inline constexpr double gradcheck = 1e-6;

// f64 against an independent formula in f64: a kernel, and its gradients.
inline constexpr double forward_f64 = 1e-13;
inline constexpr double backward_f64 = 1e-12;

// f32 against f64 on the same numbers; `long` where 4096 and more positions are summed.
inline constexpr double forward_f32 = 1e-6;
inline constexpr double forward_f32_long = 5e-6;
inline constexpr double backward_f32 = 5e-6;

// The most that rounding to bf16, to eight bits, changes a number, relatively.
inline constexpr double half_unit_bf16 = 1.0 / 256;

// A mean of random numbers against its expectation, in standard errors.
inline constexpr double standard_errors = 5;

}  // namespace weft::tolerance
