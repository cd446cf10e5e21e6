// Shared by all readers of config.json: reads numbers with checks, and writes them as metadata of a
// family. The first error is kept.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>

#include "gguf/metadata_writer.h"
#include "hf/json.h"

namespace sluice::hf {

class ConfigFields {
 public:
  ConfigFields(const Json& config, std::string_view arch, gguf::MetadataWriter* out)
      : config_(config), prefix_(std::string(arch) + '.'), out_(out) {}

  void fail(Status status) {
    if (status_.ok()) status_ = std::move(status);
  }
  void unsupported(const char* what) {
    fail(error(Code::kUnsupportedArchitecture, "config.json: %s is not supported", what));
  }
  [[nodiscard]] const Status& status() const { return status_; }
  [[nodiscard]] const Json& config() const { return config_; }

  // A positive integer that fits GGUF's u32. A negative `fallback` makes it required.
  int64_t size(const char* key, int64_t fallback = -1) {
    const std::optional<int64_t> n = json_int(config_, key);
    if (!n && json_find(config_, key) == nullptr && fallback >= 0) return fallback;
    if (!n || *n < 1 || *n > INT32_MAX) {
      fail(error(Code::kBadHeader, "config.json: %s is missing or impossible", key));
      return 1;
    }
    return *n;
  }
  double real(const Json& object, const char* key, double fallback) {
    if (json_find(object, key) == nullptr) return fallback;
    const std::optional<double> x = json_number(object, key);
    if (!x || !std::isfinite(*x)) {
      fail(error(Code::kBadHeader, "config.json: %s is not a number", key));
      return fallback;
    }
    return *x;
  }
  void put(const char* key, int64_t n) { out_->number(prefix_ + key, static_cast<uint32_t>(n)); }
  void put(const char* key, double x) { out_->number(prefix_ + key, static_cast<float>(x)); }

 protected:
  const Json& config_;
  const std::string prefix_;
  gguf::MetadataWriter* out_;
  Status status_;
};

}  // namespace sluice::hf
