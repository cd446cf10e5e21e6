// One Knuth-Morris-Pratt automaton per stop string.
#include "generate/stop_filter.h"

#include <algorithm>

namespace sluice::generate {

uint64_t StopFilter::memory_bytes(const std::string& stop) {
  return sizeof(Automaton) + stop.size() * sizeof(uint16_t);
}

StopFilter::StopFilter(const std::vector<std::string>& stops) : automata_(stops.size()) {
  for (size_t n = 0; n < stops.size(); ++n) {
    const std::string& stop = stops[n];
    Automaton& automaton = automata_[n];
    automaton.stop = &stop;
    automaton.border = std::make_unique<uint16_t[]>(stop.size());
    for (size_t i = 1; i < stop.size(); ++i) {
      advance(automaton, stop[i]);
      automaton.border[i] = static_cast<uint16_t>(automaton.matched);
    }
    automaton.matched = 0;
  }
}

void StopFilter::advance(Automaton& automaton, char byte) {
  const std::string& stop = *automaton.stop;
  size_t& matched = automaton.matched;
  while (matched > 0 && stop[matched] != byte) matched = automaton.border[matched - 1];
  if (stop[matched] == byte) ++matched;
}

void StopFilter::push(std::string_view text) {
  for (size_t i = 0; i < text.size() && stopped_ == nullptr; ++i) {
    ++length_;
    for (Automaton& automaton : automata_) {
      advance(automaton, text[i]);
      const size_t size = automaton.stop->size();
      if (automaton.matched < size) continue;
      if (stopped_ == nullptr || size > stopped_->size()) stopped_ = automaton.stop;
    }
  }
  size_t held = stopped_ != nullptr ? stopped_->size() : 0;
  if (stopped_ == nullptr) {
    for (const Automaton& automaton : automata_) held = std::max(held, automaton.matched);
  }
  ready_ = length_ - held;
}

}  // namespace sluice::generate
