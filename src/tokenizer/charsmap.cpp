// Reads and looks up the rules. Layout, from SentencePiece's normalizer.cc and the array of the
// darts-clone library: u32 byte length of the array, the array, then the replacements. A unit has a
// label in bits 0-7 (and bit 31 on values) and the flag "has a value" in bit 8. Bits 10-30 are the
// offset to its children, shifted by another 8 if bit 9 is set. A value is an index into the
// replacements.
#include "tokenizer/charsmap.h"

#include <cstring>

namespace sluice::tokenizer {

namespace {

uint32_t offset_of(uint32_t unit) {
  return (unit >> 10) << ((unit & (1u << 9)) >> 6);
}
uint32_t label_of(uint32_t unit) {
  return unit & (1u << 31 | 0xFF);
}
bool has_value(uint32_t unit) {
  return (unit >> 8 & 1) != 0;
}
uint32_t value_of(uint32_t unit) {
  return unit & 0x7FFFFFFF;
}

}  // namespace

Status Charsmap::load(const gguf::Header& header) {
  const gguf::Value* value = header.find("tokenizer.ggml.precompiled_charsmap");
  if (value == nullptr || value->bytes.empty()) return {};
  const gguf::Bytes blob = value->bytes;
  uint32_t array_bytes = 0;
  const bool is_bytes =
      value->type == gguf::ValueType::kArray &&
      (value->element == gguf::ValueType::kU8 || value->element == gguf::ValueType::kI8);
  if (is_bytes && blob.size() > sizeof array_bytes) {
    std::memcpy(&array_bytes, blob.data(), sizeof array_bytes);
  }
  if (!is_bytes || blob.size() > kMaxCharsmapBytes || array_bytes == 0 || array_bytes % 4 != 0 ||
      array_bytes > blob.size() - sizeof array_bytes) {
    return error(Code::kBadTokenizer, "tokenizer.ggml.precompiled_charsmap is not a charsmap");
  }
  units_.resize(array_bytes / 4);
  std::memcpy(units_.data(), blob.data() + sizeof array_bytes, array_bytes);
  const size_t strings = sizeof array_bytes + array_bytes;
  replacements_.reserve(blob.size() - strings + 1);
  replacements_.assign(reinterpret_cast<const char*>(blob.data()) + strings, blob.size() - strings);
  replacements_.push_back('\0');
  return {};
}

Charsmap::Rule Charsmap::longest(std::string_view text, size_t pos) const {
  Rule rule;
  if (units_.empty()) return rule;
  uint32_t node = offset_of(units_[0]);
  for (size_t at = pos; at < text.size() && text[at] != '\0'; ++at) {
    const auto c = static_cast<uint8_t>(text[at]);
    node ^= c;
    if (node >= units_.size() || label_of(units_[node]) != c) break;
    const uint32_t unit = units_[node];
    node ^= offset_of(unit);
    if (!has_value(unit)) continue;
    if (node >= units_.size()) break;
    const uint32_t start = value_of(units_[node]);
    if (start >= replacements_.size()) break;
    rule.bytes = at + 1 - pos;
    rule.replacement = replacements_.c_str() + start;
  }
  return rule;
}

}  // namespace sluice::tokenizer
