// What a fact sheet says, in words and as JSON.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ops/attention/mechanism.h"

namespace weft {

// A mechanism by its name, or as a specification sets it up.
class Sheet {
 public:
  explicit Sheet(const std::string& wanted);  // throws where there is none such
  explicit Sheet(const Mechanism& mechanism) : mechanism_(&mechanism) {}

  const Mechanism& mechanism() const { return spec_ ? spec_->mechanism() : *mechanism_; }
  // The value of one of the mechanism's options, here and of a wrapper's inner mechanism.
  std::string value_of(const OptionSheet& option) const;
  std::optional<Sheet> inner() const;
  AttentionInputs inputs() const;  // none of a wrapper alone
  // A wrapper without its inner mechanism has none of the facts that depend on it.
  bool alone() const { return mechanism().wrapper && !spec_; }
  std::string name() const { return spec_ ? spec_->text() : mechanism().name; }

 private:
  explicit Sheet(AttentionSpec spec) : spec_(std::move(spec)) {}

  const Mechanism* mechanism_ = nullptr;
  std::optional<AttentionSpec> spec_;
};

std::string masks_of(const Mechanism& mechanism);   // "lengths of both, bias"
std::string causal_of(const Mechanism& mechanism);  // whether the past can be kept from the future
std::string joined(const std::vector<std::string>& words, const char* between,
                   const char* none = "");

// For people, with the page of equations.
std::string text_of(const Sheet& sheet);

std::string facts_of(const Sheet& sheet);  // a JSON object
std::string facts_of_all();                // a list of them

}  // namespace weft
