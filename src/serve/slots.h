// The server's prefix cache: keeps conversations in memory or in swap files
// (native/session_swap.h), and chooses the one that a request continues. Used only by the engine's
// thread. Prompts are always complete, so losing a conversation costs only time: if its swap file
// fails, it is dropped, counted and recomputed.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "generate/scheduler.h"
#include "native/session_swap.h"
#include "serve/metrics.h"

namespace sluice::serve {

using session::Token;

// Hooks of the on-disk prompt cache. Called in the engine's thread.
struct PromptCacheHooks {
  // Restores the session from the cache, if the cache has a longer prefix of the prompt.
  std::function<void(session::Session& session, std::span<const Token> prompt)> recall;
  std::function<void(const session::Session& session)> keep;  // saves before it is overwritten
};

class Slots {
 public:
  // One conversation. While taken, it is in memory and in the scheduler.
  class Slot {
   public:
    [[nodiscard]] session::Session& session() const { return *place_->session(); }

   private:
    friend class Slots;
    explicit Slot(std::unique_ptr<native::Conversation> place) : place_(std::move(place)) {}
    std::unique_ptr<native::Conversation> place_;
    uint64_t used_ = 0;  // number of the request that used it last
    std::string key_;    // its key; "": none
    bool taken_ = false;
  };

  // All three must outlive this. At most the plan's `parallel` slots are taken at a time.
  Slots(const session::SessionContext& context, generate::Scheduler& scheduler, Metrics& metrics);

  // --- before start()
  void remember(PromptCacheHooks cache_hooks) { cache_hooks_ = std::move(cache_hooks); }
  // Keeps this many conversations; those that do not fit in memory are in files in `directory`.
  // Errors: SessionSwap::open's.
  [[nodiscard]] Status swap_to(const std::string& directory, size_t conversations);
  // Errors: SessionSwap::create's.
  [[nodiscard]] Status start();

  [[nodiscard]] bool has_free() const;
  // Takes the free slot that was last used with this key, or the one with the longest common
  // prefix; of several, the least recently used. If most of its contents would be lost, it has
  // another key or swap files hold more, and there is an empty slot, takes that one instead, with a
  // copy of the useful part. Call only while has_free(). Errors: SessionSwap::enter's.
  [[nodiscard]] Result<Slot*> take(std::span<const Token> prompt, std::string_view key = {});
  void free(Slot& slot);
  // Length of the common prefix of the slot and the prompt.
  [[nodiscard]] static size_t prefix(const Slot& slot, std::span<const Token> prompt) {
    return static_cast<size_t>(slot.place_->shared_prefix(prompt));
  }
  void recall(Slot& slot, std::span<const Token> prompt) const;
  // Reads ahead the swap file of the slot that take() would choose for this prompt.
  void expect(std::span<const Token> prompt, std::string_view key) const;
  // On shutdown: saves all conversations to the prompt cache and clears them.
  void keep_all();

 private:
  struct Match {
    size_t slot = 0;
    int32_t prefix = -1;  // length of the common prefix; -1: no slot is free
  };
  [[nodiscard]] Match best_match(std::span<const Token> prompt, std::string_view key) const;
  [[nodiscard]] Result<session::Session*> enter(Slot& slot);
  void forget_oldest();
  void keep(const Slot& slot) const;

  const session::SessionContext& context_;
  generate::Scheduler& scheduler_;
  Metrics& metrics_;
  PromptCacheHooks cache_hooks_;
  const size_t max_taken_;
  std::unique_ptr<native::SessionSwap> swap_;
  size_t conversations_;
  std::vector<Slot> slots_;
  uint64_t n_used_ = 0;
};

}  // namespace sluice::serve
