// Loads the vocabulary arrays. Every count is checked before memory is allocated, and the hash
// table rejects vocabularies whose texts were chosen to collide.
#include "tokenizer/vocab.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace sluice::tokenizer {

uint64_t hash_bytes(std::string_view bytes) {
  constexpr uint64_t kMultiplier = 0x9E3779B97F4A7C15ull;  // 2^64 / golden ratio
  const char* p = bytes.data();
  size_t n = bytes.size();
  uint64_t h = (n + 1) * 0xD6E8FEB86659FD93ull;
  for (; n > 8; n -= 8, p += 8) {
    uint64_t chunk;
    std::memcpy(&chunk, p, 8);
    h = (h ^ chunk) * kMultiplier;
    h ^= h >> 29;
  }
  uint64_t tail = 0;
  if (n != 0) std::memcpy(&tail, p, n);
  h = (h ^ tail) * kMultiplier;
  h ^= h >> 32;
  h *= kMultiplier;
  return h ^ (h >> 29);
}

namespace {

// The slot of a hash in a table of `size` slots, without a division.
size_t slot_of(uint64_t hash, size_t size) {
  return static_cast<size_t>(((hash >> 32) * static_cast<uint64_t>(size)) >> 32);
}

}  // namespace

uint64_t Vocab::text_bytes(const gguf::Value& tokens) {
  constexpr uint64_t kEmptyName = 16;  // "[EMPTY_1048575]" and a spare byte
  uint64_t bytes = 0;
  gguf::StringCursor cursor(tokens);
  for (std::string_view text; cursor.next(&text);) bytes += text.empty() ? kEmptyName : text.size();
  return bytes;
}

uint64_t Vocab::count_special(const gguf::Header& header) {
  constexpr uint64_t kNamed = 64;  // more than the number of well-known names
  const gguf::Value* types = header.find("tokenizer.ggml.token_type");
  if (types == nullptr) return kNamed;
  uint64_t n = kNamed;
  for (uint64_t i = 0; i < types->count; ++i) {
    const double type = types->number_at(i);
    n += type == 2 || type == 3 || type == 4 ? 1 : 0;
  }
  return n;
}

Status Vocab::load(const gguf::Header& header, bool repeats) {
  const gguf::Value* tokens = header.find("tokenizer.ggml.tokens");
  if (tokens == nullptr || tokens->type != gguf::ValueType::kArray ||
      tokens->element != gguf::ValueType::kString) {
    return error(Code::kBadTokenizer, "tokenizer.ggml.tokens is missing or not a list of strings");
  }
  if (tokens->count == 0 || tokens->count > kMaxVocab) {
    return error(Code::kBadTokenizer, "tokenizer.ggml.tokens has %llu entries, not 1 to %llu",
                 static_cast<unsigned long long>(tokens->count),
                 static_cast<unsigned long long>(kMaxVocab));
  }
  SLUICE_RETURN_IF_ERROR(copy_texts(*tokens));
  SLUICE_RETURN_IF_ERROR(copy_types(header));
  return build_table(repeats);
}

Status Vocab::copy_texts(const gguf::Value& tokens) {
  const auto count = static_cast<size_t>(tokens.count);
  // Each stored string is preceded by its 64-bit length; an empty one gets a name of up to 16
  // bytes.
  arena_.reserve(tokens.bytes.size() > 8 * count ? tokens.bytes.size() - 8 * count : 0);
  offsets_.reserve(count + 1);
  offsets_.push_back(0);
  gguf::StringCursor cursor(tokens);
  std::string_view text;
  char empty_name[24];
  for (size_t i = 0; i < count; ++i) {
    if (!cursor.next(&text)) {
      return error(Code::kBadTokenizer, "tokenizer.ggml.tokens ends at entry %zu of %zu", i, count);
    }
    if (text.size() > kMaxTokenBytes) {
      return error(Code::kBadTokenizer, "token %zu has %zu bytes, more than %llu", i, text.size(),
                   static_cast<unsigned long long>(kMaxTokenBytes));
    }
    if (text.empty()) {  // llama.cpp's name, so that every text is unique and not empty
      const int n = std::snprintf(empty_name, sizeof empty_name, "[EMPTY_%zu]", i);
      text = {empty_name, static_cast<size_t>(n)};
    }
    arena_.insert(arena_.end(), text.begin(), text.end());
    if (arena_.size() > UINT32_MAX) return error(Code::kBadTokenizer, "the vocabulary is too long");
    offsets_.push_back(static_cast<uint32_t>(arena_.size()));
    max_token_bytes_ = std::max(max_token_bytes_, static_cast<uint32_t>(text.size()));
  }
  return {};
}

Status Vocab::copy_types(const gguf::Header& header) {
  const size_t count = offsets_.size() - 1;
  types_.assign(count, TokenType::kNormal);
  const gguf::Value* types = header.find("tokenizer.ggml.token_type");
  if (types == nullptr) return {};
  if (types->type != gguf::ValueType::kArray || types->count != count) {
    return error(Code::kBadTokenizer, "tokenizer.ggml.token_type has %llu entries for %zu tokens",
                 static_cast<unsigned long long>(types->count), count);
  }
  for (size_t i = 0; i < count; ++i) {
    const double value = types->number_at(i);
    const bool known = value >= 1 && value <= 6;
    types_[i] = known ? static_cast<TokenType>(value) : TokenType::kUndefined;
  }
  return {};
}

Status Vocab::build_table(bool repeats) {
  const size_t count = types_.size();
  table_.assign(count + count / 2 + 1, kNoToken);
  for (size_t i = 0; i < count; ++i) {
    const std::string_view key = text(static_cast<Token>(i));
    size_t slot = slot_of(hash_bytes(key), table_.size());
    uint32_t probes = 0;
    while (table_[slot] != kNoToken) {
      if (text(table_[slot]) == key) {
        if (repeats) break;
        return error(Code::kBadTokenizer, "tokens %d and %zu have the same text \"%.*s\"",
                     table_[slot], i, static_cast<int>(std::min<size_t>(key.size(), 64)),
                     key.data());
      }
      if (++probes > kMaxProbes) {
        return error(Code::kBadTokenizer,
                     "too many hash collisions in the vocabulary, at token %zu", i);
      }
      if (++slot == table_.size()) slot = 0;
    }
    table_[slot] = static_cast<Token>(i);
  }
  return {};
}

Token Vocab::find(std::string_view key) const {
  if (key.size() > max_token_bytes_) return kNoToken;
  size_t slot = slot_of(hash_bytes(key), table_.size());
  while (table_[slot] != kNoToken) {
    if (text(table_[slot]) == key) return table_[slot];
    if (++slot == table_.size()) slot = 0;
  }
  return kNoToken;
}

uint64_t Vocab::memory_bytes() const {
  return arena_.capacity() + offsets_.capacity() * sizeof(uint32_t) + types_.capacity() +
         table_.capacity() * sizeof(Token);
}

}  // namespace sluice::tokenizer
