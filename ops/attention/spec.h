// The name of a mechanism everywhere: `name:option=value,option=value`, and for a wrapper
// `wrapper:option=value/inner:option=value`. An unknown name or option is an error that lists the
// existing ones.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/types.h"

namespace weft {

struct Mechanism;

// An option of a mechanism, as its fact sheet declares it.
struct OptionSheet {
  std::string name;
  std::string initial;  // its default
  std::string help;
  std::vector<std::string> choices = {};  // the words allowed; empty: a number in [least, most]
  std::vector<std::string> handed = {};   // further words, which need a choice given by the caller
  double least = 0, most = 0;
  bool whole = true;      // an integer
  std::string with = {};  // conditions (unmet()) without which it has to keep its default
  std::vector<std::string> tried = {};  // further values for the tests: what matters, in bounds
};

// A mechanism with all its options set.
class AttentionSpec {
 public:
  // Parses and checks `text`; throws Error with what is unknown and what exists.
  explicit AttentionSpec(const std::string& text);

  // For a wrapper, the one that it makes with its inner mechanism.
  const Mechanism& mechanism() const { return *mechanism_; }
  double number(const std::string& option) const;
  i64 integer(const std::string& option) const;
  const std::string& word(const std::string& option) const;
  // Whether the mechanism has this option; whether it was written, be it with its default; whether
  // its value is the default.
  bool has(const std::string& option) const;
  bool sets(const std::string& option) const;
  bool is_default(const std::string& option) const;
  // The first of the conditions "option=value", "option=value|value" for one of several values,
  // and "option!=value", separated by commas, that does not hold; empty: all do.
  std::string unmet(const std::string& conditions) const;
  // The same with a number for an option, as if it had been written.
  AttentionSpec with(const std::string& option, i64 value) const;
  // A wrapper's inner mechanism; otherwise null.
  const AttentionSpec* inner() const { return inner_.get(); }
  // The text that parses to this spec: the options that are written, in the fact sheet's order.
  std::string text() const;

 private:
  void set(std::size_t option, const std::string& value);

  std::shared_ptr<const Mechanism> mechanism_;
  std::vector<std::string> values_;  // in the order of mechanism().options
  std::vector<bool> written_;
  std::shared_ptr<const AttentionSpec> inner_;
};

// The specifications of a comma-separated list, "full,topk:topk=16,detach=1,csp". An entry with a
// '=' and no ':' before it is an option of the specification before it; any other entry begins a
// new one. Throws if an entry is empty, or an option comes first.
std::vector<std::string> split_specifications(const std::string& list);

}  // namespace weft
