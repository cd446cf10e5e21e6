// Swaps sessions, so that there can be more conversations than the engine has memory for. A
// conversation must be swapped in to be used. If the engine's pool of sequences is full, the one
// that was idle longest is swapped out to a file (swap_file.h), which frees its KV cache and
// states. Its state is bit-identical when it is swapped in again.
//
// A session leaves memory only after its file was written, and the file is deleted only after the
// session was restored. A full disk, an unreadable file or an abort is therefore an error that
// leaves every conversation unchanged. Data moves through one buffer, which is in the memory plan
// (kSwapBytes).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "native/swap_file.h"

namespace sluice::native {

inline constexpr size_t kMaxConversations = 512;   // each may be an open file
inline constexpr uint64_t kSwapBytes = 128 << 10;  // of the budget: the buffer and bookkeeping

class SessionSwap;

// A session that is in memory or in a file. Its SessionSwap must outlive it.
class Conversation {
 public:
  ~Conversation();
  Conversation(const Conversation&) = delete;
  Conversation& operator=(const Conversation&) = delete;

  // Null while it is swapped out or empty.
  [[nodiscard]] session::Session* session() const { return session_.get(); }
  [[nodiscard]] bool swapped() const { return file_.holds(); }
  [[nodiscard]] int32_t position() const;
  // Reads its computed tokens [first, first + out.size()). Errors: kIo.
  [[nodiscard]] Status read_tokens(int32_t first, std::span<session::Token> out) const;
  // Length of the common prefix with `tokens`; shorter if its file cannot be read.
  [[nodiscard]] int32_t shared_prefix(std::span<const session::Token> tokens) const;
  // Announces that it will be swapped in soon, so that the system reads ahead.
  void expect() const { file_.will_need(); }
  // While held, it is not swapped out.
  void hold(bool held) { held_ = held; }

 private:
  friend class SessionSwap;
  explicit Conversation(SessionSwap& swap) : swap_(swap) {}

  SessionSwap& swap_;
  std::unique_ptr<session::Session> session_;
  SwapFile file_;
  uint64_t used_ = 0;  // clock_ when it was last used
  bool held_ = false;
};

class SessionSwap {
 public:
  struct Counts {
    uint64_t in_files = 0;                       // conversations that are swapped out now
    uint64_t bytes_written = 0, bytes_read = 0;  // total bytes of swap files
  };

  // `directory` "": no swapping, and only as many conversations as fit in the plan. The directory
  // is created if it is missing. Errors: kIo naming it, if no file can be created in it.
  [[nodiscard]] static Result<std::unique_ptr<SessionSwap>> open(
      const session::SessionContext& context, const std::string& directory);

  [[nodiscard]] bool swaps() const { return !directory_.empty(); }
  // Creates an empty conversation. Errors: kInvalidArgument if the maximum number exists.
  [[nodiscard]] Result<std::unique_ptr<Conversation>> create();
  // Creates a copy. Errors, which leave `from` unchanged: create()'s, kIo, kCorrupt.
  [[nodiscard]] Result<std::unique_ptr<Conversation>> fork_of(const Conversation& from);

  // Swaps it in. `wanted` is called between pieces; false aborts. Errors, after which every
  // conversation is where it was or in a file: kIo (writing another one or reading this one),
  // kCorrupt (the file was changed, or the adapters were changed since), kAborted, kInvalidArgument
  // (all conversations in memory are busy or held).
  using Wanted = std::function<bool()>;
  [[nodiscard]] Result<session::Session*> enter(Conversation& conversation,
                                                const Wanted& wanted = nullptr);
  // Swaps in `to` and makes it equal to `from`. Errors, after which `to` is empty: enter()'s.
  [[nodiscard]] Status copy(Conversation& from, Conversation& to);
  // Empties it, in memory or on disk, without reading anything.
  static void clear(Conversation& conversation);
  // Its saved state (session/session_state.cpp), read from memory or from its file. Errors:
  // Session::read_state's, enter()'s.
  [[nodiscard]] Result<uint64_t> state_bytes(Conversation& conversation);
  [[nodiscard]] Status read_state(Conversation& conversation, uint64_t offset,
                                  std::span<uint8_t> out);

  [[nodiscard]] Counts counts() const;

 private:
  friend class Conversation;
  SessionSwap(const session::SessionContext& context, std::string directory);
  [[nodiscard]] Conversation* idle_longest() const;
  [[nodiscard]] Result<std::unique_ptr<session::Session>> make_room(const Wanted& wanted);
  [[nodiscard]] Status swap_to(Conversation& conversation, const Wanted& wanted);
  [[nodiscard]] Status load(const SwapFile& file, session::Session& session, const Wanted& wanted);

  const session::SessionContext& context_;
  const std::string directory_;
  std::vector<uint8_t> piece_;
  std::vector<Conversation*> all_;
  uint64_t clock_ = 0;
  Counts counts_;
};

}  // namespace sluice::native
