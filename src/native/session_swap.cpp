// Chooses which conversation to swap out, and moves sessions to files and back.
#include "native/session_swap.h"

#include <algorithm>
#include <tuple>

namespace sluice::native {
namespace {

using session::Session;
using session::Token;

constexpr size_t kSwapPiece = 64 << 10;

Status aborted() {
  return error(Code::kAborted, "the call was cancelled");
}

}  // namespace

Conversation::~Conversation() {
  std::erase(swap_.all_, this);
}

int32_t Conversation::position() const {
  return session_ != nullptr ? session_->position() : file_.n_tokens();
}

Status Conversation::read_tokens(int32_t first, std::span<Token> out) const {
  if (session_ == nullptr) return file_.holds() ? file_.read_tokens(first, out) : Status();
  std::copy_n(session_->tokens().begin() + first, out.size(), out.begin());
  return {};
}

int32_t Conversation::shared_prefix(std::span<const Token> tokens) const {
  Token some[512];
  const int32_t most = std::min(position(), static_cast<int32_t>(tokens.size()));
  for (int32_t at = 0; at < most;) {
    const std::span<Token> held(some, std::min(std::size(some), static_cast<size_t>(most - at)));
    if (!read_tokens(at, held).ok()) return at;
    const auto differs = std::mismatch(held.begin(), held.end(), tokens.begin() + at).first;
    at += static_cast<int32_t>(differs - held.begin());
    if (differs != held.end()) return at;
  }
  return most;
}

SessionSwap::SessionSwap(const session::SessionContext& context, std::string directory)
    : context_(context), directory_(std::move(directory)) {
  if (swaps()) piece_.resize(kSwapPiece);
  all_.reserve(swaps() ? kMaxConversations : 0);
}

Result<std::unique_ptr<SessionSwap>> SessionSwap::open(const session::SessionContext& context,
                                                       const std::string& directory) {
  if (!directory.empty()) SLUICE_RETURN_IF_ERROR(SwapFile::check(directory));
  return std::unique_ptr<SessionSwap>(new SessionSwap(context, directory));
}

Result<std::unique_ptr<Conversation>> SessionSwap::create() {
  if (all_.size() >= kMaxConversations) {
    return error(Code::kInvalidArgument, "%zu sessions exist: no more can be created", all_.size());
  }
  std::unique_ptr<Conversation> made(new Conversation(*this));
  if (!swaps()) {
    auto session = Session::create(context_);
    if (!session.ok()) return session.status();
    made->session_ = std::move(*session);
  }
  all_.push_back(made.get());
  return made;
}

Result<std::unique_ptr<Conversation>> SessionSwap::fork_of(const Conversation& from) {
  auto made = create();
  if (!made.ok() || from.position() == 0) return made;
  Conversation& to = **made;
  to.used_ = from.used_;
  if (from.session_ == nullptr) {
    Result<SwapFile> file = SwapFile::copy(from.file_, directory_, piece_);
    if (!file.ok()) return file.status();
    to.file_ = std::move(*file);
    counts_.bytes_read += to.file_.bytes();
    counts_.bytes_written += to.file_.bytes();
    return made;
  }
  if (to.session_ == nullptr) {  // use free memory, but swap out nothing for a copy
    if (auto session = Session::create(context_); session.ok()) to.session_ = std::move(*session);
  }
  if (to.session_ != nullptr) {
    SLUICE_RETURN_IF_ERROR(to.session_->fork_from(*from.session_));
    return made;
  }
  Result<SwapFile> file = SwapFile::write(*from.session_, directory_, piece_, nullptr);
  if (!file.ok()) return file.status();
  to.file_ = std::move(*file);
  counts_.bytes_written += to.file_.bytes();
  return made;
}

// The conversation to swap out: an empty one if there is one, else the least recently used.
Conversation* SessionSwap::idle_longest() const {
  Conversation* found = nullptr;
  for (Conversation* c : all_) {
    if (c->session_ == nullptr || c->held_ || c->session_->busy()) continue;
    const auto order = [](const Conversation* x) {
      return std::tuple(x->position() > 0, x->used_);
    };
    if (found == nullptr || order(c) < order(found)) found = c;
  }
  return found;
}

Status SessionSwap::swap_to(Conversation& conversation, const Wanted& wanted) {
  if (conversation.position() > 0) {
    Result<SwapFile> file = SwapFile::write(*conversation.session_, directory_, piece_, wanted);
    if (!file.ok()) return file.status();
    conversation.file_ = std::move(*file);
    counts_.bytes_written += conversation.file_.bytes();
  }
  conversation.session_.reset();
  return {};
}

// Creates a session, after swapping out a conversation if there is no memory for it.
Result<std::unique_ptr<Session>> SessionSwap::make_room(const Wanted& wanted) {
  auto session = Session::create(context_);
  if (session.ok() || !swaps()) return session;
  Conversation* const eviction = idle_longest();
  if (eviction == nullptr) return session;  // its error tells how many sessions fit
  SLUICE_RETURN_IF_ERROR(swap_to(*eviction, wanted));
  return Session::create(context_);
}

Status SessionSwap::load(const SwapFile& file, Session& session, const Wanted& wanted) {
  SLUICE_RETURN_IF_ERROR(session.begin_restore(file.state_bytes()));
  for (uint64_t at = 0; at < file.state_bytes();) {
    if (wanted && !wanted()) return aborted();
    const size_t n = static_cast<size_t>(std::min<uint64_t>(file.state_bytes() - at, kSwapPiece));
    const std::span<uint8_t> piece(piece_.data(), n);
    SLUICE_RETURN_IF_ERROR(file.read_state(at, piece));
    SLUICE_RETURN_IF_ERROR(session.write_state(piece));
    at += n;
    counts_.bytes_read += n;
  }
  return {};
}

Result<Session*> SessionSwap::enter(Conversation& conversation, const Wanted& wanted) {
  conversation.used_ = ++clock_;
  if (conversation.session_ != nullptr) return conversation.session_.get();
  auto session = make_room(wanted);
  if (!session.ok()) return session.status();
  if (conversation.file_.holds()) {
    SLUICE_RETURN_IF_ERROR(load(conversation.file_, **session, wanted));
    conversation.file_ = {};
  }
  conversation.session_ = std::move(*session);
  return conversation.session_.get();
}

Status SessionSwap::copy(Conversation& from, Conversation& to) {
  clear(to);
  from.used_ = ++clock_;  // so that another one is swapped out, if there is one
  const Result<Session*> session = enter(to);
  if (!session.ok()) return session.status();
  Status copied;
  if (from.session_ != nullptr) {
    copied = (*session)->fork_from(*from.session_);
  } else if (from.file_.holds()) {
    copied = load(from.file_, **session, nullptr);
  }
  if (!copied.ok()) clear(to);
  return copied;
}

void SessionSwap::clear(Conversation& conversation) {
  if (conversation.session_ != nullptr) conversation.session_->clear();
  conversation.file_ = {};
}

Result<uint64_t> SessionSwap::state_bytes(Conversation& conversation) {
  if (conversation.file_.holds()) return conversation.file_.state_bytes();
  const Result<Session*> session = enter(conversation);
  if (!session.ok()) return session.status();
  return (*session)->sequence().state_bytes();
}

Status SessionSwap::read_state(Conversation& conversation, uint64_t offset,
                               std::span<uint8_t> out) {
  if (conversation.file_.holds()) return conversation.file_.read_state(offset, out);
  const Result<Session*> session = enter(conversation);
  if (!session.ok()) return session.status();
  return (*session)->read_state(offset, out);
}

SessionSwap::Counts SessionSwap::counts() const {
  Counts out = counts_;
  out.in_files = static_cast<uint64_t>(
      std::count_if(all_.begin(), all_.end(), [](const Conversation* c) { return c->swapped(); }));
  return out;
}

}  // namespace sluice::native
