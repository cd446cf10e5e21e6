// Reads requests from JSON.
#include "serve/request.h"

#include <charconv>

#include "serve/fields.h"

namespace sluice::serve {
namespace {

using generate::Options;

// Parameters of OpenAI's API that cannot change the output of a local model.
void ignore_foreign(Fields& fields) {
  fields.ignore({"model", "user", "store", "metadata", "parallel_tool_calls", "service_tier",
                 "safety_identifier", "prompt_cache_key", "prompt_cache_options",
                 "prompt_cache_retention"});
}

Problem wrong(std::string param, std::string message) {
  return ApiError{.message = std::move(message), .param = std::move(param)};
}

void read_seed(Fields& fields, sample::Params* out) {
  const Json* seed = fields.take("seed");
  if (seed == nullptr) return;
  const auto* natural = seed->get_ptr<const Json::number_unsigned_t*>();
  const auto* whole = seed->get_ptr<const Json::number_integer_t*>();
  if (natural != nullptr) {
    out->seed = *natural;
  } else if (whole != nullptr) {
    out->seed = static_cast<uint64_t>(*whole);
  } else {
    fields.fail("seed", "'seed' must be a whole number.");
  }
}

void read_stop(Fields& fields, Options* out) {
  const Json* stop = fields.take("stop");
  if (stop == nullptr) return;
  if (const auto* one = stop->get_ptr<const std::string*>()) {
    out->stop.push_back(*one);
    return;
  }
  if (!stop->is_array() || stop->size() > static_cast<size_t>(generate::kMaxStops)) {
    return fields.fail("stop", "'stop' must be a string, or a list of at most " +
                                   std::to_string(generate::kMaxStops) + " strings.");
  }
  for (const Json& text : *stop) {
    if (!text.is_string()) return fields.fail("stop", "'stop' must hold strings.");
    out->stop.push_back(*text.get_ptr<const std::string*>());
  }
}

void read_logit_bias(Fields& fields, sample::Params* out) {
  const Json* biases = fields.take("logit_bias");
  if (biases == nullptr) return;
  if (!biases->is_object() || biases->size() > sample::kMaxLogitBias) {
    return fields.fail("logit_bias", "'logit_bias' must be an object of at most " +
                                         std::to_string(sample::kMaxLogitBias) + " members.");
  }
  for (const auto& [key, value] : biases->items()) {
    Token token = 0;
    const char* end = key.data() + key.size();
    const auto [rest, bad] = std::from_chars(key.data(), end, token);
    const double bias = value.is_number() ? value.get<double>() : 1e9;
    if (bad != std::errc() || rest != end || bias < -100 || bias > 100) {
      return fields.fail("logit_bias",
                         "'logit_bias' must map token ids to numbers from -100 to 100.");
    }
    out->logit_bias.emplace_back(token, static_cast<float>(bias));
  }
}

// Reads the parameters common to completions and chat.
void read_shared(Fields& fields, GenerateRequest* out) {
  sample::Params& s = out->options.sampling;
  ignore_foreign(fields);
  fields.read("temperature", &s.temperature);
  fields.read("top_p", &s.top_p);
  fields.read("top_k", 0, INT32_MAX, &s.top_k);
  fields.read("min_p", &s.min_p);
  fields.read("repeat_penalty", &s.repeat_penalty);
  fields.read("frequency_penalty", &s.frequency_penalty);
  fields.read("presence_penalty", &s.presence_penalty);
  fields.read("max_tokens", 0, INT32_MAX, &out->options.max_tokens);
  fields.read("n", 1, kMaxChoices, &out->n);
  fields.read("stream", &out->stream);
  fields.read("post_sampling_probs", &out->options.post_sampling_probs);
  read_seed(fields, &s);
  read_stop(fields, &out->options);
  read_logit_bias(fields, &s);
  if (const Json* options = fields.take("stream_options")) {
    Fields inner(*options);
    inner.read("include_usage", &out->include_usage);
    inner.ignore({"include_obfuscation"});
    if (const Problem problem = inner.finish())
      fields.fail("stream_options", "'stream_options': " + problem->message);
    if (!out->stream) fields.fail("stream_options", "'stream_options' needs 'stream': true.");
  }
}

// Reads a list of token ids.
bool read_tokens(const Json& list, std::vector<Token>* out) {
  for (const Json& id : list) {
    const auto* value = id.get_ptr<const Json::number_unsigned_t*>();
    if (value == nullptr || *value > INT32_MAX) return false;
    out->push_back(static_cast<Token>(*value));
  }
  return !out->empty();
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

constexpr const char* kAnyObject = R"({"type":"object"})";

void read_format(Fields& fields, Options* out) {
  const Json* format = fields.take("response_format");
  if (format == nullptr) return;
  Fields inner(*format);
  std::string type;
  inner.read("type", &type);
  const Json* named = inner.take("json_schema");
  Problem problem = inner.finish();
  if (!problem && type == "json_object") {
    out->constraint = {grammar::Kind::kJsonSchema, kAnyObject, {}};
  } else if (!problem && type == "json_schema") {
    const Json* schema = nullptr;
    if (named != nullptr) {
      Fields members(*named);
      members.ignore({"name", "description", "strict"});
      schema = members.take("schema");
      problem = members.finish();
    }
    const bool whole = schema != nullptr && (schema->is_object() || schema->is_boolean());
    if (!problem && !whole) problem = wrong("", "'json_schema.schema' must be a JSON schema.");
    if (whole) out->constraint = {grammar::Kind::kJsonSchema, to_text(*schema), {}};
  } else if (!problem && type != "text") {
    problem = wrong("", "The type must be 'text', 'json_object' or 'json_schema'.");
  }
  if (problem) fields.fail("response_format", "'response_format': " + problem->message);
}

void read_messages(Fields& fields, GenerateRequest* out) {
  const Json* messages = fields.take("messages");
  if (messages == nullptr || !messages->is_array() || messages->empty()) {
    return fields.fail("messages", "'messages' must be a list of at least one message.");
  }
  for (const Json& message : *messages) {
    const auto role = message.is_object() ? message.find("role") : message.end();
    if (!message.is_object() || role == message.end() || !role->is_string()) {
      return fields.fail("messages", "Each of 'messages' must be an object with a role.");
    }
  }
  out->messages = to_text(*messages);
}

// Tool calls would have to be parsed from the model's output, which this server does not do.
void refuse_tools(Fields& fields) {
  const Json* choice = fields.take("tool_choice");
  const Json* tools = fields.take("tools");
  const bool none = choice != nullptr && *choice == "none";
  if (choice != nullptr && !none && *choice != "auto") {
    return fields.fail("tool_choice", "'tool_choice' can only be 'none' or 'auto' here.");
  }
  if (tools != nullptr && !none && (!tools->is_array() || !tools->empty())) {
    fields.fail("tools", "'tools' are not supported by this server.");
  }
}

void read_chat_logprobs(Fields& fields, Options* out) {
  bool wanted = false;
  int32_t top = 0;
  fields.read("logprobs", &wanted);
  fields.read("top_logprobs", 0, kMaxTopLogprobs, &top);
  if (top > 0 && !wanted) fields.fail("top_logprobs", "'top_logprobs' needs 'logprobs': true.");
  if (wanted) out->logprobs = top;
}

}  // namespace

ApiError api_error(const Status& status) {
  ApiError out{.message = status.message()};
  switch (status.code()) {
    case Code::kPromptTooLong:
    case Code::kContextFull:
      out.code = "context_length_exceeded";
      break;
    case Code::kInvalidArgument:
    case Code::kPromptEmpty:
    case Code::kGrammarSyntax:
    case Code::kGrammarLeftRecursion:
    case Code::kGrammarTooLarge:
    case Code::kSchemaUnsupported:
    case Code::kChatTemplate:
      out.code = code_name(status.code());
      break;
    case Code::kAborted:
      out.status = 503;
      out.code = "unavailable";
      break;
    default:
      out.status = 500;
      out.code = code_name(status.code());
  }
  return out;
}

Problem read_completion(std::string_view body, GenerateRequest* out) {
  const Result<Json> json = parse_body(body);
  if (!json.ok()) return api_error(json.status());
  Fields fields(*json);
  out->options.max_tokens = 16;  // OpenAI's default
  read_inputs(fields, "prompt", kMaxChoices, &out->prompts);
  read_shared(fields, out);
  fields.read("logprobs", 0, kMaxTopLogprobs, &out->options.logprobs);
  fields.refuse({"echo", "suffix"});
  int32_t best_of = 1;
  fields.read("best_of", 1, kMaxChoices, &best_of);
  if (best_of > out->n) fields.fail("best_of", "'best_of' above 'n' is not supported.");
  if (fields.ok() && static_cast<int64_t>(out->prompts.size()) * out->n > kMaxChoices) {
    fields.fail("n", "A request can have at most " + std::to_string(kMaxChoices) + " choices.");
  }
  return fields.finish();
}

Problem read_chat(std::string_view body, GenerateRequest* out) {
  const Result<Json> json = parse_body(body);
  if (!json.ok()) return api_error(json.status());
  Fields fields(*json);
  out->chat = true;
  read_messages(fields, out);
  read_shared(fields, out);
  fields.read("max_completion_tokens", 0, INT32_MAX, &out->options.max_tokens);
  read_chat_logprobs(fields, &out->options);
  refuse_tools(fields);
  read_format(fields, &out->options);
  if (const Json* variables = fields.take("chat_template_kwargs")) {
    if (!variables->is_object()) {
      fields.fail("chat_template_kwargs", "'chat_template_kwargs' must be an object.");
    }
    out->variables = to_text(*variables);
  }
  std::string thoughts = "deepseek";
  fields.read("reasoning_format", &thoughts);
  if (thoughts != "deepseek" && thoughts != "none") {
    fields.fail("reasoning_format", "'reasoning_format' must be 'deepseek' or 'none'.");
  }
  out->inline_reasoning = thoughts == "none";
  fields.read("parse_special_in_content", &out->parse_special_in_content);
  fields.refuse({"functions", "function_call", "audio", "prediction", "web_search_options",
                 "moderation", "reasoning_effort", "verbosity", "chat_template"});
  if (const Json* modalities = fields.take("modalities");
      modalities != nullptr && *modalities != Json::array({"text"})) {
    fields.fail("modalities", "'modalities' can only be ['text'].");
  }
  return fields.finish();
}

Problem read_embedding(std::string_view body, EmbeddingRequest* out) {
  const Result<Json> json = parse_body(body);
  if (!json.ok()) return api_error(json.status());
  Fields fields(*json);
  ignore_foreign(fields);
  read_inputs(fields, "input", kMaxInputs, &out->inputs);
  fields.read("dimensions", 1, model::kMaxWidth, &out->options.dimensions);
  std::string format = "float";
  fields.read("encoding_format", &format);
  if (format != "float" && format != "base64") {
    fields.fail("encoding_format", "'encoding_format' must be 'float' or 'base64'.");
  }
  out->base64 = format == "base64";
  return fields.finish();
}

Problem read_tokenize(std::string_view body, TokenizeRequest* out) {
  const Result<Json> json = parse_body(body);
  if (!json.ok()) return api_error(json.status());
  Fields fields(*json);
  ignore_foreign(fields);
  if (fields.take("content") == nullptr) fields.fail("content", "You must provide 'content'.");
  fields.read("content", &out->text);
  fields.read("add_special", &out->add_special);
  fields.read("parse_special", &out->parse_special);
  return fields.finish();
}

Problem read_detokenize(std::string_view body, std::vector<Token>* out) {
  const Result<Json> json = parse_body(body);
  if (!json.ok()) return api_error(json.status());
  Fields fields(*json);
  ignore_foreign(fields);
  const Json* tokens = fields.take("tokens");
  const bool empty = tokens != nullptr && tokens->is_array() && tokens->empty();
  if (tokens == nullptr || !tokens->is_array() || (!empty && !read_tokens(*tokens, out))) {
    fields.fail("tokens", "'tokens' must be a list of token ids.");
  }
  return fields.finish();
}

}  // namespace sluice::serve
