// Closures, interning of states and stacks, and compaction of the workspace.
#include "grammar/automaton.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace sluice::grammar {
namespace {

constexpr uint32_t kSeenSlots = 1 << 13;  // hash table of a closure's pairs, at most half full
constexpr uint32_t kMaxPairs = kSeenSlots / 2;
constexpr uint32_t kNone = UINT32_MAX;
constexpr uint32_t kMaxStates = 60'000;
constexpr uint32_t kMaxPlain = 16;  // successors followed in takes_plain()

uint32_t mix(uint32_t h, uint32_t v) {
  h ^= v + 0x9e3779b9u + (h << 6) + (h >> 2);
  return h * 0x85ebca6bu;
}

}  // namespace

uint64_t Automaton::memory_bytes(uint64_t workspace) {
  return sizeof(Automaton) + workspace + kMaxPairs * 4 * (sizeof(Item) + sizeof(Call));
}

Result<std::unique_ptr<Automaton>> Automaton::create(const Grammar& grammar, uint64_t workspace) {
  std::unique_ptr<Automaton> made(new Automaton(grammar));
  SLUICE_RETURN_IF_ERROR(made->allocate(workspace));
  return made;
}

// Half of the workspace holds rows, the other half everything else.
Status Automaton::allocate(uint64_t workspace) {
  SLUICE_RETURN_IF_ERROR(memory_.allocate(workspace));
  n_classes_ = grammar_->n_classes;
  std::byte* at = memory_.data();
  const auto take = [&at]<typename T>(T** what, uint32_t count) {
    *what = reinterpret_cast<T*>(at);
    at += round_up_to_line(count * sizeof(T));
  };
  const uint64_t rest = workspace - kSeenSlots * sizeof(Seen);
  const uint64_t row = n_classes_ * sizeof(State) + sizeof(StateRecord) + 4 * sizeof(State);
  max_states_ = static_cast<uint32_t>(std::min<uint64_t>(rest / 2 / row, kMaxStates));
  const uint64_t unit = 3 * sizeof(Item) + sizeof(StackRecord) + 2 * sizeof(Frame) +
                        5 * sizeof(uint32_t);  // a stack with its share of items and frames
  max_stacks_ = static_cast<uint32_t>((rest - max_states_ * row) / unit) - 64;
  max_items_ = 3 * max_stacks_;
  max_frames_ = 2 * max_stacks_;
  state_mask_ = std::bit_floor(max_states_ * 4) - 1;
  stack_mask_ = std::bit_floor(max_stacks_ * 4) - 1;
  take(&rows_, max_states_ * n_classes_);
  take(&states_, max_states_);
  take(&items_, max_items_);
  take(&stacks_, max_stacks_);
  take(&frames_, max_frames_);
  take(&state_slots_, state_mask_ + 1);
  take(&stack_slots_, stack_mask_ + 1);
  take(&seen_, kSeenSlots);
  take(&marks_, max_stacks_);
  std::memset(seen_, 0, kSeenSlots * sizeof(Seen));
  open_.reserve(kMaxPairs);
  found_.reserve(kMaxPairs);
  calls_.reserve(2 * kMaxPairs);
  gathered_.reserve(2 * kMaxPairs);
  reset_tables();
  // State 0 is dead and leads to itself. Then the bottom stack, and the stack of the root.
  states_[0] = {};
  for (PlainBounds& plain : states_[0].plain) plain.most = 0;
  std::fill_n(rows_, n_classes_, kDead);
  n_states_ = 1;
  stacks_[0] = {};
  n_stacks_ = 1;
  const Frame end{kFinalNode, 0};
  static_cast<void>(intern_stack({&end, 1}));
  return {};
}

void Automaton::reset_tables() {
  std::fill_n(state_slots_, state_mask_ + 1, kUnknown);
  std::fill_n(stack_slots_, stack_mask_ + 1, kNone);
}

void Automaton::begin() {
  ++round_;
  n_seen_ = 0;
  open_.clear();
  found_.clear();
  calls_.clear();
  entered_ = final_ = full_ = false;
}

void Automaton::visit(uint32_t node, uint32_t stack) {
  if (!grammar_->nodes[node].live) return;
  const Item item{node, stack};
  uint32_t slot = mix(mix(0, node), stack) & (kSeenSlots - 1);
  while (seen_[slot].round == round_) {
    if (seen_[slot].item == item) return;
    slot = (slot + 1) & (kSeenSlots - 1);
  }
  if (++n_seen_ > kMaxPairs) {
    full_ = true;
    return;
  }
  seen_[slot] = {item, round_};
  open_.push_back(item);
}

void Automaton::process(const Item& item) {
  const Node& n = grammar_->nodes[item.node];
  switch (n.op) {
    case Op::kByte:
    case Op::kRanges:
    case Op::kToken:
    case Op::kNotToken:
      found_.push_back(item);
      break;
    case Op::kSplit:
      visit(n.a, item.stack);
      visit(n.b, item.stack);
      break;
    case Op::kEnd: {
      // A rule entered in this closure cannot return yet. If it can be empty, its caller was
      // continued without it.
      const StackRecord stack = stacks_[item.stack];
      for (uint32_t i = 0; !entered_ && i < stack.count; ++i) {
        visit(frames_[stack.first + i].node, frames_[stack.first + i].stack);
      }
      break;
    }
    case Op::kFinal:
      final_ = true;
      break;
    case Op::kCall: {
      const Rule& rule = grammar_->rules[n.a];
      if (rule.nullable) visit(n.b, item.stack);
      const auto add = [&](Frame frame) {
        if (calls_.size() == calls_.capacity()) {
          full_ = true;
          return;
        }
        calls_.push_back({rule.rank, n.a, frame});
        std::push_heap(calls_.begin(), calls_.end(),
                       [](const Call& a, const Call& b) { return a.rank > b.rank; });
      };
      if (n.b == kEndNode) {  // tail call: the callee returns to the caller's caller
        const StackRecord stack = stacks_[item.stack];
        for (uint32_t i = 0; i < stack.count; ++i) add(frames_[stack.first + i]);
      } else {
        add({n.b, item.stack});
      }
      break;
    }
    case Op::kFail:
      break;
  }
}

// Finishes the closure begun by visit() and returns its state.
State Automaton::close() {
  for (;;) {
    while (!open_.empty() && !full_) {
      const Item item = open_.back();
      open_.pop_back();
      process(item);
    }
    if (full_) return kFull;
    if (calls_.empty()) break;
    // All callers of the rule of lowest rank are known by now.
    entered_ = true;
    const uint32_t rule = calls_.front().rule;
    gathered_.clear();
    while (!calls_.empty() && calls_.front().rule == rule) {
      gathered_.push_back(calls_.front().frame);
      std::pop_heap(calls_.begin(), calls_.end(),
                    [](const Call& a, const Call& b) { return a.rank > b.rank; });
      calls_.pop_back();
    }
    std::sort(gathered_.begin(), gathered_.end());
    gathered_.erase(std::unique(gathered_.begin(), gathered_.end()), gathered_.end());
    const uint32_t stack = intern_stack(gathered_);
    if (stack == kNone) return kFull;
    visit(grammar_->rules[rule].start, stack);
  }
  return intern_state();
}

uint32_t Automaton::intern_stack(std::span<const Frame> frames) {
  uint32_t h = static_cast<uint32_t>(frames.size());
  for (const Frame& f : frames) h = mix(mix(h, f.node), f.stack);
  uint32_t slot = h & stack_mask_;
  for (; stack_slots_[slot] != kNone; slot = (slot + 1) & stack_mask_) {
    const StackRecord& s = stacks_[stack_slots_[slot]];
    if (s.count == frames.size() && std::equal(frames.begin(), frames.end(), frames_ + s.first)) {
      return stack_slots_[slot];
    }
  }
  if (n_stacks_ == max_stacks_ || frames.size() > max_frames_ - n_frames_) return kNone;
  stacks_[n_stacks_] = {n_frames_, static_cast<uint32_t>(frames.size())};
  std::copy(frames.begin(), frames.end(), frames_ + n_frames_);
  n_frames_ += static_cast<uint32_t>(frames.size());
  stack_slots_[slot] = n_stacks_;
  return n_stacks_++;
}

State Automaton::intern_state() {
  work_ += n_seen_;
  if (found_.empty() && !final_) return kDead;
  std::sort(found_.begin(), found_.end());
  uint32_t h = static_cast<uint32_t>(found_.size()) * 2 + (final_ ? 1 : 0);
  for (const Item& i : found_) h = mix(mix(h, i.node), i.stack);
  uint32_t slot = h & state_mask_;
  for (; state_slots_[slot] != kUnknown; slot = (slot + 1) & state_mask_) {
    const State s = state_slots_[slot];
    if (states_[s].final == final_ &&
        std::equal(items(s).begin(), items(s).end(), found_.begin(), found_.end()))
      return s;
  }
  if (n_states_ == max_states_ || found_.size() > max_items_ - n_items_) return kFull;
  StateRecord& made = states_[n_states_];
  made = {n_items_, static_cast<uint32_t>(found_.size()), final_, false, {}};
  for (const Item& i : found_) {
    const Op op = grammar_->nodes[i.node].op;
    made.takes_tokens |= op == Op::kToken || op == Op::kNotToken;
  }
  std::copy(found_.begin(), found_.end(), items_ + n_items_);
  n_items_ += static_cast<uint32_t>(found_.size());
  std::fill_n(rows_ + n_states_ * n_classes_, n_classes_, kUnknown);
  state_slots_[slot] = static_cast<State>(n_states_);
  return static_cast<State>(n_states_++);
}

State Automaton::start() {
  begin();
  visit(grammar_->rules[0].start, 1);
  return close();
}

State Automaton::find(State from, uint32_t byte_class) {
  const uint8_t byte = grammar_->class_byte[byte_class];
  begin();
  for (const Item& item : items(from)) {
    const Node& n = grammar_->nodes[item.node];
    if (n.op == Op::kByte) {
      if (byte >= n.lo && byte <= n.hi) visit(n.a, item.stack);
    } else if (n.op == Op::kRanges) {
      const Range* const ranges = grammar_->ranges.data() + n.a;
      for (uint32_t i = 0; i < n.b; ++i) {
        if (byte >= ranges[i].lo && byte <= ranges[i].hi) visit(ranges[i].target, item.stack);
      }
    }
  }
  const State found = close();
  if (found != kFull) rows_[from * n_classes_ + byte_class] = found;
  return found;
}

State Automaton::step_token(State from, Token token, State by_bytes) {
  if (!states_[from].takes_tokens) return by_bytes;
  begin();
  const uint32_t id = static_cast<uint32_t>(token);
  for (const Item& item : items(from)) {
    const Node& n = grammar_->nodes[item.node];
    if (n.op == Op::kToken && n.a == id) visit(n.b, item.stack);
    if (n.op == Op::kNotToken && n.a != id) visit(n.b, item.stack);
  }
  for (const Item& item : items(by_bytes)) visit(item.node, item.stack);
  if (states_[by_bytes].final) final_ = true;
  return close();
}

bool Automaton::continuations(std::span<const State> from, uint8_t lo, uint8_t hi, bool all,
                              State* out, size_t* n) {
  for (const State s : from) {
    uint32_t last_class = kNone;
    for (uint32_t byte = lo; byte <= hi; ++byte) {
      const uint32_t byte_class = grammar_->byte_class[byte];
      if (byte_class == last_class) continue;
      last_class = byte_class;
      const State to = step(s, static_cast<uint8_t>(byte));
      if (to == kFull || (all && to == kDead)) return false;
      if (to == kDead || std::find(out, out + *n, to) != out + *n) continue;
      if (*n == kMaxPlain) return false;
      out[(*n)++] = to;
    }
  }
  return true;
}

bool Automaton::successors(State s, Plain kind, bool all, State* out, size_t* n) {
  struct Bytes {
    uint8_t lo, hi;
  };
  static constexpr Bytes kBytes[] = {{'a', 'z'},   {'0', '9'},   {'A', 'Z'},
                                     {0x20, 0x21}, {0x23, 0x5B}, {0x5D, 0x7E}};
  static constexpr uint8_t kFirst[] = {0, 0, 3}, kEnd[] = {1, 3, 6};
  const auto k = static_cast<size_t>(kind);
  for (size_t i = kFirst[k]; i < kEnd[k]; ++i) {
    if (!continuations({&s, 1}, kBytes[i].lo, kBytes[i].hi, all, out, n)) return false;
  }
  if (kind != Plain::kAny) return true;
  for (const PlainLead& lead : kPlainLeads) {
    State between[2][kMaxPlain];
    size_t count = 0;
    if (!continuations({&s, 1}, lead.first, lead.last, all, between[0], &count)) return false;
    for (int i = 1; i < lead.length; ++i) {
      const uint8_t lo = i == 1 ? lead.lo : 0x80, hi = i == 1 ? lead.hi : 0xBF;
      const std::span<const State> from{between[(i - 1) & 1], count};
      count = 0;
      const bool last = i + 1 == lead.length;
      if (!continuations(from, lo, hi, all, last ? out : between[i & 1], last ? n : &count)) {
        return false;
      }
    }
  }
  return true;
}

bool Automaton::takes_plain(State s, Plain kind, uint32_t length) {
  PlainBounds& known = states_[s].plain[static_cast<size_t>(kind)];
  if (length <= known.least) return true;
  if (length > known.most) return false;
  State next[kMaxPlain];
  size_t n = 0;
  bool all = successors(s, kind, /*all=*/true, next, &n);
  for (size_t i = 0; all && i < n; ++i)
    all = next[i] == s || takes_plain(next[i], kind, length - 1);
  if (all) {
    known.least = static_cast<uint8_t>(length);
  } else {
    known.most = static_cast<uint8_t>(length - 1);
  }
  return all;
}

uint32_t Automaton::plain_reach(State s, Plain kind, uint32_t most) {
  State sets[2][kMaxPlain] = {{s}};
  size_t count = 1;
  for (uint32_t length = 0; length < most; ++length) {
    const State* const from = sets[length & 1];
    State* const to = sets[(length + 1) & 1];
    size_t n = 0;
    for (size_t i = 0; i < count; ++i) {
      if (!successors(from[i], kind, /*all=*/false, to, &n)) return most;
    }
    if (n == 0) return length;
    if (n == count && std::equal(from, from + n, to)) return most;
    count = n;
  }
  return most;
}

// Moves everything down in order. A stack comes after the stacks below it, so the order of all
// numbers is preserved and sorted items stay sorted.
bool Automaton::compact(std::span<State* const> keep) {
  std::fill_n(marks_, n_stacks_, 0);
  marks_[0] = marks_[1] = 1;
  std::vector<State> kept;
  for (const State* s : keep) kept.push_back(*s);
  std::sort(kept.begin(), kept.end());
  kept.erase(std::unique(kept.begin(), kept.end()), kept.end());
  if (!kept.empty() && kept[0] == kDead) kept.erase(kept.begin());
  for (const State s : kept) {
    for (const Item& item : items(s)) marks_[item.stack] = 1;
  }
  for (uint32_t i = n_stacks_; i > 0; --i) {
    const StackRecord& s = stacks_[i - 1];
    for (uint32_t f = 0; marks_[i - 1] != 0 && f < s.count; ++f) {
      marks_[frames_[s.first + f].stack] = 1;
    }
  }
  reset_tables();
  const uint32_t had_stacks = n_stacks_;
  n_stacks_ = n_frames_ = 0;
  for (uint32_t i = 0; i < had_stacks; ++i) {
    if (marks_[i] == 0) continue;
    const StackRecord old = stacks_[i];
    marks_[i] = n_stacks_;
    for (uint32_t f = 0; f < old.count; ++f) {
      Frame frame = frames_[old.first + f];
      frame.stack = marks_[frame.stack];
      frames_[n_frames_ + f] = frame;
    }
    if (i == 0) {
      stacks_[n_stacks_++] = {};
      continue;
    }
    // Intern the stack again: this finds its slot and copies its frames onto themselves.
    static_cast<void>(intern_stack({frames_ + n_frames_, old.count}));
  }
  n_states_ = 1;
  n_items_ = 0;
  std::vector<State> numbers;
  for (const State s : kept) {
    const StateRecord old = states_[s];
    found_.assign(items_ + old.first, items_ + old.first + old.count);
    for (Item& item : found_) item.stack = marks_[item.stack];
    final_ = old.final;
    numbers.push_back(intern_state());
  }
  for (State* s : keep) {
    const auto at = std::lower_bound(kept.begin(), kept.end(), *s);
    if (*s != kDead) *s = numbers[static_cast<size_t>(at - kept.begin())];
  }
  return n_states_ < max_states_ / 2 && n_items_ < max_items_ / 2 && n_stacks_ < max_stacks_ / 2 &&
         n_frames_ < max_frames_ / 2;
}

}  // namespace sluice::grammar
