// The one place that knows which tokens are computed: the tokens of a sequence, how far its keys,
// values and recurrent states reach, and to where it can go back. It computes nothing and reads
// nothing; passes move it forward a batch at a time, and one that is given up costs a checkpoint at
// most. A recurrent state cannot be rewound, so copies of it are kept on the way (checkpoints), and
// the one before the last batch is still there: going back means going to the last of these and
// computing the rest again, at most kCheckpointEvery tokens while there is one. When the planned
// copies are used up, older ones are thinned out.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "base/hash.h"
#include "kv/kv_cache.h"
#include "session/memory_plan.h"

namespace sluice::session {

// In the vocabulary; ~token of the source that a decoder's tokens answer, which comes before them.
// So a sequence of tokens says by itself what is whose.
using Token = int32_t;

// How many tokens at the beginning are a source's.
[[nodiscard]] inline int32_t source_of(std::span<const Token> tokens) {
  const auto end = std::find_if(tokens.begin(), tokens.end(), [](Token t) { return t >= 0; });
  return static_cast<int32_t>(end - tokens.begin());
}

struct StateForm;  // of a saved state: session_state.cpp

class Sequence {
 public:
  // `cache` is this sequence's alone.
  explicit Sequence(kv::KvCache cache);

  [[nodiscard]] const kv::KvCache& cache() const { return cache_; }
  [[nodiscard]] int32_t position() const { return position_; }
  // The tokens before position().
  [[nodiscard]] std::span<const Token> tokens() const {
    return {tokens_.data(), static_cast<size_t>(position_)};
  }
  // The token at any position of the pass under way, in the vocabulary.
  [[nodiscard]] Token token(int32_t position) const {
    const Token token = tokens_[static_cast<size_t>(position)];
    return std::max(token, ~token);
  }
  // How many of the tokens are the source that the others answer.
  [[nodiscard]] int32_t source() const { return source_; }
  [[nodiscard]] int32_t shared_prefix(std::span<const Token> tokens) const;

  // Positions from this one on that one batch may hold: where layers pick what stays of a block,
  // none but the first of a batch has one leave.
  [[nodiscard]] int32_t tokens_until_eviction() const {
    const kv::Eviction& eviction = cache_.shape().eviction;
    return eviction.ring > 0 ? eviction.until(position_) : cache_.shape().n_ctx;
  }
  // Whether a block has still to leave a layer before the position's query.
  [[nodiscard]] bool leaves(int32_t layer, int32_t position) const {
    return gone_[static_cast<size_t>(layer)] < cache_.layer(layer).seen_from(position);
  }
  void left(int32_t layer, int32_t position) {
    gone_[static_cast<size_t>(layer)] = cache_.layer(layer).seen_from(position);
  }

  // The largest position <= n from which the sequence can go on; 0 where texts are read whole.
  [[nodiscard]] int32_t reachable(int32_t n) const;
  // Goes back there; returns reachable(n).
  int32_t rewind(int32_t n);
  void clear() { rewind(0); }
  // Tokens of the pass to come, behind position(); there is room for them.
  void append(std::span<const Token> tokens);

  // --- a batch of n tokens from position() on ---------------------------------------------------
  void begin_batch(int32_t n);
  void commit_batch(int32_t n);
  // State of a recurrent layer before the batch, and where the one after it goes.
  [[nodiscard]] const float* state_before(int32_t layer) const {
    return cache_.state(layer, live_);
  }
  [[nodiscard]] float* state_after(int32_t layer) const { return cache_.state(layer, 1 - live_); }
  struct Checkpoint {
    int32_t position = 0;
    int32_t copy = 0;  // number for KvCache::state
  };
  // Those that the batch passes: the state before `position` is to be written to the copy.
  [[nodiscard]] std::span<const Checkpoint> due() const { return due_; }

  // --- saved state: see session_state.cpp for its form
  // ----------------------------------------------- `identity` tells models apart.
  [[nodiscard]] uint64_t state_bytes(uint64_t identity) const;
  // Bytes [offset, offset + out.size()) of it.
  [[nodiscard]] Status read_state(uint64_t identity, uint64_t offset, std::span<uint8_t> out) const;
  // The way back, in pieces and in order; the last piece completes it. After an error, and until it
  // is complete, the sequence is empty. Errors: kCorrupt, kContextFull, kInvalidArgument.
  [[nodiscard]] Status begin_restore(uint64_t bytes);
  [[nodiscard]] Status write_state(uint64_t identity, int64_t n_vocab,
                                   std::span<const uint8_t> piece);
  // Gives a restoring up.
  void end_restore() { restore_ = {}; }
  // How often one has begun: what the cache held before it, it does not hold any more.
  [[nodiscard]] uint32_t restores() const { return restores_; }

 private:
  friend struct StateForm;
  struct Restore {
    bool active = false;
    uint64_t total = 0, done = 0;
    Hash64 hash;                // of what has come
    uint64_t sum = 0;           // as it was saved
    std::vector<uint8_t> head;  // as far as it has come
  };
  // The first position whose keys a layer still holds.
  [[nodiscard]] int32_t held_from(size_t layer) const;
  // Whether keys and values in groups can go on from position n: kv_cache.h.
  [[nodiscard]] bool resumes(int32_t n) const;
  [[nodiscard]] int32_t free_copy();
  [[nodiscard]] Status finish_restore(const StateForm& form, int64_t n_vocab);

  kv::KvCache cache_;
  std::vector<Token> tokens_;  // [n_ctx]
  int32_t position_ = 0;
  int32_t source_ = 0;
  int32_t reached_ = 0;   // the furthest position whose keys were written: rings hold what is near
  int32_t restored_ = 0;  // layers with a window hold nothing before this
  std::vector<int32_t> gone_;  // positions that have left each layer that picks
  int32_t copied_ = 0;         // f16 copies of what was restored begin here
  int32_t live_ = 0;           // copy that is the state at position_
  int32_t undo_ = -1;          // position whose state the other copy is: where the last batch began
  bool recurrent_ = false;
  std::vector<Checkpoint> checkpoints_, due_;  // ascending
  Restore restore_;
  uint32_t restores_ = 0;
};

}  // namespace sluice::session
