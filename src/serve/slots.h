// The conversations that a server keeps, each in the engine or in a file
// (native/session_swap.h), and which of them a request goes on from. Used by the engine's thread
// alone. A prompt is a whole text, so nothing here can lose anything but time: what a file does not
// take or give back is forgotten, counted and computed again.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "generate/scheduler.h"
#include "native/session_swap.h"
#include "serve/metrics.h"

namespace sluice::serve {

using session::Token;

// Where prompts outlive the process; called in the engine's thread.
struct PromptCacheHooks {
  // Makes the session what is known of the prompt, where that is more than it holds.
  std::function<void(session::Session& session, std::span<const Token> prompt)> recall;
  std::function<void(const session::Session& session)> keep;  // what would be lost
};

class Slots {
 public:
  // One conversation. While it is taken it is in the engine, and computed by the scheduler.
  class Slot {
   public:
    [[nodiscard]] session::Session& session() const { return *place_->session(); }

   private:
    friend class Slots;
    explicit Slot(std::unique_ptr<native::Conversation> place) : place_(std::move(place)) {}
    std::unique_ptr<native::Conversation> place_;
    uint64_t used_ = 0;  // number of the answer that used it last
    bool taken_ = false;
  };

  // All three outlive this. As many are taken at a time as the engine's plan says.
  Slots(session::Engine& engine, generate::Scheduler& scheduler, Metrics& metrics);

  // --- before start()
  void remember(PromptCacheHooks cache_hooks) { cache_hooks_ = std::move(cache_hooks); }
  // So many are kept, those beyond what the engine has memory for in files of `directory`. Errors:
  // SessionSwap::open's.
  [[nodiscard]] Status swap_to(const std::string& directory, size_t conversations);
  // Errors: SessionSwap::create's.
  [[nodiscard]] Status start();

  [[nodiscard]] bool has_free() const;
  // The free one that holds most of the prompt; of several the one that was used longest ago. Where
  // most of what it holds would be lost, one that holds nothing takes its place as long as there is
  // one, with a copy of what is of use. Only while has_free(). Errors: SessionSwap::enter's.
  [[nodiscard]] Result<Slot*> take(std::span<const Token> prompt);
  void free(Slot& slot);
  // How much of a prompt it has in common with what it holds.
  [[nodiscard]] static size_t prefix(const Slot& slot, std::span<const Token> prompt) {
    return static_cast<size_t>(slot.place_->shared_prefix(prompt));
  }
  void recall(Slot& slot, std::span<const Token> prompt) const;
  // That one will be taken for the prompt: what it goes on from is read ahead.
  void expect(std::span<const Token> prompt) const;
  // At the end, where prompts outlive the process; nothing is left.
  void keep_all();

 private:
  struct Match {
    size_t slot = 0;
    int32_t prefix = -1;  // of the prompt, that it holds; -1: none is free
  };
  [[nodiscard]] Match best_match(std::span<const Token> prompt) const;
  [[nodiscard]] Result<session::Session*> enter(Slot& slot);
  void forget_oldest();
  void keep(const Slot& slot) const;

  session::Engine& engine_;
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
