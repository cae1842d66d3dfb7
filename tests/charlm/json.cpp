#include "apps/command_line/json.h"

#include <limits>

#include "doctest/doctest.h"

using namespace weft;

TEST_SUITE("charlm") {

TEST_CASE("json: values become text and come back") {
  Json line = {{"kind", "test"}, {"loss", 1.5}, {"sizes", std::vector{3, -4}}, {"best", true}};
  line["more"] = {{"none", Json()}, {"large", std::numeric_limits<std::uint64_t>::max()}};
  line["kind"] = "train";
  line.update({{"loss", 0.25}, {"last", Json::array()}});
  line["last"].push_back({{"x", 1u}});
  const std::string text = line.text();
  CHECK(text == R"({"kind":"train","loss":0.25,"sizes":[3,-4],"best":true,)"
                R"("more":{"none":null,"large":18446744073709551615},"last":[{"x":1}]})");
  const std::optional<Json> back = parse_json(text);
  REQUIRE(back.has_value());
  CHECK(back->text() == text);
  CHECK(parse_json(line.text(2))->text() == text);
  CHECK(back->find("more")->find("none") != nullptr);
  CHECK(back->find("nothing") == nullptr);
  CHECK(back->find("kind")->find("nothing") == nullptr);
  CHECK(Json("a\xff").text() == "\"a\xef\xbf\xbd\"");
  CHECK(Json(std::numeric_limits<double>::quiet_NaN()).text() == "null");
}

TEST_CASE("json: what is none, or nested too deeply, is nothing") {
  for (const char* const text : {"", "{", "[1,]", "{\"a\":1} x", "nan"}) {
    CHECK_FALSE(parse_json(text));
  }
  const auto nested = [](std::size_t levels) {
    return std::string(levels, '[') + std::string(levels, ']');
  };
  CHECK(parse_json(nested(64)).has_value());
  CHECK_FALSE(parse_json(nested(65)).has_value());
  CHECK_FALSE(parse_json(nested(2'000'000)).has_value());
}

TEST_CASE("json: a value is taken as what it is") {
  i64 whole = 0;
  std::uint64_t natural = 0;
  double number = 0;
  bool flag = false;
  std::string word;
  CHECK(Json(7u).take(whole));
  CHECK(whole == 7);
  CHECK(Json(-2).take(whole));
  CHECK(whole == -2);
  CHECK_FALSE(Json(-2).take(natural));
  CHECK_FALSE(Json(1.5).take(whole));
  CHECK(Json(3).take(number));
  CHECK(number == 3);
  CHECK_FALSE(Json(true).take(number));
  CHECK(Json(true).take(flag));
  CHECK(Json("word").take(word));
  CHECK_FALSE(Json().take(word));
}

}  // TEST_SUITE
