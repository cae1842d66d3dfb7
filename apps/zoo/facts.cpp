#include "apps/zoo/facts.h"

#include <fmt/core.h>

#include "apps/command_line/json.h"
#include "runtime/listed.h"

namespace weft {
namespace {

const char* source_of(const AttentionInput& input) {
  switch (input.role) {
    case Role::projected:
      return "projected";
    case Role::sequence:
      return "the sequence itself";
    case Role::parameter:
      return "learnt";
    case Role::drawn:
      return "drawn";
    case Role::index:
      return "the caller's choice of positions";
    case Role::bias:
      return "added to the scores";
  }
  return "";
}

std::string values_of(const OptionSheet& option) {
  if (!option.choices.empty()) return joined(option.choices, "/");
  if (option.whole) return fmt::format("{:.0f} … {:.0f}", option.least, option.most);
  return fmt::format("{:g} … {:g}", option.least, option.most);
}

std::string options_of(const Sheet& sheet) {
  std::string text;
  for (const OptionSheet& option : sheet.mechanism().options) {
    const std::string value = sheet.value_of(option);
    text += fmt::format("  {:<16} {:<10} {} ({}{})\n", option.name, value, option.help,
                        values_of(option),
                        value == option.initial ? "" : "; default " + option.initial);
  }
  return text;
}

Json json_of(const Sheet& sheet) {
  const Mechanism& m = sheet.mechanism();
  Json inputs = Json::array(), choices = Json::array(), options = Json::array();
  for (const AttentionInput& input : sheet.inputs()) {
    inputs.push_back({{"name", input.name},
                      {"shape", input.axes},
                      {"from", source_of(input)},
                      {"bias", input.biased},
                      {"optional", input.optional}});
  }
  for (const AttentionChoice& choice : sheet.choices()) {
    choices.push_back({{"name", choice.name},
                       {"shape", choice.shape},
                       {"integer", choice.integer},
                       {"accepted", choice.accepted},
                       {"decided", sheet.decides(choice)}});
  }
  for (const OptionSheet& option : m.options) {
    Json one = {
        {"name", option.name}, {"value", sheet.value_of(option)}, {"default", option.initial}};
    if (option.choices.empty()) {
      one.update({{"least", option.least}, {"most", option.most}, {"whole", option.whole}});
    } else {
      one["words"] = option.choices;
    }
    one["help"] = option.help;
    options.push_back(one);
  }
  Json json = {{"name", m.name},
               {"specification", sheet.name()},
               {"title", m.title},
               {"paper", m.paper},
               {"equations", m.equations},
               {"time", m.scaling},
               {"page", m.page.empty() ? m.name : m.page},
               {"wrapper", m.wrapper}};
  if (!sheet.alone()) {
    json.update({{"memory", m.memory},
                 {"masks",
                  {{"causal", m.masks.causal},
                   {"lengths", m.masks.lengths},
                   {"query_lengths", m.masks.query_lengths},
                   {"bias", m.masks.bias},
                   {"pattern", m.masks.pattern}}},
                 {"causal", causal_of(sheet)},
                 {"strictly_causal", m.strictly_causal},
                 {"in_layers", m.rows.count == nullptr},
                 {"earlier_keys", m.earlier_keys},
                 {"two_sequences", m.cross}});
  }
  json.update({{"decoding", sheet.decodes()},
               {"decoding_wants", sheet.decode_wants()},
               {"inputs", inputs},
               {"choices", choices},
               {"options", options}});
  if (const std::optional<Sheet> inner = sheet.inner()) json["inner"] = json_of(*inner);
  return json;
}

// The end of "yes, with sort=attention, iterations=7".
std::string only_with(const std::string& conditions) {
  std::string text;
  for (const char c : conditions) text += c == ',' ? ", " : std::string(1, c);
  return text.empty() ? "" : ", with " + text;
}

std::string dumped(const Json& json) { return json.text(1) + "\n"; }

}  // namespace

Sheet::Sheet(const std::string& wanted) {
  if (wanted.find_first_of(":/") == std::string::npos) {
    mechanism_ = &weft::mechanism(wanted);
  } else {
    spec_.emplace(wanted);
  }
}

std::string Sheet::value_of(const OptionSheet& option) const {
  return spec_ ? spec_->word(option.name) : option.initial;
}

std::optional<Sheet> Sheet::inner() const {
  if (!spec_ || spec_->inner() == nullptr) return {};
  return Sheet(*spec_->inner());
}

AttentionInputs Sheet::inputs() const {
  if (alone()) return {};
  return attention_inputs(spec_ ? *spec_ : AttentionSpec(mechanism_->name));
}

bool Sheet::causal() const { return spec_ ? has_causal_form(*spec_) : mechanism_->masks.causal; }

bool Sheet::decodes() const { return spec_ ? can_decode(*spec_) : mechanism_->decode != nullptr; }

bool Sheet::decides(const AttentionChoice& choice) const {
  if (choice.decided == nullptr || mechanism().wrapper) return true;
  const AttentionSpec spec = spec_ ? *spec_ : AttentionSpec(mechanism_->name);
  const auto in = [&](bool causal) {
    return choice.decided(spec, {.causal = causal, .training = true});
  };
  return in(false) || (has_causal_form(spec) && in(true));
}

std::vector<AttentionChoice> Sheet::choices() const {
  std::vector<AttentionChoice> list = mechanism().choices;
  if (spec_) {
    std::erase_if(list, [&](const AttentionChoice& choice) { return !decides(choice); });
  }
  return list;
}

std::string Sheet::causal_wants() const { return spec_ ? "" : mechanism_->causal_wants; }

std::string Sheet::decode_wants() const {
  if (spec_ || !decodes()) return "";
  std::string wants = mechanism_->causal_wants;
  for (const OptionSheet& option : mechanism_->options) {
    if (option.name != mechanism_->decode_wants) continue;
    wants += (wants.empty() ? "" : ",") + option.name + "!=" + option.initial;
  }
  return wants;
}

std::string joined(const std::vector<std::string>& words, const char* between, const char* none) {
  return words.empty() ? none : listed(words, between).text();
}

std::string masks_of(const Mechanism& m) {
  std::vector<std::string> words;
  if (m.masks.lengths) words.push_back(m.masks.query_lengths ? "lengths of both" : "lengths");
  if (m.masks.bias) words.push_back("bias");
  if (m.masks.pattern) words.push_back("pattern");
  return joined(words, ", ", "none");
}

std::string causal_of(const Sheet& sheet) {
  const Mechanism& m = sheet.mechanism();
  if (!sheet.causal()) return "no";
  if (!m.strictly_causal) return m.causal_only ? "only, and leaks" : "leaks";
  return m.causal_only ? "only" : "yes" + only_with(sheet.causal_wants());
}

std::string decoding_of(const Sheet& sheet, const std::string& yes) {
  return sheet.decodes() ? yes + only_with(sheet.decode_wants()) : "no";
}

std::string text_of(const Sheet& sheet) {
  const Mechanism& m = sheet.mechanism();
  std::string text = sheet.name() + (m.title.empty() ? "" : ": ") + m.title + "\n\n";
  const auto line = [&](const char* name, const std::string& value) {
    if (!value.empty()) text += fmt::format("{:<10} {}\n", name, value);  // a plugin need not say
  };
  line("paper", m.paper);
  line("equations", m.equations);
  line("time", m.scaling);
  if (sheet.alone()) {
    line("a wrapper", fmt::format("{}:option=value/inner:option=value; inputs, masks and facts are "
                                  "those of the inner mechanism",
                                  m.name));
  } else {
    line("memory", m.memory);
    line("masks", masks_of(m));
    line("causal", causal_of(sheet));
    line("two sequences", m.cross ? "yes" : "no");
  }
  line("decoding", decoding_of(sheet, "step by step"));
  const AttentionInputs inputs = sheet.inputs();
  if (!inputs.empty()) text += "\ninputs\n";
  for (const AttentionInput& input : inputs) {
    text +=
        fmt::format("  {:<12} [{}]  {}{}{}{}\n", input.name, input.axes, source_of(input),
                    input.biased ? ", with a bias" : "", input.optional ? ", may be absent" : "",
                    input.causal ? ", only for causal attention" : "");
  }
  const std::vector<AttentionChoice> choices = sheet.choices();
  if (!choices.empty()) text += "\ndrawn or decided\n";
  for (const AttentionChoice& choice : choices) {
    text += fmt::format("  {:<12} [{}]  {}; {}{}\n", choice.name, choice.shape,
                        choice.integer ? "integers" : "numbers",
                        choice.accepted ? "can be given" : "output only",
                        sheet.decides(choice) ? "" : ", with other options");
  }
  if (!m.options.empty()) text += "\noptions\n" + options_of(sheet);
  for (auto inner = sheet.inner(); inner; inner = inner->inner()) {
    const std::string options = options_of(*inner);
    if (!options.empty())
      text += fmt::format("\noptions of {}\n{}", inner->mechanism().name, options);
  }
  const std::string page = page_of(m);
  return page.empty() ? text : text + "\n" + page;
}

std::string facts_of(const Sheet& sheet) { return dumped(json_of(sheet)); }

std::string facts_of_all() {
  Json all = Json::array();
  for (const Mechanism* m : mechanisms()) all.push_back(json_of(Sheet(*m)));
  return dumped(all);
}

}  // namespace weft
