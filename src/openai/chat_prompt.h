// From a chat request to the prompt of a model: renders the template, plans how the response is
// constrained and read, and completes the request's generation options. Shared by all APIs and all
// platforms; the caller tokenizes the prompt.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "chat/answer.h"
#include "chat/template.h"
#include "openai/request.h"

namespace sluice::openai {

// What the template renders for a request, without tools that must not be called. Views of the
// request.
[[nodiscard]] chat::Request template_request(const GenerateRequest& request);

// Plans the response to a rendered prompt, which then ends with the start of the response. The
// request's options get the constraint and the stop strings. `can_constrain`: false if the engine
// has no structured output. Errors: those of AnswerFormat::plan.
[[nodiscard]] Problem plan_response(const chat::AnswerFormats& formats, GenerateRequest* request,
                                    chat::Prompt* prompt, std::optional<chat::AnswerPlan>* plan,
                                    bool can_constrain = true);

// The chat formats of one model. Immutable and thread-safe.
class ChatFormats {
 public:
  // `with` must outlive this. `controls`: the vocabulary's control tokens.
  ChatFormats(const chat::Template& with, std::span<const chat::ControlToken> controls);

  // Renders the prompt of a request. Errors: those of Template::render.
  [[nodiscard]] Problem render(const GenerateRequest& request, chat::Prompt* out) const;
  // Also plans the response. Errors: also those of plan_response().
  [[nodiscard]] Problem prepare(GenerateRequest* request, chat::Prompt* prompt,
                                std::optional<chat::AnswerPlan>* plan) const;
  [[nodiscard]] const chat::Template& chat_template() const { return template_; }

 private:
  const chat::Template& template_;
  chat::AnswerFormats formats_;
};

}  // namespace sluice::openai
