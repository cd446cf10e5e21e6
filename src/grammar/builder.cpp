// Builds expressions, with simple simplifications. pda.cpp turns them into nodes.
#include "grammar/builder.h"

#include <algorithm>

#include "grammar/dfa.h"

namespace sluice::grammar {
namespace {

constexpr uint32_t kHeavy = 3;       // nodes from which a repeated body becomes a rule
constexpr uint32_t kManyCopies = 4;  // copies from which it does
constexpr int kMaxBranching = 64;    // nesting of shared prefixes in a choice

uint32_t sum(uint32_t a, uint32_t b) {
  return a > UINT32_MAX - b ? UINT32_MAX : a + b;
}

}  // namespace

Builder::Builder() {
  pieces_.push_back({What::kEmpty, 0, 0, 0, 0});
  pieces_.push_back({What::kNever});
}

Expr Builder::add(Piece piece) {
  if (pieces_.size() + lists_.size() > 2 * kMaxNodes || text_.size() > 2 * kMaxSource) full_ = true;
  if (full_) return kNever;
  pieces_.push_back(piece);
  return static_cast<Expr>(pieces_.size() - 1);
}

Expr Builder::bytes(std::string_view text) {
  if (text.empty()) return kEmpty;
  const uint32_t at = static_cast<uint32_t>(text_.size());
  if (text.size() > kMaxSource) full_ = true;
  if (full_) return kNever;
  text_ += text;
  const uint32_t n = static_cast<uint32_t>(text.size());
  return add({What::kBytes, at, n, 0, n});
}

Expr Builder::chars(const CharClass& set) {
  if (set.empty()) return kNever;
  size_t at = classes_.size();  // search the last few: classes repeat
  for (size_t i = classes_.size(); i > 0 && i + 16 > classes_.size(); --i) {
    if (classes_[i - 1] == set) at = i - 1;
  }
  if (at == classes_.size()) classes_.push_back(set);
  const bool single = set.ranges().size() == 1 && set.ranges()[0].last < 0x80;
  return add({What::kChars, static_cast<uint32_t>(at), 0, 0, single ? 1 : kHeavy});
}

Expr Builder::list(What what, const std::vector<Expr>& parts) {
  Piece piece{what, static_cast<uint32_t>(lists_.size()), static_cast<uint32_t>(parts.size())};
  if (lists_.size() + parts.size() > 2 * kMaxNodes) full_ = true;
  if (full_) return kNever;
  for (const Expr e : parts) piece.weight = sum(piece.weight, pieces_[e].weight);
  lists_.insert(lists_.end(), parts.begin(), parts.end());
  return add(piece);
}

Expr Builder::seq(const std::vector<Expr>& parts) {
  std::vector<Expr> kept;
  for (const Expr e : parts) {
    if (e == kNever) return kNever;
    if (e != kEmpty) kept.push_back(e);
  }
  if (kept.empty()) return kEmpty;
  return kept.size() == 1 ? kept[0] : list(What::kSeq, kept);
}

Expr Builder::alt(const std::vector<Expr>& parts) {
  std::vector<Expr> kept;
  for (const Expr e : parts) {
    if (e != kNever) kept.push_back(e);
  }
  if (kept.empty()) return kNever;
  return kept.size() == 1 ? kept[0] : list(What::kAlt, kept);
}

Expr Builder::repeat(Expr body, uint32_t least, uint32_t most) {
  if (least > kMaxRepeat || (most != kUnbounded && most > kMaxRepeat)) full_ = true;
  if (most == 0 || body == kEmpty) return kEmpty;
  if (body == kNever) return least == 0 ? kEmpty : kNever;
  if (least == 1 && most == 1) return body;
  const uint32_t copies = most == kUnbounded ? least + 1 : most;
  uint32_t weight = pieces_[body].weight;
  if (weight >= kHeavy && copies > kManyCopies && !full_) {
    const uint32_t rule = new_rule();
    define(rule, body);
    body = call(rule);
    weight = 1;
  }
  const uint64_t total = static_cast<uint64_t>(weight + 1) * copies;
  if (total > kMaxNodes) full_ = true;
  return add({What::kRepeat, body, least, most,
              static_cast<uint32_t>(std::min<uint64_t>(total, UINT32_MAX))});
}

Expr Builder::call(uint32_t rule) {
  return add({What::kCall, rule});
}

Expr Builder::token(Token id, bool negated) {
  return add({negated ? What::kNotToken : What::kToken, static_cast<uint32_t>(id)});
}

Expr Builder::choice(std::vector<std::string> texts) {
  std::sort(texts.begin(), texts.end());
  texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
  return texts.empty() ? kNever : branches(texts, 0, texts.size(), 0, 0);
}

// The sorted texts[from, to), which share their first `at` bytes, without those bytes.
Expr Builder::branches(const std::vector<std::string>& texts, size_t from, size_t to, size_t at,
                       int depth) {
  std::vector<Expr> parts;
  while (from < to && !full_) {
    const std::string& first = texts[from];
    if (first.size() == at || depth >= kMaxBranching) {
      parts.push_back(bytes(std::string_view(first).substr(at)));
      ++from;
      continue;
    }
    size_t end = from + 1;
    while (end < to && texts[end][at] == first[at]) ++end;
    // Sorted: all share what the first and the last share.
    const std::string& last = texts[end - 1];
    size_t shared = at + 1;
    while (shared < first.size() && shared < last.size() && first[shared] == last[shared]) ++shared;
    const Expr head = bytes(std::string_view(first).substr(at, shared - at));
    parts.push_back(end == from + 1 ? bytes(std::string_view(first).substr(at))
                                    : seq({head, branches(texts, from, end, shared, depth + 1)}));
    from = end;
  }
  return alt(parts);
}

Expr Builder::automaton(const Dfa& dfa, bool quoted) {
  if (dfa.empty()) return kNever;
  Part part;
  part.quoted = quoted;
  for (uint32_t s = 0; s < dfa.size(); ++s) {
    PartState state{static_cast<uint32_t>(part.edges.size()), 0, dfa.accepts(s)};
    for (uint32_t byte = 0; byte < 256;) {
      const uint32_t target = dfa.next(s, static_cast<uint8_t>(byte));
      uint32_t end = byte + 1;
      const bool own = quoted && escaped(byte);
      while (!own && end < 256 && !(quoted && escaped(end)) &&
             dfa.next(s, static_cast<uint8_t>(end)) == target) {
        ++end;
      }
      if (target != Dfa::kDead) {
        part.edges.push_back({static_cast<uint8_t>(byte), static_cast<uint8_t>(end - 1), target});
      }
      byte = end;
    }
    state.count = static_cast<uint32_t>(part.edges.size()) - state.first;
    part.states.push_back(state);
  }
  if (part.edges.size() > kMaxRanges) full_ = true;
  if (full_) return kNever;
  parts_.push_back(std::move(part));
  const uint32_t weight = sum(kHeavy, dfa.size());
  return add({What::kPart, static_cast<uint32_t>(parts_.size() - 1), 0, 0, weight});
}

uint32_t Builder::new_rule(std::string name) {
  if (rules_.size() >= kMaxNodes) full_ = true;
  if (full_) return 0;
  rules_.push_back({std::move(name), kNever});
  return static_cast<uint32_t>(rules_.size() - 1);
}

}  // namespace sluice::grammar
