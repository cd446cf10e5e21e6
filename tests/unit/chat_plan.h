// How to read the response to a chat whose template knows reasoning and tools.
#pragma once

#include "chat/answer.h"
#include "openai/request.h"

namespace sluice::openai {

inline chat::AnswerPlan chat_plan(const GenerateRequest& request, const char* prompt = "Hi") {
  chat::Prompt rendered;
  rendered.pieces.push_back({prompt, false});
  chat::AnswerRequest wanted;
  wanted.tools = request.tools;
  return *chat::AnswerFormat("<think> <tool_call> tools", {}).plan(wanted, rendered);
}

}  // namespace sluice::openai
