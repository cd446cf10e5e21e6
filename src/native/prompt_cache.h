// The prompt cache: a directory of saved sessions that outlive the process. A prompt reuses the
// entry with which it shares the longest prefix, so a long system prompt or document is computed
// once. An entry is one file: a header (format, model, tokens, checksum), then the session's saved
// state with its own checksum (session/session_state.cpp). It is written under a temporary name,
// locked so that other processes can tell when it is abandoned, and renamed when complete. The
// least recently used entries are deleted to stay within the size limit. An entry that is damaged,
// truncated or from another model is ignored, and the prompt is computed.
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
inline constexpr int32_t kMinReuse = 16;  // fewest tokens that are worth a restore or an entry

class PromptCache {
 public:
  // Creates the directory if it is missing. Errors: kIo naming it; kInvalidArgument for 0 bytes;
  // Model::identify's.
  [[nodiscard]] static Result<PromptCache> open(const std::string& directory, uint64_t max_bytes,
                                                Model& model);

  // Restores the entry with the longest common prefix with `tokens` into `session`, if that prefix
  // is at least kMinReuse tokens longer than the session's own. Returns its length; 0: there is no
  // such entry. Errors, after which the session is empty or unchanged: kCorrupt (the entry is
  // deleted), kIo, kContextFull.
  [[nodiscard]] Result<int32_t> restore(session::Session& session,
                                        std::span<const session::Token> tokens);
  // Saves the session, and deletes entries that are a prefix of it. Does nothing if an entry
  // already contains it. Errors: kIo, which leaves all entries as they were.
  [[nodiscard]] Status save(const session::Session& session);

 private:
  using Visit =
      std::function<void(const std::string& path, std::span<const session::Token> tokens)>;
  PromptCache(std::string directory, uint64_t max_bytes)
      : directory_(std::move(directory)), max_bytes_(max_bytes) {}
  // Visits the entries of this model with the same adapters and KV cache type. Reads one at a time,
  // because all of them together could exceed the budget.
  void visit(const session::SessionContext& context, const Visit& visit) const;
  [[nodiscard]] Status load(const std::string& path, session::Session& session) const;
  void evict(uint64_t room) const;

  std::string directory_;
  uint64_t max_bytes_;
};

}  // namespace sluice::native
