// Reads what a model writes: reasoning, content and tool calls, in the format that the model's chat
// template teaches. An AnswerFormat belongs to one template. For a request it makes a plan: how to
// begin and constrain the response, and how to read it. Marks of a format that the vocabulary has
// as control tokens count only as tokens, so text that merely spells them stays text. Results do
// not depend on how the text was split into pieces. JSON that the model writes is passed on byte
// for byte; numbers are never parsed and printed again.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "chat/template.h"

namespace sluice::chat {

// A control token of the vocabulary.
struct ControlToken {
  std::string text;
  int32_t id = 0;
};
[[nodiscard]] std::vector<ControlToken> control_tokens(const tokenizer::Tokenizer& tokenizer);

struct ToolCall {
  std::string id;         // "call_…"; nine letters and digits where the template requires that
  std::string name;       // of the function
  std::string arguments;  // JSON text
};

// What became known with a piece of text. Parts add up: texts are appended.
struct AnswerPart {
  std::string reasoning, content;
  std::vector<ToolCall> calls;  // complete ones
};

// Splits the text of one response.
class AnswerReader {
 public:
  AnswerReader(AnswerReader&&) noexcept;
  AnswerReader& operator=(AnswerReader&&) noexcept;
  ~AnswerReader();

  // Appends the text of a token. Without `token`, the text has no control tokens in it.
  [[nodiscard]] AnswerPart push(std::string_view text, int32_t token = -1);
  // Ends the text and returns what was held back.
  [[nodiscard]] AnswerPart finish();
  // Number of tool calls so far.
  [[nodiscard]] size_t calls() const;

 private:
  friend class AnswerPlan;
  struct Impl;
  explicit AnswerReader(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// What the caller wants. All texts are JSON; "" and "null" mean absent. Views must live until
// plan() returns.
struct AnswerRequest {
  std::string_view tools;        // OpenAI's list of functions
  std::string_view tool_choice;  // "none", "auto", "required", or an object that names a function
  std::span<const std::string> allowed;  // only these functions may be called; empty: all
  std::string_view response_schema;      // JSON schema of the content
  bool parallel_tool_calls = true;
  bool separate_reasoning = true;  // false: reasoning and its marks are part of the content
  bool can_constrain = true;       // false: a required call is only begun in the prompt
};

// How to generate the response to one request, and how to read it.
class AnswerPlan {
 public:
  std::vector<Piece> opening;  // start of the response, to append to the prompt
  // The constraint on the output: a GBNF grammar, a JSON schema, or neither.
  std::string grammar, json_schema;
  // Control tokens must be generated as text, because the format's marks are among them. The reader
  // drops those that are not marks.
  bool show_control_tokens = false;

  // A reader for one response. `id_seed`: ids of tool calls derive from it; use a random number.
  [[nodiscard]] AnswerReader reader(uint64_t id_seed) const;

 private:
  friend class AnswerFormat;
  friend class AnswerReader;
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

// The reasoning and tool call formats of one chat template. Immutable and thread-safe.
class AnswerFormat {
 public:
  // `source`: the template's text, that of requests with tools if it has two; "": ChatML.
  // `controls`: the vocabulary's control tokens, or none if it is unknown; then marks are text.
  AnswerFormat(std::string_view source, std::span<const ControlToken> controls);

  // Errors: kInvalidArgument for a request that is not as described above, or for a required or
  // strict tool that the template cannot express; kSchemaUnsupported.
  [[nodiscard]] Result<AnswerPlan> plan(const AnswerRequest& request, const Prompt& prompt) const;

  // Whether the template describes a format of tool calls.
  [[nodiscard]] bool has_tools() const;
  // Whether the prompt ends inside reasoning, so that the response begins with it.
  [[nodiscard]] bool opens_reasoning(const Prompt& prompt) const;

 private:
  friend class AnswerPlan;
  friend class AnswerReader;
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

// The formats of a template that can have another text for requests with tools. Immutable and
// thread-safe.
class AnswerFormats {
 public:
  // `controls`: as of AnswerFormat.
  AnswerFormats(const Template& with, std::span<const ControlToken> controls);
  explicit AnswerFormats(AnswerFormat of_all) : format_(of_all), tool_format_(std::move(of_all)) {}

  // Errors: those of AnswerFormat::plan.
  [[nodiscard]] Result<AnswerPlan> plan(const AnswerRequest& request, const Prompt& prompt) const;

 private:
  AnswerFormat format_, tool_format_;
};

}  // namespace sluice::chat
