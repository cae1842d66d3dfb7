// How a mechanism is named everywhere: `name:option=value,option=value`, and for a wrapper
// `wrapper:option=value/inner:option=value`. An unknown name or option is an error that lists those
// that exist.
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
  std::string initial;               // its value where the user gives none
  std::string help;
  std::vector<std::string> choices = {};  // the words allowed; empty: a number in [least, most]
  std::vector<std::string> handed = {};   // words allowed besides, which want a choice handed in
  double least = 0, most = 0;
  bool whole = true;                    // a whole number
  std::string with = {};  // "option=value" without which it stays as it is; empty: none
  std::vector<std::string> tried = {};  // values that the tests try besides: what matters, in bounds
};

// A mechanism with all its options set.
class AttentionSpec {
 public:
  // Parses and checks `text`; throws Error naming what is unknown and what exists.
  explicit AttentionSpec(const std::string& text);

  // A wrapper's is the one that it makes with its inner mechanism.
  const Mechanism& mechanism() const { return *mechanism_; }
  double number(const std::string& option) const;
  i64 integer(const std::string& option) const;
  const std::string& word(const std::string& option) const;
  // Whether the mechanism has this option; whether it was given a value other than the initial one.
  bool has(const std::string& option) const;
  bool sets(const std::string& option) const;
  // The same with a number for an option, checked as if it had been written.
  AttentionSpec with(const std::string& option, i64 value) const;
  // A wrapper's inner mechanism; null elsewhere.
  const AttentionSpec* inner() const { return inner_.get(); }
  // The text that makes this spec again, options in the fact sheet's order, defaults left out.
  std::string text() const;

 private:
  std::shared_ptr<const Mechanism> mechanism_;
  std::vector<std::string> values_;  // in the order of mechanism().options
  std::shared_ptr<const AttentionSpec> inner_;
};

// The specifications of a list with commas, "full,topk:topk=16,detach=1,csp". What has a '=' and no
// ':' before it is an option of the specification before it; all else begins a new one. Throws where
// an entry is empty, or an option stands first.
std::vector<std::string> split_specifications(const std::string& list);

}  // namespace weft
