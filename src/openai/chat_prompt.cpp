#include "openai/chat_prompt.h"

namespace sluice::openai {
namespace {

std::string_view tools_of(const GenerateRequest& request) {
  return request.tool_choice.mode == ToolChoice::Mode::kNone ? std::string_view() : request.tools;
}

}  // namespace

chat::Request template_request(const GenerateRequest& request) {
  return {.messages = request.messages,
          .tools = tools_of(request),
          .documents = {},
          .variables = request.variables,
          .add_generation_prompt = request.add_generation_prompt,
          .continue_final_message = request.continue_final_message,
          .parse_special_in_content = request.parse_special_in_content,
          .pictures = request.pictures,
          .now = {}};
}

Problem plan_response(const chat::AnswerFormats& formats, GenerateRequest* request,
                      chat::Prompt* prompt, std::optional<chat::AnswerPlan>* plan,
                      bool can_constrain) {
  const ToolChoice& choice = request->tool_choice;
  generate::Options& options = request->options;
  chat::AnswerRequest wanted;
  wanted.separate_reasoning = !request->inline_reasoning;
  wanted.tools = tools_of(*request);
  wanted.allowed = choice.names;
  wanted.parallel_tool_calls = request->parallel_tool_calls;
  wanted.can_constrain = can_constrain;
  if (choice.mode == ToolChoice::Mode::kRequired) wanted.tool_choice = R"("required")";
  if (options.constraint && options.constraint->kind == grammar::Kind::kJsonSchema) {
    wanted.response_schema = options.constraint->text;
  } else if (options.constraint) {
    wanted.can_constrain = false;  // the client's own grammar
  }
  auto planned = formats.plan(wanted, *prompt);
  if (!planned.ok()) return api_error(planned.status());
  prompt->pieces.insert(prompt->pieces.end(), planned->opening.begin(), planned->opening.end());
  if (!planned->grammar.empty()) options.constraint = {grammar::Kind::kGbnf, planned->grammar, {}};
  options.special = planned->show_control_tokens;
  options.stop.insert(options.stop.end(), prompt->stop.begin(), prompt->stop.end());
  plan->emplace(std::move(*planned));
  return {};
}

ChatFormats::ChatFormats(const chat::Template& with, std::span<const chat::ControlToken> controls)
    : template_(with), formats_(with, controls) {}

Problem ChatFormats::render(const GenerateRequest& request, chat::Prompt* out) const {
  auto prompt = template_.render(template_request(request));
  if (!prompt.ok()) return api_error(prompt.status());
  *out = std::move(*prompt);
  return {};
}

Problem ChatFormats::prepare(GenerateRequest* request, chat::Prompt* prompt,
                             std::optional<chat::AnswerPlan>* plan) const {
  if (Problem problem = render(*request, prompt)) return problem;
  return plan_response(formats_, request, prompt, plan);
}

}  // namespace sluice::openai
