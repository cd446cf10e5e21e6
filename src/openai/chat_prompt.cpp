#include "openai/chat_prompt.h"

namespace sluice::openai {

ChatFormats::ChatFormats(const chat::Template& with, std::span<const chat::ControlToken> controls)
    : template_(with) {
  format_.emplace(with.source(), controls);
  const std::string& with_tools = with.source(/*with_tools=*/true);
  const bool same = &with_tools == &with.source();
  tool_format_ = same ? *format_ : chat::AnswerFormat(with_tools, controls);
}

Problem ChatFormats::render(const GenerateRequest& request, chat::Prompt* out) const {
  auto prompt = template_.render({.messages = request.messages,
                                  .tools = request.tools,
                                  .documents = {},
                                  .variables = request.variables,
                                  .add_generation_prompt = request.add_generation_prompt,
                                  .continue_final_message = request.continue_final_message,
                                  .parse_special_in_content = request.parse_special_in_content,
                                  .now = {}});
  if (!prompt.ok()) return api_error(prompt.status());
  *out = std::move(*prompt);
  return {};
}

Problem ChatFormats::prepare(GenerateRequest* request, chat::Prompt* prompt,
                             std::optional<chat::AnswerPlan>* plan) const {
  const ToolChoice& choice = request->tool_choice;
  if (choice.mode == ToolChoice::Mode::kNone) request->tools.clear();
  if (Problem problem = render(*request, prompt)) return problem;
  generate::Options& options = request->options;
  chat::AnswerRequest wanted;
  wanted.separate_reasoning = !request->inline_reasoning;
  wanted.tools = request->tools;
  wanted.allowed = choice.names;
  wanted.parallel_tool_calls = request->parallel_tool_calls;
  if (choice.mode == ToolChoice::Mode::kRequired) wanted.tool_choice = R"("required")";
  if (options.constraint && options.constraint->kind == grammar::Kind::kJsonSchema) {
    wanted.response_schema = options.constraint->text;
  } else {
    wanted.can_constrain = !options.constraint;  // the client's own grammar
  }
  auto planned = (request->tools.empty() ? format_ : tool_format_)->plan(wanted, *prompt);
  if (!planned.ok()) return api_error(planned.status());
  prompt->pieces.insert(prompt->pieces.end(), planned->opening.begin(), planned->opening.end());
  if (!planned->grammar.empty()) options.constraint = {grammar::Kind::kGbnf, planned->grammar, {}};
  options.special = planned->show_control_tokens;
  options.stop.insert(options.stop.end(), prompt->stop.begin(), prompt->stop.end());
  plan->emplace(std::move(*planned));
  return {};
}

}  // namespace sluice::openai
