// Getters that check, and the parts of config.json that differ little between architectures.
#include "hf/config_reader.h"

namespace sluice::hf {

int64_t ConfigReader::size(const char* key, int64_t fallback) {
  const std::optional<int64_t> n = json_int(config_, key);
  if (!n && json_find(config_, key) == nullptr && fallback >= 0) return fallback;
  if (!n || *n < 1 || *n > INT32_MAX) {
    fail(error(Code::kBadHeader, "config.json: %s is missing or impossible", key));
    return 1;
  }
  return *n;
}

double ConfigReader::real(const Json& object, const char* key, double fallback) {
  if (json_find(object, key) == nullptr) return fallback;
  const std::optional<double> x = json_number(object, key);
  if (!x || !std::isfinite(*x)) {
    fail(error(Code::kBadHeader, "config.json: %s is not a number", key));
    return fallback;
  }
  return *x;
}

void expect_activation(ConfigReader& r, const char* key, std::string_view one,
                       std::string_view other) {
  const std::string_view act = json_string(r.config(), key).value_or(one);
  if (act != one && (other.empty() || act != other)) r.unsupported(key);
}

std::vector<int64_t> integers(ConfigReader& r, const Json& object, const char* key, int64_t most) {
  const Json* list = json_find(object, key);
  std::vector<int64_t> out;
  for (size_t i = 0; list != nullptr && list->is_array() && i < list->size(); i++) {
    const Json& entry = (*list)[i];
    const int64_t n = entry.is_number_integer() ? entry.get<int64_t>() : -1;
    if (n < 0 || n > most) return r.impossible(key), std::vector<int64_t>();
    out.push_back(n);
  }
  if (list == nullptr || !list->is_array()) r.impossible(key);
  return out;
}

std::vector<std::string_view> layer_types(ConfigReader& r) {
  std::vector<std::string_view> out;
  const Json* types = json_find(r.config(), "layer_types");
  if (types == nullptr) return out;
  for (size_t i = 0; types->is_array() && i < types->size(); i++) {
    const auto* text = (*types)[i].get_ptr<const Json::string_t*>();
    out.push_back(text == nullptr ? std::string_view() : std::string_view(*text));
  }
  if (out.size() != static_cast<size_t>(r.facts.n_layer)) {
    r.no_layer_types();
    out.clear();
  }
  return out;
}

std::vector<int32_t> windows(ConfigReader& r, int64_t period) {
  const std::vector<std::string_view> types = layer_types(r);
  std::vector<int32_t> out(static_cast<size_t>(r.facts.n_layer));
  for (size_t i = 0; i < out.size(); i++) {
    const bool full =
        types.empty() ? (i + 1) % static_cast<size_t>(period) == 0 : types[i] == "full_attention";
    if (!types.empty() && !full && types[i] != "sliding_attention") r.unsupported("a layer's type");
    out[i] = full ? 0 : 1;
  }
  return out;
}

const Json& rope_parameters(const Json& config, const char* kind) {
  static const Json kNone = Json::object();
  const Json* all = json_find(config, "rope_parameters");
  if (all == nullptr) all = json_find(config, "rope_scaling");
  if (all == nullptr) return kNone;
  const Json* own = kind == nullptr ? nullptr : json_find(*all, kind);
  return own == nullptr ? *all : *own;
}

double rope_base(ConfigReader& r, const Json& rope, double fallback) {
  return r.real(rope, "rope_theta", r.real(r.config(), "rope_theta", fallback));
}

std::string_view rope_type(const Json& rope, std::string_view fallback) {
  return json_string(rope, "rope_type").value_or(json_string(rope, "type").value_or(fallback));
}

void expect_rope(ConfigReader& r, const Json& rope, std::string_view type) {
  const std::string_view given = rope_type(rope, type);
  if (given != type && given != "default") r.unsupported("the RoPE scaling");
}

double read_yarn(ConfigReader& r, const Json& rope, double original_context) {
  const double factor = r.real(rope, "factor", 0);
  const double original = r.real(rope, "original_max_position_embeddings", original_context);
  if (!(factor >= 1 && factor < 1e6)) {
    return r.impossible("the factor of rope_scaling"), 0;
  }
  if (!(original >= 1 && original <= INT32_MAX)) {
    return r.impossible("original_max_position_embeddings"), 0;
  }
  r.put_text("rope.scaling.type", "yarn");
  r.put("rope.scaling.factor", factor);
  r.put("rope.scaling.original_context_length", static_cast<int64_t>(original));
  r.put("rope.scaling.yarn_beta_fast", r.real(rope, "beta_fast", 32));
  r.put("rope.scaling.yarn_beta_slow", r.real(rope, "beta_slow", 1));
  return factor;
}

}  // namespace sluice::hf
