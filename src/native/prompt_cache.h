// Sessions that outlive the process: a directory of saved sequences, found again by the longest
// beginning that they share with a prompt, so that a long system prompt or document is computed
// once. An entry is one file: a header of its own (form, model, tokens, a sum over these), then the
// session's saved state, which has its own sum (session/session_state.cpp). It appears under its
// name when it is whole. The least recently used go when all together are larger than allowed. An
// entry that cannot be used, because it is damaged, cut short or another model's, costs time at
// most: the prompt is computed.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "native/model_file.h"

namespace sluice::native {

inline constexpr uint64_t kDefaultPromptCacheBytes = uint64_t{1} << 30;
inline constexpr size_t kMaxPromptCacheEntries = 1024;
inline constexpr int32_t kMinReuse = 16;  // tokens that are worth a restore or an entry

class PromptCache {
 public:
  // Makes the directory where it is not there. Errors: kIo naming it; kInvalidArgument for 0 bytes.
  [[nodiscard]] static Result<PromptCache> open(const std::string& directory, uint64_t max_bytes,
                                                Model& model);

  // Makes `session` the entry that shares the most with `tokens`, where that is kMinReuse more
  // than the session holds of them itself. Returns the tokens that they share then; 0: there is no
  // such entry. An error is of an entry that was to be used, which is deleted then: kCorrupt, kIo,
  // kContextFull; the session is empty, or as it was.
  [[nodiscard]] Result<int32_t> restore(session::Session& session,
                                        std::span<const session::Token> tokens);
  // Keeps what the session holds, in place of entries that are a beginning of it, unless there is
  // one that holds it already. Errors: kIo; what was there stays.
  [[nodiscard]] Status save(const session::Session& session);

 private:
  using Visit =
      std::function<void(const std::string& path, std::span<const session::Token> tokens)>;
  PromptCache(std::string directory, uint64_t max_bytes)
      : directory_(std::move(directory)), max_bytes_(max_bytes) {}
  // Visits entries of this model with these adapters, and of these types of keys and values, one at
  // a time: what they take together has no place in the budget.
  void visit(const session::Engine& engine, const Visit& visit) const;
  [[nodiscard]] uint64_t identity(const session::Engine& engine) const;
  [[nodiscard]] Status load(const std::string& path, session::Session& session) const;
  void evict(uint64_t room) const;

  std::string directory_;
  uint64_t max_bytes_;
  uint64_t weights_ = 0;  // a sum over samples of the model's file
};

}  // namespace sluice::native
