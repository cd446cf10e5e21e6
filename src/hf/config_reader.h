// Reads config.json: numbers with checks, written as metadata of an architecture. The first error
// is kept, and ends the reading of the field map (hf/architecture.h).
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "gguf/metadata_writer.h"
#include "hf/json.h"

namespace sluice::hf {

inline constexpr int64_t kMaxConfigLayers = 1024;

// Values of config.json that the tensors need.
struct Facts {
  int64_t n_vocab = 0;
  int64_t n_layer = 1;                                   // at most kMaxConfigLayers
  int64_t key_heads = 0, value_heads = 0, key_size = 0;  // of the delta rule
  int64_t skipped_rows = 0;                              // of the position embedding
  std::vector<uint32_t> deepstack = {};                  // blocks that have deepstack parts
  bool tied = false;
  bool one_ffn = false;                  // the tensors of a shared expert are the FFN
  bool scores = false;                   // a reranker: the pooler and the classifier are used
  std::vector<float> rope_factors = {};  // divisors of RoPE's frequencies; empty: none
};

class ConfigReader {
 public:
  ConfigReader(const Json& config, std::string_view arch, gguf::MetadataWriter* out)
      : config_(config), prefix_(std::string(arch) + '.'), out_(out) {}

  void fail(Status status) {
    if (status_.ok()) status_ = std::move(status);
  }
  void unsupported(const char* what) {
    fail(error(Code::kUnsupportedArchitecture, "config.json: %s is not supported", what));
  }
  void no_layer_types() {
    fail(error(Code::kBadHeader, "config.json: layer_types does not list the layers"));
  }
  void impossible(const char* what) {
    fail(error(Code::kBadHeader, "config.json: %s is impossible", what));
  }
  [[nodiscard]] const Status& status() const { return status_; }
  [[nodiscard]] const Json& config() const { return config_; }
  [[nodiscard]] gguf::MetadataWriter& out() { return *out_; }

  // A positive integer that fits GGUF's u32. A negative `fallback` makes it required.
  int64_t size(const char* key, int64_t fallback = -1);
  double real(const Json& object, const char* key, double fallback);
  [[nodiscard]] bool flag(const char* key, bool fallback) const {
    return json_bool(config_, key).value_or(fallback);
  }
  // Writes a key of the architecture.
  void put(const char* key, int64_t n) { out_->number(prefix_ + key, static_cast<uint32_t>(n)); }
  void put(const char* key, double x) { out_->number(prefix_ + key, static_cast<float>(x)); }
  void put_flag(const char* key, bool on) { out_->boolean(prefix_ + key, on); }
  void put_text(const char* key, std::string_view text) { out_->string(prefix_ + key, text); }
  void put_list(const char* key, const std::vector<int32_t>& list) {
    out_->integers(prefix_ + key, list);
  }
  void put_list(const char* key, const std::vector<float>& list) {
    out_->floats(prefix_ + key, list);
  }

  Facts facts;

 private:
  const Json& config_;
  const std::string prefix_;
  gguf::MetadataWriter* out_;
  Status status_;
};

// --- what several architectures read

// An activation must be `one`, which is the default, or `other`.
void expect_activation(ConfigReader& r, const char* key, std::string_view one,
                       std::string_view other = "");
// A list of integers of 0 to `most`. Anything else is an error, and gives an empty list.
[[nodiscard]] std::vector<int64_t> integers(ConfigReader& r, const Json& object, const char* key,
                                            int64_t most);
// The type of each layer; empty when config.json does not list them.
[[nodiscard]] std::vector<std::string_view> layer_types(ConfigReader& r);
// For each layer, 1 if its attention has a sliding window. Without a list, every `period`-th layer
// has none.
[[nodiscard]] std::vector<int32_t> windows(ConfigReader& r, int64_t period);
// "rope_parameters" for a type of layers or for all layers, or the older "rope_scaling".
[[nodiscard]] const Json& rope_parameters(const Json& config, const char* kind = nullptr);
[[nodiscard]] double rope_base(ConfigReader& r, const Json& rope, double fallback);
// The kind of scaling, of new and older configs.
[[nodiscard]] std::string_view rope_type(const Json& rope, std::string_view fallback);
void expect_rope(ConfigReader& r, const Json& rope, std::string_view type);
// YaRN: https://arxiv.org/abs/2309.00071. Writes type, factor, the original context and the ends of
// the ramp. Returns the factor; 0: an error.
double read_yarn(ConfigReader& r, const Json& rope, double original_context);

}  // namespace sluice::hf
