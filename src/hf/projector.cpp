#include "hf/projector.h"

#include <cmath>

#include "gguf/printable.h"
#include "hf/architecture.h"

namespace sluice::hf {
namespace {

const Architecture* find_projector(const Json& config) {
  const std::string_view type = json_string(config, "model_type").value_or("");
  for (const Architecture& row : projector_architectures()) {
    if (type == row.model_type && json_find(config, "vision_config") != nullptr) return &row;
  }
  return nullptr;
}

std::vector<float> colours(ConfigReader& r, const char* key, std::array<float, 3> fallback) {
  const Json* preprocessor = json_find(r.config(), kPreprocessor);
  const Json* list = preprocessor == nullptr ? nullptr : json_find(*preprocessor, key);
  if (list == nullptr) return {fallback.begin(), fallback.end()};
  std::vector<float> out;
  for (size_t i = 0; list->is_array() && i < list->size(); i++) {
    const Json& x = (*list)[i];
    if (x.is_number()) out.push_back(x.get<float>());
  }
  if (out.size() == 3) return out;
  r.fail(error(Code::kBadHeader, "preprocessor_config.json: %s does not have three numbers", key));
  return {fallback.begin(), fallback.end()};
}

}  // namespace

void read_projection_dim(ConfigReader& r) {
  const Json* whole = json_find(r.config(), kWhole);
  const Json* text = json_find(*whole, "text_config");
  const std::optional<int64_t> n =
      json_int(text != nullptr && text->is_object() ? *text : *whole, "hidden_size");
  if (!n || *n < 1 || *n > INT32_MAX) return r.impossible("the text model's hidden_size");
  r.put("projection_dim", *n);
}

void read_colours(ConfigReader& r, std::array<float, 3> mean, std::array<float, 3> deviation) {
  r.put_list("image_mean", colours(r, "image_mean", mean));
  r.put_list("image_std", colours(r, "image_std", deviation));
}

void read_half_colours(ConfigReader& r) {
  read_colours(r, {0.5f, 0.5f, 0.5f}, {0.5f, 0.5f, 0.5f});
}

bool has_projector(std::string_view config) {
  const Result<Json> parsed = parse_json(config, "config.json");
  return parsed.ok() && find_projector(*parsed) != nullptr;
}

Result<Model> describe_projector(const Directory& directory) {
  Result<Json> config = parse_json(directory.config, "config.json");
  if (!config.ok()) return config.status();
  const std::string_view preprocessor =
      directory.preprocessor.empty() ? std::string_view("{}") : directory.preprocessor;
  Result<Json> reading = parse_json(preprocessor, "preprocessor_config.json");
  if (!reading.ok()) return reading.status();
  const Architecture* row = find_projector(*config);
  if (row == nullptr) {
    return error(Code::kNotSupported,
                 "the model family \"%s\" has no vision projector that is supported as safetensors",
                 gguf::printable(json_string(*config, "model_type").value_or("")).c_str());
  }
  if (directory.shards.empty() || directory.shards.size() > gguf::kMaxSplits) {
    return error(Code::kBadHeader, "the model has %zu safetensors files", directory.shards.size());
  }
  Json vision = *json_find(*config, "vision_config");
  if (!vision.is_object())
    return error(Code::kBadHeader, "config.json: vision_config is no object");
  vision[kWhole] = std::move(*config);
  vision[kPreprocessor] = std::move(*reading);
  Model model;
  gguf::MetadataWriter writer(&model.header);
  begin_model(directory, "clip", &model, &writer);
  writer.string("general.type", "mmproj");
  writer.string("clip.projector_type", row->name);
  writer.boolean("clip.has_vision_encoder", true);
  ConfigReader reader(vision, "clip.vision", &writer);
  read_fields(*row->fields, reader);
  SLUICE_RETURN_IF_ERROR(reader.status());
  SLUICE_RETURN_IF_ERROR(read_tensors(*row, reader.facts, directory, &model, &writer));
  if (!model.derived.empty()) model.header.n_files++;
  SLUICE_RETURN_IF_ERROR(gguf::index_tensors(&model.header));
  return model;
}

}  // namespace sluice::hf
