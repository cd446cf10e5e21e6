// The document and the events, in the order in which OpenAI sends them.
#include "openai/responses.h"

#include <ctime>

#include "openai/response.h"

namespace sluice::openai {

ResponsesResponder::ResponsesResponder(const GenerateRequest& request, TokenBytes token_bytes,
                                       std::string model, const chat::AnswerPlan* plan)
    : PartResponder(request, plan),
      token_bytes_(std::move(token_bytes)),
      model_(std::move(model)),
      id_(new_id("resp_")),
      created_(std::time(nullptr)) {
  emit_response("response.created");
  emit_response("response.in_progress");
}

std::string ResponsesResponder::document() const {
  Json out = {{"id", id_},
              {"object", "response"},
              {"created_at", created_},
              {"status", status_},
              {"model", model_},
              {"output", output_},
              {"error", nullptr},
              {"incomplete_details", nullptr},
              {"background", false},
              {"previous_response_id", nullptr},
              {"store", false},
              {"usage", nullptr}};
  if (!error_.empty()) out["error"] = {{"code", "server_error"}, {"message", error_}};
  if (status_ == std::string_view("incomplete")) {
    out["incomplete_details"] = {{"reason", "max_output_tokens"}};
  }
  if (status_ != std::string_view("in_progress")) {
    out["usage"] = {{"input_tokens", usage_.prompt},
                    {"input_tokens_details", {{"cached_tokens", usage_.cached}}},
                    {"output_tokens", usage_.completion},
                    {"output_tokens_details", {{"reasoning_tokens", reasoning_tokens_}}},
                    {"total_tokens", usage_.prompt + usage_.completion}};
  }
  return '{' + request_.echo + to_text(out).substr(1);
}

void ResponsesResponder::emit_text(const std::string& type, std::string_view members) {
  frames_ += "event: " + type + "\ndata: {\"type\":\"" + type +
             "\",\"sequence_number\":" + std::to_string(sequence_++) + ',';
  frames_ += members.substr(1);
  frames_ += "\n\n";
}

void ResponsesResponder::emit(const std::string& type, const Json& members) {
  if (request_.stream) emit_text(type, to_text(members));
}

void ResponsesResponder::emit_response(const char* type) {
  if (request_.stream) emit_text(type, R"({"response":)" + document() + '}');
}

Json ResponsesResponder::place() const {
  return {{"item_id", item_["id"]}, {"output_index", output_.size()}};
}

Json ResponsesResponder::part_of(Part part) const {
  if (part == Part::kReasoning) return {{"type", "reasoning_text"}, {"text", text_}};
  return {{"type", "output_text"},
          {"text", text_},
          {"annotations", Json::array()},
          {"logprobs", logprobs_}};
}

void ResponsesResponder::begin_item(const char* id, Json item) {
  item_ = {{"id", new_id(id)}, {"status", "in_progress"}};
  item_.update(item);
  emit("response.output_item.added", {{"output_index", output_.size()}, {"item", item_}});
}

void ResponsesResponder::end_item(const char* status) {
  item_["status"] = status;
  emit("response.output_item.done", {{"output_index", output_.size()}, {"item", item_}});
  output_.push_back(std::move(item_));
}

void ResponsesResponder::open(Part part) {
  text_.clear();
  logprobs_ = Json::array();
  if (part == Part::kReasoning) {
    begin_item("rs_",
               {{"type", "reasoning"}, {"summary", Json::array()}, {"content", Json::array()}});
  } else {
    begin_item("msg_", {{"type", "message"}, {"role", "assistant"}, {"content", Json::array()}});
  }
  Json event = place();
  event["content_index"] = 0;
  event["part"] = part_of(part);
  emit("response.content_part.added", event);
}

void ResponsesResponder::append(Part part, std::string_view text,
                                const std::vector<generate::Piece>& pieces) {
  text_ += text;
  Json event = place();
  event["content_index"] = 0;
  event["delta"] = text;
  if (part == Part::kReasoning) return emit("response.reasoning_text.delta", event);
  Json& logprobs = event["logprobs"] = Json::array();
  if (request_.options.logprobs >= 0) {
    for (const generate::Piece& piece : pieces) {
      logprobs.push_back(logprob_json(piece, token_bytes_));
      logprobs_.push_back(logprobs.back());
    }
  }
  emit("response.output_text.delta", event);
}

void ResponsesResponder::close(Part part, bool complete) {
  Json event = place();
  event["content_index"] = 0;
  Json done = event;
  done["text"] = text_;
  if (part == Part::kText) done["logprobs"] = logprobs_;
  emit(part == Part::kReasoning ? "response.reasoning_text.done" : "response.output_text.done",
       done);
  event["part"] = part_of(part);
  emit("response.content_part.done", event);
  item_["content"].push_back(part_of(part));
  end_item(complete ? "completed" : "incomplete");
}

void ResponsesResponder::call(const chat::ToolCall& call) {
  begin_item(
      "fc_",
      {{"type", "function_call"}, {"call_id", call.id}, {"name", call.name}, {"arguments", ""}});
  Json event = place();
  event["delta"] = call.arguments;
  emit("response.function_call_arguments.delta", event);
  event.erase("delta");
  event["arguments"] = call.arguments;
  emit("response.function_call_arguments.done", event);
  item_["arguments"] = call.arguments;
  end_item("completed");
}

void ResponsesResponder::complete(generate::Finish finish) {
  const bool whole = finish == generate::Finish::kStop;
  if (output_.empty()) {  // a response has a text, if an empty one
    open(Part::kText);
    close(Part::kText, whole);
  }
  status_ = whole ? "completed" : "incomplete";
  emit_response(whole ? "response.completed" : "response.incomplete");
}

std::string ResponsesResponder::error_frames(const ApiError& error) {
  emit("error", {{"code", error.code}, {"message", error.message}, {"param", nullptr}});
  status_ = "failed";
  error_ = error.message;
  emit_response("response.failed");
  return take_frames();
}

}  // namespace sluice::openai
