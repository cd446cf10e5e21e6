// The functions of utf8.h that are not on the hot path.
#include "tokenizer/utf8.h"

#include <cstring>

namespace sluice::tokenizer {

void append_utf8(uint32_t cp, std::string* out) {
  const auto put = [out](uint32_t byte) { out->push_back(static_cast<char>(byte)); };
  if (cp < 0x80) {
    put(cp);
  } else if (cp < 0x800) {
    put(0xC0 | (cp >> 6));
    put(0x80 | (cp & 0x3F));
  } else if (cp < 0x10000) {
    put(0xE0 | (cp >> 12));
    put(0x80 | ((cp >> 6) & 0x3F));
    put(0x80 | (cp & 0x3F));
  } else {
    put(0xF0 | (cp >> 18));
    put(0x80 | ((cp >> 12) & 0x3F));
    put(0x80 | ((cp >> 6) & 0x3F));
    put(0x80 | (cp & 0x3F));
  }
}

bool is_unfinished_utf8(std::string_view tail) {
  if (tail.empty()) return false;
  const Decoded d = decode_utf8(tail, 0);
  const auto lead = static_cast<uint8_t>(tail[0]);
  return d.cp == kInvalidCodepoint && d.bytes == tail.size() && lead >= 0xC2 && lead <= 0xF4;
}

bool is_valid_utf8(std::string_view text) {
  for (size_t pos = 0; pos < text.size();) {
    uint64_t eight;
    if (pos + 8 <= text.size()) {
      std::memcpy(&eight, text.data() + pos, 8);
      if ((eight & 0x8080808080808080ull) == 0) {
        pos += 8;
        continue;
      }
    }
    const Decoded d = decode_utf8(text, pos);
    if (d.cp == kInvalidCodepoint) return false;
    pos += d.bytes;
  }
  return true;
}

void append_valid_utf8(std::string_view text, Replace replace, std::string* out) {
  size_t clean = 0;  // start of the run of valid text
  size_t pos = 0;
  while (pos < text.size()) {
    const Decoded d = decode_utf8(text, pos);
    if (d.cp == kInvalidCodepoint) {
      out->append(text.substr(clean, pos - clean));
      const uint32_t marks = replace == Replace::kEachByte ? d.bytes : 1;
      for (uint32_t i = 0; i < marks; ++i) out->append(kReplacement);
      clean = pos + d.bytes;
    }
    pos += d.bytes;
  }
  out->append(text.substr(clean));
}

}  // namespace sluice::tokenizer
