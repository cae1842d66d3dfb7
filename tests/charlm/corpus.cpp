#include "apps/data/corpus.h"

#include <cmath>

#include "doctest/doctest.h"
#include "tests/files.h"

using namespace weft;

TEST_SUITE("charlm") {

TEST_CASE("corpus: the entropy of grammars that are solved by hand") {
  // A fair coin over two words of two characters with the space: 1 bit in 2 characters.
  CHECK(Grammar({{{"a", 0.5, 0}, {"b", 0.5, 0}}}).entropy() == doctest::Approx(0.5));
  // No choice at all, and a periodic chain.
  CHECK(Grammar({{{"a", 1, 1}}, {{"b", 1, 0}}}).entropy() == doctest::Approx(0));
  // State 0 is left with probability 1/2, state 1 always: π = (2/3, 1/3). Bits: 1 in state 0.
  // Characters: 2/3 (2/2 + 4/2) + 1/3 · 3.
  const Grammar grammar({{{"a", 0.5, 0}, {"bcd", 0.5, 1}}, {{"ef", 1, 0}}});
  CHECK(grammar.entropy() == doctest::Approx((2.0 / 3) / (2.0 / 3 * 3 + 1.0)));
}

TEST_CASE("corpus: a grammar that is no automaton is an error") {
  CHECK(contains(error_of([] { Grammar({{{"a", 0.5, 0}, {"a", 0.5, 0}}}); }), "two ways"));
  CHECK(contains(error_of([] { Grammar({{{"a", 0.5, 0}, {"b", 0.4, 0}}}); }), "probability 0.9"));
  CHECK(contains(error_of([] { Grammar({{{"a", 1, 1}}}); }), "state 1 of 1"));
}

TEST_CASE("corpus: the text is a function of the seed and goes on where it was cut") {
  const Grammar grammar = sentence_grammar();
  const std::string text = grammar.text(1, 5000);
  CHECK(text.size() == 5000);
  CHECK(grammar.text(1, 300) == text.substr(0, 300));
  CHECK(grammar.text(2, 300) != text.substr(0, 300));
  for (const char character : text) {
    REQUIRE((character == ' ' || (character >= 'a' && character <= 'z')));
  }
}

TEST_CASE("corpus: the bits of a window, by hand") {
  const Grammar grammar({{{"a", 0.5, 0}, {"bcd", 0.5, 1}}, {{"ef", 1, 0}}});
  // After the a comes a space, for sure; after that an a or a b, with equal probability.
  CHECK(grammar.bits("a a") == doctest::Approx(1));
  CHECK(grammar.bits("a bcd ef a") == doctest::Approx(2));
  // A space without a context: π = (2/3, 1/3) over words, so of 3 spaces 1 follows an a, 1 a bcd
  // and 1 an ef; two of the three lead to state 0.
  CHECK(grammar.bits(" e") == doctest::Approx(std::log2(3)));
  CHECK(grammar.bits(" a") == doctest::Approx(std::log2(3)));
}

TEST_CASE("corpus: the best predictor of a long text needs the entropy, of a short window more") {
  const Grammar grammar = sentence_grammar();
  const std::string text = grammar.text(3, 60'000);
  const double all = grammar.bits(text) / static_cast<double>(text.size() - 1);
  CHECK(std::abs(all - grammar.entropy()) < 0.01);  // four standard errors
  double windows = 0;
  for (std::size_t begin = 0; begin < text.size() - 1; begin += 100) {
    windows += grammar.bits(std::string_view(text).substr(begin, 101));
  }
  windows /= static_cast<double>(text.size() - 1);
  CHECK(windows > all);
  CHECK(windows < all + 0.1);
  CHECK_THROWS_AS(grammar.bits("the zebra"), Error);
}

}  // TEST_SUITE
