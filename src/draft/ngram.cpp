// Positions are chained by the hash of their last two tokens.
#include "draft/ngram.h"

#include <algorithm>
#include <bit>

namespace sluice::draft {
namespace {

constexpr int32_t kMaxCandidates = 32;  // positions compared per proposal

int32_t capacity_for(int32_t n_ctx) {  // plus the last token, which may not be in the context
  return std::clamp(n_ctx, 1, NgramIndex::kMaxTokens - 1) + 1;
}

int32_t bits_for(int32_t capacity) {
  return std::clamp(static_cast<int32_t>(std::bit_width(static_cast<uint32_t>(capacity))), 8, 16);
}

}  // namespace

uint64_t NgramIndex::memory_bytes(int32_t n_ctx) {
  const int32_t capacity = capacity_for(n_ctx);
  return (2 * static_cast<uint64_t>(capacity) + (uint64_t{1} << bits_for(capacity))) *
         sizeof(int32_t);
}

Status NgramIndex::allocate(int32_t n_ctx) {
  SLUICE_RETURN_IF_ERROR(memory_.allocate(memory_bytes(n_ctx)));
  capacity_ = capacity_for(n_ctx);
  bits_ = bits_for(capacity_);
  tokens_ = memory_.as<Token>();
  before_ = tokens_ + capacity_;
  latest_ = before_ + capacity_;
  size_ = 0;
  std::fill_n(latest_, size_t{1} << bits_, -1);
  return {};
}

// The hash slot of a position, from its token and the one before it.
size_t NgramIndex::slot(int32_t at) const {
  const uint32_t sum = static_cast<uint32_t>(tokens_[at]) * 0x9e3779b1u +
                       static_cast<uint32_t>(tokens_[at - 1]) * 0x85ebca77u;
  return (sum ^ (sum >> 15)) * 0x2c1b3c6du >> (32 - bits_);
}

void NgramIndex::link(int32_t at) {
  before_[at] = -1;
  if (at == 0) return;
  const size_t s = slot(at);
  before_[at] = latest_[s];
  latest_[s] = at;
}

void NgramIndex::push(Token token) {
  if (size_ == capacity_) halve();
  tokens_[size_] = token;
  link(size_++);
}

void NgramIndex::halve() {
  const int32_t kept = size_ / 2;
  std::copy(tokens_ + size_ - kept, tokens_ + size_, tokens_);
  std::fill_n(latest_, size_t{1} << bits_, -1);
  for (size_ = 0; size_ < kept; ++size_) link(size_);
}

// How many tokens up to `at` equal the text's last tokens.
int32_t NgramIndex::match(int32_t at) const {
  const int32_t max = std::min(at + 1, kLongestMatch);
  int32_t n = 0;
  while (n < max && tokens_[at - n] == tokens_[size_ - 1 - n]) ++n;
  return n;
}

int32_t NgramIndex::propose(std::span<Token> out) const {
  if (size_ < kMinMatch + 1) return 0;
  int32_t longest = kMinMatch - 1, from = -1;
  int32_t at = before_[size_ - 1];
  for (int32_t i = 0; at >= 0 && i < kMaxCandidates && longest < kLongestMatch; ++i) {
    if (const int32_t n = match(at); n > longest) {
      longest = n;
      from = at + 1;
    }
    at = before_[at];
  }
  if (from < 0) return 0;
  for (size_t i = 0; i < out.size(); ++i) {
    const size_t next = static_cast<size_t>(from) + i, held = static_cast<size_t>(size_);
    out[i] = next < held ? tokens_[next] : out[next - held];
  }
  return longest;
}

}  // namespace sluice::draft
