#include "apps/data/corpus.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "runtime/error.h"
#include "runtime/random.h"

namespace weft {
namespace {

using Words = std::vector<std::string>;

// Adds `words` to a state. They share the probability `total` in proportion to 1/(2 + rank).
void add(std::vector<GrammarWord>& state, const Words& words, double total, int next) {
  double sum = 0;
  for (std::size_t i = 0; i < words.size(); ++i) sum += 1.0 / static_cast<double>(2 + i);
  for (std::size_t i = 0; i < words.size(); ++i) {
    state.push_back({words[i], total / (static_cast<double>(2 + i) * sum), next});
  }
}

// π over the states, one step per word. π ← (π + π P) / 2 converges for periodic chains too.
std::vector<double> stationary(const std::vector<std::vector<GrammarWord>>& states) {
  const std::size_t count = states.size();
  std::vector<double> visits(count, 1.0 / static_cast<double>(count)), after(count);
  for (double change = 1; change > 1e-14;) {
    for (std::size_t s = 0; s < count; ++s) after[s] = visits[s] / 2;
    for (std::size_t s = 0; s < count; ++s) {
      for (const GrammarWord& arc : states[s]) {
        after[static_cast<std::size_t>(arc.next)] += visits[s] * arc.probability / 2;
      }
    }
    change = 0;
    for (std::size_t s = 0; s < count; ++s) change += std::abs(after[s] - visits[s]);
    std::swap(visits, after);
  }
  return visits;
}

Words plural(Words words) {
  for (std::string& word : words) word += "s";
  return words;
}

}  // namespace

Grammar::Grammar(std::vector<std::vector<GrammarWord>> states)
    : states_(std::move(states)), starts_(states_.size()) {
  for (std::size_t s = 0; s < states_.size(); ++s) {
    double sum = 0;
    std::set<std::string> words;
    for (const GrammarWord& arc : states_[s]) {
      require(words.insert(arc.word).second, "grammar: a state says '{}' in two ways", arc.word);
      require(arc.next >= 0 && arc.next < static_cast<int>(states_.size()),
              "grammar: '{}' leads to the state {} of {}", arc.word, arc.next, states_.size());
      sum += arc.probability;
      starts_[s].push_back(places_.size());
      for (const char character : arc.word) places_.push_back({character, -1});
      places_.push_back({' ', arc.next});
    }
    require(std::abs(sum - 1) < 1e-9, "grammar: the words of a state have probability {}", sum);
  }
  visits_ = stationary(states_);
}

double Grammar::entropy() const {
  double bits = 0, characters = 0;
  for (std::size_t s = 0; s < states_.size(); ++s) {
    for (const GrammarWord& arc : states_[s]) {
      if (arc.probability > 0) bits -= visits_[s] * arc.probability * std::log2(arc.probability);
      characters += visits_[s] * arc.probability * static_cast<double>(arc.word.size() + 1);
    }
  }
  return bits / characters;
}

double Grammar::bits(std::string_view window) const {
  std::vector<double> now(places_.size()), after(places_.size()), entered(states_.size());
  const auto enter = [&](std::size_t s, double probability, std::vector<double>& places) {
    for (std::size_t i = 0; i < starts_[s].size(); ++i) {
      places[starts_[s][i]] += probability * states_[s][i].probability;
    }
  };
  for (std::size_t s = 0; s < states_.size(); ++s) enter(s, visits_[s], now);
  for (std::size_t i = 0; i + 1 < now.size(); ++i) {
    if (places_[i].next < 0) now[i + 1] = now[i];
  }
  double bits = 0;
  for (std::size_t k = 0; k < window.size(); ++k) {
    std::fill(after.begin(), after.end(), 0.0);
    std::fill(entered.begin(), entered.end(), 0.0);
    double all = 0, said = 0;
    for (std::size_t i = 0; i < now.size(); ++i) {
      all += now[i];
      if (now[i] == 0 || places_[i].character != window[k]) continue;
      said += now[i];
      (places_[i].next < 0 ? after[i + 1] : entered[static_cast<std::size_t>(places_[i].next)]) +=
          now[i];
    }
    require(said > 0, "grammar: does not say '{}'", window.substr(0, k + 1));
    if (k > 0) bits -= std::log2(said / all);
    for (std::size_t s = 0; s < states_.size(); ++s) {
      if (entered[s] > 0) enter(s, entered[s], after);
    }
    for (double& probability : after) probability /= said;
    std::swap(now, after);
  }
  return bits;
}

std::string Grammar::text(std::uint64_t seed, std::size_t characters) const {
  std::string text;
  int state = 0;
  for (std::uint64_t i = 0; text.size() < characters; ++i) {
    const Philox random = RandomKey{.seed = seed}.words(i);
    double rest = (random.word[0] + random.word[1] * 0x1p-32) * 0x1p-32;  // uniform in [0, 1)
    const auto& arcs = states_[static_cast<std::size_t>(state)];
    std::size_t choice = 0;
    while (choice + 1 < arcs.size() && rest >= arcs[choice].probability) {
      rest -= arcs[choice++].probability;
    }
    text += arcs[choice].word;
    text += ' ';
    state = arcs[choice].next;
  }
  text.resize(characters);
  return text;
}

Grammar sentence_grammar() {
  // `one` and `many` are the subject's number, with which its verb must agree; the states between
  // subject and verb carry the number past the nouns of a place.
  enum { begin, any_subject, one_subject, many_subjects, one_named, many_named, one_place,
         many_place, one_placed, many_placed, one_acts, many_act, object, any_object, one_object,
         done, states };
  const Words nouns = {"dog", "king", "child", "bird", "farmer", "river", "teacher", "horse",
                       "letter", "sailor", "garden", "doctor", "cloud", "singer", "window",
                       "painter"};
  const Words places = {"bridge", "village", "market", "forest", "island", "tower", "harbor"};
  const Words adjectives = {"old", "small", "quiet", "young", "golden", "clever", "strange",
                            "brave"};
  const Words prepositions = {"near", "behind", "from", "under", "beyond"};
  const Words acts_on = {"see", "follow", "paint", "remember", "love", "call", "protect", "find"};
  const Words acts = {"sleep", "sing", "wait", "dance", "laugh"};
  const Words adverbs = {"slowly", "today", "again", "together", "quickly"};
  const Words closers = {"and", "while", "because", "but"};
  const Words nouns_of_many = [&] {
    Words words = plural(nouns);
    for (std::string& word : words) word = word == "childs" ? "children" : word;
    return words;
  }();

  std::vector<std::vector<GrammarWord>> at(states);
  const auto start_clause = [&](int state, double total) {
    add(at[state], {"the"}, 0.5 * total, any_subject);
    add(at[state], {"a", "one", "every"}, 0.25 * total, one_subject);
    add(at[state], {"some", "many", "two"}, 0.25 * total, many_subjects);
  };
  start_clause(begin, 1);
  add(at[any_subject], adjectives, 0.3, any_subject);
  add(at[any_subject], nouns, 0.4, one_named);
  add(at[any_subject], nouns_of_many, 0.3, many_named);
  add(at[one_subject], adjectives, 0.3, one_subject);
  add(at[one_subject], nouns, 0.7, one_named);
  add(at[many_subjects], adjectives, 0.3, many_subjects);
  add(at[many_subjects], nouns_of_many, 0.7, many_named);
  const auto verbs = [&](int state, bool one, double total) {
    add(at[state], one ? plural(acts_on) : acts_on, 0.6 * total, object);
    add(at[state], one ? plural(acts) : acts, 0.4 * total, done);
  };
  const auto subject = [&](bool one, int named, int place, int placed, int verb) {
    add(at[named], prepositions, 0.4, place);
    verbs(named, one, 0.6);
    add(at[place], {"the", "a"}, 1, placed);
    add(at[placed], places, 1, verb);
    verbs(verb, one, 1);
  };
  subject(true, one_named, one_place, one_placed, one_acts);
  subject(false, many_named, many_place, many_placed, many_act);
  add(at[object], {"the"}, 0.6, any_object);
  add(at[object], {"a", "every"}, 0.4, one_object);
  add(at[any_object], adjectives, 0.3, any_object);
  add(at[any_object], nouns, 0.4, done);
  add(at[any_object], nouns_of_many, 0.3, done);
  add(at[one_object], adjectives, 0.3, one_object);
  add(at[one_object], nouns, 0.7, done);
  add(at[done], adverbs, 0.2, done);
  add(at[done], closers, 0.3, begin);
  start_clause(done, 0.5);
  return Grammar(std::move(at));
}

}  // namespace weft
