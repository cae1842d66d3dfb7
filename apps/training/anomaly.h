// --detect-anomaly: finds the first value of a training step that is not finite.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "autograd/observer.h"
#include "nn/module.h"
#include "runtime/error.h"

namespace weft {

class Anomaly : public Error {
 public:
  using Error::Error;
};

// While it exists, checks every parameter that an op reads, every output of an op, and every
// gradient after each accumulation. At the first value that is not finite it throws Anomaly, which
// names the step, the op and the tensor.
class AnomalyWatch final : public Observer {
 public:
  AnomalyWatch(const std::vector<NamedParameter>& parameters, i64 step);

  void made(const char* op, std::span<const Variable> inputs,
            std::span<const Tensor> values) override;
  void gathered(const char* op, std::size_t input, const Gradient& place) override;

 private:
  void check(const Tensor& tensor, const std::string& what) const;

  std::map<const Gradient*, std::string> names_;
  i64 step_, ops_ = 0;
};

}  // namespace weft
