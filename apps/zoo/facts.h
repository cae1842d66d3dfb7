// A mechanism's fact sheet as text and as JSON.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ops/attention/mechanism.h"

namespace weft {

// A mechanism, by name or with the options of a specification.
class Sheet {
 public:
  explicit Sheet(const std::string& wanted);  // throws for an unknown mechanism
  explicit Sheet(const Mechanism& mechanism) : mechanism_(&mechanism) {}

  const Mechanism& mechanism() const { return spec_ ? spec_->mechanism() : *mechanism_; }
  // The value of an option of the mechanism, or of a wrapper's inner mechanism.
  std::string value_of(const OptionSheet& option) const;
  std::optional<Sheet> inner() const;
  AttentionInputs inputs() const;  // empty for a wrapper alone
  // Whether this is a wrapper without inner mechanism; facts that depend on the inner one are
  // absent.
  bool alone() const { return mechanism().wrapper && !spec_; }
  // With the options of a specification; for a name whether some options allow it.
  bool causal() const;
  bool decodes() const;
  // Whether a call may draw or decide it, with the options of a specification or the defaults.
  bool decides(const AttentionChoice& choice) const;
  // The choices, for a specification those that a call may decide.
  std::vector<AttentionChoice> choices() const;
  // For a name the options that causal calls and decoding need: "attention!=csp"; otherwise empty.
  std::string causal_wants() const;
  std::string decode_wants() const;
  std::string name() const { return spec_ ? spec_->text() : mechanism().name; }

 private:
  explicit Sheet(AttentionSpec spec) : spec_(std::move(spec)) {}

  const Mechanism* mechanism_ = nullptr;
  std::optional<AttentionSpec> spec_;
};

std::string masks_of(const Mechanism& mechanism);  // "lengths of both, bias"
std::string causal_of(const Sheet& sheet);  // "no", "yes", "yes, with sort=attention", "leaks" …
// "no", or `yes` and on what condition.
std::string decoding_of(const Sheet& sheet, const std::string& yes);
std::string joined(const std::vector<std::string>& words, const char* between,
                   const char* none = "");

// As text, with the page of equations.
std::string text_of(const Sheet& sheet);

std::string facts_of(const Sheet& sheet);  // as a JSON object
std::string facts_of_all();                // all mechanisms, as a JSON array

}  // namespace weft
