// The fields of each request.
#include "openai/request.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "openai/body.h"
#include "openai/request_chat.h"
#include "openai/request_fields.h"

namespace sluice::openai {
namespace {

using generate::Options;

constexpr double kMaxFloat = std::numeric_limits<float>::max();
constexpr double kMinFloat = std::numeric_limits<float>::min();
constexpr size_t kMaxCacheKey = 256;

void read_seed(Fields& fields, sample::Params* out) {
  const Json* seed = fields.take("seed");
  if (seed == nullptr) return;
  if (const auto* natural = seed->get_ptr<const Json::number_unsigned_t*>()) {
    out->seed = *natural;  // also above 2^63
  } else if (const std::optional<int64_t> whole = whole_number(*seed)) {
    out->seed = static_cast<uint64_t>(*whole);
  } else {
    fields.fail("seed", "'seed' must be a whole number.");
  }
}

// The number of a token; -1 if it is none.
Token token_of(std::string_view digits) {
  Token token = 0;
  const char* end = digits.data() + digits.size();
  const auto [rest, bad] = std::from_chars(digits.data(), end, token);
  return bad == std::errc() && rest == end && token >= 0 ? token : -1;
}

// A bias from -100 to 100, or false, which bans the token. NaN if it is neither.
float bias_of(const Json& value) {
  if (value == false) return -std::numeric_limits<float>::infinity();
  const double bias = value.is_number() ? value.get<double>() : 1e9;
  return bias >= -100 && bias <= 100 ? static_cast<float>(bias) : NAN;
}

// {"7": 1.5}, or llama-server's [[7, 1.5]].
void read_logit_bias(Fields& fields, sample::Params* out) {
  const Json* biases = fields.take("logit_bias");
  if (biases == nullptr) return;
  if (!biases->is_structured() || biases->size() > sample::kMaxLogitBias) {
    return fields.fail("logit_bias", "'logit_bias' must be an object of at most " +
                                         std::to_string(sample::kMaxLogitBias) + " members.");
  }
  for (const auto& [key, value] : biases->items()) {
    const bool pair = biases->is_array() && value.is_array() && value.size() == 2;
    const int64_t id = pair ? whole_number(value[0]).value_or(-1) : -1;
    const Token token = biases->is_object() ? token_of(key)
                        : id <= INT32_MAX   ? static_cast<Token>(id)
                                            : -1;
    const float bias = bias_of(pair ? value[1] : value);
    if (token < 0 || std::isnan(bias)) {
      return fields.fail("logit_bias",
                         "'logit_bias' must map token ids to numbers from -100 to 100.");
    }
    out->logit_bias.emplace_back(token, bias);
  }
}

// Reads a list of token ids.
bool read_tokens(const Json& list, std::vector<Token>* out) {
  for (const Json& id : list) {
    const std::optional<int64_t> value = whole_number(id);
    if (!value || *value < 0 || *value > INT32_MAX) return false;
    out->push_back(static_cast<Token>(*value));
  }
  return !out->empty();
}

void read_stop_tokens(Fields& fields, GenerateRequest* out) {
  const Json* ids = fields.take("stop_token_ids");
  if (ids == nullptr || (ids->is_array() && ids->empty())) return;
  if (!ids->is_array() || ids->size() > static_cast<size_t>(generate::kMaxStops) ||
      !read_tokens(*ids, &out->options.stop_tokens)) {
    fields.fail("stop_token_ids", "'stop_token_ids' must be a list of at most " +
                                      std::to_string(generate::kMaxStops) + " token ids.");
  }
}

void read_stream(Fields& fields, GenerateRequest* out) {
  fields.read("stream", &out->stream);
  const Json* options = fields.take("stream_options");
  if (options == nullptr) return;
  Fields inner(*options, fields.text("stream_options"));
  inner.read("include_usage", &out->include_usage);
  inner.ignore({"include_obfuscation"});
  fields.fail_inside("stream_options", inner.finish());
  if (!out->stream) fields.fail("stream_options", "'stream_options' needs 'stream': true.");
}

// Reads the fields common to completions and chat.
void read_shared(Fields& fields, GenerateRequest* out) {
  Options& o = out->options;
  read_sampling(fields, out);
  fields.read("n_predict", -1, INT32_MAX, &o.max_tokens);  // llama-server's name
  fields.read("max_tokens", -1, INT32_MAX, &o.max_tokens);
  fields.read("n", 1, kMaxChoices, &out->n);
  fields.read("post_sampling_probs", &o.post_sampling_probs);
  fields.read("timings_per_token", &out->timings_per_token);
  read_stream(fields, out);
  read_stop(fields, "stop", out);
  read_constraint(fields, &o);
}

// Reads a text, a list of texts, a list of token ids, or a list of such lists.
void read_inputs(Fields& fields, const char* key, size_t most, std::vector<Input>* out) {
  const Json* value = fields.take(key);
  const std::string name = "'" + std::string(key) + "'";
  const auto refuse = [&] {
    fields.fail(key, name + " must be a text, a list of texts, or lists of token ids.");
  };
  if (value == nullptr) return fields.fail(key, "You must provide " + name + ".");
  if (const auto* text = value->get_ptr<const std::string*>()) {
    out->push_back({.text = *text});
    return;
  }
  if (!value->is_array() || value->empty()) return refuse();
  if (value->front().is_number()) {
    Input& one = out->emplace_back(Input{.is_tokens = true});
    if (!read_tokens(*value, &one.tokens)) refuse();
    return;
  }
  if (value->size() > most) {
    return fields.fail(key, name + " has " + std::to_string(value->size()) + " entries but " +
                                std::to_string(most) + " is the maximum.");
  }
  for (const Json& item : *value) {
    Input& one = out->emplace_back();
    if (const auto* text = item.get_ptr<const std::string*>()) {
      one.text = *text;
    } else if (one.is_tokens = item.is_array(); !one.is_tokens || !read_tokens(item, &one.tokens)) {
      return refuse();
    }
  }
}

// `logprobs` is a switch in chat requests, and the number of alternatives in completions.
// llama-server's `n_probs` is the number in both.
void read_logprobs(Fields& fields, GenerateRequest* out) {
  int32_t* logprobs = &out->options.logprobs;
  int32_t n_probs = 0;
  fields.read("n_probs", 0, kMaxTopLogprobs, &n_probs);
  if (n_probs > 0) *logprobs = n_probs;
  if (!out->chat) return fields.read("logprobs", 0, kMaxTopLogprobs, logprobs);
  bool wanted = false;
  int32_t top = 0;
  fields.read("logprobs", &wanted);
  fields.read("top_logprobs", 0, kMaxTopLogprobs, &top);
  if (top > 0 && !wanted) fields.fail("top_logprobs", "'top_logprobs' needs 'logprobs': true.");
  if (wanted) *logprobs = std::max(top, n_probs);
}

// `truncate`: true, or "END" as in Cohere's API. `truncate_prompt_tokens`: vLLM's.
void read_truncation(Fields& fields, int32_t* out) {
  if (const Json* truncate = fields.take("truncate")) {
    if (*truncate == true || *truncate == "END") {
      *out = -1;
    } else if (*truncate != false && *truncate != "NONE") {
      fields.fail("truncate", "'truncate' must be true, false, 'END' or 'NONE'.");
    }
  }
  const bool given = fields.take("truncate_prompt_tokens") != nullptr;
  fields.read("truncate_prompt_tokens", -1, INT32_MAX, out);
  if (given && *out == 0) {
    fields.fail("truncate_prompt_tokens", "'truncate_prompt_tokens' must be -1, or 1 or more.");
  }
}

// The text behind a gap that the output fills.
void read_suffix(Fields& fields, GenerateRequest* out) {
  std::string suffix;
  fields.read("suffix", &suffix);
  if (suffix.empty() || !fields.ok()) return;
  if (out->prompts.size() > 1 || out->prompts[0].is_tokens) {
    return fields.fail("suffix", "'suffix' needs a prompt that is one text.");
  }
  out->infill = {.prefix = std::move(out->prompts[0].text), .suffix = std::move(suffix)};
  out->prompts.clear();
}

}  // namespace

void ignore_foreign(Fields& fields) {
  fields.ignore({"model", "user", "store", "metadata", "service_tier", "safety_identifier",
                 "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention"});
}

void read_sampling(Fields& fields, GenerateRequest* out) {
  sample::Params& s = out->options.sampling;
  ignore_foreign(fields);
  fields.read("prompt_cache_key", &out->cache_key);
  if (out->cache_key.size() > kMaxCacheKey) {
    fields.fail("prompt_cache_key", "'prompt_cache_key' must have at most 256 bytes.");
  }
  fields.read("temperature", 0, kMaxFloat, &s.temperature);
  fields.read("top_p", 0, 1, &s.top_p);
  fields.read("top_k", 0, INT32_MAX, &s.top_k);
  fields.read("min_p", 0, 1, &s.min_p);
  fields.read("repeat_penalty", kMinFloat, kMaxFloat, &s.repeat_penalty);
  fields.read("repeat_last_n", -1, INT32_MAX, &s.penalty_last_n);
  fields.read("frequency_penalty", -kMaxFloat, kMaxFloat, &s.frequency_penalty);
  fields.read("presence_penalty", -kMaxFloat, kMaxFloat, &s.presence_penalty);
  fields.read("ignore_eos", &out->options.ignore_eos);
  fields.read("cache_prompt", &out->options.reuse_prefix);
  read_seed(fields, &s);
  read_stop_tokens(fields, out);
  read_logit_bias(fields, &s);
}

void read_stop(Fields& fields, const char* key, GenerateRequest* out) {
  const Json* stop = fields.take(key);
  if (stop == nullptr) return;
  const std::string name = "'" + std::string(key) + "'";
  const Json list = stop->is_string() ? Json::array({*stop}) : *stop;
  if (!list.is_array() || list.size() > static_cast<size_t>(generate::kMaxStops)) {
    return fields.fail(key, name + " must be a string, or a list of at most " +
                                std::to_string(generate::kMaxStops) + " strings.");
  }
  for (const Json& text : list) {
    const auto* one = text.get_ptr<const std::string*>();
    if (one == nullptr || one->empty() || one->size() > generate::kMaxStopBytes) {
      return fields.fail(key, name + " must hold strings of 1 to " +
                                  std::to_string(generate::kMaxStopBytes) + " bytes.");
    }
    out->options.stop.push_back(*one);
  }
  out->n_stop = out->options.stop.size();
}

Problem read_completion(std::string_view body, GenerateRequest* out) {
  Body fields(body);
  if (!fields.ok()) return fields.finish();
  out->options.max_tokens = 16;  // OpenAI's default
  read_inputs(fields, "prompt", kMaxChoices, &out->prompts);
  read_shared(fields, out);
  read_logprobs(fields, out);
  fields.refuse({"echo"});
  read_suffix(fields, out);
  int32_t best_of = 1;
  fields.read("best_of", 1, kMaxChoices, &best_of);
  if (best_of > out->n) fields.fail("best_of", "'best_of' above 'n' is not supported.");
  if (fields.ok() && static_cast<int64_t>(out->prompt_count()) * out->n > kMaxChoices) {
    fields.fail("n", "A request can have at most " + std::to_string(kMaxChoices) + " choices.");
  }
  return fields.finish();
}

Problem read_chat(std::string_view body, GenerateRequest* out) {
  Body fields(body);
  if (!fields.ok()) return fields.finish();
  out->chat = true;
  read_messages(fields, out);
  read_shared(fields, out);
  fields.read("max_completion_tokens", -1, INT32_MAX, &out->options.max_tokens);
  read_logprobs(fields, out);
  read_tools(fields, {}, out);
  fields.read("parallel_tool_calls", &out->parallel_tool_calls);
  read_template_fields(fields, out);
  std::string reasoning;
  fields.read("reasoning_format", {"auto", "deepseek", "none"}, &reasoning);
  out->inline_reasoning = reasoning == "none";
  fields.refuse({"functions", "function_call", "audio", "prediction", "web_search_options",
                 "moderation", "verbosity"});
  if (const Json* modalities = fields.take("modalities");
      modalities != nullptr && *modalities != Json::array({"text"})) {
    fields.fail("modalities", "'modalities' can only be ['text'].");
  }
  return fields.finish();
}

Problem read_apply_template(std::string_view body, GenerateRequest* out) {
  Body fields(body);
  if (!fields.ok()) return fields.finish();
  out->chat = true;
  ignore_foreign(fields);
  read_messages(fields, out);
  read_tools(fields, {}, out);
  fields.read("parallel_tool_calls", &out->parallel_tool_calls);
  read_template_fields(fields, out);
  return fields.finish();
}

Problem read_embedding(std::string_view body, EmbeddingRequest* out) {
  Body fields(body);
  if (!fields.ok()) return fields.finish();
  ignore_foreign(fields);
  read_inputs(fields, "input", kMaxInputs, &out->inputs);
  fields.read("dimensions", 1, model::kMaxWidth, &out->options.dimensions);
  std::string format;
  fields.read("encoding_format", {"float", "base64"}, &format);
  out->base64 = format == "base64";
  read_truncation(fields, &out->truncate);
  return fields.finish();
}

Problem read_rerank(std::string_view body, RerankRequest* out) {
  Body fields(body);
  if (!fields.ok()) return fields.finish();
  ignore_foreign(fields);
  if (fields.take("query") == nullptr) fields.fail("query", "You must provide 'query'.");
  fields.read("query", &out->query);
  const Json* documents = fields.take("documents");
  const Json* texts = fields.take("texts");
  out->tei = documents == nullptr && texts != nullptr;
  const char* key = out->tei ? "texts" : "documents";
  if (out->tei) documents = texts;
  if (documents == nullptr || !documents->is_array() || documents->empty() ||
      documents->size() > kMaxInputs) {
    fields.fail(key, "'" + std::string(key) + "' must be a list of 1 to " +
                         std::to_string(kMaxInputs) + " strings.");
  } else {
    for (const Json& each : *documents) {
      const auto text = each.is_object() ? each.find("text") : each.end();
      const Json& value = each.is_object() && text != each.end() ? *text : each;
      if (!value.is_string()) {
        fields.fail(key, "'" + std::string(key) + "' must hold strings.");
        break;
      }
      out->documents.push_back(*value.get_ptr<const std::string*>());
    }
  }
  fields.read("top_n", 1, INT32_MAX, &out->top_n);
  fields.read("return_documents", &out->return_documents);
  if (out->tei) fields.read("return_text", &out->return_documents);
  return fields.finish();
}

Problem read_tokenize(std::string_view body, TokenizeRequest* out) {
  Body fields(body);
  if (!fields.ok()) return fields.finish();
  ignore_foreign(fields);
  if (fields.take("content") == nullptr) fields.fail("content", "You must provide 'content'.");
  fields.read("content", &out->text);
  fields.read("add_special", &out->add_special);
  fields.read("parse_special", &out->parse_special);
  fields.read("with_pieces", &out->with_pieces);
  return fields.finish();
}

Problem read_detokenize(std::string_view body, std::vector<Token>* out) {
  Body fields(body);
  if (!fields.ok()) return fields.finish();
  ignore_foreign(fields);
  const Json* tokens = fields.take("tokens");
  const bool empty = tokens != nullptr && tokens->is_array() && tokens->empty();
  if (tokens == nullptr || !tokens->is_array() || (!empty && !read_tokens(*tokens, out))) {
    fields.fail("tokens", "'tokens' must be a list of token ids.");
  }
  return fields.finish();
}

Problem check_tokens(const GenerateRequest& request, int64_t n_vocab) {
  const auto known = [&](Token token) { return token < n_vocab; };
  for (const auto& [token, bias] : request.options.sampling.logit_bias) {
    if (known(token)) continue;
    return ApiError{.message = "A token of 'logit_bias' is not in the model's vocabulary.",
                    .param = "logit_bias"};
  }
  for (const Token token : request.options.stop_tokens) {
    if (known(token)) continue;
    return ApiError{.message = "A token of 'stop_token_ids' is not in the model's vocabulary.",
                    .param = "stop_token_ids"};
  }
  return {};
}

}  // namespace sluice::openai
