// Finds stop strings in text that arrives in parts. Text is ready when no stop string can begin in
// it any more. Each stop string is an automaton (Knuth, Morris, Pratt 1977) that reads every byte.
// The result therefore does not depend on where the parts meet, and a byte takes amortized constant
// time per stop string.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::generate {

class StopFilter {
 public:
  // Bytes held for one stop string.
  [[nodiscard]] static uint64_t memory_bytes(const std::string& stop);

  // `stops` are not empty, have at most 65535 bytes each, and must outlive the filter.
  explicit StopFilter(const std::vector<std::string>& stops);

  // Appends to the text. Ignores everything after a completed stop string.
  void push(std::string_view text);

  // Bytes of the text that are ready. Once stopped: the offset where the stop string begins.
  [[nodiscard]] uint64_t ready() const { return ready_; }
  // The stop string that was completed first; the longest of several; null: none yet.
  [[nodiscard]] const std::string* stopped() const { return stopped_; }

 private:
  struct Automaton {
    const std::string* stop = nullptr;
    // border[i]: length of the longest proper suffix of the first i + 1 bytes that is also a
    // prefix.
    std::unique_ptr<uint16_t[]> border;
    size_t matched = 0;  // bytes of the stop that end the text
  };
  static void advance(Automaton& automaton, char byte);

  std::vector<Automaton> automata_;
  const std::string* stopped_ = nullptr;
  uint64_t length_ = 0, ready_ = 0;
};

}  // namespace sluice::generate
