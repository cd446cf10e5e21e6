// A swapped-out session in an unnamed temporary file, which disappears with the object or the
// process. The file holds the tokens, which can be compared without reading more, then the saved
// state with its checksum (session/session_state.cpp). It is written and read in pieces.
#pragma once

#include <functional>
#include <string>

#include "platform/file.h"
#include "session/session.h"

namespace sluice::native {

class SwapFile {
 public:
  // Writes the session to a new file in `directory`, through the buffer `piece`. `wanted` may be
  // empty; it aborts by returning false. Errors: kIo with the reason, kAborted,
  // Session::read_state's.
  [[nodiscard]] static Result<SwapFile> write(const session::Session& session,
                                              const std::string& directory,
                                              std::span<uint8_t> piece,
                                              const std::function<bool()>& wanted);
  // Copies another swap file. Errors: kIo.
  [[nodiscard]] static Result<SwapFile> copy(const SwapFile& from, const std::string& directory,
                                             std::span<uint8_t> piece);
  // Checks that files can be created in `directory`. Creates it if it is missing. Errors: kIo.
  [[nodiscard]] static Status check(const std::string& directory);

  [[nodiscard]] bool holds() const { return file_.valid(); }
  [[nodiscard]] int32_t n_tokens() const { return n_tokens_; }
  [[nodiscard]] uint64_t state_bytes() const { return state_bytes_; }
  [[nodiscard]] uint64_t bytes() const { return state_at() + state_bytes_; }
  // Ranges must be inside. Errors: kIo.
  [[nodiscard]] Status read_tokens(int32_t first, std::span<session::Token> out) const;
  [[nodiscard]] Status read_state(uint64_t offset, std::span<uint8_t> out) const;
  void will_need() const {
    if (holds()) file_.will_need(0, bytes());
  }

 private:
  [[nodiscard]] uint64_t state_at() const {
    return static_cast<uint64_t>(n_tokens_) * sizeof(session::Token);
  }
  [[nodiscard]] Status read(uint64_t offset, void* out, size_t n) const;

  platform::File file_;
  int32_t n_tokens_ = 0;
  uint64_t state_bytes_ = 0;
};

}  // namespace sluice::native
