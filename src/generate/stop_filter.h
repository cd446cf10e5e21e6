// Stop strings in a text that arrives in parts: says how much of the text is ready, because no
// stop string can begin there any more. Each stop string is an automaton (Knuth, Morris, Pratt
// 1977) that is fed every byte, so the answer depends on the text alone, not on where its parts
// meet, and a byte costs each stop string a constant time however much they repeat themselves.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::generate {

class StopFilter {
 public:
  // Bytes held for one of the stop strings.
  [[nodiscard]] static uint64_t memory_bytes(const std::string& stop);

  // `stops`, of at most 65535 bytes each, are not empty and outlive the filter.
  explicit StopFilter(const std::vector<std::string>& stops);

  // Appends to the text. What comes after the end of a stop string is ignored.
  void push(std::string_view text);

  // Bytes of the text that are ready. Once stopped: where the stop string begins.
  [[nodiscard]] uint64_t ready() const { return ready_; }
  // The stop string that was completed first, of several the longest; null: none yet.
  [[nodiscard]] const std::string* stopped() const { return stopped_; }

 private:
  struct Automaton {
    const std::string* stop = nullptr;
    // Of the first i + 1 bytes: the longest end that begins the stop, but all of them.
    std::unique_ptr<uint16_t[]> border;
    size_t matched = 0;  // bytes of the stop that end the text
  };
  static void advance(Automaton& automaton, char byte);

  std::vector<Automaton> automata_;
  const std::string* stopped_ = nullptr;
  uint64_t length_ = 0, ready_ = 0;
};

}  // namespace sluice::generate
