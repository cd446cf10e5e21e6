// Chat templates: turns the messages of a conversation into a model's prompt. Templates are Jinja
// as rendered by Hugging Face transformers, run by this directory's own interpreter
// (interpreter.h). Text from the caller is tracked character by character, so "<|im_end|>" in a
// message is not a control token. Values are JSON text; templates print members in the order given
// (use nlohmann::ordered_json, not nlohmann::json).
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
inline constexpr size_t kMaxRequestBytes = 64u << 20;  // limit for each JSON text

// Chat templates and special tokens of a model, copied so that the header can be dropped.
struct ModelTexts {
  std::string chat_template;  // tokenizer.chat_template; "": none
  std::string tool_template;  // tokenizer.chat_template.tool_use, used for requests with tools
  std::string bos, eos;       // texts of special tokens; "": none
  std::optional<std::string> unk, pad;  // nullopt: undefined in templates
};
[[nodiscard]] ModelTexts read_texts(const gguf::Header& header);

// A request to render. All fields are JSON texts; "" and "null" mean absent. Views must live until
// render() returns.
struct Request {
  // An array of OpenAI's messages, which are written as the template expects them (messages.h).
  std::string_view messages;
  std::string_view tools;      // an array
  std::string_view documents;  // an array
  std::string_view variables;  // an object of further template variables, such as enable_thinking
  bool add_generation_prompt = true;  // end the prompt where the assistant's response begins
  // The last message is the beginning of the assistant's response: the prompt ends inside it. Takes
  // precedence over add_generation_prompt.
  bool continue_final_message = false;
  // Render even if the template omits a message's text, which is an error otherwise.
  bool allow_missing_text = false;
  bool parse_special_in_content = false;  // control tokens in messages are parsed
  bool pictures = false;                  // the model takes pictures; else they are errors
  std::optional<std::time_t> now;         // local time for strftime_now; default: the clock
};

// A piece of a prompt.
struct Piece {
  std::string text;
  bool content = false;  // from the caller: tokenized without control tokens
};

struct Prompt {
  std::vector<Piece> pieces;      // content and template text alternate; none is empty
  bool add_special = false;       // false for a model's own template, which writes BOS itself
  bool sees_tools = false;        // the names of all given tools are in the prompt
  std::vector<std::string> stop;  // stop strings, if the model's end tokens may not end a turn
  // URLs of pictures, one for each tokenizer::kMediaMark of the template's own text. Data in base64
  // is a data URL. The same mark in a message or a template is content, whatever the request says.
  std::vector<std::string> pictures;

  [[nodiscard]] std::string text() const;
};

// The text with marks around content, for EncodeOptions::literal_spans.
[[nodiscard]] std::string marked_text(const Prompt& prompt);

// The token ids of a prompt. Only the template's own text yields control tokens. Errors: those of
// Tokenizer::try_encode.
[[nodiscard]] Result<std::vector<tokenizer::Token>> encode(const tokenizer::Tokenizer& tokenizer,
                                                           const Prompt& prompt);

// A parsed template. Immutable, so any number of threads may render at once.
class Template {
 public:
  // Parses the model's template, or ChatML if it has none. Errors: kChatTemplate if it cannot be
  // parsed or is longer than kMaxTemplateBytes.
  [[nodiscard]] static Result<Template> create(const ModelTexts& texts);
  // Parses `source` in place of the model's template. Errors: as above.
  [[nodiscard]] static Result<Template> create(const ModelTexts& texts, std::string_view source);
  Template(Template&&) noexcept;
  Template& operator=(Template&&) noexcept;
  ~Template();

  // Renders a prompt. Errors: kInvalidArgument for a request that is not as described above;
  // kChatTemplate if the template raises, fails, exceeds a limit, or omits a message's text or a
  // picture; kNotSupported for message parts that the model does not take.
  [[nodiscard]] Result<Prompt> render(const Request& request) const;

  // Whether the model has no template, so that ChatML is used, which it may not know.
  [[nodiscard]] bool is_default() const;
  // The template's text; "" if is_default(). `with_tools`: that of requests with tools.
  [[nodiscard]] const std::string& source(bool with_tools = false) const;

 private:
  struct Impl;
  explicit Template(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice::chat
