// The single owner of which tokens are computed: the tokens of a sequence, how far its KV cache and
// recurrent states reach, and where it can rewind to. It computes nothing. Passes move it forward a
// batch at a time; an abandoned pass costs at most a checkpoint. A recurrent state cannot be
// truncated, so copies are kept along the way (checkpoints), and so is the state before the last
// batch. To rewind, it restores the nearest of these and recomputes the rest, at most
// kCheckpointEvery tokens while all checkpoints are kept. When the planned copies are used up,
// older ones are thinned out.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "base/hash.h"
#include "kv/kv_cache.h"
#include "session/fingerprint.h"
#include "session/media.h"
#include "session/memory_plan.h"

namespace sluice::session {

// An id in the vocabulary, or ~id for a token of the encoder's input, which precedes the decoder's
// tokens. So the sequence itself tells which tokens belong to the encoder. A picture's tokens are
// numbers from kMediaToken on.
using Token = int32_t;

// How many tokens at the beginning are encoder input.
[[nodiscard]] inline int32_t source_of(std::span<const Token> tokens) {
  const auto end = std::find_if(tokens.begin(), tokens.end(), [](Token t) { return t >= 0; });
  return static_cast<int32_t>(end - tokens.begin());
}

struct StateForm;  // layout of a saved state: session_state.cpp

class Sequence {
 public:
  // `cache` must belong to this sequence only.
  explicit Sequence(kv::KvCache cache);

  [[nodiscard]] const kv::KvCache& cache() const { return cache_; }
  [[nodiscard]] bool bidirectional() const { return cache_.shape().bidirectional; }
  [[nodiscard]] int32_t position() const { return position_; }
  // The tokens before position().
  [[nodiscard]] std::span<const Token> tokens() const {
    return {tokens_.data(), static_cast<size_t>(position_)};
  }
  // The last n tokens, or as many as there are, up to the first one of the running pass.
  [[nodiscard]] std::span<const Token> recent(int32_t n) const {
    const int32_t end = position_ + 1;
    const int32_t first = std::max(end - n, 0);
    return {tokens_.data() + first, static_cast<size_t>(end - first)};
  }
  // The vocabulary id of the token at any position, including the running pass; 0 in a picture.
  [[nodiscard]] Token token(int32_t position) const {
    const Token token = tokens_[static_cast<size_t>(position)];
    return token >= kMediaToken ? 0 : std::max(token, ~token);
  }
  // Successive tokens whose RoPE positions count up by one, or which lie on one grid.
  struct RopeRun {
    int32_t position = 0;           // of the first token, or where the grid begins
    int32_t cell = 0, columns = 0;  // the first token's place on the grid; columns 0: no grid
    int32_t end = 0;                // index behind the last of them
  };
  // The run from the token at this index on.
  [[nodiscard]] RopeRun rope_run(int32_t index) const;
  // The position that RoPE gives the token at this index, or that the picture there begins at.
  [[nodiscard]] int32_t rope_position(int32_t index) const { return rope_run(index).position; }
  [[nodiscard]] std::span<const MediaSpan> media() const { return media_; }
  // Whether every picture stays when up to `ahead` tokens are computed behind position n, and then
  // some of them rewound: a KV cache in groups may have to rewind to the begin of a group, and one
  // that evicts may have dropped what that needs.
  [[nodiscard]] bool keeps_pictures(int32_t n, int32_t ahead) const;
  // How many of the tokens are encoder input.
  [[nodiscard]] int32_t source() const { return source_; }
  [[nodiscard]] int32_t shared_prefix(std::span<const Token> tokens) const;

  // How many positions from this one on fit one batch. Under "heavy-hitter" only the first query of
  // a batch may evict a block, and a batch of no more positions can be rewound to any of them.
  [[nodiscard]] int32_t tokens_until_eviction() const {
    const kv::Eviction& eviction = cache_.shape().eviction;
    return eviction.ring > 0 ? eviction.until(position_) : cache_.shape().n_ctx;
  }
  // Whether a layer must still evict a block before the query at `position`.
  [[nodiscard]] bool leaves(int32_t layer, int32_t position) const {
    return gone_[static_cast<size_t>(layer)] < cache_.layer(layer).seen_from(position);
  }
  void left(int32_t layer, int32_t position) {
    gone_[static_cast<size_t>(layer)] = cache_.layer(layer).seen_from(position);
  }

  // The largest position <= n from which the sequence can continue; 0 for bidirectional models.
  [[nodiscard]] int32_t reachable(int32_t n) const;
  // Rewinds to reachable(n) and returns it.
  int32_t rewind(int32_t n);
  void clear() { rewind(0); }
  // Sets the tokens of the next pass, after position(); they must fit the context.
  void append(std::span<const Token> tokens);
  // Sets what follows the first token of the next pass.
  void append_chosen(std::span<const Token> tokens);
  // Sets a picture as the next pass.
  void append(const MediaInput& input);

  // --- a batch of n tokens from position() on ---------------------------------------------------
  void begin_batch(int32_t n);
  void commit_batch(int32_t n);  // the first n of them
  // State of a recurrent layer before the batch, and where the state after it goes.
  [[nodiscard]] const float* state_before(int32_t layer) const {
    return cache_.state(layer, live_);
  }
  [[nodiscard]] float* state_after(int32_t layer) const { return cache_.state(layer, 1 - live_); }
  struct Checkpoint {
    int32_t position = 0;
    int32_t copy = 0;  // number for KvCache::state
  };
  // Checkpoints inside the batch: the state before `position` must be written to the copy.
  [[nodiscard]] std::span<const Checkpoint> due() const { return due_; }

  // --- saved state; layout: session_state.cpp ---------------------------------------------------
  [[nodiscard]] uint64_t state_bytes() const;
  // Reads bytes [offset, offset + out.size()) of it. Bytes of a KV cache on the GPU stay as they
  // are in `out`, and the hash lacks them.
  [[nodiscard]] Status read_state(const Fingerprint& fingerprint, uint64_t offset,
                                  std::span<uint8_t> out) const;
  // Restores a saved state, in pieces and in order; the last piece completes it. Until then, and
  // after an error, the sequence is empty. Errors: kCorrupt (damaged, or another fingerprint: the
  // message names what differs), kContextFull, kInvalidArgument.
  [[nodiscard]] Status begin_restore(uint64_t bytes);
  [[nodiscard]] Status write_state(const Fingerprint& fingerprint, int64_t n_vocab,
                                   std::span<const uint8_t> piece);
  // Cancels a restore.
  void end_restore() { restore_ = {}; }
  // How many restores have begun; each invalidates what the cache held before.
  [[nodiscard]] uint32_t restores() const { return restores_; }

 private:
  friend struct StateForm;
  struct Restore {
    bool active = false;
    uint64_t total = 0, done = 0;
    Hash64 hash;                // of the bytes received
    uint64_t sum = 0;           // the hash in the saved state
    std::vector<uint8_t> head;  // the part received so far
  };
  // The first position whose keys a layer still holds once those up to `reached` were written.
  [[nodiscard]] int32_t held_from(size_t layer, int32_t reached) const;
  // Whether all layers then hold what the query at position n sees.
  [[nodiscard]] bool holds(int32_t n, int32_t reached) const;
  // The largest position <= n for which caches and states can continue.
  [[nodiscard]] int32_t resumable(int32_t n) const;
  // Whether grouped KV cache types can continue from position n, with f16 copies from `copied` on:
  // kv_cache.h.
  [[nodiscard]] bool resumes(int32_t n, int32_t copied) const;
  [[nodiscard]] int32_t free_copy();
  void forget_media();  // what begins at position() or behind it
  [[nodiscard]] Status finish_restore(const StateForm& form, int64_t n_vocab);

  kv::KvCache cache_;
  std::vector<Token> tokens_;     // [n_ctx]
  std::vector<MediaSpan> media_;  // ascending
  int32_t position_ = 0;
  int32_t source_ = 0;
  int32_t reached_ = 0;        // the furthest position whose keys were written to the rings
  int32_t restored_ = 0;       // layers with a window hold no earlier positions than this
  std::vector<int32_t> gone_;  // by layer: positions evicted (heavy-hitter policy)
  int32_t copied_ = 0;         // the f16 copies of grouped types begin at this position
  int32_t live_ = 0;           // copy that holds the state at position_
  int32_t undo_ = -1;          // position of the other copy's state: where the last batch began
  bool recurrent_ = false;
  std::vector<Checkpoint> checkpoints_, due_;  // ascending
  Restore restore_;
  uint32_t restores_ = 0;
};

}  // namespace sluice::session
