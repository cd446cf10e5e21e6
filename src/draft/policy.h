// How many guessed tokens a pass should check, so that drafting pays: what passes of so many tokens
// cost on this machine, measured as they run, and how often guesses of one kind were right, counted
// as the text goes on, whether they were checked or not. Neither can change a token, only the time
// that it takes.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace sluice::draft {

inline constexpr int32_t kMostGuesses = 31;                   // checked in one pass
inline constexpr int32_t kMostPass = 2 * (kMostGuesses + 1);  // tokens, those done again included

// Milliseconds of passes by their number of tokens.
class PassCosts {
 public:
  void note(int32_t tokens, double ms);
  // Of a pass of `tokens`: measured, between or beyond what is; of no unit while nothing is.
  [[nodiscard]] double estimate(int32_t tokens) const;
  void clear() { *this = {}; }

 private:
  struct Entry {
    double ms = 0;  // running; 0: never measured
    uint32_t seen = 0;
  };
  [[nodiscard]] bool known(int32_t tokens) const;
  std::array<Entry, kMostPass + 1> entries_;  // by tokens
  uint32_t count_ = 0;
};

// How often guesses turn out right, by how much speaks for them.
class Trust {
 public:
  static constexpr int32_t kLevels = 8;
  // The level of a guess after a match of so many tokens.
  [[nodiscard]] static int32_t of_match(int32_t length);
  // The level of a guess that its model gives this probability.
  [[nodiscard]] static int32_t of_probability(double p);

  Trust();
  void note(int32_t level, bool right);
  [[nodiscard]] double chance(int32_t level) const {
    const Count& c = counts_[static_cast<size_t>(level)];
    return c.right / c.all;
  }

 private:
  struct Count {
    double right, all;
  };
  std::array<Count, kLevels> counts_;
};

// What a choice of length is made for.
struct Setting {
  int32_t upcoming = 1;  // tokens that the pass has anyway
  bool redone = false;   // after a wrong guess the right ones are computed again
  double each_ms = 0;    // what another guess costs before its pass
};

// How many of the guesses to check, the i-th right with chances[i] where those before it are: as
// many as give the most tokens a millisecond. 0 where drafting would not gain a few percent.
[[nodiscard]] int32_t best_length(const PassCosts& costs, std::span<const double> chances,
                                  const Setting& setting);

}  // namespace sluice::draft
