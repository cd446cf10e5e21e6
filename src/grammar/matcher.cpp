// Steps tokens through the automaton and computes masks.
#include "grammar/matcher.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace sluice::grammar {

uint64_t Matcher::memory_bytes(int64_t n_tokens) {
  const uint64_t words = static_cast<uint64_t>(n_tokens) / 64 + 1;
  return sizeof(Matcher) + Automaton::memory_bytes(kWorkspace) + kMasks * words * 8 +
         kHistory * 2 * sizeof(State) + 2 * kHistory * sizeof(State*) + (8 << 10);
}

Result<std::unique_ptr<Matcher>> Matcher::create(std::shared_ptr<const Grammar> grammar,
                                                 const Vocabulary& vocabulary) {
  std::unique_ptr<Matcher> made(new Matcher(std::move(grammar), vocabulary));
  if (made->grammar_->empty()) {
    return error(Code::kInvalidArgument, "the grammar matches no text");
  }
  Result<std::unique_ptr<Automaton>> automaton = Automaton::create(*made->grammar_, kWorkspace);
  if (!automaton.ok()) return automaton.status();
  made->automaton_ = std::move(*automaton);
  made->state_ = made->automaton_->start();
  if (made->state_ == kFull) {
    return error(Code::kGrammarTooLarge, "the start of the grammar needs too many states");
  }
  SLUICE_RETURN_IF_ERROR(made->masks_.allocate(kMasks * vocabulary.mask_words() * 8));
  made->past_.reserve(kHistory);
  return made;
}

// Drops states that neither the history, the current walk nor *extra needs.
bool Matcher::make_room(State* extra) {
  std::vector<State*> keep = {&state_};
  if (extra != nullptr) keep.push_back(extra);
  for (State& s : past_) keep.push_back(&s);
  for (size_t i = 0; i < path_length_; ++i) keep.push_back(&path_[i]);
  std::fill(std::begin(mask_state_), std::end(mask_state_), kDead);
  bool room = automaton_->compact(keep);
  if (!room && past_.size() > 16) {  // keep a short history rather than fail
    past_.erase(past_.begin(), past_.end() - 16);
    return make_room(extra);
  }
  return room;
}

// Like Automaton::step, but compacts when full. kDead if that frees nothing.
State Matcher::step(State from, uint8_t byte) {
  State to = automaton_->step(from, byte);
  if (to == kFull && make_room(&from)) to = automaton_->step(from, byte);
  if (to != kFull) return to;
  failed_ = true;
  return kDead;
}

State Matcher::after(Token token) {
  if (token < 0 || token >= vocabulary_->n_tokens()) return kDead;
  const std::string bytes = vocabulary_->source().bytes(token);
  path_length_ = 0;
  State at = bytes.empty() || vocabulary_->source().ends(token) ? kDead : state_;
  for (const char c : bytes) {
    if (at == kDead) break;
    at = step(at, static_cast<uint8_t>(c));
  }
  if (!automaton_->takes_tokens(state_)) return at;
  if (bytes.empty() || vocabulary_->source().ends(token)) {  // allowed only if the grammar names it
    bool named = false;
    automaton_->each_token(state_, [&](Token t, bool negated) { named |= !negated && t == token; });
    if (!named) return kDead;
  }
  State to = automaton_->step_token(state_, token, at);
  if (to == kFull && make_room(&at)) to = automaton_->step_token(state_, token, at);
  if (to != kFull) return to;
  failed_ = true;
  return kDead;
}

bool Matcher::accepts(Token token) {
  if (after(token) != kDead) return true;
  return can_end() && token >= 0 && token < vocabulary_->n_tokens() &&
         vocabulary_->source().ends(token);
}

bool Matcher::advance(Token token) {
  const State to = after(token);
  if (to == kDead) return false;
  if (past_.size() == kHistory) past_.erase(past_.begin(), past_.begin() + kHistory / 2);
  past_.push_back(state_);
  state_ = to;
  return true;
}

void Matcher::rewind(size_t n) {
  n = std::min(n, past_.size());
  if (n == 0) return;
  state_ = past_[past_.size() - n];
  past_.resize(past_.size() - n);
}

std::span<const uint64_t> Matcher::mask() {
  const size_t words = vocabulary_->mask_words();
  uint64_t* const all = masks_.as<uint64_t>();
  for (size_t i = 0; i < kMasks; ++i) {
    if (mask_state_[i] == state_) return {all + i * words, words};
  }
  const size_t slot = next_mask_++ % kMasks;
  mask_state_[slot] = kDead;
  fill(all + slot * words);
  if (!failed_) mask_state_[slot] = state_;
  return {all + slot * words, words};
}

void Matcher::fill(uint64_t* bits) {
  std::fill_n(bits, vocabulary_->mask_words(), 0);
  path_length_ = 0;
  for (uint32_t kind = 0; kind < kPlainKinds; ++kind) fill_plain(kind, bits);
  walk(vocabulary_->group(Vocabulary::kGroups - 1), bits);
  if (automaton_->takes_tokens(state_)) allow_named(bits);
  for (const Token t : vocabulary_->ends()) {
    if (can_end()) bits[t / 64] |= uint64_t{1} << (t % 64);
  }
}

// Plain tokens are grouped by kind and length. A group is allowed as a whole, rejected as a whole,
// or walked.
void Matcher::fill_plain(uint32_t kind, uint64_t* bits) {
  const auto takes_all = [&](uint32_t length) {
    for (uint32_t k = kPlainKinds; k > kind; --k) {
      if (automaton_->takes_plain(state_, static_cast<Plain>(k - 1), length)) return true;
    }
    return false;
  };
  constexpr uint32_t kLongest = Vocabulary::kMin[Vocabulary::kLengths - 1];
  const size_t words = vocabulary_->mask_words();
  int64_t reach = -1;
  for (uint32_t i = 0; i < Vocabulary::kLengths && !failed_; ++i) {
    const uint32_t g = kind * Vocabulary::kLengths + i;
    if (takes_all(Vocabulary::kMax[i])) {
      const uint64_t* const group = vocabulary_->group_mask(g);
      for (size_t w = 0; w < words; ++w) bits[w] |= group[w];
      continue;
    }
    if (reach < 0) reach = automaton_->plain_reach(state_, static_cast<Plain>(kind), kLongest);
    if (reach >= Vocabulary::kMin[i]) walk(vocabulary_->group(g), bits);
  }
}

// The first entry from i on that shares at most `depth` bytes with its predecessor.
uint32_t Matcher::next_apart(uint32_t i, uint32_t end, size_t depth) const {
  static_assert(std::endian::native == std::endian::little);
  constexpr uint64_t kOnes = 0x0101010101010101;
  const uint8_t* const lcp = vocabulary_->lcp();
  for (; depth < 127 && i + 8 <= end; i += 8) {
    uint64_t eight;
    std::memcpy(&eight, lcp + i, 8);
    const uint64_t less = (eight - kOnes * (depth + 1)) & ~eight & (kOnes << 7);
    if (less != 0) return i + static_cast<uint32_t>(std::countr_zero(less)) / 8;
  }
  while (i < end && lcp[i] > depth) ++i;
  return i;
}

// Sets the bits of allowed entries. Skips entries whose shared prefix was rejected.
void Matcher::walk(Vocabulary::Group group, uint64_t* bits) {
  const uint8_t* const lcp = vocabulary_->lcp();
  const uint32_t* const offset = vocabulary_->offset();
  const uint8_t* const text = vocabulary_->text();
  const Token* const ids = vocabulary_->ids();
  const Automaton::Rows rows = automaton_->rows();
  path_[0] = state_;
  for (uint32_t i = group.begin; i < group.end;) {
    size_t depth = lcp[i];
    State at = path_[depth];
    for (uint32_t k = offset[i]; k < offset[i + 1] && at != kDead; ++k) {
      State to = rows.next(at, text[k]);
      if (to >= kFull) {
        path_length_ = depth + 1;
        to = step(at, text[k]);
        path_[0] = state_;
      }
      if (to != kDead) path_[++depth] = to;
      at = to;
    }
    if (at == kDead) {
      i = next_apart(i + 1, group.end, depth);
      continue;
    }
    const uint32_t id = static_cast<uint32_t>(ids[i++]);
    bits[id / 64] |= uint64_t{1} << (id % 64);
  }
  path_length_ = 0;
}

void Matcher::allow_named(uint64_t* bits) {
  automaton_->each_token(state_, [&](Token token, bool negated) {
    if (!negated) {
      if (token >= 0 && token < vocabulary_->n_tokens()) {
        bits[token / 64] |= uint64_t{1} << (token % 64);
      }
      return;
    }
    const uint32_t n = vocabulary_->group(Vocabulary::kGroups - 1).end;
    for (uint32_t i = 0; i < n; ++i) {
      const Token id = vocabulary_->ids()[i];
      if (id != token) bits[id / 64] |= uint64_t{1} << (id % 64);
    }
  });
}

// The only byte that can follow; *from becomes its state. -1: several can, or the text may end.
int Matcher::only_byte(State* from) {
  if (automaton_->final(*from) || automaton_->takes_tokens(*from)) return -1;
  int found = -1;
  State to = kDead;
  for (uint32_t c = 0; c < grammar_->n_classes; ++c) {
    const int first = grammar_->class_byte[c];
    const State next = automaton_->step(*from, static_cast<uint8_t>(first));
    if (next == kFull) return -1;
    if (next == kDead) continue;
    const int last = c + 1 < grammar_->n_classes ? grammar_->class_byte[c + 1] - 1 : 255;
    if (found >= 0 || first != last) return -1;
    found = first;
    to = next;
  }
  *from = to;
  return found;
}

std::string Matcher::forced(size_t most) {
  std::string out;
  State at = state_;
  while (out.size() < most) {
    const int byte = only_byte(&at);
    if (byte < 0) break;
    out.push_back(static_cast<char>(byte));
  }
  return out;
}

bool Matcher::must_end() {
  if (!can_end() || automaton_->takes_tokens(state_)) return false;
  for (uint32_t c = 0; c < grammar_->n_classes; ++c) {
    if (automaton_->step(state_, grammar_->class_byte[c]) != kDead) return false;
  }
  return true;
}

}  // namespace sluice::grammar
