#include "ollama/request.h"

#include <algorithm>
#include <string>

#include "jinja/json_text.h"
#include "openai/body.h"

namespace sluice::ollama {
namespace {

using openai::ApiError;
using openai::Body;
using openai::Fields;
using openai::GenerateRequest;
using openai::Json;
using openai::Problem;

// Options that the OpenAI-compatible API has under the same name.
constexpr const char* kSameOptions[] = {"temperature",
                                        "top_k",
                                        "top_p",
                                        "min_p",
                                        "stop",
                                        "repeat_penalty",
                                        "repeat_last_n",
                                        "presence_penalty",
                                        "frequency_penalty"};

// A list of texts in base64, or nothing.
Problem check_images(const Json* images) {
  if (images == nullptr || images->is_null()) return {};
  const bool texts =
      images->is_array() && std::all_of(images->begin(), images->end(),
                                        [](const Json& each) { return each.is_string(); });
  if (texts) return {};
  return ApiError{.message = "'images' must be a list of pictures in base64.", .param = "images"};
}

// Appends a member to the text of an object that is not closed yet.
void append(std::string* out, std::string_view key, std::string_view value) {
  if (value.empty()) return;
  if (out->back() != '{') *out += ',';
  *out += json_quote(key);
  *out += ':';
  *out += value;
}

bool has_items(const Json* list) {
  return list != nullptr && list->is_array() && !list->empty();
}

Problem read_options(Fields& fields, std::string* out) {
  const Json* given = fields.take("options");
  std::string_view limit = "-1";
  const std::string_view text = fields.text("options");
  if (given != nullptr && !given->is_object()) {
    return ApiError{.message = "'options' must be an object.", .param = "options"};
  }
  if (given != nullptr) {
    Fields options(*given, text);
    for (const char* key : kSameOptions) {
      if (options.take(key) != nullptr) append(out, key, options.text(key));
    }
    int64_t most = -1;
    options.read("num_predict", INT32_MIN, INT32_MAX, &most);
    if (most > 0) limit = options.text("num_predict");
    const Json* seed = options.take("seed");
    const std::string_view number = options.text("seed");
    if (seed != nullptr && number != "-1") append(out, "seed", number);
    options.ignore({"num_ctx", "num_batch", "num_gpu", "main_gpu", "num_thread", "num_keep", "numa",
                    "low_vram", "f16_kv", "logits_all", "vocab_only", "use_mmap", "use_mlock",
                    "embedding_only", "penalize_newline", "mirostat_tau", "mirostat_eta"});
    options.refuse("mirostat", 0);
    options.refuse("tfs_z", 1);
    options.refuse("typical_p", 1);
    if (Problem problem = options.finish()) return problem;
  }
  append(out, "max_tokens", limit);
  return {};
}

// "json", or a JSON schema.
Problem read_format(Fields& fields, std::string* out) {
  const Json* format = fields.take("format");
  if (format == nullptr) return {};
  const auto* name = format->get_ptr<const std::string*>();
  if (name != nullptr && name->empty()) return {};
  if (name != nullptr && *name == "json") {
    append(out, "json_schema", R"({"type":"object"})");
  } else if (format->is_object()) {
    append(out, "json_schema", fields.text("format"));
  } else {
    return ApiError{.message = "'format' must be 'json' or a JSON schema.", .param = "format"};
  }
  return {};
}

// Templates have several names for it.
Problem read_think(Fields& fields, std::string* out) {
  const Json* think = fields.take("think");
  if (think == nullptr) return {};
  const auto* level = think->get_ptr<const std::string*>();
  const auto is = [&](const char* name) { return level != nullptr && *level == name; };
  if (!think->is_boolean() && !is("low") && !is("medium") && !is("high") && !is("max")) {
    return ApiError{.message = "'think' must be true, false, 'low', 'medium', 'high' or 'max'.",
                    .param = "think"};
  }
  const bool on = level != nullptr || think->get<bool>();
  append(out, "chat_template_kwargs",
         on ? R"({"enable_thinking":true,"thinking":true})"
            : R"({"enable_thinking":false,"thinking":false})");
  if (level != nullptr) append(out, "reasoning_effort", fields.text("think"));
  return {};
}

// A switch and a number here, one number in completions.
void read_logprobs(Fields& fields, bool chat, std::string* out) {
  bool wanted = false;
  fields.read("logprobs", &wanted);
  int32_t top = 0;
  fields.read("top_logprobs", 0, openai::kMaxTopLogprobs, &top);
  if (!wanted) return;
  append(out, "logprobs", chat ? "true" : std::to_string(top));
  if (chat) append(out, "top_logprobs", std::to_string(top));
}

// The fields of both kinds of requests.
Problem read_shared(Body& fields, bool chat, GenerateRequest* out, std::string* rest) {
  out->stream = true;
  fields.read("stream", &out->stream);
  fields.ignore({"model", "keep_alive", "truncate", "shift"});
  read_logprobs(fields, chat, rest);
  if (Problem problem = read_options(fields, rest)) return problem;
  return read_format(fields, rest);
}

// OpenAI's form of messages: the name of a tool is its `name`.
Problem rewrite_messages(const Json& given, std::string_view text, std::string* out) {
  *out = "[";
  size_t n = 0;
  for (const std::string_view message : json_items(text)) {
    const Json& read = given[n++];
    if (out->size() > 1) *out += ',';
    if (json_type(message) != JsonType::kObject) {
      *out += message;
      continue;
    }
    const auto found = read.find("images");
    const Json* images = found == read.end() ? nullptr : &*found;
    if (Problem problem = check_images(images)) return problem;
    *out += '{';
    for (const auto& [name, value] : json_members(message)) {
      if (name == "images" && !has_items(images)) continue;
      append(out, name == "tool_name" ? "name" : name, value);
    }
    *out += '}';
  }
  *out += ']';
  return {};
}

Problem read_rewritten(std::string text, GenerateRequest* out, bool chat) {
  const bool stream = out->stream;
  text += '}';
  Problem problem = chat ? openai::read_chat(text, out) : openai::read_completion(text, out);
  out->stream = stream;
  return problem;
}

Problem read_vectors(Body& fields, std::string rest, openai::EmbeddingRequest* out) {
  fields.ignore({"model", "keep_alive", "options"});
  if (Problem problem = fields.finish()) return problem;
  append(&rest, "truncate", "true");
  return openai::read_embedding(rest + '}', out);
}

}  // namespace

Problem read_chat(std::string_view body, GenerateRequest* out) {
  Body fields(body);
  if (!fields.ok()) return fields.first_problem();
  std::string rest = "{", rewritten;
  if (Problem problem = read_shared(fields, true, out, &rest)) return problem;
  if (Problem problem = read_think(fields, &rest)) return problem;
  const Json* messages = fields.take("messages");
  append(&rest, "tools", fields.take("tools") == nullptr ? "" : fields.text("tools"));
  if (Problem problem = fields.finish()) return problem;
  if (messages == nullptr || (messages->is_array() && messages->empty())) return {};
  if (messages->is_array()) {
    Problem problem = rewrite_messages(*messages, fields.text("messages"), &rewritten);
    if (problem) return problem;
  } else {
    rewritten = fields.text("messages");
  }
  append(&rest, "messages", rewritten);
  return read_rewritten(std::move(rest), out, /*chat=*/true);
}

Problem read_generate(std::string_view body, GenerateRequest* out) {
  Body fields(body);
  if (!fields.ok()) return fields.first_problem();
  std::string prompt, suffix, system;
  bool raw = false;
  fields.read("prompt", &prompt);
  fields.read("suffix", &suffix);
  fields.read("system", &system);
  fields.read("raw", &raw);
  fields.refuse({"template", "context", "width", "height", "steps"});
  const Json* images = fields.take("images");
  if (Problem problem = check_images(images)) return problem;
  const bool plain = raw || !suffix.empty();
  if (plain && has_items(images)) {
    return ApiError{.message = "Pictures need the chat template: 'raw' and 'suffix' omit it.",
                    .param = "images"};
  }
  std::string rest = "{";
  if (Problem problem = read_shared(fields, !plain, out, &rest)) return problem;
  std::string thinking = "{";
  if (Problem problem = read_think(fields, plain ? &thinking : &rest)) return problem;
  if (Problem problem = fields.finish()) return problem;
  if (prompt.empty() && suffix.empty() && !has_items(images)) return {};
  if (plain) {
    append(&rest, "prompt", prompt.empty() ? R"("")" : fields.text("prompt"));
    append(&rest, "suffix", fields.text("suffix"));
    return read_rewritten(std::move(rest), out, /*chat=*/false);
  }
  std::string messages = "[";
  if (!system.empty()) {
    messages += R"({"role":"system","content":)" + std::string(fields.text("system")) + "},";
  }
  messages += R"({"role":"user","content":)" +
              (prompt.empty() ? R"("")" : std::string(fields.text("prompt")));
  if (has_items(images)) messages += R"(,"images":)" + std::string(fields.text("images"));
  messages += "}]";
  append(&rest, "messages", messages);
  return read_rewritten(std::move(rest), out, /*chat=*/true);
}

Problem read_embed(std::string_view body, openai::EmbeddingRequest* out) {
  Body fields(body);
  if (!fields.ok()) return fields.first_problem();
  bool truncate = true;
  fields.read("truncate", &truncate);
  std::string rest = "{";
  if (fields.take("input") != nullptr) append(&rest, "input", fields.text("input"));
  if (fields.take("dimensions") != nullptr) append(&rest, "dimensions", fields.text("dimensions"));
  Problem problem = read_vectors(fields, std::move(rest), out);
  if (!truncate) out->truncate = 0;
  return problem;
}

Problem read_embeddings(std::string_view body, openai::EmbeddingRequest* out) {
  Body fields(body);
  if (!fields.ok()) return fields.first_problem();
  std::string prompt, rest = "{";
  fields.read("prompt", &prompt);
  if (fields.take("prompt") == nullptr) fields.fail("prompt", "You must provide 'prompt'.");
  append(&rest, "input", fields.text("prompt"));
  return read_vectors(fields, std::move(rest), out);
}

Problem read_show(std::string_view body) {
  Body fields(body);
  if (!fields.ok()) return fields.first_problem();
  fields.ignore({"model", "name", "verbose", "system", "template", "options"});
  return fields.finish();
}

}  // namespace sluice::ollama
