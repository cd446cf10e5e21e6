// From a chat request to the prompt of a model: renders the template, plans how the response is
// constrained and read, and completes the request's generation options. Shared by all APIs and all
// platforms; the caller tokenizes the prompt.
#pragma once

#include <optional>

#include "chat/answer.h"
#include "chat/template.h"
#include "openai/request.h"

namespace sluice::openai {

// The chat formats of one model. Immutable and thread-safe.
class ChatFormats {
 public:
  // `with` must outlive this. `controls`: the vocabulary's control tokens.
  ChatFormats(const chat::Template& with, std::span<const chat::ControlToken> controls);

  // Renders the prompt of a request. Errors: those of Template::render.
  [[nodiscard]] Problem render(const GenerateRequest& request, chat::Prompt* out) const;
  // Also plans the response: `prompt` then ends with the start of the response, and the request's
  // options have the constraint and the stop strings. Errors: also those of AnswerFormat::plan.
  [[nodiscard]] Problem prepare(GenerateRequest* request, chat::Prompt* prompt,
                                std::optional<chat::AnswerPlan>* plan) const;
  [[nodiscard]] const chat::Template& chat_template() const { return template_; }

 private:
  const chat::Template& template_;
  std::optional<chat::AnswerFormat> format_, tool_format_;  // the latter: of requests with tools
};

}  // namespace sluice::openai
