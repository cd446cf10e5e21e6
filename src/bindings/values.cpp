#include "bindings/values.h"

#include <algorithm>
#include <cstdlib>

namespace sluice::bindings {
namespace {

template <typename T>
val copy(std::span<const T> values, const char* type) {
  return val::global(type).new_(val(emscripten::typed_memory_view(values.size(), values.data())));
}

sample::Params sampling_params(const val& o) {
  sample::Params p;
  const auto number = [&o](const char* key, auto fallback) {
    return static_cast<decltype(fallback)>(number_or(o, key, static_cast<double>(fallback)));
  };
  p.temperature = number("temperature", p.temperature);
  p.top_k = number("topK", p.top_k);
  p.top_p = number("topP", p.top_p);
  p.min_p = number("minP", p.min_p);
  p.repeat_penalty = number("repeatPenalty", p.repeat_penalty);
  p.frequency_penalty = number("frequencyPenalty", p.frequency_penalty);
  p.presence_penalty = number("presencePenalty", p.presence_penalty);
  p.penalty_last_n = number("penaltyLastN", p.penalty_last_n);
  // The seed is passed as text, because JavaScript numbers are exact only to 2^53.
  if (const std::string seed = text_or_none(o, "seed"); !seed.empty()) {
    p.seed = std::strtoull(seed.c_str(), nullptr, 10);
  }
  const val bias = field(o, "logitBias");
  if (bias.isUndefined() || bias.isNull()) return p;
  const val entries = val::global("Object").call<val>("entries", bias);
  const size_t n = std::min<size_t>(length_of(entries), sample::kMaxLogitBias + 1);
  for (size_t i = 0; i < n; ++i) {
    const val entry = entries[i];
    const std::string token = entry[size_t{0}].as<std::string>();
    p.logit_bias.emplace_back(std::atoi(token.c_str()), entry[size_t{1}].as<float>());
  }
  return p;
}

}  // namespace

val field(const val& object, const char* key) {
  return object[val(key)];
}
void put(val& object, const char* key, const val& value) {
  object.set(val(key), value);
}
void put(val& object, const char* key, double value) {
  put(object, key, val(value));
}
void put(val& object, const char* key, const std::string& value) {
  put(object, key, val(value));
}
void put_flag(val& object, const char* key, bool value) {
  put(object, key, val(value));
}
void put(val& object, const char* key, const session::ReportValue& value) {
  if (const double* number = std::get_if<double>(&value)) return put(object, key, *number);
  if (const bool* flag = std::get_if<bool>(&value)) return put_flag(object, key, *flag);
  if (const auto* text = std::get_if<std::string>(&value)) put(object, key, *text);
}
void push(val& list, const val& value) {
  list.call<void>("push", value);
}

size_t length_of(const val& list) {
  return field(list, "length").as<size_t>();
}

double number_or(const val& object, const char* key, double fallback) {
  const val value = field(object, key);
  return value.isNumber() ? value.as<double>() : fallback;
}

bool is_true(const val& object, const char* key) {
  return field(object, key).isTrue();
}

std::string text_or_none(const val& object, const char* key) {
  const val value = field(object, key);
  return value.isString() ? value.as<std::string>() : std::string();
}

std::string to_text(const val& object) {
  return val::global("JSON").call<std::string>("stringify", object);
}

val copy_out(std::span<const uint8_t> bytes) {
  return copy(bytes, "Uint8Array");
}
val copy_out(std::span<const Token> tokens) {
  return copy(tokens, "Int32Array");
}
val copy_out(std::span<const float> values) {
  return copy(values, "Float32Array");
}

void copy_in(const val& array, std::span<uint8_t> out) {
  if (out.empty()) return;
  const val bytes(emscripten::typed_memory_view(out.size(), out.data()));
  bytes.call<void>("set", array);
}

std::vector<Token> to_tokens(const val& array) {
  std::vector<Token> tokens(length_of(array));
  if (tokens.empty()) return tokens;
  const val view(emscripten::typed_memory_view(tokens.size(), tokens.data()));
  view.call<void>("set", array);
  return tokens;
}

std::string_view view_of(const AlignedBuffer& bytes) {
  return {bytes.as<char>(), static_cast<size_t>(bytes.size())};
}

tokenizer::EncodeOptions tokenize_options(unsigned how) {
  return {.add_special = (how & 1) != 0,
          .parse_special = (how & 2) != 0,
          .continuation = (how & 4) != 0,
          .literal_spans = (how & 8) != 0};
}

generate::Options answer_options(const val& o) {
  generate::Options out;
  out.sampling = sampling_params(o);
  const double most = number_or(o, "maxTokens", -1);
  out.max_tokens = most < 0 || most > INT32_MAX ? -1 : static_cast<int64_t>(most);
  const val stops = field(o, "stop");
  const size_t n = std::min<size_t>(length_of(stops), generate::kMaxStops + 1);
  for (size_t i = 0; i < n; ++i) out.stop.push_back(stops[i].as<std::string>());
  out.stop_tokens = to_tokens(field(o, "stopTokenIds"));
  out.logprobs = static_cast<int32_t>(number_or(o, "logprobs", -1));
  out.post_sampling_probs = is_true(o, "postSamplingProbs");
  out.special = !is_true(o, "skipSpecialTokens");
  out.ignore_eos = is_true(o, "ignoreEos");
  out.reuse_prefix = is_true(o, "cachePrompt");
  const val constraint = field(o, "constraint");  // { kind, text, compact }
  if (!constraint.isUndefined() && !constraint.isNull()) {
    out.constraint = generate::Constraint();
    out.constraint->kind = static_cast<grammar::Kind>(
        std::clamp(static_cast<int>(number_or(constraint, "kind", 3)), 0, 4));
    out.constraint->text = text_or_none(constraint, "text");
    out.constraint->options.compact = !field(constraint, "compact").isFalse();
  }
  return out;
}

const char* finish_name(generate::Finish finish) {
  switch (finish) {
    case generate::Finish::kStop:
      return "stop";
    case generate::Finish::kLength:
    case generate::Finish::kContext:
      return "length";
    case generate::Finish::kCancelled:
      return "cancelled";
    case generate::Finish::kNone:
    case generate::Finish::kFailed:
      break;
  }
  return "";
}

}  // namespace sluice::bindings
