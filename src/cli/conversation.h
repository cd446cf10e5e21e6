// The messages of a conversation, and the file that keeps them: {"messages": [{"role", "content"},
// …]} as OpenAI's API has them, thoughts in reasoning_content.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace sluice::cli {

struct Message {
  std::string role, content;
  std::string thought;  // before the answer; "": none
};

inline constexpr size_t kMaxConversation = 16u << 20;  // bytes of a file
inline constexpr size_t kMaxMessages = 10'000;

// The messages as JSON text; invalid UTF-8 in them is replaced.
[[nodiscard]] std::string to_json(const std::vector<Message>& messages);

// Writes beside and renames. Errors: AtomicFile's.
[[nodiscard]] Status save(const std::vector<Message>& messages, const std::string& path,
                          const std::string& model);
// Errors: kNotFound, kInvalidArgument (no conversation, or too long a one).
[[nodiscard]] Result<std::vector<Message>> load(const std::string& path);

}  // namespace sluice::cli
