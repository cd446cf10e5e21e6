// Finds the architecture, reads its field map, and adds the tensors of its tensor map.
#include "hf/config.h"

#include "gguf/printable.h"
#include "hf/architecture.h"
#include "hf/pooling.h"
#include "hf/row_order.h"
#include "hf/tokenizer.h"

namespace sluice::hf {
namespace {

Result<const Architecture*> find_architecture(const Json& config) {
  const std::string_view type = json_string(config, "model_type").value_or("");
  for (const Architecture& row : architectures()) {
    const bool inner = row.traits.inner && type.ends_with("_text") &&
                       type.substr(0, type.size() - 5) == row.model_type;
    if (type == row.model_type || inner) return &row;
  }
  if (type.empty()) return error(Code::kBadHeader, "config.json has no model_type");
  return error(Code::kUnsupportedArchitecture,
               "the model family \"%s\" is not supported as safetensors",
               gguf::printable(type).c_str());
}

// The config of the text model: values in its own section override those of the whole model, and
// these the defaults.
Json text_of(Json config, const char* defaults) {
  const Json* inner = json_find(config, "text_config");
  if (inner != nullptr && inner->is_object()) config.update(Json(*inner));
  if (defaults == nullptr || !config.is_object()) return config;
  Result<Json> out = parse_json(defaults, "defaults");
  if (!out.ok()) return config;
  out->update(config);
  return std::move(*out);
}

// What no field map covers.
void check_config(const Architecture& row, std::string_view name, ConfigReader& r) {
  const Json* quantized = json_find(r.config(), "quantization_config");
  if (quantized != nullptr &&
      (row.traits.quantization.empty() ||
       json_string(*quantized, "quant_method") != row.traits.quantization)) {
    r.fail(error(Code::kUnsupportedType,
                 "config.json: quantized safetensors (quantization_config) are not supported; "
                 "use F32, F16, BF16 or a GGUF file"));
  }
  if (r.flag("use_bidirectional_attention", false) && name != "gemma-embedding") {
    r.fail(error(Code::kUnsupportedArchitecture,
                 "config.json: use_bidirectional_attention is not supported with \"%s\"",
                 std::string(row.model_type).c_str()));
  }
}

}  // namespace

// The matrices have the same names in all families.
std::string gguf_module_name(std::string_view module) {
  const Found found = find_name(kLlamaTensors, std::string(module).append(".weight"));
  return found.turn == TensorTransform::kNone ? found.ours : std::string();
}

Result<Model> describe_model(const Directory& directory) {
  Result<Json> config = parse_json(directory.config, "config.json");
  if (!config.ok()) return config.status();
  if (directory.shards.empty() || directory.shards.size() > gguf::kMaxSplits) {
    return error(Code::kBadHeader, "the model has %zu safetensors files", directory.shards.size());
  }
  const Result<const Architecture*> found = find_architecture(*config);
  if (!found.ok()) return found.status();
  const Architecture& row = **found;
  if (row.traits.inner) config = text_of(std::move(*config), row.traits.defaults);
  const std::string_view name =
      row.traits.name_of != nullptr ? row.traits.name_of(*config) : row.name;
  Model model;
  gguf::MetadataWriter writer(&model.header);
  begin_model(directory, name, &model, &writer);
  ConfigReader reader(*config, name, &writer);
  Facts& facts = reader.facts;
  check_config(row, name, reader);
  facts.tied = reader.flag("tie_word_embeddings", row.traits.tied);
  facts.n_vocab = reader.size("vocab_size");
  reader.put("vocab_size", facts.n_vocab);
  read_fields(*row.fields, reader);
  SLUICE_RETURN_IF_ERROR(reader.status());
  if (row_order(name) == RowOrder::kPermuted) writer.boolean("sluice.rope_neox", true);
  SLUICE_RETURN_IF_ERROR(write_pooling(directory, name, &model, &writer));
  SLUICE_RETURN_IF_ERROR(read_tensors(row, facts, directory, &model, &writer));
  add_rope_factors(facts.rope_factors, &model);
  if (!model.derived.empty()) model.header.n_files++;
  SLUICE_RETURN_IF_ERROR(gguf::index_tensors(&model.header));
  SLUICE_RETURN_IF_ERROR(describe_tokenizer(directory, *config, facts.n_vocab, &writer));
  return model;
}

}  // namespace sluice::hf
