#include "apps/command_line/json.h"

#include <algorithm>
#include <type_traits>

#include <nlohmann/json.hpp>

#include <fmt/core.h>

namespace weft {
namespace {

using Library = nlohmann::ordered_json;

constexpr int most_levels = 64;  // both functions below recurse once per level

Library to_library(const Json& json) {
  return std::visit(
      []<class T>(const T& value) -> Library {
        if constexpr (std::is_same_v<T, std::monostate>) {
          return nullptr;
        } else if constexpr (std::is_same_v<T, Json::Array>) {
          Library array = Library::array();
          for (const Json& item : value) array.push_back(to_library(item));
          return array;
        } else if constexpr (std::is_same_v<T, Json::Object>) {
          Library object = Library::object();
          for (const auto& [name, member] : value) object[name] = to_library(member);
          return object;
        } else {
          return value;
        }
      },
      json.value());
}

Json from_library(const Library& json) {
  using Type = Library::value_t;
  switch (json.type()) {
    case Type::boolean:
      return json.get<bool>();
    case Type::number_integer:
      return json.get<i64>();
    case Type::number_unsigned:
      return json.get<std::uint64_t>();
    case Type::number_float:
      return json.get<double>();
    case Type::string:
      return json.get<std::string>();
    case Type::array: {
      Json::Array items;
      for (const Library& item : json) items.push_back(from_library(item));
      return items;
    }
    case Type::object: {
      Json::Object members;  // the parser drops duplicate names
      for (const auto& [name, member] : json.items())
        members.emplace_back(name, from_library(member));
      return members;
    }
    default:
      return {};
  }
}

template <class T>
bool take_same(const Json::Value& from, T& to) {
  const T* const held = std::get_if<T>(&from);
  if (held != nullptr) to = *held;
  return held != nullptr;
}

}  // namespace

bool Json::take(bool& to) const { return take_same(value_, to); }
bool Json::take(std::string& to) const { return take_same(value_, to); }
bool Json::take(std::uint64_t& to) const { return take_same(value_, to); }
bool Json::take(i64& to) const {
  std::uint64_t natural = 0;
  if (!take_same(value_, natural)) return take_same(value_, to);
  to = static_cast<i64>(natural);
  return true;
}
bool Json::take(double& to) const {
  return std::visit(
      [&]<class T>(const T& held) {
        constexpr bool number = std::is_arithmetic_v<T> && !std::is_same_v<T, bool>;
        if constexpr (number) to = static_cast<double>(held);
        return number;
      },
      value_);
}

const Json* Json::find(const std::string& name) const {
  return is<Object>() ? weft::find(members(), name) : nullptr;
}

Json& Json::operator[](const std::string& name) {
  if (is<std::monostate>()) value_ = Object();
  Object& all = std::get<Object>(value_);
  const auto found = std::ranges::find(all, name, &Member::first);
  return found == all.end() ? all.emplace_back(name, Json()).second : found->second;
}

void Json::update(const Json& other) {
  for (const auto& [name, member] : other.members()) (*this)[name] = member;
}

void Json::push_back(Json item) {
  if (is<std::monostate>()) value_ = Array();
  std::get<Array>(value_).push_back(std::move(item));
}

std::string Json::text(int indent) const {
  return to_library(*this).dump(indent, ' ', false, Library::error_handler_t::replace);
}

const Json* find(const Json::Object& members, const std::string& name) {
  const auto found = std::ranges::find(members, name, &Json::Member::first);
  return found == members.end() ? nullptr : &found->second;
}

std::optional<Json> parse_json(const std::string& text) {
  bool deep = false;
  const auto watch = [&](int around, Library::parse_event_t event, Library&) {
    using Event = Library::parse_event_t;
    const bool opens = event == Event::array_start || event == Event::object_start;
    deep = deep || (opens && around >= most_levels);
    return !deep;
  };
  const Library parsed = Library::parse(text, watch, false);
  if (deep || parsed.is_discarded()) return {};
  return from_library(parsed);
}

void print_json(const Json& json) { fmt::print("{}\n", json.text()); }

}  // namespace weft
