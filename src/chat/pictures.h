// Takes the pictures out of a conversation before it becomes values of a render: their data can be
// larger than any prompt. Each part that is a picture, in the form of any API, becomes a part of
// one form, which read_messages() knows.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace sluice::chat {

inline constexpr size_t kMaxPictures = 1024;  // of a conversation

// Types of content parts that show a picture, in the APIs of OpenAI, Anthropic and Hugging Face.
[[nodiscard]] bool is_picture_type(std::string_view type);

// Rewrites `messages`, the JSON text of a list. A picture becomes {"type":"image","picture":n}, and
// sources->at(n) its URL as given; data in base64 becomes a data URL. The `images` of a message, as
// in Ollama's API, become parts before its text. Text that is not JSON stays as it is. Errors:
// kInvalidArgument (a part without a picture, too many), kNotSupported (a file's id).
[[nodiscard]] Result<std::string> take_pictures(std::string_view messages,
                                                std::vector<std::string>* sources);

}  // namespace sluice::chat
