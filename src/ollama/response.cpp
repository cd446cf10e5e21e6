#include "ollama/response.h"

#include <ctime>

#include "base/random.h"
#include "jinja/json_text.h"

namespace sluice::ollama {
namespace {

std::string nanoseconds(double ms) {
  return std::to_string(static_cast<int64_t>(ms * 1e6));
}

// The model's own text, if it is no object.
std::string arguments_json(const chat::ToolCall& call) {
  return openai::arguments_object(call).value_or("{\"arguments\":" + json_quote(call.arguments) +
                                                 "}");
}

std::string listed(const std::string& items) {
  return '[' + items + ']';
}

}  // namespace

std::string time_text(int64_t seconds) {
  const int64_t days = seconds / 86400, rest = seconds % 86400;
  // Howard Hinnant's days_from_civil, inverted: years begin in March.
  const int64_t z = days + 719468, era = z / 146097, day = z % 146097;
  const int64_t year = (day - day / 1460 + day / 36524 - day / 146096) / 365;
  const int64_t of_year = day - (365 * year + year / 4 - year / 100);
  const int64_t month = (5 * of_year + 2) / 153;
  const int64_t of_month = of_year - (153 * month + 2) / 5 + 1;
  const int64_t m = month < 10 ? month + 3 : month - 9;
  const auto two = [](int64_t value) {
    const std::string digits = std::to_string(value);
    return digits.size() < 2 ? "0" + digits : digits;
  };
  return std::to_string(year + era * 400 + (m <= 2 ? 1 : 0)) + '-' + two(m) + '-' + two(of_month) +
         'T' + two(rest / 3600) + ':' + two(rest / 60 % 60) + ':' + two(rest % 60) + 'Z';
}

Response::Response(const openai::GenerateRequest& request, openai::TokenBytes token_bytes,
                   std::string model, const chat::AnswerPlan* plan, bool chat)
    : request_(request),
      token_bytes_(std::move(token_bytes)),
      model_(std::move(model)),
      chat_(chat) {
  if (plan != nullptr) reader_ = plan->reader(random_seed());
}

// The entry of one token in `logprobs`.
std::string Response::logprob(const generate::Piece& piece) const {
  const auto entry = [](const std::string& bytes, float value) {
    return "{\"token\":" + json_quote(openai::valid_text(bytes)) +
           ",\"logprob\":" + openai::to_text(openai::finite_logprob(value)) +
           ",\"bytes\":" + openai::byte_list(bytes);
  };
  std::string top;
  for (const sample::Candidate& each : piece.top) {
    append_json_item(entry(token_bytes_(each.token), each.logprob) + '}', &top);
  }
  std::string out = entry(piece.bytes, piece.logprob);
  if (!top.empty()) out += ",\"top_logprobs\":" + listed(top);
  return out + '}';
}

void Response::add(const chat::AnswerPart& part) {
  said_.text += part.content;
  said_.thinking += part.reasoning;
  for (const chat::ToolCall& call : part.calls) {
    append_json_item("{\"id\":" + json_quote(call.id) + ",\"function\":{\"name\":" +
                         json_quote(call.name) + ",\"arguments\":" + arguments_json(call) + "}}",
                     &said_.calls);
  }
}

void Response::say() {
  if (!request_.stream || said_.empty()) return;
  frames_ += line(said_, /*last=*/false) + '\n';
  said_ = {};
}

std::string Response::line(const Said& said, bool last) const {
  std::string out = "{\"model\":" + json_quote(model_) + ",\"created_at\":\"" +
                    time_text(std::time(nullptr)) + '"';
  const std::string thinking =
      said.thinking.empty() ? "" : ",\"thinking\":" + json_quote(said.thinking);
  if (chat_) {
    out += ",\"message\":{\"role\":\"assistant\",\"content\":" + json_quote(said.text) + thinking;
    if (!said.calls.empty()) out += ",\"tool_calls\":" + listed(said.calls);
    out += '}';
  } else {
    out += ",\"response\":" + json_quote(said.text) + thinking;
  }
  if (!said.logprobs.empty()) out += ",\"logprobs\":" + listed(said.logprobs);
  if (!last) return out + ",\"done\":false}";
  out += ",\"done\":true,\"done_reason\":\"";
  if (!counts_) return out + "load\"}";
  const generate::Counts& counts = *counts_;
  out += finish_;
  return out + "\",\"total_duration\":" + nanoseconds(counts.prompt_ms + counts.generate_ms) +
         ",\"load_duration\":0,\"prompt_eval_count\":" + std::to_string(counts.prompt) +
         ",\"prompt_eval_duration\":" + nanoseconds(counts.prompt_ms) +
         ",\"eval_count\":" + std::to_string(counts.generated) +
         ",\"eval_duration\":" + nanoseconds(counts.generate_ms) + '}';
}

void Response::push(int32_t, const generate::Piece& piece, const generate::Counts&) {
  if (reader_) {
    add(reader_->push(piece.text, piece.token));
  } else {
    said_.text += piece.text;
  }
  if (request_.options.logprobs >= 0) append_json_item(logprob(piece), &said_.logprobs);
  say();
}

void Response::end(int32_t, generate::Finish finish, const generate::Counts& counts) {
  if (reader_) add(reader_->finish());
  say();
  finish_ = finish == generate::Finish::kStop ? "stop" : "length";
  usage_ = {counts.prompt, counts.cached, counts.generated};
  counts_ = counts;
}

std::string Response::last_frames() {
  return line(said_, /*last=*/true) + '\n';
}

std::string Response::error_frames(const openai::ApiError& error) {
  return ollama::error_body(error) + '\n';
}

std::string error_body(const openai::ApiError& error) {
  return "{\"error\":" + json_quote(error.message) + '}';
}

namespace {

std::string vector_text(const openai::Vectors& vectors, size_t i) {
  std::string out = "[";
  for (size_t j = 0; j < vectors.width; ++j) {
    if (j > 0) out += ',';
    openai::append_number(vectors.values[i * vectors.width + j], &out);
  }
  return out + ']';
}

}  // namespace

std::string embed_body(const openai::Vectors& vectors, const std::string& model) {
  std::string out = "{\"model\":" + json_quote(model) + ",\"embeddings\":[";
  for (size_t i = 0; i * vectors.width < vectors.values.size(); ++i) {
    if (i > 0) out += ',';
    out += vector_text(vectors, i);
  }
  return out + "],\"total_duration\":0,\"load_duration\":0,\"prompt_eval_count\":" +
         std::to_string(vectors.tokens) + '}';
}

std::string embeddings_body(const openai::Vectors& vectors) {
  return "{\"embedding\":" + vector_text(vectors, 0) + '}';
}

}  // namespace sluice::ollama
