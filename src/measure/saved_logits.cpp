// Reads the header at once, and rows one at a time.
#include "measure/saved_logits.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "platform/utf8_path.h"

namespace sluice::measure {
namespace {

constexpr int32_t kMaxContext = 1 << 20, kMaxVocab = 1 << 24;
constexpr uint64_t kMaxTokens = 1 << 26;
constexpr float kCutOff = 16;  // below the largest log-probability

}  // namespace

Result<SavedLogits> SavedLogits::open(const std::string& path) {
  SavedLogits out;
  std::error_code failed;
  const uint64_t size = std::filesystem::file_size(platform::to_path(path), failed);
  out.file_.open(platform::to_path(path), std::ios::binary);
  if (failed || !out.file_) return error(Code::kNotFound, "cannot read \"%.256s\"", path.c_str());
  const auto wrong = [&path](const char* what) {
    return error(Code::kBadHeader, "the log-probabilities in \"%.256s\" cannot be read: %s",
                 path.c_str(), what);
  };
  char head[20];
  if (!out.file_.read(head, sizeof head) || std::memcmp(head, "_logits_", 8) != 0) {
    return wrong("llama-perplexity did not write this file");
  }
  std::memcpy(&out.n_ctx_, head + 8, 4);
  std::memcpy(&out.n_vocab_, head + 12, 4);
  std::memcpy(&out.n_chunks_, head + 16, 4);
  const bool sane =
      out.n_ctx_ >= 4 && out.n_ctx_ <= kMaxContext && out.n_vocab_ > 0 &&
      out.n_vocab_ <= kMaxVocab && out.n_chunks_ > 0 &&
      static_cast<uint64_t>(out.n_chunks_) * static_cast<uint64_t>(out.n_ctx_) <= kMaxTokens;
  if (!sane) return wrong("its sizes are out of range");
  const uint64_t n_tokens =
      static_cast<uint64_t>(out.n_chunks_) * static_cast<uint64_t>(out.n_ctx_);
  const auto rows = static_cast<uint64_t>(out.n_ctx_ - 1 - out.n_ctx_ / 2);
  const uint64_t width = (static_cast<uint64_t>(out.n_vocab_) + 1) / 2 * 2 + 4;
  if (size != sizeof head + n_tokens * 4 +
                  static_cast<uint64_t>(out.n_chunks_) * rows * width * sizeof(uint16_t)) {
    return wrong("it is not as long as its header says");
  }
  out.tokens_.resize(n_tokens);
  out.row_.resize(width);
  if (!out.file_.read(reinterpret_cast<char*>(out.tokens_.data()),
                      static_cast<std::streamsize>(n_tokens * 4))) {
    return error(Code::kIo, "cannot read \"%.256s\"", path.c_str());
  }
  for (const int32_t token : out.tokens_) {
    if (token < 0 || token >= out.n_vocab_) return wrong("a token is not in the vocabulary");
  }
  return out;
}

Status SavedLogits::next_row(std::vector<float>* log_probs) {
  if (!file_.read(reinterpret_cast<char*>(row_.data()),
                  static_cast<std::streamsize>(row_.size() * sizeof(uint16_t)))) {
    return error(Code::kIo, "the saved log-probabilities end too early");
  }
  float scale[2];  // step, least
  std::memcpy(scale, row_.data(), sizeof scale);
  if (!std::isfinite(scale[0]) || !std::isfinite(scale[1])) {
    return error(Code::kBadHeader, "the saved log-probabilities of llama.cpp are not numbers");
  }
  rounding_ = std::max(rounding_, static_cast<double>(scale[0]) / 2);
  const bool cut = scale[0] * 65535 > kCutOff - 0.01f;
  log_probs->resize(static_cast<size_t>(n_vocab_));
  for (size_t i = 0; i < log_probs->size(); ++i) {
    const uint16_t value = row_[4 + i];
    (*log_probs)[i] = cut && value == 0 ? kAbsent : scale[1] + scale[0] * static_cast<float>(value);
  }
  return {};
}

}  // namespace sluice::measure
