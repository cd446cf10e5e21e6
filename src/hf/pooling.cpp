// Reads pooling and Dense modules.
// Format: https://sbert.net/docs/package_reference/sentence_transformer/models.html
#include "hf/pooling.h"

#include <algorithm>
#include <iterator>
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

// A name that stays inside the directory and is safe to print.
bool plain_name(std::string_view name) {
  return !name.empty() && name.size() <= 64 && name[0] != '.' &&
         name.find_first_not_of(
             "0123456789_-.abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") ==
             std::string_view::npos;
}

// Checks the other values in a Dense module's config.json, besides sizes and bias.
Status check_dense(const Json& config, const std::string& file) {
  for (const auto& [key, value] : config.items()) {
    if (key == "in_features" || key == "out_features" || key == "bias") continue;
    const std::string_view text = json_string(config, key.c_str()).value_or("");
    const bool known = (key == "activation_function" && text.ends_with(".Identity")) ||
                       (key == "module_input_name" && text == "sentence_embedding") ||
                       (key == "module_output_name" && value.is_null());
    if (!known) return unsupported(file, "the value of " + key);
  }
  return {};
}

Status add_dense(const DenseModule& module, uint32_t file, const std::string& name, Model* model,
                 gguf::MetadataWriter* out) {
  const std::string from = std::string(module.folder) + "/config.json";
  if (module.config.empty()) return error(Code::kBadHeader, "%s is missing", from.c_str());
  const Result<Json> config = parse_json(module.config, from.c_str());
  if (!config.ok()) return config.status();
  SLUICE_RETURN_IF_ERROR(check_dense(*config, from));
  const int64_t columns = json_int(*config, "in_features").value_or(0);
  const int64_t rows = json_int(*config, "out_features").value_or(0);
  const bool bias = json_bool(*config, "bias").value_or(true);  // the default of torch.nn.Linear
  size_t found = 0;
  for (const SafetensorsEntry& e : module.weights.entries) {
    const bool weight = e.name == "linear.weight";
    if (!weight && !(bias && e.name == "linear.bias")) {
      return unsupported(std::string(module.folder) + "/model.safetensors", "the tensor " + e.name);
    }
    std::vector<uint64_t> shape = {static_cast<uint64_t>(rows)};
    if (weight) shape.push_back(static_cast<uint64_t>(columns));
    if (e.shape != shape) {
      return error(Code::kBadShape, "%s does not match the shape of %s", from.c_str(),
                   e.name.c_str());
    }
    Result<gguf::Tensor> t = describe_tensor(e);
    if (!t.ok()) return t.status();
    t->file = file;
    SLUICE_RETURN_IF_ERROR(
        add_tensor(name + (weight ? ".weight" : ".bias"), *t, &model->header, out));
    found++;
  }
  if (found != (bias ? 2U : 1U)) {
    return error(Code::kMissingTensor, "%s/model.safetensors lacks a tensor of its config.json",
                 std::string(module.folder).c_str());
  }
  return {};
}

Status write_mode(std::string_view text, std::string_view arch, gguf::MetadataWriter* out) {
  const Result<Json> config = parse_json(text, "1_Pooling/config.json");
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

}  // namespace

// The order is transformer, pooling, dense layers. Normalization is the caller's choice.
Result<std::vector<std::string>> dense_folders(std::string_view text) {
  // parse_json accepts objects only, so the list is wrapped in one.
  const std::string wrapped = std::string("{\"list\":").append(text).append("}");
  const Result<Json> document = parse_json(wrapped, "modules.json");
  if (!document.ok()) return document.status();
  const Json* modules = json_find(*document, "list");
  if (modules == nullptr || !modules->is_array()) {
    return error(Code::kBadHeader, "modules.json is not a list");
  }
  constexpr std::string_view kOrder[] = {"Transformer", "Pooling", "Dense", "Normalize"};
  std::vector<std::string> folders;
  size_t last = 0;
  for (const Json& module : *modules) {
    std::string_view type = json_string(module, "type").value_or("");
    type.remove_prefix(type.rfind('.') + 1);
    const std::string_view path = json_string(module, "path").value_or("");
    const auto at =
        static_cast<size_t>(std::find(std::begin(kOrder), std::end(kOrder), type) - kOrder);
    const bool dense = type == "Dense";
    if (at == std::size(kOrder) || at < last || (dense && last == 0)) {
      return unsupported("modules.json", "the module " + std::string(type) + " there");
    }
    last = at;
    if (type == "Pooling" && path != "1_Pooling") {
      return unsupported("modules.json", "a Pooling module outside of 1_Pooling");
    }
    if (!dense) continue;
    if (!plain_name(path) || folders.size() == kMaxDense) {
      return unsupported("modules.json", "the Dense module in \"" + std::string(path) + "\"");
    }
    folders.emplace_back(path);
  }
  return folders;
}

Status write_pooling(const Directory& directory, std::string_view arch, Model* model,
                     gguf::MetadataWriter* out) {
  const auto first = static_cast<uint32_t>(directory.shards.size());
  for (uint32_t i = 0; i < directory.dense.size(); i++) {
    SLUICE_RETURN_IF_ERROR(
        add_dense(directory.dense[i], first + i, "dense_" + std::to_string(2 + i), model, out));
  }
  return directory.pooling.empty() ? Status() : write_mode(directory.pooling, arch, out);
}

}  // namespace sluice::hf
