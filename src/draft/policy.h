// How many guessed tokens a pass should check, so that drafting pays: what passes of so many tokens
// cost on this machine, measured as they run, and how often guesses of one kind were right, counted
// as the text goes on, whether they were checked or not. Neither can change a token, only the time
// that it takes.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace sluice::draft {

inline constexpr int32_t kMaxDraftTokens = 31;                  // checked in one pass
inline constexpr int32_t kMaxPass = 2 * (kMaxDraftTokens + 1);  // tokens, those done again included

// Milliseconds of passes by their number of tokens.
class BatchLatency {
 public:
  void note(int32_t tokens, double ms);
  // Of a pass of `tokens`: measured, between or beyond what is; of no unit while nothing is.
  [[nodiscard]] double estimate(int32_t tokens) const;
  [[nodiscard]] bool measured() const { return count_ > 0; }
  [[nodiscard]] bool known(int32_t tokens) const;
  void clear() { *this = {}; }

 private:
  struct Entry {
    double ms = 0;  // running; 0: never measured
    uint32_t seen = 0;
    bool doubtful = false;  // measured once, and more than the other lengths let expect
  };
  std::array<Entry, kMaxPass + 1> entries_;  // by tokens
  uint32_t count_ = 0;
};

// How often guesses turn out right, by how much speaks for them.
class AcceptanceStats {
 public:
  static constexpr int32_t kLevels = 8;
  static constexpr int32_t kAny = kLevels;  // of all levels together: before a guess is made
  // The level of a guess after a match of so many tokens.
  [[nodiscard]] static int32_t of_match(int32_t length);
  // The level of a guess that its model gives this probability.
  [[nodiscard]] static int32_t of_probability(double p);

  AcceptanceStats();
  void note(int32_t level, bool right);
  [[nodiscard]] double chance(int32_t level) const {
    const Count& c = counts_[static_cast<size_t>(level)];
    return c.right / c.all;
  }
  // Another text begins: what is known stays, but the next few guesses outweigh it.
  void settle();
  // The same, and hopes the best of guesses that are still to be made.
  void hope();

 private:
  struct Count {
    double right, all;
  };
  void count(int32_t level, bool right);
  std::array<Count, kLevels + 1> counts_;
};

// What a choice of length is made for.
struct Setting {
  int32_t upcoming = 1;  // tokens that the pass has anyway
  int32_t beside = 0;    // other answers in the pass, which go on by a token each
  bool redone = false;   // after a wrong guess the right ones are computed again
  double setup_ms = 0;   // what comes before the first guess
  double each_ms = 0;    // what each guess costs before its pass
  double late_ms = 0;    // what it takes once, after a while without guesses
};

struct Choice {
  int32_t length = 0;
  double rate = 0;  // tokens a millisecond that it promises; of no guesses where it is 0
};

// How many of the guesses to check, the i-th right with chances[i] where those before it are: as
// many as give the most tokens a millisecond. 0 where drafting would not gain a few percent.
[[nodiscard]] Choice best_length(const BatchLatency& costs, std::span<const double> chances,
                                 const Setting& setting);

// When a source whose guesses take time is asked. While it pays, always; where it does not, it is
// tried again after so many tokens that the try costs a hundredth of their time, and after twice as
// many when that was in vain. A try goes on for as long as a few guesses do not speak against it.
class Attempts {
 public:
  // Before a pass: how many guesses to make, at most chances.size(), which is scratch. `said`:
  // tokens since the last call. Where a try begins, `trust` hopes.
  [[nodiscard]] Choice plan(const BatchLatency& costs, AcceptanceStats& trust,
                            std::span<double> chances, const Setting& setting, int32_t said);

 private:
  int32_t wait_ = 16;   // tokens before the next try
  int32_t idle_ = 0;    // tokens since guesses were last made
  int32_t passes_ = 1;  // of the try under way; 0: it pays, or it does not
};

// What was learned of a source; outlives the texts that it guessed for.
struct DraftState {
  AcceptanceStats trust;
  Attempts attempts;
};

}  // namespace sluice::draft
