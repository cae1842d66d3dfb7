// A bias on the scores by the distance of query and key.
//
//     alibi      bias[h, i, j] = -2^(-8 (h + 1) / H) |i - j|, nothing learnt: O. Press,
//                N. A. Smith, M. Lewis, "Train short, test long", ICLR 2022, arXiv 2108.12409,
//                section 3
//     relative   bias[h, i, j] = table[clamp(j - i, 1 - L, L - 1) + L - 1, h] with a learnt table
//                [2 L - 1, H]: C. Raffel et al., JMLR 2020, arXiv 1910.10683, section 2.1, with a
//                row for every distance below L
//
// The bias is a tensor [1, H, n, S], so that time and memory grow with the square of the length.
#pragma once

#include <array>
#include <memory>
#include <mutex>

#include "nn/module.h"

namespace weft::nn {

class PositionBias {
 public:
  // `longest` is L; alibi ignores it.
  PositionBias(const std::string& kind, i64 heads, i64 longest, DType dtype);

  // The bias for queries at positions before … before + n - 1 and keys at 0 … S - 1, on a device.
  Variable operator()(Device device, i64 before, i64 n, i64 S) const;

  void each(const auto& visit) { visit("table", table_); }

 private:
  Tensor alibi(i64 before, i64 n, i64 S) const;
  Tensor rows(i64 before, i64 n, i64 S) const;
  Tensor constant(Device device, i64 before, i64 n, i64 S) const;

  i64 heads_, longest_;
  DType dtype_;
  Parameter table_;  // [2 L - 1, H], or none
  // What depends on the positions alone is cached on the device, for the last positions: steps of
  // equal lengths, captured ones too, copy nothing. A call with other positions frees it: capture a
  // step again after such a call, before it is replayed. Copies of the module share it, and any
  // thread may call it.
  struct Constant {
    std::mutex mutex;
    std::array<i64, 3> positions = {-1, -1, -1};  // before, n, S
    Tensor value;
  };
  std::shared_ptr<Constant> constant_ = std::make_shared<Constant>();
};

}  // namespace weft::nn
