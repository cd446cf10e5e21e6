// Content blocks are written as text, because a tool's input is the model's own JSON.
#include "anthropic/responder.h"

#include <algorithm>

#include "jinja/json_text.h"
#include "openai/response.h"

namespace sluice::anthropic {
namespace {

// Clients send reasoning back with its signature, which Anthropic checks and this server ignores.
constexpr const char* kSignature = "sluice";

std::string text_block(std::string_view text) {
  return R"({"type":"text","text":)" + json_quote(text) + '}';
}

std::string thinking_block(std::string_view text, const char* signature) {
  return R"({"type":"thinking","thinking":)" + json_quote(text) + R"(,"signature":")" + signature +
         "\"}";
}

std::string tool_block(const chat::ToolCall& call, std::string_view input) {
  return R"({"type":"tool_use","id":)" + json_quote(call.id) + R"(,"name":)" +
         json_quote(call.name) + R"(,"input":)" + std::string(input) + '}';
}

}  // namespace

std::string error_body(const openai::ApiError& error) {
  return std::string(R"({"type":"error","error":{"type":")") +
         openai::error_types(error.status).anthropic + R"(","message":)" +
         openai::to_text(error.message) + "}}";
}

std::string count_body(size_t n_tokens) {
  return R"({"input_tokens":)" + std::to_string(n_tokens) + '}';
}

MessageResponder::MessageResponder(const openai::GenerateRequest& request, openai::TokenBytes,
                                   std::string model, const chat::AnswerPlan* plan)
    : PartResponder(request, plan), model_(std::move(model)), id_(openai::new_id("msg_")) {}

std::string MessageResponder::usage_json() const {
  return R"({"input_tokens":)" + std::to_string(usage_.prompt - usage_.cached) +
         R"(,"cache_creation_input_tokens":0,"cache_read_input_tokens":)" +
         std::to_string(usage_.cached) + R"(,"output_tokens":)" +
         std::to_string(usage_.completion) + '}';
}

std::string MessageResponder::stop_json() const {
  return R"("stop_reason":)" + (stop_reason_.empty() ? "null" : '"' + stop_reason_ + '"') +
         R"(,"stop_sequence":)" +
         (stop_reason_ == "stop_sequence" ? json_quote(stop_string_) : "null");
}

std::string MessageResponder::document() const {
  return R"({"id":")" + id_ + R"(","type":"message","role":"assistant","model":)" +
         openai::to_text(model_) + R"(,"content":[)" + content_ + "]," + stop_json() +
         R"(,"usage":)" + usage_json() + '}';
}

void MessageResponder::emit(const std::string& type, const std::string& members) {
  if (!request_.stream) return;
  frames_ += "event: " + type + "\ndata: {\"type\":\"" + type + '"';
  if (!members.empty()) frames_ += ',' + members;
  frames_ += "}\n\n";
}

void MessageResponder::emit_delta(const char* type, const char* key, std::string_view text) {
  emit("content_block_delta", R"("index":)" + std::to_string(n_blocks_) + R"(,"delta":{"type":")" +
                                  type + R"(",")" + key + "\":" + json_quote(text) + '}');
}

void MessageResponder::begin_block(const std::string& block) {
  emit("content_block_start",
       R"("index":)" + std::to_string(n_blocks_) + R"(,"content_block":)" + block);
}

void MessageResponder::end_block(const std::string& block) {
  emit("content_block_stop", R"("index":)" + std::to_string(n_blocks_++));
  append_json_item(block, &content_);
}

void MessageResponder::begin() {
  if (!request_.stream) return;
  emit("message_start", R"("message":)" + document());
  emit("ping");
}

void MessageResponder::open(Part part) {
  text_.clear();
  begin_block(part == Part::kReasoning ? thinking_block("", "") : text_block(""));
}

void MessageResponder::append(Part part, std::string_view text,
                              const std::vector<generate::Piece>&) {
  text_ += text;
  if (part == Part::kReasoning) {
    emit_delta("thinking_delta", "thinking", text);
  } else {
    emit_delta("text_delta", "text", text);
  }
}

void MessageResponder::close(Part part, bool) {
  if (part == Part::kText) return end_block(text_block(text_));
  emit_delta("signature_delta", "signature", kSignature);
  end_block(thinking_block(text_, kSignature));
}

void MessageResponder::call(const chat::ToolCall& call) {
  const std::string input = openai::arguments_object(call).value_or("{}");
  begin_block(tool_block(call, "{}"));
  emit_delta("input_json_delta", "partial_json", input);
  end_block(tool_block(call, input));
}

void MessageResponder::complete(generate::Finish finish) {
  using generate::Finish;
  const auto own = request_.options.stop.begin();
  const auto own_end = own + static_cast<std::ptrdiff_t>(request_.n_stop);
  if (finish == Finish::kContext) {
    stop_reason_ = "model_context_window_exceeded";
  } else if (finish != Finish::kStop) {
    stop_reason_ = "max_tokens";
  } else if (called()) {
    stop_reason_ = "tool_use";
  } else {
    stop_reason_ = std::find(own, own_end, stop_string_) != own_end ? "stop_sequence" : "end_turn";
  }
  emit("message_delta", R"("delta":{)" + stop_json() + R"(},"usage":)" + usage_json());
  emit("message_stop");
}

std::string MessageResponder::error_frames(const openai::ApiError& error) {
  return take_frames() + "event: error\ndata: " + anthropic::error_body(error) + "\n\n";
}

}  // namespace sluice::anthropic
