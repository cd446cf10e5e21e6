// More conversations than the engine has memory for. One that is to be used enters the engine's
// pool of sequences; where that is full, the one that has been idle for longest goes to a file
// (swap_file.h) and its keys, values and states are free for the other. It comes back when it is
// used again, to the bit. Who is in the engine and who is in a file stands here and nowhere else.
//
// Nothing is given up before what takes its place is whole: a session leaves the engine after its
// file was written, and the file goes when the session is back. So a full disk, a file that cannot
// be read and an abort are errors after which every conversation is as it was. What moves goes
// through one buffer, which is in the plan (kSwapBytes).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "native/swap_file.h"

namespace sluice::native {

inline constexpr size_t kMaxConversations = 512;   // each may be an open file
inline constexpr uint64_t kSwapBytes = 128 << 10;  // of the budget: the buffer, who is where

class SessionSwap;

// One text with what was computed of it, wherever that is. Its swap outlives it.
class Conversation {
 public:
  ~Conversation();
  Conversation(const Conversation&) = delete;
  Conversation& operator=(const Conversation&) = delete;

  // Null while it is not in the engine.
  [[nodiscard]] session::Session* session() const { return session_.get(); }
  [[nodiscard]] bool swapped() const { return file_.holds(); }
  [[nodiscard]] int32_t position() const;
  // Tokens [first, first + out.size()) of those that are computed. Errors: kIo.
  [[nodiscard]] Status read_tokens(int32_t first, std::span<session::Token> out) const;
  // How many it has in common with `tokens` at the beginning; fewer where its file cannot be read.
  [[nodiscard]] int32_t shared_prefix(std::span<const session::Token> tokens) const;
  // That it will enter soon: the system reads ahead.
  void expect() const { file_.will_need(); }
  // Held in the engine, whoever else wants to enter.
  void hold(bool held) { held_ = held; }

 private:
  friend class SessionSwap;
  explicit Conversation(SessionSwap& swap) : swap_(swap) {}

  SessionSwap& swap_;
  std::unique_ptr<session::Session> session_;
  SwapFile file_;
  uint64_t used_ = 0;  // when it entered last
  bool held_ = false;
};

class SessionSwap {
 public:
  struct Counts {
    uint64_t in_files = 0;                       // conversations that are in files now
    uint64_t bytes_written = 0, bytes_read = 0;  // of files, since the beginning
  };

  // `directory` "": nothing is swapped, and there are as many conversations as the plan has room
  // for. It is made where it is not there. Errors: kIo naming it, where no file can be made in it.
  [[nodiscard]] static Result<std::unique_ptr<SessionSwap>> open(session::Engine& engine,
                                                                 const std::string& directory);

  [[nodiscard]] bool swaps() const { return !directory_.empty(); }
  // An empty one. Errors: kInvalidArgument where there are as many as there can be.
  [[nodiscard]] Result<std::unique_ptr<Conversation>> create();
  // Another one that holds the same. Errors, after which `from` is as it was: create()'s, kIo,
  // kCorrupt.
  [[nodiscard]] Result<std::unique_ptr<Conversation>> fork_of(const Conversation& from);

  // Brings it into the engine. `wanted`, asked between pieces, gives it up where it returns false.
  // Errors, after which each conversation is where it was or in a file: kIo (writing another one or
  // reading this one), kCorrupt (what was read is not what was written, or other adapters are in
  // use since), kAborted, kInvalidArgument (all that are in the engine are busy or held).
  using Wanted = std::function<bool()>;
  [[nodiscard]] Result<session::Session*> enter(Conversation& conversation,
                                                const Wanted& wanted = nullptr);
  // Makes `to`, which enters the engine, the same as `from`. Errors, after which `to` is empty:
  // enter()'s.
  [[nodiscard]] Status copy(Conversation& from, Conversation& to);
  // Forgets what it holds, where it is: nothing is read for that.
  static void clear(Conversation& conversation);
  // Its saved state, session/session_state.cpp, from where it is. Errors: Session::read_state's,
  // enter()'s.
  [[nodiscard]] Result<uint64_t> state_bytes(Conversation& conversation);
  [[nodiscard]] Status read_state(Conversation& conversation, uint64_t offset,
                                  std::span<uint8_t> out);

  [[nodiscard]] Counts counts() const;

 private:
  friend class Conversation;
  SessionSwap(session::Engine& engine, std::string directory);
  [[nodiscard]] Conversation* idle_longest() const;
  [[nodiscard]] Result<std::unique_ptr<session::Session>> make_room(const Wanted& wanted);
  [[nodiscard]] Status swap_to(Conversation& conversation, const Wanted& wanted);
  [[nodiscard]] Status load(const SwapFile& file, session::Session& session, const Wanted& wanted);

  session::Engine& engine_;
  const std::string directory_;
  std::vector<uint8_t> piece_;
  std::vector<Conversation*> all_;
  uint64_t clock_ = 0;
  Counts counts_;
};

}  // namespace sluice::native
