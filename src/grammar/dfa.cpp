// Construction, combination and minimization of automata.
#include "grammar/dfa.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <unordered_map>

#include "grammar/automaton.h"
#include "grammar/builder.h"

namespace sluice::grammar {
namespace {

constexpr uint64_t kWorkspace = 4 << 20, kSmallWorkspace = 256 << 10;  // enough for most
constexpr size_t kMaxMinimized = 1 << 18;  // states times classes that minimization may hold
constexpr uint64_t kMaxWork = 20'000'000;  // limit of closure steps

Dfa from(Builder* builder, Expr root) {
  builder->define(0, root);
  const Result<std::shared_ptr<const Grammar>> grammar = builder->build();
  if (grammar.ok()) return Dfa::of(**grammar);
  return Dfa::lengths(Dfa::kMaxStates, Dfa::kMaxStates);  // marked as too large
}

}  // namespace

Dfa Dfa::of(const Grammar& grammar) {
  if (grammar.empty()) return Dfa();
  Dfa out = of(grammar, kSmallWorkspace);
  return out.too_large_ ? of(grammar, kWorkspace) : out;
}

// Explores all states of the grammar's automaton.
Dfa Dfa::of(const Grammar& grammar, uint64_t workspace) {
  Dfa out;
  out.too_large_ = true;
  Result<std::unique_ptr<Automaton>> automaton = Automaton::create(grammar, workspace);
  if (!automaton.ok()) return out;
  std::copy(std::begin(grammar.byte_class), std::end(grammar.byte_class), out.class_);
  out.n_classes_ = grammar.n_classes;
  const State first = (*automaton)->start();
  if (first == kFull) return out;
  // States are numbered in order of creation; 0 is the dead state.
  for (size_t s = 1; s < (*automaton)->n_states(); ++s) {
    if (s > kMaxStates || (*automaton)->work() > kMaxWork) return out;
    for (uint32_t c = 0; c < grammar.n_classes; ++c) {
      const State to = (*automaton)->step(static_cast<State>(s), grammar.class_byte[c]);
      if (to == kFull) return out;
      out.next_.push_back(to == grammar::kDead ? Dfa::kDead : to - 1u);
    }
    out.accept_.push_back((*automaton)->final(static_cast<State>(s)) ? 1 : 0);
  }
  out.too_large_ = false;
  out.tidy(first - 1u);
  return out;
}

Dfa Dfa::all_text() {
  Builder b;
  static_cast<void>(b.new_rule());
  return from(&b, b.repeat(b.chars(CharClass::all()), 0, Builder::kUnbounded));
}

Dfa Dfa::literal(std::string_view text) {
  Dfa out;
  out.too_large_ = text.size() > kMaxStates;
  if (out.too_large_) return out;
  std::string symbols(text);
  std::sort(symbols.begin(), symbols.end());
  symbols.erase(std::unique(symbols.begin(), symbols.end()), symbols.end());
  std::vector<uint32_t> next((text.size() + 1) * symbols.size(), kDead);
  for (size_t i = 0; i < text.size(); ++i) {
    next[i * symbols.size() + symbols.find(text[i])] = static_cast<uint32_t>(i) + 1;
  }
  std::vector<bool> accept(text.size() + 1, false);
  accept.back() = true;
  return table(symbols, next, accept);
}

Dfa Dfa::lengths(uint32_t least, uint32_t most) {
  Dfa out;
  const uint32_t longest = most == UINT32_MAX ? least : most;
  if (longest > kMaxStates / 8) {
    out.too_large_ = true;
    out.accept_ = {1};
    return out;
  }
  if (most < least) return out;
  Builder b;
  static_cast<void>(b.new_rule());
  return from(&b, b.repeat(b.chars(CharClass::all()), least, most));
}

Dfa Dfa::combine(const Dfa& a, const Dfa& b, How how) {
  Dfa out;
  if (a.too_large_ || b.too_large_) {
    out.too_large_ = true;
    return out;
  }
  // Combine byte classes: bytes that both automata treat alike.
  uint32_t pair_class[256][2];
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t c = 0;
    while (c < out.n_classes_ &&
           (pair_class[c][0] != a.class_[byte] || pair_class[c][1] != b.class_[byte])) {
      ++c;
    }
    if (c == out.n_classes_) {
      pair_class[c][0] = a.class_[byte];
      pair_class[c][1] = b.class_[byte];
      ++out.n_classes_;
    }
    out.class_[byte] = static_cast<uint8_t>(c);
  }
  std::unordered_map<uint64_t, uint32_t> numbers;
  std::vector<uint64_t> pairs;
  const auto number = [&](uint32_t x, uint32_t y) -> uint32_t {
    if (x == kDead && (y == kDead || how != How::kEither)) return kDead;
    if (y == kDead && how == How::kBoth) return kDead;
    const uint64_t key = static_cast<uint64_t>(x) << 32 | y;
    const auto [at, is_new] = numbers.try_emplace(key, static_cast<uint32_t>(pairs.size()));
    if (is_new) pairs.push_back(key);
    return at->second;
  };
  static_cast<void>(number(a.empty() ? kDead : 0, b.empty() ? kDead : 0));
  for (size_t i = 0; i < pairs.size(); ++i) {
    if (i > 4 * kMaxStates) {
      out = {};
      out.too_large_ = true;
      return out;
    }
    const uint32_t x = static_cast<uint32_t>(pairs[i] >> 32), y = static_cast<uint32_t>(pairs[i]);
    const bool in_a = x != kDead && a.accepts(x), in_b = y != kDead && b.accepts(y);
    out.accept_.push_back(how == How::kBoth     ? in_a && in_b
                          : how == How::kEither ? in_a || in_b
                                                : in_a && !in_b);
    for (uint32_t c = 0; c < out.n_classes_; ++c) {
      const uint32_t to_x = x == kDead ? kDead : a.next_[x * a.n_classes_ + pair_class[c][0]];
      const uint32_t to_y = y == kDead ? kDead : b.next_[y * b.n_classes_ + pair_class[c][1]];
      out.next_.push_back(number(to_x, to_y));
    }
  }
  if (pairs.empty()) return Dfa();
  out.tidy(0);
  if (out.size() > kMaxStates) out.too_large_ = true;
  return out;
}

Dfa Dfa::table(std::string_view symbols, const std::vector<uint32_t>& next,
               const std::vector<bool>& accept) {
  Dfa out;
  const size_t n = symbols.size();
  std::fill(std::begin(out.class_), std::end(out.class_), static_cast<uint8_t>(n));
  for (size_t c = 0; c < n; ++c) {
    out.class_[static_cast<uint8_t>(symbols[c])] = static_cast<uint8_t>(c);
  }
  out.n_classes_ = static_cast<uint32_t>(n) + 1;
  for (size_t s = 0; s < accept.size(); ++s) {
    out.next_.insert(out.next_.end(), next.begin() + static_cast<std::ptrdiff_t>(s * n),
                     next.begin() + static_cast<std::ptrdiff_t>((s + 1) * n));
    out.next_.push_back(kDead);
    out.accept_.push_back(accept[s] ? 1 : 0);
  }
  out.tidy(0);
  return out;
}

void Dfa::anchor(uint8_t start, uint8_t end) {
  if (empty() || too_large_) return;
  uint32_t first = 0;
  for (uint32_t i = 0; i < size(); ++i) {
    const uint32_t to = next(first, start);
    if (to == kDead || to == first) break;
    first = to;
  }
  std::vector<uint8_t> accept = accept_;
  // In reverse creation order, the next state is already final.
  for (uint32_t s = size(); s-- > 0;) {
    uint32_t at = s;
    for (uint32_t i = 0; i < size() && at != kDead && accept[s] == 0; ++i) {
      accept[s] = accept[at];
      const uint32_t to = next(at, end);
      if (at > s || to == at) break;
      at = to;
    }
  }
  accept_ = std::move(accept);
  // From here on the mark bytes lead nowhere.
  for (const uint8_t mark : {start, end}) {
    const bool shared = std::count(std::begin(class_), std::end(class_), class_[mark]) > 1;
    if (shared) continue;  // no edge uses it
    for (uint32_t s = 0; s < size(); ++s) next_[s * n_classes_ + class_[mark]] = kDead;
  }
  tidy(first);
}

// Keeps states that are reachable from `start` and can reach acceptance, and merges equal ones.
void Dfa::tidy(uint32_t start) {
  const uint32_t n = size();
  std::vector<std::vector<uint32_t>> back(n);
  for (uint32_t s = 0; s < n; ++s) {
    for (uint32_t c = 0; c < n_classes_; ++c) {
      const uint32_t to = next_[s * n_classes_ + c];
      if (to != kDead && (back[to].empty() || back[to].back() != s)) back[to].push_back(s);
    }
  }
  std::vector<uint8_t> useful(n, 0);
  std::vector<uint32_t> open;
  for (uint32_t s = 0; s < n; ++s) {
    if (accept_[s] != 0) useful[s] = 1, open.push_back(s);
  }
  while (!open.empty()) {
    const uint32_t s = open.back();
    open.pop_back();
    for (const uint32_t from : back[s]) {
      if (useful[from] == 0) useful[from] = 1, open.push_back(from);
    }
  }
  if (n == 0 || useful[start] == 0) {
    next_.clear();
    accept_.clear();
    return;
  }
  std::vector<uint32_t> numbers(n, kDead), order = {start};
  numbers[start] = 0;
  std::vector<uint32_t> next;
  std::vector<uint8_t> accept;
  for (size_t i = 0; i < order.size(); ++i) {
    accept.push_back(accept_[order[i]]);
    for (uint32_t c = 0; c < n_classes_; ++c) {
      const uint32_t to = next_[order[i] * n_classes_ + c];
      if (to == kDead || useful[to] == 0) {
        next.push_back(kDead);
        continue;
      }
      if (numbers[to] == kDead) {
        numbers[to] = static_cast<uint32_t>(order.size());
        order.push_back(to);
      }
      next.push_back(numbers[to]);
    }
  }
  next_ = std::move(next);
  accept_ = std::move(accept);
  if (next_.size() <= kMaxMinimized) minimize();
}

namespace {

// Disjoint sets of numbers, each a run of `items`. Marked ones are at the front of their set.
struct Partition {
  std::vector<uint32_t> items, place, set, first, end, marked, touched;

  explicit Partition(uint32_t n) : items(n), place(n), set(n, 0) {
    std::iota(items.begin(), items.end(), 0u);
    place = items;
    add(0, n);
  }
  [[nodiscard]] uint32_t size() const { return static_cast<uint32_t>(first.size()); }
  [[nodiscard]] std::span<const uint32_t> of(uint32_t s) const {
    return {items.data() + first[s], end[s] - first[s]};
  }
  void add(uint32_t from, uint32_t to) {
    first.push_back(from);
    end.push_back(to);
    marked.push_back(0);
  }
  void mark(uint32_t item) {
    const uint32_t s = set[item], from = place[item], to = first[s] + marked[s];
    if (from < to) return;
    if (marked[s]++ == 0) touched.push_back(s);
    std::swap(items[from], items[to]);
    place[items[from]] = from;
    place[item] = to;
  }
  // Splits partly marked sets; the smaller part gets a new number.
  void split() {
    for (const uint32_t s : touched) {
      const uint32_t cut = first[s] + marked[s];
      marked[s] = 0;
      if (cut == end[s]) continue;
      const uint32_t made = size();
      if (cut - first[s] <= end[s] - cut) {
        add(first[s], cut);
        first[s] = cut;
      } else {
        add(cut, end[s]);
        end[s] = cut;
      }
      for (const uint32_t item : of(made)) set[item] = made;
    }
    touched.clear();
  }
};

}  // namespace

// Hopcroft's algorithm over existing edges (Valmari 2012). Blocks of states are split by the edges
// into one set, and sets of edges by the block they lead to, always by the smaller part. Work grows
// with edges times the logarithm of states.
void Dfa::minimize() {
  const uint32_t n = size();
  // Edges into state s: edges[into[s], into[s + 1]).
  std::vector<uint32_t> tails, into(n + 1, 0), edges;
  std::vector<std::pair<uint32_t, uint32_t>> alike;  // edges with the same byte class
  for (uint32_t c = 0; c < n_classes_; ++c) {
    const uint32_t from = static_cast<uint32_t>(tails.size());
    for (uint32_t s = 0; s < n; ++s) {
      const uint32_t to = next_[s * n_classes_ + c];
      if (to == kDead) continue;
      tails.push_back(s);
      ++into[to + 1];
    }
    alike.emplace_back(from, static_cast<uint32_t>(tails.size()));
  }
  std::partial_sum(into.begin(), into.end(), into.begin());
  edges.resize(tails.size());
  std::vector<uint32_t> at(into.begin(), into.end() - 1);
  for (uint32_t c = 0; c < n_classes_; ++c) {
    for (uint32_t e = alike[c].first; e < alike[c].second; ++e) {
      edges[at[next_[tails[e] * n_classes_ + c]]++] = e;
    }
  }
  Partition blocks(n), cords(static_cast<uint32_t>(tails.size()));
  for (uint32_t s = 0; s < n; ++s) {
    if (accept_[s] != 0) blocks.mark(s);
  }
  blocks.split();
  for (const auto& [from, to] : alike) {
    for (uint32_t e = from; e < to; ++e) cords.mark(e);
    cords.split();
  }
  for (uint32_t cord = 0, block = 1; cord < cords.size(); ++cord) {
    for (const uint32_t e : cords.of(cord)) blocks.mark(tails[e]);
    blocks.split();
    for (; block < blocks.size(); ++block) {
      for (const uint32_t s : blocks.of(block)) {
        for (uint32_t i = into[s]; i < into[s + 1]; ++i) cords.mark(edges[i]);
      }
      cords.split();
    }
  }
  if (blocks.size() == n) return;
  std::vector<uint32_t> numbers(n, kDead), next;  // of blocks, in the order of their first states
  std::vector<uint8_t> accept;
  std::vector<uint32_t> leaders;
  for (uint32_t s = 0; s < n; ++s) {
    if (numbers[blocks.set[s]] != kDead) continue;
    numbers[blocks.set[s]] = static_cast<uint32_t>(leaders.size());
    leaders.push_back(s);
  }
  for (const uint32_t s : leaders) {
    accept.push_back(accept_[s]);
    for (uint32_t c = 0; c < n_classes_; ++c) {
      const uint32_t to = next_[s * n_classes_ + c];
      next.push_back(to == kDead ? kDead : numbers[blocks.set[to]]);
    }
  }
  next_ = std::move(next);
  accept_ = std::move(accept);
}

bool Dfa::matches(std::string_view text) const {
  uint32_t s = empty() ? kDead : 0;
  for (const char c : text) {
    if (s == kDead) return false;
    s = next(s, static_cast<uint8_t>(c));
  }
  return s != kDead && accepts(s);
}

void narrow(std::optional<Dfa>* language, const Dfa& other, bool without) {
  if (!*language && !without) {
    *language = other;
    return;
  }
  *language = Dfa::combine(*language ? **language : Dfa::all_text(), other,
                           without ? Dfa::How::kOnlyFirst : Dfa::How::kBoth);
}

}  // namespace sluice::grammar
