// A mechanism on the tensors of a file.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "apps/attend/tensors.h"

namespace weft {

// The options of attend.
struct AttendCommand {
  std::string attention = "full", compare, in, out, map, scale = "linear", dtype, device = "cpu";
  std::string layout = "bnhe", head = "0", pattern;
  bool causal = false, backward = false, force = false;
  std::uint64_t seed = 0;
  i64 item = 0, pattern_block = 1;
  int threads = 0;
};

class Call {
 public:
  // Reads the file; throws for a tensor that the mechanism does not accept.
  explicit Call(const AttendCommand& command);

  // The tensors to write: out, choices and gradients, in the layout of the file.
  std::map<std::string, Tensor> run(const AttendCommand& command);
  // The attention weights [N, S] of some heads of one batch item. Uses the choices made in run().
  std::vector<Tensor> maps(i64 item, const std::vector<i64>& heads) const;

  const AttentionSpec& spec() const { return spec_; }
  AttentionSizes sizes() const;
  DType type() const { return given_.type; }

 private:
  const Mechanism& mechanism() const { return spec_.mechanism(); }
  void take_pattern(const AttendCommand& command);
  void check_names(const AttendCommand& command) const;
  Tensor written(const Tensor& out) const;
  Tensor dout_like(const Tensor& out) const;
  std::vector<Variable> placed(bool leaves) const;

  AttentionSpec spec_;
  AttentionInputs sheets_;
  Given given_;
  Device device_;
  AttentionCall call_;
  Choices chosen_;
  std::vector<Tensor> inputs_;
};

}  // namespace weft
