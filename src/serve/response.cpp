#include "serve/response.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <ctime>
#include <random>

namespace sluice::serve {
namespace {

const char* finish_reason(generate::Finish finish) {
  return finish == generate::Finish::kStop ? "stop" : "length";
}

// JSON has no infinity.
double finite(float logprob) {
  return std::max(static_cast<double>(logprob), -9999.0);
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

std::string frame_of(const Json& value) {
  return "data: " + to_text(value) + "\n\n";
}

Json error_json(const ApiError& error) {
  const char* type = error.status == 401   ? "authentication_error"
                     : error.status == 429 ? "rate_limit_error"
                     : error.status >= 500 ? "server_error"
                                           : "invalid_request_error";
  Json out = {{"message", error.message}, {"type", type}, {"param", nullptr}, {"code", nullptr}};
  if (!error.param.empty()) out["param"] = error.param;
  if (!error.code.empty()) out["code"] = error.code;
  return {{"error", out}};
}

Json model_json(const std::string& model, int64_t created) {
  return {{"id", model}, {"object", "model"}, {"created", created}, {"owned_by", "sluice"}};
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

std::string error_body(const ApiError& error) {
  return to_text(error_json(error));
}

std::string error_frame(const ApiError& error) {
  return frame_of(error_json(error));
}

std::string models_body(const std::string& model, int64_t created) {
  return to_text({{"object", "list"}, {"data", Json::array({model_json(model, created)})}});
}

std::string model_body(const std::string& model, int64_t created) {
  return to_text(model_json(model, created));
}

std::string embeddings_body(const Job& job, const std::string& model, bool as_base64) {
  const size_t width = static_cast<size_t>(job.width);
  std::string out = R"({"object":"list","data":[)";
  for (size_t i = 0; i < job.ends.size(); ++i) {
    const std::span<const float> row(job.vectors.data() + i * width, width);
    out += (i > 0 ? "," : "") + std::string(R"({"object":"embedding","index":)") +
           std::to_string(i) + R"(,"embedding":)";
    if (as_base64) {
      out += '"' + base64(row) + "\"}";
      continue;
    }
    char number[32];
    for (size_t j = 0; j < width; ++j) {
      out += j > 0 ? ',' : '[';
      out.append(number, static_cast<size_t>(std::snprintf(number, sizeof number, "%.9g",
                                                           static_cast<double>(row[j]))));
    }
    out += "]}";
  }
  const Json usage = {{"prompt_tokens", job.tokens.size()}, {"total_tokens", job.tokens.size()}};
  return out + "],\"model\":" + to_text(model) + ",\"usage\":" + to_text(usage) + "}";
}

std::string new_id(const char* prefix) {
  std::random_device random;
  char digits[25];
  std::snprintf(digits, sizeof digits, "%08x%08x%08x", random(), random(), random());
  return prefix + std::string("-") + digits;
}

ApiResponse::ApiResponse(const GenerateRequest& request, const tokenizer::Tokenizer& tokenizer,
                         std::string model, const chat::AnswerPlan* plan)
    : request_(request),
      tokenizer_(tokenizer),
      model_(std::move(model)),
      id_(new_id(request.chat ? "chatcmpl" : "cmpl")),
      created_(std::time(nullptr)) {
  const size_t n_prompts = request.chat ? 1 : request.prompts.size();
  choices_.resize(n_prompts * static_cast<size_t>(request.n));
  std::random_device random;
  for (Choice& choice : choices_) {
    if (plan != nullptr) choice.reader = plan->reader(uint64_t{random()} << 32 | random());
  }
  if (!request.stream || !request.chat) return;
  for (int32_t i = 0; i < static_cast<int32_t>(choices_.size()); ++i) {
    frame(i, {{"role", "assistant"}, {"content", ""}}, nullptr, nullptr);
  }
}

Json ApiResponse::head(bool chunk) const {
  const char* object = !request_.chat ? "text_completion"
                       : chunk        ? "chat.completion.chunk"
                                      : "chat.completion";
  return {{"id", id_}, {"object", object}, {"created", created_}, {"model", model_}};
}

// The entry of one token for `post_sampling_probs`, in llama-server's format.
Json ApiResponse::probs_of(const generate::Piece& piece) const {
  const auto entry = [](Token token, const std::string& text, float logprob) -> Json {
    return {{"id", token},
            {"token", text},
            {"bytes", bytes_of(text)},
            {"prob", std::exp(static_cast<double>(logprob))}};
  };
  Json out = entry(piece.token, piece.text, piece.logprob);
  Json& top = out["top_probs"] = Json::array();
  for (const sample::Candidate& candidate : piece.top) {
    top.push_back(
        entry(candidate.token, tokenizer_.token_bytes(candidate.token), candidate.logprob));
  }
  return out;
}

// The logprobs entry of one token, in the format of chat or of completions.
Json ApiResponse::logprobs_of(Choice& choice, const generate::Piece& piece) const {
  if (request_.options.logprobs < 0) return nullptr;
  if (request_.options.post_sampling_probs) return probs_of(piece);
  Json top = request_.chat ? Json::array() : Json::object();
  for (const sample::Candidate& candidate : piece.top) {
    const std::string text = tokenizer_.token_bytes(candidate.token);
    const double logprob = finite(candidate.logprob);
    if (request_.chat) {
      top.push_back({{"token", text}, {"logprob", logprob}, {"bytes", bytes_of(text)}});
    } else {
      top.emplace(text, logprob);  // several tokens may have one text: the likeliest counts
    }
  }
  const double logprob = finite(piece.logprob);
  if (request_.chat) {
    return {{"token", piece.text},
            {"logprob", logprob},
            {"bytes", bytes_of(piece.text)},
            {"top_logprobs", std::move(top)}};
  }
  const size_t offset = choice.points;
  choice.points += code_points(piece.text);
  return {{"token", piece.text}, {"logprob", logprob}, {"top", std::move(top)}, {"at", offset}};
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

void ApiResponse::frame(int32_t index, Json delta, const Json& logprobs, const char* finish) {
  Json choice = {{"index", index}};
  choice[request_.chat ? "delta" : "text"] = std::move(delta);
  choice["logprobs"] =
      logprobs.is_null() ? Json() : logprobs_json(request_, Json::array({logprobs}));
  choice["finish_reason"] = finish == nullptr ? Json() : Json(finish);
  Json chunk = head(true);
  chunk["choices"] = Json::array({std::move(choice)});
  if (request_.include_usage) chunk["usage"] = nullptr;
  frames_ += frame_of(chunk);
}

void ApiResponse::say(int32_t index, const chat::AnswerPart& text, const Json& logprobs) {
  Choice& choice = choices_[static_cast<size_t>(index)];
  if (!request_.stream) {
    choice.thought += text.reasoning;
    choice.content += text.content;
    if (!logprobs.is_null()) choice.logprobs.push_back(logprobs);
  } else if (!request_.chat) {
    if (!text.content.empty() || !logprobs.is_null()) frame(index, text.content, logprobs, nullptr);
  } else {
    const bool both = !text.reasoning.empty() && !text.content.empty();
    if (!text.reasoning.empty()) {
      frame(index, {{"reasoning_content", text.reasoning}}, logprobs, nullptr);
    }
    if (!text.content.empty() || (text.reasoning.empty() && !logprobs.is_null())) {
      frame(index, {{"content", text.content}}, both ? Json() : logprobs, nullptr);
    }
  }
}

void ApiResponse::push(const Event& event) {
  Choice& choice = choices_[static_cast<size_t>(event.index)];
  if (event.kind == Event::Kind::kPiece) {
    const std::string& text = event.piece.text;
    say(event.index,
        choice.reader ? choice.reader->push(text, event.piece.token)
                      : chat::AnswerPart{{}, text, {}},
        logprobs_of(choice, event.piece));
    return;
  }
  if (choice.reader) say(event.index, choice.reader->finish(), nullptr);
  choice.finish = finish_ = finish_reason(event.finish);
  if (event.index % request_.n == 0) {
    usage_.prompt += event.counts.prompt;
    usage_.cached += event.counts.cached;
  }
  usage_.completion += event.counts.generated;
  if (!request_.stream) return;
  frame(event.index, request_.chat ? Json::object() : Json(""), nullptr, finish_);
}

std::string ApiResponse::take_frames() {
  return std::exchange(frames_, {});
}

std::string ApiResponse::usage_frame() const {
  if (!request_.include_usage) return {};
  Json chunk = head(true);
  chunk["choices"] = Json::array();
  chunk["usage"] = usage_json(usage_);
  return frame_of(chunk);
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
    } else {
      one["text"] = choice.content;
    }
    one["logprobs"] = logprobs_json(request_, choice.logprobs);
    one["finish_reason"] = choice.finish;
  }
  out["usage"] = usage_json(usage_);
  return to_text(out);
}

}  // namespace sluice::serve
