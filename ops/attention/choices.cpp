// Choices that a call reports, and choices that the caller gives; AttentionChoice says how bad ones
// are handled.
#include <algorithm>

#include <fmt/core.h>

#include "ops/attention/mechanism.h"
#include "runtime/listed.h"
#include "runtime/names.h"

namespace weft {
namespace {

void check_names(const BoundCall& fitted, const AttentionCall& call) {
  const Mechanism& mechanism = fitted.spec.mechanism();
  std::vector<std::string> accepted;
  for (const AttentionChoice& choice : mechanism.choices) {
    const bool there =
        mechanism.wrapper || choice.decided == nullptr || choice.decided(fitted.spec, call);
    if (choice.accepted && there) accepted.push_back(choice.name);
  }
  for (const AttentionInput& sheet : fitted.sheets) {
    if (sheet.role == Role::drawn) accepted.push_back(sheet.name);
  }
  for (const auto& [name, value] : call.given) {
    require(std::count(accepted.begin(), accepted.end(), name) == 1,
            "{}: {} cannot be given; these can: {}", mechanism.name, name,
            known_names(name, accepted));
  }
}

// Why a value, one of `values`, is invalid; empty: it is valid. `taken`: the elements of a
// permutation seen so far.
std::string wrong(const AttentionChoice& choice, const ChoicePlace& at, i64 values,
                  const i64* value, std::vector<bool>& taken) {
  const bool ascending = choice.order == ChoiceOrder::ascending;
  if (ascending && *value == -1) return {};
  const char* const last = ascending ? ", and -1 after the last" : "";
  if (values == AttentionChoice::unbounded && *value < 0) return "wanted at least 0";
  if (values == 0) return fmt::format("there is nothing to choose{}", last);
  if (*value < 0 || *value >= values) return fmt::format("wanted 0 … {}{}", values - 1, last);
  if (ascending && at.place.back() > 0 && (value[-1] < 0 || value[-1] >= *value)) {
    return fmt::format("after {}; wanted ascending numbers{}", value[-1], last);
  }
  if (choice.order == ChoiceOrder::permutation) {
    const std::size_t column = static_cast<std::size_t>(at.place[2] * values + *value);
    if (taken[column]) return "used before; wanted a permutation";
    taken[column] = true;
  }
  return {};
}

// A choice, checked on the host; 0 where there is no such element.
Tensor checked(const BoundCall& fitted, const AttentionCall& call, const AttentionChoice& choice,
               const Tensor& given) {
  const Shape& shape = given.shape();
  const Tensor result = given.device() == Device{} ? given.clone() : given.to(Device{});
  i64* const value = result.data<i64>();
  std::vector<i64> place(static_cast<std::size_t>(shape.rank()), 0);
  std::vector<bool> taken;
  for (i64 i = 0; i < given.count(); ++i) {
    const bool item = choice.order == ChoiceOrder::permutation && place[1] == 0 && place[2] == 0;
    if (item) taken.assign(static_cast<std::size_t>(shape[1] * shape[2]), false);
    const ChoicePlace at{fitted.spec, fitted.sizes, call, place};
    const i64 values = choice.values(at);
    if (values == AttentionChoice::no_such_element) {
      value[i] = 0;
    } else {
      const std::string why = wrong(choice, at, values, value + i, taken);
      require(why.empty(), "{}: the given {}[{}] is {}; {}", fitted.spec.mechanism().name,
              choice.name, listed(place), value[i], why);
    }
    for (std::size_t axis = place.size(); axis-- > 0;) {
      if (++place[axis] < shape[static_cast<int>(axis)]) break;
      place[axis] = 0;
    }
  }
  return result;
}

}  // namespace

Choices checked_choices(const BoundCall& fitted, const AttentionCall& call) {
  Choices choices = call.given;
  if (choices.empty()) return choices;
  check_names(fitted, call);
  const Mechanism& mechanism = fitted.spec.mechanism();
  if (mechanism.wrapper) return choices;  // the inner mechanism checks them
  AttentionCall held = call;
  for (Tensor* const lengths : {&held.lengths, &held.query_lengths}) {
    if (lengths->defined()) *lengths = lengths->to(Device{}).packed();
  }
  for (const AttentionChoice& choice : mechanism.choices) {
    if (choice.values == nullptr) continue;
    const Shape shape = choice.sizes(fitted.spec, fitted.sizes);
    const Tensor given = given_choice(mechanism, call, choice.name, shape);
    if (given.defined()) choices.at(choice.name) = checked(fitted, held, choice, given);
  }
  return choices;
}

Tensor given_choice(const Mechanism& mechanism, const AttentionCall& call, const std::string& name,
                    const Shape& shape, DType type) {
  const auto found = call.given.find(name);
  if (found == call.given.end()) return {};
  const Tensor& value = found->second;
  require(value.shape() == shape && value.dtype() == type,
          "{}: the given {} must be {} of {}, got {} of {}", mechanism.name, name, shape,
          name_of(type), value.shape(), name_of(value.dtype()));
  return value.packed();
}

void report_choice(const AttentionCall& call, const std::string& name, const Tensor& value) {
  if (call.chosen != nullptr) call.chosen->insert_or_assign(name, value);
}

}  // namespace weft
