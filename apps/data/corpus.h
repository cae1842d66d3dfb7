// The built-in corpus: sentences of a small grammar whose entropy is known exactly.
//
// The grammar is a finite automaton over words. In state s it emits word w with probability
// p(w | s), followed by a space, and moves to a state determined by (s, w). The words of a state
// are distinct, so the first state and the text determine all later states (the source is unifilar,
// as in C. E. Shannon, "A mathematical theory of communication", 1948, section 7), and the text's
// information is that of the choices of words. With π the stationary distribution over states, one
// step per word, the entropy rate is
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
  int next;  // the state after the word
};

// A list of words for each state; texts begin in the first state. Throws if the probabilities of a
// state do not sum to one, or one of its words occurs twice.
class Grammar {
 public:
  explicit Grammar(std::vector<std::vector<GrammarWord>> states);

  // h, in bits per character.
  double entropy() const;
  // The first `characters` characters of the text with this seed.
  std::string text(std::uint64_t seed, std::size_t characters) const;

  // The total bits that the best possible predictor needs for the characters of `window` after the
  // first. It knows the grammar but not the text before the window: the forward algorithm over all
  // places inside words, started from their stationary distribution. The excess over h is the cost
  // of the unknown context.
  double bits(std::string_view window) const;

 private:
  struct Place {  // a character of a word, or the space after it, in one state
    char character;
    int next;  // for a space the next state; otherwise −1: the next place follows
  };

  std::vector<std::vector<GrammarWord>> states_;
  std::vector<double> visits_;                    // π
  std::vector<Place> places_;
  std::vector<std::vector<std::size_t>> starts_;  // by state: the first places of its words
};

// The grammar of the built-in corpus: English-like sentences over a–z and space. A verb agrees with
// its subject even if other nouns are between them.
Grammar sentence_grammar();

}  // namespace weft
