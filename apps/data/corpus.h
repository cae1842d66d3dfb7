// The built-in corpus: sentences of a small grammar whose entropy is known exactly.
//
// The grammar is a finite automaton over words. In state s it says word w with probability
// p(w | s), a space after it, and moves to the state that (s, w) names. The words that leave a
// state differ, so who knows the state and reads the text knows all states to come (the source is
// unifilar, as in C. E. Shannon, "A mathematical theory of communication", 1948, section 7), and
// the text's information is that of the choices alone. With π the stationary distribution over
// words, the entropy rate is
//
//     h = Σ_s π(s) H(s) / Σ_s π(s) ℓ(s)        bits per character
//     H(s) = −Σ_w p(w | s) log₂ p(w | s),      ℓ(s) = Σ_w p(w | s) (length of w + 1)
//
// No model, however large, predicts the text in fewer bits on average.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

struct GrammarWord {
  std::string word;
  double probability;
  int next;  // the state after it
};

// A list of words for each state; the first state is where texts begin. Throws where probabilities
// do not sum to one, or a state says one word in two ways.
class Grammar {
 public:
  explicit Grammar(std::vector<std::vector<GrammarWord>> states);

  // h, bits per character.
  double entropy() const;
  // The first `characters` characters of the text with this seed.
  std::string text(std::uint64_t seed, std::size_t characters) const;

  // The bits that the best possible predictor needs for the characters of `window` after the
  // first, in sum. It knows the grammar and nothing of what stood before: the forward algorithm
  // over all places inside words, from their stationary distribution. What a window costs above h
  // is the price of its cut-off past.
  double bits(std::string_view window) const;

 private:
  struct Place {  // of a character inside a word that a state says
    char character;
    int next;  // behind the space: the state to come; before it: −1, and the next place follows
  };

  std::vector<std::vector<GrammarWord>> states_;
  std::vector<double> visits_;                    // π
  std::vector<Place> places_;
  std::vector<std::vector<std::size_t>> starts_;  // of each state's words, among the places
};

// The grammar of the built-in corpus: English-like sentences over a–z and space. A verb agrees
// with the subject, also when other nouns stand between the two.
Grammar sentence_grammar();

}  // namespace weft
