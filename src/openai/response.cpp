// Documents and stream events.
#include "openai/response.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <ctime>
#include <numeric>
#include <random>

#include "base/random.h"
#include "jinja/json_text.h"
#include "tokenizer/utf8.h"

namespace sluice::openai {
namespace {

constexpr const char* kStreamEnd = "data: [DONE]\n\n";

const char* finish_reason(generate::Finish finish) {
  return finish == generate::Finish::kStop ? "stop" : "length";
}

Json bytes_of(std::string_view text) {
  if (text.empty()) return nullptr;
  Json out = Json::array();
  for (const char byte : text) out.push_back(static_cast<unsigned char>(byte));
  return out;
}

size_t code_points(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }));
}

Json usage_json(const Usage& usage) {
  return {{"prompt_tokens", usage.prompt},
          {"completion_tokens", usage.completion},
          {"total_tokens", usage.prompt + usage.completion},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached}}}};
}

Json call_json(const chat::ToolCall& call) {
  return {{"id", call.id},
          {"type", "function"},
          {"function", {{"name", call.name}, {"arguments", call.arguments}}}};
}

double per_second(int32_t n, double ms) {
  return ms > 0 ? n * 1e3 / ms : 0;
}

std::string input_usage(const Vectors& vectors) {
  return ObjectText()
      .integer("prompt_tokens", vectors.tokens)
      .integer("total_tokens", vectors.tokens)
      .object();
}

// Encodes little-endian f32 values, as OpenAI's clients expect.
std::string base64(std::span<const float> values) {
  constexpr const char* kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::vector<unsigned char> bytes(values.size_bytes() + 2);
  std::memcpy(bytes.data(), values.data(), values.size_bytes());
  std::string out;
  for (size_t i = 0; i < values.size_bytes(); i += 3) {
    const uint32_t three = static_cast<uint32_t>(bytes[i] << 16 | bytes[i + 1] << 8 | bytes[i + 2]);
    const size_t left = values.size_bytes() - i;
    for (size_t d = 0; d < 4; ++d) {
      out += d > left ? '=' : kDigits[three >> (18 - 6 * d) & 63];
    }
  }
  return out;
}

}  // namespace

double finite_logprob(float logprob) {
  return std::fmax(static_cast<double>(logprob), -9999.0);
}

std::string valid_text(std::string_view bytes) {
  std::string out;
  tokenizer::append_valid_utf8(bytes, tokenizer::Replace::kEachPart, &out);
  return out;
}

std::string byte_list(std::string_view bytes) {
  std::string items;
  for (const char byte : bytes) {
    append_json_item(std::to_string(static_cast<unsigned char>(byte)), &items);
  }
  return '[' + items + ']';
}

std::optional<std::string> arguments_object(const chat::ToolCall& call) {
  const bool object = json_type(call.arguments) == JsonType::kObject && is_json(call.arguments);
  return object ? std::optional(json_compact(call.arguments)) : std::nullopt;
}

std::string frame_of(std::string_view text) {
  return "data: " + std::string(text) + "\n\n";
}

void append_number(float value, std::string* out) {
  if (!std::isfinite(value)) {
    *out += "null";
    return;
  }
  char text[64];
  out->append(text, nlohmann::detail::to_chars(text, text + sizeof text, value));
}

Json timings_json(const generate::Counts& counts) {
  const auto each = [](double ms, int32_t n) { return n > 0 ? ms / n : 0; };
  const int32_t computed = counts.prompt - counts.cached;
  Json out = {{"cache_n", counts.cached},
              {"prompt_n", computed},
              {"prompt_ms", counts.prompt_ms},
              {"prompt_per_token_ms", each(counts.prompt_ms, computed)},
              {"prompt_per_second", per_second(computed, counts.prompt_ms)},
              {"predicted_n", counts.generated},
              {"predicted_ms", counts.generate_ms},
              {"predicted_per_token_ms", each(counts.generate_ms, counts.generated)},
              {"predicted_per_second", per_second(counts.generated, counts.generate_ms)}};
  if (counts.drafted > 0) {
    out["draft_n"] = counts.drafted;
    out["draft_n_accepted"] = counts.accepted;
  }
  return out;
}

std::string models_body(const std::string& model, int64_t created, bool pictures) {
  return "{\"object\":\"list\",\"data\":[" + model_body(model, created, pictures) + "]}";
}

std::string model_body(const std::string& model, int64_t created, bool pictures) {
  ObjectText out;
  out.text("id", model)
      .text("object", "model")
      .integer("created", created)
      .text("owned_by", "sluice");
  if (pictures) {
    out.raw("architecture",
            R"({"input_modalities":["text","image"],"output_modalities":["text"]})");
  }
  return out.object();
}

std::string embeddings_body(const Vectors& vectors, const std::string& model, bool as_base64) {
  std::string out = R"({"object":"list","data":[)";
  for (size_t i = 0; i * vectors.width < vectors.values.size(); ++i) {
    const std::span<const float> row = vectors.values.subspan(i * vectors.width, vectors.width);
    out += (i > 0 ? "," : "") + std::string(R"({"object":"embedding","index":)") +
           std::to_string(i) + R"(,"embedding":)";
    if (as_base64) {
      out += '"' + base64(row) + "\"}";
      continue;
    }
    for (size_t j = 0; j < row.size(); ++j) {
      out += j > 0 ? ',' : '[';
      append_number(row[j], &out);
    }
    out += "]}";
  }
  return out + "],\"model\":" + string_text(model) + ",\"usage\":" + input_usage(vectors) + "}";
}

std::string rerank_body(const Vectors& vectors, const RerankRequest& request,
                        const std::string& model) {
  std::vector<size_t> order(request.documents.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto score = [&](size_t i) { return vectors.values[i * vectors.width]; };
  const auto before = [&](size_t a, size_t b) {
    return score(a) != score(b) ? score(a) > score(b) : a < b;
  };
  std::make_heap(order.begin(), order.end(), before);
  std::sort_heap(order.begin(), order.end(), before);  // shorter code than std::stable_sort
  order.resize(std::min(order.size(), static_cast<size_t>(request.top_n)));
  const std::string results = list_text(order, [&](size_t i) {
    const std::string& text = request.documents[i];
    ObjectText one;
    one.integer("index", static_cast<int64_t>(i))
        .number(request.tei ? "score" : "relevance_score", static_cast<double>(score(i)));
    if (!request.return_documents) return one.object();
    if (request.tei) return one.text("text", text).object();
    return one.raw("document", ObjectText().text("text", text).object()).object();
  });
  if (request.tei) return results;
  return ObjectText()
      .text("object", "list")
      .text("model", model)
      .raw("usage", input_usage(vectors))
      .raw("results", results)
      .object();
}

std::string tokenize_body(std::span<const Token> tokens, const TokenBytes& bytes) {
  const std::string list = list_text(tokens, [&](Token token) {
    if (bytes == nullptr) return std::to_string(token);
    const std::string piece = bytes(token);
    const bool text = tokenizer::is_valid_utf8(piece);
    return ObjectText()
        .integer("id", token)
        .raw("piece", text ? string_text(piece) : to_text(bytes_of(piece)))
        .object();
  });
  return ObjectText().raw("tokens", list).object();
}

std::string new_id(const char* prefix) {
  std::random_device random;
  char digits[25];
  std::snprintf(digits, sizeof digits, "%08x%08x%08x", random(), random(), random());
  return std::string(prefix) + digits;
}

Json logprob_json(const generate::Piece& piece, const TokenBytes& bytes) {
  const auto entry = [](const std::string& text, float logprob) -> Json {
    return {{"token", valid_text(text)},
            {"logprob", finite_logprob(logprob)},
            {"bytes", bytes_of(text)}};
  };
  Json out = entry(piece.bytes, piece.logprob);
  Json& top = out["top_logprobs"] = Json::array();
  for (const sample::Candidate& candidate : piece.top) {
    top.push_back(entry(bytes(candidate.token), candidate.logprob));
  }
  return out;
}

ApiResponse::ApiResponse(const GenerateRequest& request, TokenBytes token_bytes, std::string model,
                         const chat::AnswerPlan* plan)
    : request_(request),
      token_bytes_(std::move(token_bytes)),
      model_(std::move(model)),
      id_(new_id(request.chat ? "chatcmpl-" : "cmpl-")),
      created_(std::time(nullptr)) {
  choices_.resize(request.prompt_count() * static_cast<size_t>(request.n));
  for (Choice& choice : choices_) {
    if (plan != nullptr) choice.reader = plan->reader(random_seed());
  }
  if (!request.stream || !request.chat) return;
  for (int32_t i = 0; i < static_cast<int32_t>(choices_.size()); ++i) {
    frame(i, {{"role", "assistant"}, {"content", ""}}, nullptr, nullptr, nullptr);
  }
}

Json ApiResponse::head(bool chunk) const {
  const char* object = !request_.chat ? "text_completion"
                       : chunk        ? "chat.completion.chunk"
                                      : "chat.completion";
  return {{"id", id_},
          {"object", object},
          {"created", created_},
          {"model", model_},
          {"system_fingerprint", "sluice-" SLUICE_VERSION}};
}

// The entry of one token for `post_sampling_probs`, in llama-server's format.
Json ApiResponse::probs_of(const generate::Piece& piece) const {
  const auto entry = [](Token token, const std::string& text, float logprob) -> Json {
    return {{"id", token},
            {"token", valid_text(text)},
            {"bytes", bytes_of(text)},
            {"prob", std::exp(static_cast<double>(logprob))}};
  };
  Json out = entry(piece.token, piece.bytes, piece.logprob);
  Json& top = out["top_probs"] = Json::array();
  for (const sample::Candidate& candidate : piece.top) {
    top.push_back(entry(candidate.token, token_bytes_(candidate.token), candidate.logprob));
  }
  return out;
}

// The logprobs entry of one token, in the format of chat or of completions.
Json ApiResponse::logprobs_of(Choice& choice, const generate::Piece& piece) const {
  if (request_.options.logprobs < 0) return nullptr;
  if (request_.options.post_sampling_probs) return probs_of(piece);
  if (request_.chat) return logprob_json(piece, token_bytes_);
  Json top = Json::object();
  for (const sample::Candidate& candidate : piece.top) {
    // Several tokens may have one text: the likeliest counts.
    top.emplace(valid_text(token_bytes_(candidate.token)), finite_logprob(candidate.logprob));
  }
  const size_t offset = choice.points;
  choice.points += code_points(piece.text);
  return {{"token", valid_text(piece.bytes)},
          {"logprob", finite_logprob(piece.logprob)},
          {"top", std::move(top)},
          {"at", offset}};
}

namespace {

// The `logprobs` member of a choice. Completions have one list per field instead of one per token,
// except for `post_sampling_probs`, as with llama-server.
Json logprobs_json(const GenerateRequest& request, const Json& entries) {
  if (entries.empty()) return nullptr;
  if (request.chat) return {{"content", entries}, {"refusal", nullptr}};
  if (request.options.post_sampling_probs) return {{"content", entries}};
  Json out = {{"tokens", Json::array()},
              {"token_logprobs", Json::array()},
              {"top_logprobs", Json::array()},
              {"text_offset", Json::array()}};
  for (const Json& entry : entries) {
    out["tokens"].push_back(entry["token"]);
    out["token_logprobs"].push_back(entry["logprob"]);
    out["top_logprobs"].push_back(entry["top"]);
    out["text_offset"].push_back(entry["at"]);
  }
  return out;
}

}  // namespace

void ApiResponse::frame(int32_t index, Json delta, const Json& logprobs, const char* finish,
                        const generate::Counts* timings) {
  Json choice = {{"index", index}};
  choice[request_.chat ? "delta" : "text"] = std::move(delta);
  choice["logprobs"] =
      logprobs.is_null() ? Json() : logprobs_json(request_, Json::array({logprobs}));
  choice["finish_reason"] = finish == nullptr ? Json() : Json(finish);
  Json chunk = head(true);
  chunk["choices"] = Json::array({std::move(choice)});
  if (request_.include_usage) chunk["usage"] = nullptr;
  if (timings != nullptr) chunk["timings"] = timings_json(*timings);
  frames_ += frame_of(to_text(chunk));
}

void ApiResponse::say(int32_t index, const chat::AnswerPart& text, const Json& logprobs,
                      const generate::Counts* timings) {
  Choice& choice = choices_[static_cast<size_t>(index)];
  if (!request_.timings_per_token) timings = nullptr;
  if (!request_.stream) {
    choice.thought += text.reasoning;
    choice.content += text.content;
    for (const chat::ToolCall& call : text.calls) choice.calls.push_back(call_json(call));
    if (!logprobs.is_null()) choice.logprobs.push_back(logprobs);
  } else if (!request_.chat) {
    if (!text.content.empty() || !logprobs.is_null()) {
      frame(index, text.content, logprobs, nullptr, timings);
    }
  } else {
    const bool both = !text.reasoning.empty() && !text.content.empty();
    if (!text.reasoning.empty()) {
      frame(index, {{"reasoning_content", text.reasoning}}, logprobs, nullptr, timings);
    }
    if (!text.content.empty() || (text.reasoning.empty() && !logprobs.is_null())) {
      frame(index, {{"content", text.content}}, both ? Json() : logprobs, nullptr, timings);
    }
    for (const chat::ToolCall& call : text.calls) {
      Json delta = call_json(call);
      delta["index"] = choice.n_calls++;
      frame(index, {{"tool_calls", Json::array({std::move(delta)})}}, nullptr, nullptr, timings);
    }
  }
}

void ApiResponse::push(int32_t index, const generate::Piece& piece,
                       const generate::Counts& counts) {
  Choice& choice = choices_[static_cast<size_t>(index)];
  say(index,
      choice.reader ? choice.reader->push(piece.text, piece.token)
                    : chat::AnswerPart{{}, piece.text, {}},
      logprobs_of(choice, piece), &counts);
}

void ApiResponse::end(int32_t index, generate::Finish finish, const generate::Counts& counts) {
  Choice& choice = choices_[static_cast<size_t>(index)];
  if (choice.reader) say(index, choice.reader->finish(), nullptr, nullptr);
  const bool called = choice.reader && choice.reader->calls() > 0;
  const bool complete = finish == generate::Finish::kStop;
  choice.finish = finish_ = called && complete ? "tool_calls" : finish_reason(finish);
  if (index % request_.n == 0) {  // the prompt counts once for all of its outputs
    usage_.prompt += counts.prompt;
    usage_.cached += counts.cached;
    total_.prompt += counts.prompt;
    total_.cached += counts.cached;
    total_.prompt_ms += counts.prompt_ms;
  }
  usage_.completion += counts.generated;
  total_.generated += counts.generated;
  total_.generate_ms = std::max(total_.generate_ms, counts.generate_ms);
  total_.drafted += counts.drafted;
  total_.accepted += counts.accepted;
  if (!request_.stream) return;
  frame(index, request_.chat ? Json::object() : Json(""), nullptr, finish_, &counts);
}

std::string ApiResponse::last_frames() {
  std::string usage;
  if (request_.include_usage) {
    Json chunk = head(true);
    chunk["choices"] = Json::array();
    chunk["usage"] = usage_json(usage_);
    chunk["timings"] = timings_json(total_);
    usage = frame_of(to_text(chunk));
  }
  return usage + kStreamEnd;
}

std::string ApiResponse::error_frames(const ApiError& error) {
  return frame_of(error_body(error));
}

std::string ApiResponse::document() const {
  Json out = head(false);
  Json& choices = out["choices"] = Json::array();
  for (size_t i = 0; i < choices_.size(); ++i) {
    const Choice& choice = choices_[i];
    Json& one = choices.emplace_back(Json{{"index", i}});
    if (request_.chat) {
      Json& message = one["message"] = {
          {"role", "assistant"}, {"content", choice.content}, {"refusal", nullptr}};
      if (!choice.thought.empty()) message["reasoning_content"] = choice.thought;
      if (!choice.calls.empty()) {
        if (choice.content.empty()) message["content"] = nullptr;
        message["tool_calls"] = choice.calls;
      }
    } else {
      one["text"] = choice.content;
    }
    one["logprobs"] = logprobs_json(request_, choice.logprobs);
    one["finish_reason"] = choice.finish;
  }
  out["usage"] = usage_json(usage_);
  out["timings"] = timings_json(total_);
  return to_text(out);
}

}  // namespace sluice::openai
