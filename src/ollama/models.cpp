#include "ollama/models.h"

#include <cstdio>

#include "jinja/json_text.h"
#include "ollama/response.h"

namespace sluice::ollama {
namespace {

// 7615616512 is "7.6B".
std::string size_text(uint64_t parameters) {
  constexpr uint64_t kThousand = 1000;
  uint64_t unit = kThousand;
  const char* letter = "K";
  if (parameters >= kThousand * kThousand) unit *= kThousand, letter = "M";
  if (parameters >= kThousand * kThousand * kThousand) unit *= kThousand, letter = "B";
  const uint64_t tenths = (parameters + unit / 20) / (unit / 10);
  return std::to_string(tenths / 10) + '.' + std::to_string(tenths % 10) + letter;
}

// Clients expect the 64 digits of a hash. This one tells models apart; it is not of the file.
std::string digest_of(const ModelFacts& model) {
  const std::string text = model.name + '\n' + model.quantization + '\n' +
                           std::to_string(model.bytes) + '\n' + std::to_string(model.parameters);
  std::string out;
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  while (out.size() < 64) {
    for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
    char digits[17];
    std::snprintf(digits, sizeof digits, "%08x%08x", static_cast<unsigned>(hash >> 32),
                  static_cast<unsigned>(hash));
    out += digits;
  }
  return out;
}

std::string details_json(const ModelFacts& model) {
  const std::string family = json_quote(model.architecture);
  return "\"details\":{\"parent_model\":\"\",\"format\":\"gguf\",\"family\":" + family +
         ",\"families\":[" + family + "],\"parameter_size\":\"" + size_text(model.parameters) +
         "\",\"quantization_level\":" + json_quote(model.quantization) + '}';
}

// The members of the one model in a list, without the closing brace.
std::string listed_model(const ModelFacts& model) {
  const std::string name = json_quote(model.name);
  return "{\"models\":[{\"name\":" + name + ",\"model\":" + name + ",\"modified_at\":\"" +
         time_text(model.created) + "\",\"size\":" + std::to_string(model.bytes) +
         ",\"digest\":\"" + digest_of(model) + "\"," + details_json(model);
}

}  // namespace

std::string tags_body(const ModelFacts& model) {
  return listed_model(model) + "}]}";
}

std::string running_body(const ModelFacts& model) {
  return listed_model(model) +
         ",\"expires_at\":\"9999-12-31T23:59:59Z\",\"size_vram\":0,\"context_length\":" +
         std::to_string(model.n_ctx) + "}]}";
}

std::string show_body(const ModelFacts& model) {
  std::string info = "{\"general.architecture\":" + json_quote(model.architecture) +
                     ",\"general.parameter_count\":" + std::to_string(model.parameters);
  const auto add = [&](const char* key, int64_t value) {
    if (value <= 0) return;
    info += ',' + json_quote(model.architecture + '.' + key) + ':' + std::to_string(value);
  };
  add("context_length", model.n_ctx_train);
  add("embedding_length", model.n_embd);
  add("block_count", model.n_layer);
  add("attention.head_count", model.n_head);
  add("attention.head_count_kv", model.n_head_kv);
  add("vocab_size", model.n_vocab);
  std::string capabilities;
  const auto can = [&](bool able, const char* name) {
    if (able) capabilities += (capabilities.empty() ? "\"" : ",\"") + std::string(name) + '"';
  };
  can(model.completes, "completion");
  can(model.tools, "tools");
  can(model.inserts, "insert");
  can(model.sees, "vision");
  can(model.embeds, "embedding");
  can(model.thinks, "thinking");
  return "{\"license\":\"\",\"modelfile\":\"\",\"parameters\":\"num_ctx " +
         std::to_string(model.n_ctx) + "\",\"template\":" + json_quote(model.chat_template) +
         ",\"system\":\"\"," + details_json(model) + ",\"model_info\":" + info +
         "},\"capabilities\":[" + capabilities + "],\"modified_at\":\"" + time_text(model.created) +
         "\"}";
}

std::string version_body() {
  return std::string("{\"version\":\"") + kApiVersion + "\",\"sluice\":\"" SLUICE_VERSION "\"}";
}

}  // namespace sluice::ollama
