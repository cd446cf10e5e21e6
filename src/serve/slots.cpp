#include "serve/slots.h"

#include <algorithm>

namespace sluice::serve {
namespace {

// A common prefix is worth copying from another conversation if it has at least kMinCopied tokens
// and at least one kMaxBeside-th of that conversation.
constexpr int32_t kMinCopied = 16, kMaxBeside = 16;

}  // namespace

Slots::Slots(const session::SessionContext& context, generate::Scheduler& scheduler,
             Metrics& metrics)
    : context_(context),
      scheduler_(scheduler),
      metrics_(metrics),
      max_taken_(static_cast<size_t>(context.plan.sessions.parallel)),
      conversations_(max_taken_) {}

Status Slots::swap_to(const std::string& directory, size_t conversations) {
  auto swap = native::SessionSwap::open(context_, directory);
  if (!swap.ok()) return swap.status();
  swap_ = std::move(*swap);
  conversations_ = std::max(conversations, max_taken_);
  return {};
}

Status Slots::start() {
  if (swap_ == nullptr) SLUICE_RETURN_IF_ERROR(swap_to("", max_taken_));
  for (size_t i = 0; i < conversations_; ++i) {
    auto place = swap_->create();
    if (!place.ok()) return place.status();
    slots_.push_back(Slot(std::move(*place)));
  }
  return {};
}

bool Slots::has_free() const {
  return std::count_if(slots_.begin(), slots_.end(), [](const Slot& s) { return s.taken_; }) <
         static_cast<ptrdiff_t>(max_taken_);
}

Slots::Match Slots::best_match(std::span<const Token> prompt, std::string_view key) const {
  Match best;
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].taken_) continue;
    const int32_t prefix = slots_[i].place_->shared_prefix(prompt);
    if (!key.empty() && slots_[i].key_ == key) return {i, prefix};
    const bool older = prefix == best.prefix && slots_[i].used_ < slots_[best.slot].used_;
    if (prefix > best.prefix || older) best = {i, prefix};
  }
  return best;
}

Result<Slots::Slot*> Slots::take(std::span<const Token> prompt, std::string_view key) {
  const Match best = best_match(prompt, key);
  Slot* slot = &slots_[best.slot];
  const int32_t held = slot->place_->position();
  const bool lost = 2 * best.prefix < held;
  const auto empty = std::find_if(slots_.begin(), slots_.end(), [](const Slot& s) {
    return !s.taken_ && s.place_->position() == 0;
  });
  const bool of_another = !slot->key_.empty() && slot->key_ != key;
  const bool beside = lost && (swap_->swaps() || of_another) && empty != slots_.end();
  if (beside) {
    native::Conversation& other = *slot->place_;
    slot = &*empty;
    if (best.prefix >= kMinCopied && best.prefix * kMaxBeside >= held) {
      static_cast<void>(swap_->copy(other, *slot->place_));  // on failure it is recomputed
    }
  } else if (lost && slot->place_->swapped() && !cache_hooks_.keep) {
    native::SessionSwap::clear(*slot->place_);  // not worth reading for a short prefix
  }
  const Result<session::Session*> session = enter(*slot);
  if (!session.ok()) return session.status();
  if (lost && !beside) keep(*slot);
  if (session::Batcher::takes(context_)) SLUICE_RETURN_IF_ERROR(scheduler_.add(**session));
  slot->used_ = ++n_used_;
  slot->key_ = key;
  slot->taken_ = true;
  slot->place_->hold(true);
  return slot;
}

void Slots::free(Slot& slot) {
  slot.taken_ = false;
  slot.place_->hold(false);
  scheduler_.remove(slot.session());
}

Result<session::Session*> Slots::enter(Slot& slot) {
  auto session = swap_->enter(*slot.place_);
  for (int attempt = 0; attempt < 2 && !session.ok(); ++attempt) {
    metrics_.count_forgotten();
    if (attempt == 0) {
      forget_oldest();
    } else {
      native::SessionSwap::clear(*slot.place_);
    }
    session = swap_->enter(*slot.place_);
  }
  const native::SessionSwap::Counts counts = swap_->counts();
  metrics_.set_swapped({counts.in_files, counts.bytes_written, counts.bytes_read});
  return session;
}

// Clears the least recently used free slot that is in memory.
void Slots::forget_oldest() {
  Slot* oldest = nullptr;
  for (Slot& slot : slots_) {
    if (slot.taken_ || slot.place_->session() == nullptr) continue;
    if (oldest == nullptr || slot.used_ < oldest->used_) oldest = &slot;
  }
  if (oldest == nullptr) return;
  keep(*oldest);
  native::SessionSwap::clear(*oldest->place_);
}

void Slots::recall(Slot& slot, std::span<const Token> prompt) const {
  if (cache_hooks_.recall) cache_hooks_.recall(slot.session(), prompt);
}

void Slots::expect(std::span<const Token> prompt, std::string_view key) const {
  if (!swap_->swaps()) return;
  const Match best = best_match(prompt, key);
  if (best.prefix > 0) slots_[best.slot].place_->expect();
}

void Slots::keep(const Slot& slot) const {
  if (cache_hooks_.keep && slot.place_->position() > 0) cache_hooks_.keep(slot.session());
}

// Saves and clears the slots in memory first, which makes space to swap in the others.
void Slots::keep_all() {
  if (!cache_hooks_.keep) return;
  for (const bool swapped : {false, true}) {
    for (Slot& slot : slots_) {
      if (slot.place_->swapped() != swapped || !swap_->enter(*slot.place_).ok()) continue;
      keep(slot);
      native::SessionSwap::clear(*slot.place_);
    }
  }
}

}  // namespace sluice::serve
