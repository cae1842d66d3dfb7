#include "apps/attend/call.h"

#include <algorithm>

#include <fmt/core.h>

#include "apps/command_line/attention_map.h"
#include "apps/command_line/device_option.h"
#include "autograd/tape.h"
#include "nn/npy.h"
#include "ops/attention/pattern.h"
#include "runtime/names.h"

namespace weft {

Call::Call(const AttendCommand& command)
    : spec_(command.attention),
      sheets_(attention_inputs(spec_)),
      given_(read_given(command.in, layout_named(command.layout), command.dtype, sheets_)),
      device_(device_named(command.device)) {
  call_.causal = command.causal;
  call_.random = {command.seed, 0, 0};
  call_.seed = command.seed;
  check_names(command);
  for (const AttentionInput& input : sheets_) {
    inputs_.push_back(input_of(given_, mechanism(), input));
    const bool left_out = input.causal && !call_.causal;
    require(inputs_.back().defined() || left_out || input.optional || input.role == Role::drawn,
            "{}: has no {} [{}], an input of {}", command.in, input.name, input.axes,
            mechanism().name);
  }
  while (!inputs_.empty() && !inputs_.back().defined()) inputs_.pop_back();
  take_lengths(given_, mechanism().masks, sizes(), call_);
  take_pattern(command);
  for (const AttentionChoice& choice : mechanism().choices) {
    if (!choice.accepted || !given_.tensors.contains(choice.name)) continue;
    call_.given[choice.name] = choice.integer ? integers_of(given_, choice.name)
                                              : given_.tensors.at(choice.name).to(given_.type);
  }
}

std::map<std::string, Tensor> Call::run(const AttendCommand& command) {
  const std::vector<Variable> variables = placed(true);
  std::map<std::string, Tensor> results;
  Tape tape;
  AttentionCall call = call_;
  call.chosen = &chosen_;
  const auto [out, penalty] = attend(spec_, call, variables);
  results["out"] = written(out.value());
  if (penalty.defined()) results["penalty"] = penalty.value().to(Device{});
  for (const auto& [name, value] : chosen_) results[name] = value.packed().to(Device{});
  if (!command.backward) return results;
  require(given_.tensors.contains("dout"),
          "{}: --backward needs dout, the gradient of out, in the file", command.in);
  tape.backward(out, dout_like(out.value()).to(device_));
  for (std::size_t i = 0; i < variables.size(); ++i) {
    const Tensor gradient = variables[i].gradient();
    if (!gradient.defined()) continue;
    const std::string& name = sheets_[i].name;
    results["d" + name] = in_layout(gradient.packed().to(Device{}), sheets_[i].axes, given_.layout)
                              .packed()
                              .reshape(given_.tensors.at(name).shape());
  }
  return results;
}

std::vector<Tensor> Call::maps(i64 item, const std::vector<i64>& heads) const {
  AttentionCall again = call_;
  for (const AttentionChoice& choice : mechanism().choices) {
    const auto found = chosen_.find(choice.name);
    if (choice.accepted && found != chosen_.end()) again.given[choice.name] = found->second;
  }
  for (const AttentionInput& input : sheets_) {
    if (input.role == Role::drawn && !given_.tensors.contains(input.name)) {
      again.given[input.name] = chosen_.at(input.name);
    }
  }
  const AttentionSizes sizes = this->sizes();
  require(item >= 0 && item < sizes.B, "--item: wanted 0 … {}, got {}", sizes.B - 1, item);
  return attention_maps(spec_, again, placed(false), item, heads);
}

AttentionSizes Call::sizes() const {
  return bound(spec_, call_, std::vector<Variable>(inputs_.begin(), inputs_.end())).sizes;
}

void Call::take_pattern(const AttendCommand& command) {
  if (command.pattern.empty()) return;
  require(mechanism().masks.pattern, "--pattern: {} does not take one; use full", spec_.text());
  const Tensor mask = read_npy(command.pattern);
  const auto [N, S] = std::pair(sizes().N, sizes().S);
  try {
    call_.pattern = std::make_shared<const AttentionPattern>(mask, N, S, command.pattern_block);
    call_.pattern->check(mechanism().name, sizes());
  } catch (const Error& error) {
    fail("--pattern {}: {}", command.pattern, error.what());
  }
}

void Call::check_names(const AttendCommand& command) const {
  std::vector<std::string> known{"dout"};
  for (const AttentionInput& input : sheets_) known.push_back(input.name);
  for (const AttentionChoice& choice : mechanism().choices) {
    if (choice.accepted) known.push_back(choice.name);
  }
  if (mechanism().masks.lengths) known.push_back("lengths");
  if (mechanism().masks.query_lengths) known.push_back("query_lengths");
  for (const auto& [name, tensor] : given_.tensors) {
    require(std::count(known.begin(), known.end(), name) == 1,
            "{}: {} takes no tensor '{}'; there are {}", command.in, mechanism().name, name,
            known_names(name, known));
  }
}

// [B, N, H·M] for a mechanism that concatenates its heads, unless the layout puts heads first.
Tensor Call::written(const Tensor& out) const {
  const Tensor packed = out.packed().to(Device{});
  if (given_.layout == Layout::bhne) return in_layout(packed, "B N H M", given_.layout).packed();
  if (!mechanism().joined) return packed;
  return packed.reshape({out.size(0), out.size(1), out.size(2) * out.size(3)});
}

Tensor Call::dout_like(const Tensor& out) const {
  const Tensor dout =
      in_layout(given_.tensors.at("dout").to(given_.type), "B N H M", given_.layout);
  const auto joined = [&] { return Shape{out.size(0), out.size(1), out.size(2) * out.size(3)}; };
  require(dout.shape() == out.shape() || (mechanism().joined && dout.shape() == joined()),
          "{}: dout is {}, but out is {}", given_.path, given_.tensors.at("dout").shape(),
          written(out).shape());
  return dout.packed().reshape(out.shape());
}

// The inputs on the device. With `leaves` the differentiable ones record gradients.
std::vector<Variable> Call::placed(bool leaves) const {
  std::vector<Variable> variables;
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    const Tensor there = inputs_[i].defined() ? inputs_[i].to(device_) : Tensor();
    const bool learnt = sheets_[i].role != Role::drawn && sheets_[i].role != Role::index;
    const bool leaf = leaves && learnt && there.defined();
    variables.push_back(leaf ? Variable::leaf(there) : Variable(there));
  }
  return variables;
}

}  // namespace weft
