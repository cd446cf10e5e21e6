// The document and the events, in the order in which OpenAI sends them.
#include "openai/responses.h"

#include <ctime>

#include "jinja/json_text.h"
#include "openai/response.h"

namespace sluice::openai {
namespace {

// A message or a reasoning item.
std::string item_members(bool reasoning, const std::string& content) {
  const char* head =
      reasoning ? R"("type":"reasoning","summary":[])" : R"("type":"message","role":"assistant")";
  return std::string(head) + R"(,"content":[)" + content + ']';
}

std::string call_members(const chat::ToolCall& call, std::string_view arguments) {
  return R"("type":"function_call","call_id":)" + json_quote(call.id) + R"(,"name":)" +
         json_quote(call.name) + R"(,"arguments":)" + json_quote(arguments);
}

std::string number(const char* name, int64_t value) {
  return '"' + std::string(name) + "\":" + std::to_string(value);
}

}  // namespace

ResponsesResponder::ResponsesResponder(const GenerateRequest& request, TokenBytes token_bytes,
                                       std::string model, const chat::AnswerPlan* plan)
    : PartResponder(request, plan),
      token_bytes_(std::move(token_bytes)),
      model_(std::move(model)),
      id_(new_id("resp_")),
      created_(std::time(nullptr)) {
  emit_response("created");
  emit_response("in_progress");
}

std::string ResponsesResponder::document() const {
  std::string out = R"({"id":")" + id_ + R"(","object":"response",)" +
                    number("created_at", created_) + R"(,"status":")" + status_ + R"(","model":)" +
                    to_text(model_) + ',' + request_.echo + R"("output":[)" + output_ +
                    R"(],"background":false,"previous_response_id":null,"store":false,"error":)";
  out += error_.empty() ? "null" : R"({"code":"server_error","message":)" + to_text(error_) + '}';
  out += R"(,"incomplete_details":)";
  out += status_ == "incomplete" ? R"({"reason":"max_output_tokens"})" : "null";
  out += R"(,"usage":)";
  if (status_ == "in_progress") return out + "null}";
  return out + '{' + number("input_tokens", usage_.prompt) + R"(,"input_tokens_details":{)" +
         number("cached_tokens", usage_.cached) + "}," +
         number("output_tokens", usage_.completion) + R"(,"output_tokens_details":{)" +
         number("reasoning_tokens", reasoning_tokens_) + "}," +
         number("total_tokens", usage_.prompt + usage_.completion) + "}}";
}

void ResponsesResponder::emit_event(const std::string& type, const std::string& members) {
  if (!request_.stream) return;
  frames_ += "event: " + type + "\ndata: {\"type\":\"" + type + "\"," +
             number("sequence_number", sequence_++) + ',' + members + "}\n\n";
}

void ResponsesResponder::emit(const char* type, const std::string& members) {
  emit_event("response." + std::string(type), members);
}

void ResponsesResponder::emit_inside(const char* type, const std::string& members) {
  emit(type, R"("item_id":")" + item_id_ + "\"," +
                 number("output_index", static_cast<int64_t>(n_items_)) + ',' + members);
}

void ResponsesResponder::emit_response(const char* type) {
  if (request_.stream) emit(type, R"("response":)" + document());
}

std::string ResponsesResponder::part_of(Part part) const {
  if (part == Part::kReasoning) {
    return R"({"type":"reasoning_text","text":)" + json_quote(text_) + '}';
  }
  return R"({"type":"output_text","text":)" + json_quote(text_) +
         R"(,"annotations":[],"logprobs":[)" + logprobs_ + "]}";
}

std::string ResponsesResponder::item_event(const char* status, const std::string& members) const {
  return number("output_index", static_cast<int64_t>(n_items_)) + R"(,"item":{"id":")" + item_id_ +
         R"(","status":")" + status + "\"," + members + '}';
}

void ResponsesResponder::begin_item(const char* id_prefix, const std::string& members) {
  item_id_ = new_id(id_prefix);
  text_.clear();
  logprobs_.clear();
  emit("output_item.added", item_event("in_progress", members));
}

void ResponsesResponder::end_item(const char* status, const std::string& members) {
  const std::string event = item_event(status, members);
  emit("output_item.done", event);
  output_ += (n_items_++ > 0 ? "," : "") + event.substr(event.find('{'));
}

void ResponsesResponder::open(Part part) {
  const bool reasoning = part == Part::kReasoning;
  begin_item(reasoning ? "rs_" : "msg_", item_members(reasoning, ""));
  emit_inside("content_part.added", R"("content_index":0,"part":)" + part_of(part));
}

void ResponsesResponder::append(Part part, std::string_view text,
                                const std::vector<generate::Piece>& pieces) {
  text_ += text;
  const std::string members = R"("content_index":0,"delta":)" + json_quote(text);
  if (part == Part::kReasoning) return emit_inside("reasoning_text.delta", members);
  std::string logprobs;
  if (request_.options.logprobs >= 0) {
    for (const generate::Piece& piece : pieces) {
      append_json_item(to_text(logprob_json(piece, token_bytes_)), &logprobs);
    }
    if (!logprobs.empty()) append_json_item(logprobs, &logprobs_);
  }
  emit_inside("output_text.delta", members + R"(,"logprobs":[)" + logprobs + ']');
}

void ResponsesResponder::close(Part part, bool complete) {
  const bool reasoning = part == Part::kReasoning;
  const std::string done = R"("content_index":0,"text":)" + json_quote(text_);
  if (reasoning) {
    emit_inside("reasoning_text.done", done);
  } else {
    emit_inside("output_text.done", done + R"(,"logprobs":[)" + logprobs_ + ']');
  }
  emit_inside("content_part.done", R"("content_index":0,"part":)" + part_of(part));
  end_item(complete ? "completed" : "incomplete", item_members(reasoning, part_of(part)));
}

void ResponsesResponder::call(const chat::ToolCall& call) {
  begin_item("fc_", call_members(call, ""));
  const std::string arguments = json_quote(call.arguments);
  emit_inside("function_call_arguments.delta", R"("delta":)" + arguments);
  emit_inside("function_call_arguments.done", R"("arguments":)" + arguments);
  end_item("completed", call_members(call, call.arguments));
}

void ResponsesResponder::complete(generate::Finish finish) {
  const bool whole = finish == generate::Finish::kStop;
  if (n_items_ == 0) {  // a response has a text, if an empty one
    open(Part::kText);
    close(Part::kText, whole);
  }
  status_ = whole ? "completed" : "incomplete";
  emit_response(whole ? "completed" : "incomplete");
}

std::string ResponsesResponder::error_frames(const ApiError& error) {
  emit_event("error", R"("code":)" + to_text(error.code) + R"(,"message":)" +
                          to_text(error.message) + R"(,"param":null)");
  status_ = "failed";
  error_ = error.message;
  emit_response("failed");
  return take_frames();
}

}  // namespace sluice::openai
