// attend: runs an attention mechanism on a person's own tensors.
//
//     attend --attention i-clustered:clusters=25 --in qkv.safetensors --out result.safetensors
//
// The file holds the mechanism's inputs by their names (`zoo NAME` lists them: q [B,N,H,E],
// k [B,S,H,E], v [B,S,H,M] for most), `lengths` and `query_lengths` [B] where wanted, and whatever the
// mechanism would otherwise draw or decide. What comes out: `out`, all that was drawn and decided,
// and, with --backward and `dout` in the file, the gradient of every input x as `dx`. Heads that a
// mechanism joins (agglomerative, csp) may stand as one axis.
//
// Exit status: 0; 2 for bad input, with one line on stderr and nothing written.
#include <cstdio>
#include <filesystem>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "apps/attend/map.h"
#include "apps/common/device_option.h"
#include "apps/common/output.h"
#include "autograd/tape.h"
#include "nn/checkpoint.h"
#include "ops/attention/mechanism.h"
#include "runtime/parallel.h"

namespace weft {
namespace {

struct Command {
  std::string attention = "full", in, out, map, dtype, device = "cpu";
  bool causal = false, backward = false, force = false;
  std::uint64_t seed = 0;
  std::int64_t head = 0, item = 0;
  int threads = 0;
};

class Call {
 public:
  Call(const Command& command, Checkpoint file)
      : spec_(command.attention), file_(std::move(file)), device_(device_named(command.device)) {
    call_.causal = command.causal;
    call_.random = {command.seed, 0, 0};
    call_.chosen = &chosen_;
    type_ = command.dtype == "f64"   ? DType::f64
            : command.dtype == "f32" ? DType::f32
                                     : own_type(command.in);
    check_names(command);
    for (const AttentionInput& input : mechanism().inputs) inputs_.push_back(input_of(input, command));
    while (!inputs_.empty() && !inputs_.back().defined()) inputs_.pop_back();
    if (file_.tensors.contains("lengths")) call_.lengths = integers("lengths");
    if (file_.tensors.contains("query_lengths")) call_.query_lengths = integers("query_lengths");
    for (const AttentionChoice& choice : mechanism().choices) {
      if (!choice.accepted || !file_.tensors.contains(choice.name)) continue;
      call_.given[choice.name] =
          choice.integer ? integers(choice.name) : file_.tensors.at(choice.name).to(type_);
    }
  }

  const Mechanism& mechanism() const { return spec_.mechanism(); }

  // What is written: out, choices, gradients.
  std::map<std::string, Tensor> run(const Command& command) {
    std::vector<Variable> variables;
    for (const Tensor& input : inputs_) {
      variables.push_back(input.defined() ? Variable::leaf(input.to(device_)) : Variable());
    }
    std::map<std::string, Tensor> results;
    Tape tape;
    const Variable out = attend(spec_, call_, variables);
    results["out"] = written(out.value());
    for (const auto& [name, value] : chosen_) results[name] = value.packed().to(Device{});
    if (!command.backward) return results;
    require(file_.tensors.contains("dout"), "{}: --backward wants the gradient of out there, as dout",
            command.in);
    tape.backward(out, dout_like(out.value(), command).to(device_));
    for (std::size_t i = 0; i < variables.size(); ++i) {
      if (!variables[i].defined()) continue;
      const Tensor& given = file_.tensors.at(mechanism().inputs[i].name);
      results["d" + mechanism().inputs[i].name] =
          variables[i].gradient().packed().to(Device{}).reshape(given.shape());
    }
    return results;
  }

  // The weights [N, S] that one head of one batch item gives to the values: its output where the
  // values are unit vectors. Every choice stays what it was in run().
  Tensor map(const Command& command) {
    require(mechanism().linear_in_values,
            "--map: the output of {} is not linear in its values, it has no attention matrix{}",
            mechanism().name, chosen_.contains("src") ? "; its permutations come out as src" : "");
    std::vector<Variable> variables;
    for (const Tensor& input : inputs_) variables.push_back(input.defined() ? input.to(device_) : input);
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      const std::string& shape = mechanism().inputs[i].shape;
      if (shape.empty() || shape.back() != 'M') continue;
      const std::int64_t B = inputs_[i].size(0), S = inputs_[i].size(1), H = inputs_[i].size(2);
      require(command.item >= 0 && command.item < B, "--item: wanted 0 … {}, got {}", B - 1,
              command.item);
      require(command.head >= 0 && command.head < H, "--head: wanted 0 … {}, got {}", H - 1,
              command.head);
      const Tensor unit = Tensor::zeros({B, S, H, S}, type_);
      for (std::int64_t j = 0; j < S; ++j) unit.slice(1, j, j + 1).slice(3, j, j + 1).fill(1);
      variables[i] = unit.to(device_);
    }
    AttentionCall again = call_;
    for (const AttentionChoice& choice : mechanism().choices) {
      const auto found = chosen_.find(choice.name);
      if (choice.accepted && found != chosen_.end()) again.given[choice.name] = found->second;
    }
    const Tape::Pause pause;
    const Tensor out = attend(spec_, again, variables).value();
    return out.slice(0, command.item, command.item + 1)
        .slice(2, command.head, command.head + 1)
        .clone()
        .to(Device{})
        .reshape({out.size(1), out.size(3)});
  }

 private:
  // The type that the inputs have in the file: that of the first one there.
  DType own_type(const std::string& source) const {
    for (const AttentionInput& input : mechanism().inputs) {
      const auto found = file_.tensors.find(input.name);
      if (found == file_.tensors.end()) continue;
      const DType type = found->second.dtype();
      require(type == DType::f32 || type == DType::f64,
              "{}: {} is {}; wanted f32 or f64, or choose one by --dtype", source, input.name,
              name_of(type));
      return type;
    }
    return DType::f32;
  }

  void check_names(const Command& command) const {
    std::vector<std::string> known{"dout"};
    for (const AttentionInput& input : mechanism().inputs) known.push_back(input.name);
    for (const AttentionChoice& choice : mechanism().choices) {
      if (choice.accepted) known.push_back(choice.name);
    }
    if (mechanism().masks.lengths) known.push_back("lengths");
    if (mechanism().masks.query_lengths) known.push_back("query_lengths");
    for (const auto& [name, tensor] : file_.tensors) {
      require(std::count(known.begin(), known.end(), name) == 1,
              "{}: {} takes no tensor '{}'; there are {}", command.in, mechanism().name, name,
              known_names(name, known));
      require(name != "dout" || command.backward, "{}: holds dout, which only --backward reads",
              command.in);
    }
  }

  Tensor input_of(const AttentionInput& input, const Command& command) const {
    const auto found = file_.tensors.find(input.name);
    if (found == file_.tensors.end()) {
      require(input.optional, "{}: {} [{}], an input of {}, is not there", command.in, input.name,
              input.shape, mechanism().name);
      return {};
    }
    const Tensor value = found->second.to(type_);
    // Joined heads count as one head of all channels.
    if (mechanism().joined && value.rank() == 3 && input.shape.ends_with("H M")) {
      return value.reshape({value.size(0), value.size(1), 1, value.size(2)});
    }
    return value;
  }

  Tensor integers(const std::string& name) const {
    const Tensor& value = file_.tensors.at(name);
    require(value.dtype() == DType::i64 || value.dtype() == DType::i32,
            "{}: wanted integers, got {}", name, name_of(value.dtype()));
    return value.to(DType::i64).packed();
  }

  Tensor written(const Tensor& out) const {
    const Tensor packed = out.packed().to(Device{});
    if (!mechanism().joined) return packed;
    return packed.reshape({out.size(0), out.size(1), out.size(2) * out.size(3)});
  }

  Tensor dout_like(const Tensor& out, const Command& command) const {
    const Tensor dout = file_.tensors.at("dout").to(type_);
    require(dout.shape() == out.shape() || dout.shape() == written(out).shape(),
            "{}: dout is {}, but out is {}", command.in, dout.shape(), written(out).shape());
    return dout.packed().reshape(out.shape());
  }

  AttentionSpec spec_;
  Checkpoint file_;
  Device device_;
  AttentionCall call_;
  Choices chosen_;
  DType type_ = DType::f32;
  std::vector<Tensor> inputs_;
};

void add_options(CLI::App& app, Command& command) {
  app.add_option("--attention", command.attention, "a mechanism, as name:option=value,option=value")
      ->capture_default_str();
  app.add_option("--in", command.in, "safetensors file with the inputs")->required();
  app.add_option("--out", command.out, "safetensors file to write");
  app.add_option("--dtype", command.dtype, "f32 or f64; by default what the inputs are")
      ->check(CLI::IsMember({"f32", "f64"}));
  app.add_option("--device", command.device, "cpu, cuda or cuda:N")->capture_default_str();
  app.add_flag("--causal", command.causal, "query i sees keys up to i");
  app.add_option("--seed", command.seed, "of what the mechanism draws")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_flag("--backward", command.backward, "also the gradients, for dout in the file");
  app.add_option("--map", command.map, "write the attention matrix of a head: .png or .safetensors");
  app.add_option("--head", command.head, "of --map")->capture_default_str();
  app.add_option("--item", command.item, "of the batch, for --map")->capture_default_str();
  app.add_flag("--force", command.force, "replace files that are there");
  app.add_option("--threads", command.threads, "that compute; by default one a core")
      ->check(CLI::Range(1, 4096));
}

void check_place(const std::string& path, bool force) {
  if (path.empty()) return;
  require(force || !std::filesystem::exists(path), "{}: is there already; --force replaces it",
          path);
  require_folder_for(path);
}

int run(const Command& command) {
  require(!command.out.empty() || !command.map.empty(), "wanted --out or --map: nothing to write");
  check_place(command.out, command.force);
  check_place(command.map, command.force);
  require(command.map.empty() || command.map != command.out,
          "--map and --out are the same file: {}", command.out);
  if (command.threads > 0) set_threads(command.threads);
  Call call(command, read_checkpoint(command.in));
  Checkpoint results{call.run(command), {{"attention", AttentionSpec(command.attention).text()}}};
  if (!command.map.empty()) {
    const std::string title = fmt::format("{}{}, head {}, item {}", results.metadata["attention"],
                                          command.causal ? ", causal" : "", command.head,
                                          command.item);
    write_map(call.map(command), title, command.map);
  }
  if (!command.out.empty()) write_checkpoint(results, command.out);
  return 0;
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  weft::Command command;
  CLI::App app("Runs an attention mechanism on tensors of a file.", "attend");
  weft::add_options(app, command);
  try {
    app.parse(argc, argv);
    return weft::run(command);
  } catch (const CLI::Error& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    fmt::print(stderr, "attend: {}\n", error.what());
  } catch (const std::exception& error) {
    fmt::print(stderr, "attend: {}\n", error.what());
  }
  return 2;
}
