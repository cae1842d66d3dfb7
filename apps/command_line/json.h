// JSON values. Of the apps only json.cpp includes nlohmann's library, whose headers take longer to
// compile than most files that use JSON.
//
//     Json line = {{"kind", "test"}, {"loss", 1.5}, {"sizes", std::vector{3, 4}}};
//     line["seconds"] = 2;
//     print_json(line);
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/types.h"

namespace weft {

class Json {
 public:
  using Array = std::vector<Json>;
  using Member = std::pair<std::string, Json>;
  using Object = std::vector<Member>;  // in the order in which members were added
  using Value =
      std::variant<std::monostate, bool, i64, std::uint64_t, double, std::string, Array, Object>;

  Json() = default;  // null
  Json(std::nullptr_t) {}
  Json(bool value) : value_(value) {}
  template <std::signed_integral T>
  Json(T value) : value_(i64{value}) {}
  template <std::unsigned_integral T>
  Json(T value) : value_(std::uint64_t{value}) {}
  Json(double value) : value_(value) {}
  Json(const char* text) : value_(std::string(text)) {}
  Json(std::string text) : value_(std::move(text)) {}
  Json(Array items) : value_(std::move(items)) {}
  Json(Object members) : value_(std::move(members)) {}
  Json(std::initializer_list<Member> members) : value_(Object(members)) {}
  template <class T>
  Json(const std::vector<T>& items) : value_(Array(items.begin(), items.end())) {}
  Json(const std::map<std::string, std::string>& members)
      : value_(Object(members.begin(), members.end())) {}

  static Json array() { return Array(); }

  template <class T>
  bool is() const {
    return std::holds_alternative<T>(value_);
  }
  // Each copies a value of its type to `to` and returns true, or returns false for another type.
  // An integer converts to a double. A fraction does not convert to an integer, nor a negative
  // number to std::uint64_t: nothing is rounded or wrapped.
  bool take(bool& to) const;
  bool take(i64& to) const;
  bool take(std::uint64_t& to) const;
  bool take(double& to) const;
  bool take(std::string& to) const;
  const Value& value() const { return value_; }
  const Array& items() const { return std::get<Array>(value_); }
  const Object& members() const { return std::get<Object>(value_); }

  // Null if this is not an object or has no such member.
  const Json* find(const std::string& name) const;
  // The member of an object; adds it if it is missing. A null value becomes an object.
  Json& operator[](const std::string& name);
  // Adds or replaces the members of the other object.
  void update(const Json& other);
  // Appends to an array. A null value becomes an array.
  void push_back(Json item);

  // The text, on one line or indented by so many spaces per level. Bytes that are not UTF-8, which
  // a path may hold, are replaced.
  std::string text(int indent = -1) const;

  bool operator==(const Json&) const = default;

 private:
  Value value_;
};

// Null if no member has this name.
const Json* find(const Json::Object& members, const std::string& name);

// Nothing if the text is not JSON or has more than 64 levels.
std::optional<Json> parse_json(const std::string& text);

// Prints a line to standard output.
void print_json(const Json& json);

}  // namespace weft
