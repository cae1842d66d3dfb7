// A copy of a model's weights on the CPU. Its memory is reused by later copies.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "nn/module.h"

namespace weft {

class Weights {
 public:
  bool kept() const { return !tensors_.empty(); }

  void keep(const std::vector<NamedTensor>& own) {
    tensors_.resize(own.size());
    for (std::size_t i = 0; i < own.size(); ++i) {
      const Tensor& value = own[i].value;
      if (!tensors_[i].defined()) tensors_[i] = Tensor::empty(value.shape(), value.dtype());
      tensors_[i].copy_from(value);
    }
  }
  void keep(const std::vector<NamedTensor>& own, const std::map<std::string, Tensor>& saved) {
    tensors_.clear();
    for (const NamedTensor& tensor : own) tensors_.push_back(saved.at(tensor.name));
  }
  void put_back(const std::vector<NamedTensor>& own) const {
    for (std::size_t i = 0; i < own.size(); ++i) own[i].value.copy_from(tensors_[i]);
  }

 private:
  std::vector<Tensor> tensors_;
};

}  // namespace weft
