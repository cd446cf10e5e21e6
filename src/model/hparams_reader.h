// Reads header values by key, within caps; shared by the files that read hyperparameters.
#pragma once

#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "model/hparams.h"

namespace sluice::model {

[[nodiscard]] inline long long ll(int64_t n) {
  return static_cast<long long>(n);
}

// Reads "<arch>.<key>" values and keeps the first error.
class Reader {
 public:
  Reader(const gguf::Header& header, std::string prefix)
      : header_(header), prefix_(std::move(prefix)) {}

  // An integer within [low, high], or `fallback` if the key is absent (fallback < 0: required).
  int64_t integer(const char* key, int64_t low, int64_t high, int64_t fallback) {
    const std::string full = prefix_ + key;
    const gguf::Value* value = raw(key);
    if (value == nullptr) {
      if (fallback < 0) fail(error(Code::kBadHeader, "the metadata lacks %s", full.c_str()));
      return fallback;
    }
    std::optional<uint64_t> n = value->as_u64();
    if (!n && value->type == gguf::ValueType::kArray && value->count > 0) {
      const double first = value->number_at(0);
      if (first >= 0 && first <= static_cast<double>(high)) n = static_cast<uint64_t>(first);
    }
    if (!n || *n < static_cast<uint64_t>(low) || *n > static_cast<uint64_t>(high)) {
      fail(error(Code::kBadHeader, "the metadata value %s is not between %lld and %lld",
                 full.c_str(), ll(low), ll(high)));
      return low;
    }
    return static_cast<int64_t>(*n);
  }

  float real(const char* key, float fallback) {
    const std::string full = prefix_ + key;
    const gguf::Value* value = raw(key);
    if (value == nullptr) return fallback;
    const std::optional<double> x = value->as_f64();
    if (!x || !std::isfinite(*x)) {
      fail(error(Code::kBadHeader, "the metadata value %s is not a finite number", full.c_str()));
      return fallback;
    }
    return static_cast<float>(*x);
  }

  std::string text(const char* key) {
    const gguf::Value* value = raw(key);
    return std::string(value == nullptr ? "" : value->as_string().value_or(""));
  }

  const gguf::Value* raw(const char* key) { return with_full_key(prefix_ + key); }
  // A value whose key does not begin with the architecture's name.
  const gguf::Value* with_full_key(const std::string& key) {
    const gguf::Value* value = header_.find(key);
    if (value != nullptr) read_.push_back(value);
    return value;
  }
  // The values that have been read.
  [[nodiscard]] const std::vector<const gguf::Value*>& read() const { return read_; }

  void fail(Status status) {
    if (status_.ok()) status_ = std::move(status);
  }
  [[nodiscard]] const Status& status() const { return status_; }

 private:
  const gguf::Header& header_;
  std::string prefix_;
  std::vector<const gguf::Value*> read_;
  Status status_;
};

// Reads a value per layer into `out`. A single value for all layers leaves `out` empty.
void read_by_layer(Reader& r, const HParams& hp, const char* key, int64_t max,
                   std::vector<int64_t>& out);

[[nodiscard]] inline bool is_gemma3n_or_4(const HParams& hp) {
  return hp.arch == "gemma3n" || hp.arch == "gemma4";
}

// --- hparams_attention.cpp. Each function reports invalid values to the reader.
// Heads and their sizes. Families without attention write 0 heads, or no key at all.
void read_heads(Reader& r, HParams& hp, bool recurrent);
// Call after read_heads.
void read_rope(Reader& r, HParams& hp);
// Call after read_rope: sizes of latent attention (https://arxiv.org/abs/2405.04434).
void read_latent(Reader& r, HParams& hp);
// `by_list`: the family supports windows in any layers.
void read_windows(Reader& r, HParams& hp, bool by_list);

}  // namespace sluice::model
