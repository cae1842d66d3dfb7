// A copy of a model's weights on the CPU; its memory is used again for the next one.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "nn/module.h"

namespace weft {

class Weights {
 public:
  bool kept() const { return !tensors_.empty(); }

  void keep(const std::vector<NamedParameter>& parameters) {
    tensors_.resize(parameters.size());
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const Tensor& value = parameters[i].variable.value();
      if (!tensors_[i].defined()) tensors_[i] = Tensor::empty(value.shape(), value.dtype());
      tensors_[i].copy_from(value);
    }
  }
  void keep(const std::vector<NamedParameter>& parameters,
            const std::map<std::string, Tensor>& saved) {
    tensors_.clear();
    for (const NamedParameter& parameter : parameters) {
      tensors_.push_back(saved.at(parameter.name));
    }
  }
  void put_back(const std::vector<NamedParameter>& parameters) const {
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      parameters[i].variable.value().copy_from(tensors_[i]);
    }
  }

 private:
  std::vector<Tensor> tensors_;
};

}  // namespace weft
