#include "nn/module.h"

#include <algorithm>
#include <limits>

#include "nn/initializer.h"

namespace weft {

Parameter::Parameter(const Shape& shape, Initializer initializer, DType dtype)
    : variable(
          Variable::leaf(Tensor::full(shape, std::numeric_limits<double>::quiet_NaN(), dtype))),
      initializer(initializer) {}

Buffer::Buffer(const Shape& shape, void (*draw)(RandomKey, const Tensor&), i64 redraw, DType dtype)
    : value(Tensor::full(shape, std::numeric_limits<double>::quiet_NaN(), dtype)),
      draw(draw),
      redraw(redraw) {}

std::string parameter_table(const std::vector<NamedParameter>& parameters) {
  std::size_t name_width = 9, shape_width = 5;
  for (const NamedParameter& parameter : parameters) {
    name_width = std::max(name_width, parameter.name.size());
    shape_width = std::max(shape_width, fmt::format("{}", parameter.variable.shape()).size());
  }
  i64 total = 0;
  std::string text = fmt::format("{:<{}}  {:<{}}  {:>12}  {}\n", "parameter", name_width, "shape",
                                 shape_width, "count", "start");
  for (const NamedParameter& parameter : parameters) {
    const Shape& shape = parameter.variable.shape();
    total += shape.count();
    text += fmt::format("{:<{}}  {:<{}}  {:>12}  {}\n", parameter.name, name_width,
                        fmt::format("{}", shape), shape_width, shape.count(),
                        text_of(parameter.initializer));
  }
  text += fmt::format("{:<{}}  {:<{}}  {:>12}\n", "total", name_width, "", shape_width, total);
  return text;
}

}  // namespace weft
