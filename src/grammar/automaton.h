// The states of a grammar while text is matched, created lazily and cached. A state is a set of
// (node, stack) pairs with a row of successors by byte class, so a known step is a table lookup.
//
// A stack records where a rule returns to: a set of frames (node, stack below), one for each place
// that called the rule at the same byte. Equal stacks and equal states are interned. So repetitive
// text, such as the elements of an array, reuses its states. Work per byte is bounded by rules
// times length, however ambiguous the grammar is. Left recursion is rejected (builder.h), so
// entering callees after their callers collects all frames of a stack before it is created.
//
// All memory is one workspace of fixed size. When it is full, compact() keeps only given states.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/aligned.h"
#include "grammar/grammar.h"
#include "grammar/vocabulary.h"

namespace sluice::grammar {

using State = uint16_t;
inline constexpr State kDead = 0;
inline constexpr State kFull = 0xFFFE;  // no result: the workspace is full

class Automaton {
 public:
  // `grammar` must outlive it. Errors: kOutOfMemory.
  [[nodiscard]] static Result<std::unique_ptr<Automaton>> create(const Grammar& grammar,
                                                                 uint64_t workspace);

  [[nodiscard]] State start();  // kFull if the workspace is full
  // The state after a byte; kDead if it is not allowed. kFull: call compact() and try again.
  [[nodiscard]] State step(State from, uint8_t byte) {
    const State known = rows().next(from, byte);
    return known != kUnknown ? known : find(from, grammar_->byte_class[byte]);
  }
  // The cached part of step(), for loops. A result of kFull or more means: call step().
  struct Rows {
    const State* rows;
    const uint8_t* byte_class;
    uint32_t n_classes;
    [[nodiscard]] State next(State from, uint8_t byte) const {
      return rows[from * n_classes + byte_class[byte]];
    }
  };
  [[nodiscard]] Rows rows() const { return {rows_, grammar_->byte_class, n_classes_}; }
  // The state after a token: by the grammar's token references, by its bytes (`by_bytes`), or both.
  [[nodiscard]] State step_token(State from, Token token, State by_bytes);

  [[nodiscard]] bool final(State s) const { return states_[s].final; }
  // Whether token references of the grammar can match next.
  [[nodiscard]] bool takes_tokens(State s) const { return states_[s].takes_tokens; }
  // Calls use(token, negated) for each token reference.
  template <typename Use>
  void each_token(State s, Use use) const {
    for (const Item& item : items(s)) {
      const Node& n = grammar_->nodes[item.node];
      if (n.op == Op::kToken) use(static_cast<Token>(n.a), false);
      if (n.op == Op::kNotToken) use(static_cast<Token>(n.a), true);
    }
  }
  // Whether every text of at most `length` plain characters of the kind is allowed.
  [[nodiscard]] bool takes_plain(State s, Plain kind, uint32_t length);
  // How many such characters may follow; `most` if more, or if it is too expensive to tell.
  [[nodiscard]] uint32_t plain_reach(State s, Plain kind, uint32_t most);

  // Drops all states but these and renumbers them in place. False if little space was freed.
  [[nodiscard]] bool compact(std::span<State* const> keep);
  [[nodiscard]] size_t n_states() const { return n_states_; }
  // Number of pairs visited by closures so far.
  [[nodiscard]] uint64_t work() const { return work_; }
  [[nodiscard]] const Grammar& grammar() const { return *grammar_; }
  [[nodiscard]] static uint64_t memory_bytes(uint64_t workspace);

 private:
  static constexpr State kUnknown = 0xFFFF;
  struct Item {
    uint32_t node, stack;
    auto operator<=>(const Item&) const = default;
  };
  struct PlainBounds {   // cached results of takes_plain()
    uint8_t least = 0;   // true up to this length
    uint8_t most = 255;  // false beyond this length
  };
  struct StateRecord {
    uint32_t first = 0, count = 0;  // items
    bool final = false, takes_tokens = false;
    PlainBounds plain[kPlainKinds];
  };
  struct Frame {
    uint32_t node, stack;
    auto operator<=>(const Frame&) const = default;
  };
  struct StackRecord {
    uint32_t first = 0, count = 0;  // frames
  };
  struct Call {
    uint32_t rank, rule;
    Frame frame;
  };
  struct Seen {
    Item item;
    uint32_t round;
  };

  explicit Automaton(const Grammar& grammar) : grammar_(&grammar) {}
  Status allocate(uint64_t workspace);
  std::span<const Item> items(State s) const {
    return {items_ + states_[s].first, states_[s].count};
  }
  State find(State from, uint32_t byte_class);
  void begin();
  void visit(uint32_t node, uint32_t stack);
  void process(const Item& item);
  State close();
  uint32_t intern_stack(std::span<const Frame> frames);
  State intern_state();
  void reset_tables();
  // Adds the successors by a byte of a range, or by a character of a kind. False if `all` is set
  // and some byte is not allowed, if there are too many successors, or if the workspace is full.
  bool continuations(std::span<const State> from, uint8_t lo, uint8_t hi, bool all, State* out,
                     size_t* n);
  bool successors(State s, Plain kind, bool all, State* out, size_t* n);

  const Grammar* grammar_;
  uint32_t n_classes_ = 0;
  AlignedBuffer memory_;
  // Parts of the workspace, with their capacities.
  State* rows_ = nullptr;
  StateRecord* states_ = nullptr;
  Item* items_ = nullptr;
  StackRecord* stacks_ = nullptr;
  Frame* frames_ = nullptr;
  State* state_slots_ = nullptr;
  uint32_t* stack_slots_ = nullptr;
  Seen* seen_ = nullptr;
  uint32_t* marks_ = nullptr;  // [max_stacks_], for compact()
  uint32_t max_states_ = 0, max_items_ = 0, max_stacks_ = 0, max_frames_ = 0;
  uint32_t n_states_ = 0, n_items_ = 0, n_stacks_ = 0, n_frames_ = 0;
  uint32_t state_mask_ = 0, stack_mask_ = 0;

  // Scratch of one closure.
  std::vector<Item> open_, found_;
  std::vector<Call> calls_;
  std::vector<Frame> gathered_;
  uint32_t round_ = 0, n_seen_ = 0;
  uint64_t work_ = 0;
  bool entered_ = false, final_ = false, full_ = false;
};

}  // namespace sluice::grammar
