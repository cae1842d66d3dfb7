#include "apps/attend/tensors.h"

#include <algorithm>
#include <filesystem>

#include <fmt/core.h>

#include "nn/checkpoint.h"
#include "nn/npy.h"

namespace weft {
namespace {

std::map<std::string, Tensor> read_folder(const std::string& path) {
  std::map<std::string, Tensor> tensors;
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    if (entry.path().extension() != ".npy") continue;
    tensors[entry.path().stem().string()] = read_npy(entry.path().string()).packed();
  }
  require(!tensors.empty(), "{}: the folder has no .npy files", path);
  return tensors;
}

std::string counted(i64 count, const char* what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

}  // namespace

Layout layout_named(const std::string& text) {
  require(
      text == "bnhe" || text == "bhne",
      "--layout: wanted bnhe, for [batch, positions, heads, width], or bhne, for [batch, heads, "
      "positions, width]; got '{}'",
      text);
  return text == "bnhe" ? Layout::bnhe : Layout::bhne;
}

Given read_given(const std::string& path, Layout layout, const std::string& dtype,
                 const AttentionInputs& inputs) {
  Given given{path, {}, layout, dtype == "f64" ? DType::f64 : DType::f32};
  given.tensors =
      std::filesystem::is_directory(path) ? read_folder(path) : read_checkpoint(path).tensors;
  if (!dtype.empty()) return given;
  for (const AttentionInput& input : inputs) {
    const auto found = given.tensors.find(input.name);
    if (found == given.tensors.end() || input.role == Role::index) continue;
    given.type = found->second.dtype();
    require(given.type == DType::f32 || given.type == DType::f64,
            "{}: {} is {}; wanted f32 or f64, or choose one by --dtype", path, input.name,
            name_of(given.type));
    break;
  }
  return given;
}

Tensor in_layout(const Tensor& tensor, const std::string& axes, Layout layout) {
  const bool heads_behind = axes.starts_with("B N H") || axes.starts_with("B S H");
  const auto rank = 1 + std::count(axes.begin(), axes.end(), ' ');
  if (layout == Layout::bnhe || !heads_behind || tensor.rank() != rank) return tensor;
  return tensor.transpose(1, 2);
}

Tensor input_of(const Given& given, const Mechanism& mechanism, const AttentionInput& input) {
  const auto found = given.tensors.find(input.name);
  if (found == given.tensors.end()) return {};
  if (input.role == Role::index) return integers_of(given, input.name);
  const Tensor value = in_layout(found->second.to(given.type), input.axes, given.layout);
  if (mechanism.joined && value.rank() == 3 && input.axes.ends_with("H M")) {
    return value.packed().reshape({value.size(0), value.size(1), 1, value.size(2)});
  }
  return value;
}

Tensor integers_of(const Given& given, const std::string& name) {
  const Tensor& value = given.tensors.at(name);
  require(value.dtype() == DType::i64 || value.dtype() == DType::i32,
          "{}: {}: wanted integers, got {}", given.path, name, name_of(value.dtype()));
  return value.to(DType::i64).packed();
}

void take_lengths(const Given& given, const Masks& masks, const AttentionSizes& sizes,
                  AttentionCall& call) {
  if (given.tensors.contains("lengths")) call.lengths = integers_of(given, "lengths");
  if (given.tensors.contains("query_lengths")) {
    call.query_lengths = integers_of(given, "query_lengths");
  }
  if (!call.lengths.defined() || sizes.N != sizes.S) return;
  if (masks.query_lengths) {
    if (!call.query_lengths.defined()) call.query_lengths = call.lengths;
  } else if (call.query_lengths.defined() &&
             call.query_lengths.to_vector<i64>() == call.lengths.to_vector<i64>()) {
    call.query_lengths = {};
  }
}

std::string described(const AttentionSpec& spec, const AttentionSizes& sizes) {
  const AttentionInputs inputs = attention_inputs(spec);
  const auto has = [&](const char* axis) {
    return std::any_of(inputs.begin(), inputs.end(), [&](const AttentionInput& input) {
      return input.axes.find(axis) != std::string::npos;
    });
  };
  const bool heads = has("N H"), keys = has("H E"), values = has("H M");
  std::string text = counted(sizes.B, "item") + ", ";
  text += sizes.N == sizes.S ? counted(sizes.N, "position")
                             : fmt::format("{} queries, {} keys", sizes.N, sizes.S);
  if (!heads) return text + fmt::format(", width {}", sizes.d);
  text += ", " + counted(sizes.H, "head");
  if (keys || values) text += fmt::format(" of {}", keys ? sizes.E : sizes.M);
  if (keys && values && sizes.E != sizes.M) text += fmt::format(" (values of {})", sizes.M);
  return text;
}

std::string layout_doubt(const AttentionSizes& sizes, Layout layout) {
  if (sizes.H <= sizes.N) return {};
  return fmt::format("more heads than positions: for the other layout, {}",
                     layout == Layout::bnhe ? "use --layout bhne" : "omit --layout bhne");
}

}  // namespace weft
