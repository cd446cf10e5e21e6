// Chat templates natively: from the messages of a conversation to the prompt of one model. A
// template is Jinja as Hugging Face transformers renders it; the interpreter is this room's own
// (interpreter.h) and needs nothing else. What callers say keeps apart from what the template says,
// character by character, so that "<|im_end|>" in a message is no control token.
// Values come in as JSON text, whose order of members is the order in which templates print them
// (parse with nlohmann::ordered_json, not nlohmann::json, where they pass through one).
#pragma once

#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "gguf/gguf.h"
#include "tokenizer/tokenizer.h"

namespace sluice::chat {

inline constexpr size_t kMaxTemplateBytes = 1u << 20;
inline constexpr size_t kMaxRequestBytes = 64u << 20;  // of each JSON text

// What a model's header says of chats, copied, so that the header can be dropped.
struct ModelTexts {
  std::string chat_template;            // tokenizer.chat_template; "": none
  std::string tool_template;            // tokenizer.chat_template.tool_use, for requests with tools
  std::string bos, eos;                 // texts of tokens; "": none
  std::optional<std::string> unk, pad;  // absent: undefined in templates
};
[[nodiscard]] ModelTexts read_texts(const gguf::Header& header);

// What is rendered; JSON texts, "" and "null" being the same. The views are read during the call.
struct Request {
  // An array of objects, each with a role; content is text, null, or a list of parts of type text,
  // which become one text. Arguments of tool_calls may be objects or JSON in a string.
  std::string_view messages;
  std::string_view tools;                 // an array
  std::string_view documents;             // an array
  std::string_view variables;             // an object of further variables, such as enable_thinking
  bool add_generation_prompt = true;      // the prompt ends where the assistant's answer begins
  bool parse_special_in_content = false;  // what callers say may be control tokens too
  std::optional<std::time_t> now;  // what strftime_now tells, in local time; default: the clock's
};

// A stretch of a prompt.
struct Piece {
  std::string text;
  bool content = false;  // it came from the caller: tokenized as plain text
};

struct Prompt {
  std::vector<Piece> pieces;      // alternating, none empty
  bool add_special = false;       // a model's own template writes BOS where it belongs
  std::vector<std::string> stop;  // texts that end a turn where the model's end tokens may not

  [[nodiscard]] std::string text() const;
  // The prompt ends with an open <think>: the answer begins as a thought.
  [[nodiscard]] bool opens_reasoning() const;
};

// The token ids of a prompt; control tokens come from the template's own text alone.
// Errors: Tokenizer::try_encode's.
[[nodiscard]] Result<std::vector<tokenizer::Token>> encode(const tokenizer::Tokenizer& tokenizer,
                                                           const Prompt& prompt);

// A model's template, parsed once. Immutable: any number of threads may render at the same time.
class Template {
 public:
  // The model's template, or ChatML where it brings none. Errors: kChatTemplate where it cannot be
  // parsed or is longer than kMaxTemplateBytes.
  [[nodiscard]] static Result<Template> create(const ModelTexts& texts);
  // A template of the caller's in place of the model's. Errors: the same.
  [[nodiscard]] static Result<Template> create(const ModelTexts& texts, std::string_view source);
  Template(Template&&) noexcept;
  Template& operator=(Template&&) noexcept;
  ~Template();

  // Errors: kInvalidArgument (the request is not as described above, named), kChatTemplate (the
  // template raises or fails, or takes more work, depth or text than any of good will).
  [[nodiscard]] Result<Prompt> render(const Request& request) const;

  // The model brought no template: ChatML is used, which it may not have been trained on.
  [[nodiscard]] bool is_default() const;
  // The text of the template, "" where is_default(): what tools it teaches can be read in it.
  [[nodiscard]] const std::string& source() const;

 private:
  struct Impl;
  explicit Template(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice::chat
