#include "apps/language/commands.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include <unistd.h>

#include "apps/command_line/attention_json.h"
#include "apps/command_line/output.h"
#include "apps/command_line/printable.h"
#include "ops/attention/mechanism.h"
#include "ops/rotary/rotary.h"

namespace weft {
namespace {

// The text as a Markdown code block.
std::string quoted(const std::string& text) {
  std::string lines = "    ";
  for (const char c : text) lines += c == '\n' ? std::string("\n    ") : std::string(1, c);
  return lines;
}

// Writes text to standard output. On a terminal unprintable bytes are escaped.
class SampleOutput {
 public:
  void say(std::string_view more) {
    const std::string shown = terminal_ ? text_.add(more) : std::string(more);
    std::fwrite(shown.data(), 1, shown.size(), stdout);
    std::fflush(stdout);
  }
  void end() {
    fmt::print("{}\n", text_.rest());
    std::fflush(stdout);
  }

 private:
  const bool terminal_ = ::isatty(STDOUT_FILENO) == 1;
  PrintableText text_;
};

const char* name_of(Activation activation) {
  switch (activation) {
    case Activation::none:
      return "none";
    case Activation::relu:
      return "relu";
    case Activation::gelu:
      return "gelu_tanh";
    case Activation::silu:
      return "silu";
  }
  fail("export: an activation has no name");
}

Json architecture_of(const UniversalTransformerConfig& m) {
  const AttentionSpec attention(m.attention);
  const Activation activation = nn::activation_behind(attention, nn::BlockOptions{}.activation);
  Json all = {{"model", "universal transformer"},
              {"vocabulary", m.vocabulary},
              {"width", m.width},
              {"depth", m.depth},
              {"shared", m.shared},
              {"heads", m.heads},
              {"length", m.length},
              {"attention", to_json(attention)},
              {"causal", true},
              {"encoding", m.encoding},
              {"conv_width", m.conv_width},
              {"conv_activation", name_of(Activation::relu)},
              {"wiring", m.wiring},
              {"norm_epsilon", Residual{}.epsilon},
              {"hidden", m.hidden > 0 ? m.hidden : 4 * m.width},
              {"activation", name_of(activation)},
              {"act", m.act},
              {"act_epsilon", AdaptiveComputation{}.epsilon}};
  if (m.encoding == "rotary") all["rotary_base"] = Rotary{}.base;
  return all;
}

}  // namespace

std::string text_to_score(const LanguageEvalCommand& command, const std::string& trained_with) {
  if (!command.data.empty()) return command.data;
  require(trained_with == "builtin" || std::filesystem::exists(trained_with),
          "{}: the model's training text is not found; name it with --data", trained_with);
  return trained_with;
}

void check(const SampleCommand& command) {
  require(command.tokens >= 0, "--tokens: wanted 0 or more, got {}", command.tokens);
  check_limits("samples", static_cast<double>(command.samples), {1, 1e9});
  check(command.options);
}

int export_model(const ExportCommand& command, const UniversalTransformer& network,
                 const std::vector<NamedTensor>& tensors,
                 const std::map<std::string, std::string>& metadata) {
  return export_model(command, tensors, metadata, architecture_of(network.config()), [&] {
    const auto vocabulary = static_cast<std::uint32_t>(network.config().vocabulary);
    const Tensor ids = Tensor::empty({2, network.config().length}, DType::i64);
    for (i64 i = 0; i < ids.count(); ++i) {
      const std::uint32_t word = RandomKey{}.words(static_cast<std::uint64_t>(i)).word[0];
      ids.data<i64>()[i] = below(word, vocabulary);
    }
    return example_of<UniversalTransformer>(
        network.config(), tensors, ids,
        [&](const UniversalTransformer& model, Context& context, DType) {
          return model(context, ids).logits.value();
        });
  });
}

void print_sample(const std::string& attention, RunFolder& folder, Progress& progress,
                  const std::function<std::string()>& write) {
  const AttentionSpec spec(attention);
  if (!can_decode(spec)) {
    const std::string& wants = spec.mechanism().decode_wants;
    progress.print(fmt::format("sample none: {} cannot decode step by step{}", spec.text(),
                               wants.empty() ? "" : " without the option " + wants));
    return;
  }
  const std::string text = write();
  folder.show_text("sample", quoted(printable(text)));
  progress.print("sample " + (::isatty(STDOUT_FILENO) == 1 ? printable(text) : text));
}

int write_samples(const SampleCommand& command, const SampleWriter& writer) {
  check(command);
  const i64 length = writer.network.config().length;
  const i64 drawn_and_read = std::max<i64>(command.tokens - 1, 0);  // the last is not read
  if (restarts(writer.network, writer.prompt + drawn_and_read)) {
    print_stderr(
        "{}: beyond the {} positions of the model: it restarts from the last {} {} whenever "
        "they are used up",
        writer.app, length, length / 2, writer.unit);
  }
  SamplingOptions options = command.options;
  const Stopwatch watch;
  for (i64 i = 0; i < command.samples; ++i) {
    if (command.samples > 1) fmt::print("--- sample {} of {} ---\n", i + 1, command.samples);
    options.sample = static_cast<std::uint32_t>(i);
    SampleOutput output;
    writer.write(options, [&](std::string_view more) { output.say(more); });
    output.end();
  }
  const auto tokens = static_cast<double>(command.samples * command.tokens);
  print_stderr("{}: {} tokens/s", writer.app, short_number(tokens / watch.seconds()));
  return 0;
}

}  // namespace weft
