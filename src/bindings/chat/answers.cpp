// chat.wasm: how a response may be constrained, and how it is read (chat/answer.h), for
// web/chat/answer-wasm.ts. An Answer is one response. It owns its results, which stay valid until
// the next call for the same response, and close_answer() frees all of it.
#include "base/concat.h"
#include "bindings/chat/calls.h"
#include "bindings/chat/formats.h"
#include "chat/answer.h"
#include "jinja/json_text.h"

namespace {

using namespace sluice;
using namespace sluice::bindings;
using namespace sluice::chat;

struct Answer {
  // What the caller reads of the plan.
  Bytes grammar;  // "": none
  Bytes opening;  // with marks around content, unless control tokens in messages are parsed
  uint32_t json_schema = 0;  // the given schema is the constraint
  uint32_t show_control_tokens = 0;
  // What became known with the last text. `calls`: JSON, a list of [id, name, arguments].
  Bytes reasoning, content, calls;

  Answer(const Formats& of, AnswerPlan made, uint64_t seed)
      : format(of), plan(std::move(made)), reader(plan.reader(seed)) {}
  const Formats& format;
  AnswerPlan plan;
  AnswerReader reader;
  AnswerPart part;
  std::string opening_text, calls_text;

  void show(AnswerPart next) {
    part = std::move(next);
    calls_text = "[";
    for (const ToolCall& call : part.calls) {
      if (calls_text.size() > 1) calls_text += ',';
      calls_text += concat({"[", json_quote(call.id), ",", json_quote(call.name), ",",
                            json_quote(call.arguments), "]"});
    }
    calls_text += ']';
    reasoning = bytes_of(part.reasoning);
    content = bytes_of(part.content);
    calls = bytes_of(calls_text);
  }
};

enum AnswerFlags : uint32_t {
  kParallelToolCalls = 1,
  kSeparateReasoning = 2,
  kCanConstrain = 4,
  kUnmarked = 8,  // control tokens in messages are parsed
};

}  // namespace

// texts: the template's source, and JSON of control tokens: [id, text, id, text …]. The format
// lives as long as the instance.
SLUICE_EXPORT Formats* answer_format(const Bytes* texts) {
  const std::string_view json = texts[1].view();
  const std::vector<std::string_view> items = json_items(json);
  std::vector<ControlToken> controls;
  for (size_t i = 0; i + 1 < items.size(); i += 2) {
    int32_t id = 0;
    for (const char digit : items[i]) id = 10 * id + (digit - '0');
    controls.push_back({json_string(items[i + 1]), id});
  }
  return new Formats(std::string(texts[0].view()), std::move(controls));
}

// Plans a response. texts: JSON of tools, tool choice and response schema, and the end of the
// prompt. flags: AnswerFlags. seed: for ids of calls.
SLUICE_EXPORT Answer* open_answer(const Formats* format, const Bytes* texts, uint32_t flags,
                                  uint64_t seed) {
  AnswerRequest request;
  request.tools = texts[0].view();
  request.tool_choice = texts[1].view();
  request.response_schema = texts[2].view();
  request.parallel_tool_calls = (flags & kParallelToolCalls) != 0;
  request.separate_reasoning = (flags & kSeparateReasoning) != 0;
  request.can_constrain = (flags & kCanConstrain) != 0;
  Prompt prompt;
  prompt.pieces.push_back({std::string(texts[3].view()), false});
  Result<AnswerPlan> plan = format->formats.plan(request, prompt);
  last_error() = plan.status();
  if (!plan.ok()) return nullptr;
  auto* answer = new Answer(*format, std::move(*plan), seed);
  Prompt opening;
  opening.pieces = answer->plan.opening;
  answer->opening_text = (flags & kUnmarked) != 0 ? opening.text() : marked_text(opening);
  answer->grammar = bytes_of(answer->plan.grammar);
  answer->opening = bytes_of(answer->opening_text);
  answer->json_schema = !answer->plan.json_schema.empty();
  answer->show_control_tokens = answer->plan.show_control_tokens;
  return answer;
}

// Appends the text of a token. That of a control token may be missing.
SLUICE_EXPORT void read_answer(Answer* answer, const Bytes* text, int32_t token) {
  std::string whole(text->view());
  for (const ControlToken& control : answer->format.controls) {
    if (control.id == token && !whole.ends_with(control.text)) whole += control.text;
  }
  answer->show(answer->reader.push(whole, token));
}

// Ends the text.
SLUICE_EXPORT void finish_answer(Answer* answer) {
  answer->show(answer->reader.finish());
}

SLUICE_EXPORT void close_answer(Answer* answer) {
  delete answer;
}
