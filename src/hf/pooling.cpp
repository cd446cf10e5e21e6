// https://sbert.net/docs/package_reference/sentence_transformer/models.html
#include "hf/pooling.h"

#include <string>

#include "gguf/printable.h"
#include "hf/json.h"

namespace sluice::hf {
namespace {

// The values of GGUF's pooling_type.
constexpr std::pair<const char*, uint32_t> kModes[] = {
    {"pooling_mode_mean_tokens", 1}, {"pooling_mode_cls_token", 2}, {"pooling_mode_lasttoken", 3}};

Status unsupported(std::string_view file, std::string_view what) {
  return error(Code::kUnsupportedArchitecture, "%s: %s is not supported", std::string(file).c_str(),
               gguf::printable(what).c_str());
}

// The transformer, then its pooling; to make vectors of length one is the caller's choice.
Status check_modules(std::string_view text) {
  // A list by itself is no document of parse_json's.
  const std::string wrapped = std::string("{\"list\":").append(text).append("}");
  const Result<Json> document = parse_json(wrapped, "modules.json");
  if (!document.ok()) return document.status();
  const Json* modules = json_find(*document, "list");
  if (modules == nullptr || !modules->is_array()) {
    return error(Code::kBadHeader, "modules.json is no list");
  }
  for (const Json& module : *modules) {
    std::string_view type = json_string(module, "type").value_or("");
    type.remove_prefix(type.rfind('.') + 1);
    if (type != "Transformer" && type != "Pooling" && type != "Normalize") {
      return unsupported("modules.json", "the module " + std::string(type));
    }
    if (type == "Pooling" && json_string(module, "path") != "1_Pooling") {
      return unsupported("modules.json", "a Pooling elsewhere than in 1_Pooling");
    }
  }
  return {};
}

}  // namespace

Status write_pooling(const Directory& directory, std::string_view arch, gguf::MetadataWriter* out) {
  if (!directory.modules.empty()) SLUICE_RETURN_IF_ERROR(check_modules(directory.modules));
  if (directory.pooling.empty()) return {};
  const Result<Json> config = parse_json(directory.pooling, "1_Pooling/config.json");
  if (!config.ok()) return config.status();
  uint32_t found = 0;
  int n = 0;
  for (const auto& [key, value] : config->items()) {
    if (!key.starts_with("pooling_mode_") || value != true) continue;
    n++;
    for (const auto& [mode, type] : kModes) {
      if (key == mode) found = type;
    }
    if (found == 0) return unsupported("1_Pooling/config.json", key);
  }
  if (n != 1) return unsupported("1_Pooling/config.json", "more than one way of pooling, or none");
  out->number(std::string(arch) + ".pooling_type", found);
  return {};
}

}  // namespace sluice::hf
