#include "apps/common/language_commands.h"

#include <cstdio>

#include "ops/attention/mechanism.h"

namespace weft {

void check(const SampleCommand& command) {
  require(command.tokens >= 0, "--tokens: wanted 0 or more, got {}", command.tokens);
  check(command.options);
}

int export_model(const ExportCommand& command, const UniversalTransformer& network,
                 const std::vector<NamedParameter>& parameters,
                 const std::map<std::string, std::string>& metadata) {
  return export_model(command, parameters, metadata, [&] {
    const auto vocabulary = static_cast<std::uint32_t>(network.config().vocabulary);
    const Tensor ids = Tensor::empty({2, network.config().length}, DType::i64);
    for (std::int64_t i = 0; i < ids.count(); ++i) {
      const std::uint32_t word = RandomKey{}.words(static_cast<std::uint64_t>(i)).word[0];
      ids.data<std::int64_t>()[i] = below(word, vocabulary);
    }
    Context context = Context::evaluation();
    return Example{ids, network(context, ids).logits.value()};
  });
}

void print_sample(const std::string& attention, Progress& progress,
                  const std::function<std::string()>& write) {
  const AttentionSpec spec(attention);
  if (spec.mechanism().decode == nullptr) {
    progress.print(fmt::format("sample none: {} cannot decode step by step", spec.text()));
    return;
  }
  progress.print("sample " + write());
}

void say_restarted(const char* app, std::int64_t length, const char* unit) {
  fmt::print(stderr,
             "{}: past the {} positions of the model: it starts again from the last {} {}, "
             "now and whenever they are used up\n",
             app, length, length / 2, unit);
}

void say_rate(const char* app, std::int64_t tokens, double seconds) {
  fmt::print(stderr, "{}: {} tokens/s\n", app, short_number(static_cast<double>(tokens) / seconds));
}

}  // namespace weft
