// The messages of a conversation, and the JSON file that stores them: {"messages": [{"role",
// "content"}, …]} as in the OpenAI API, with reasoning in reasoning_content. Pictures are files,
// whose paths are the URLs of image_url parts.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace sluice::cli {

struct Message {
  std::string role, content;
  std::string thought;                  // reasoning before the response; "": none
  std::vector<std::string> pictures{};  // files, before the content
};

inline constexpr size_t kMaxConversation = 16u << 20;  // maximum bytes of a file
inline constexpr size_t kMaxMessages = 10'000;

// Formats the messages as JSON. Invalid UTF-8 is replaced.
[[nodiscard]] std::string to_json(const std::vector<Message>& messages);

// Writes the file atomically. `model` may not be overwritten. Errors: those of AtomicFile.
[[nodiscard]] Status save(const std::vector<Message>& messages, const std::string& path,
                          const std::string& model);
// Errors: kNotFound; kInvalidArgument if the file is not a conversation or is too long.
[[nodiscard]] Result<std::vector<Message>> load(const std::string& path);

}  // namespace sluice::cli
