// Folds text by tables, or by JavaScript in WebAssembly.
#include "tokenizer/fold.h"

#include <algorithm>
#include <vector>

#include "tokenizer/fold_tables.h"
#include "tokenizer/nfc.h"
#include "tokenizer/try_reserve.h"
#include "tokenizer/unicode.h"
#include "tokenizer/utf8.h"

namespace sluice::tokenizer {

namespace {

constexpr size_t kMaxGrowth = 4;  // bytes that one byte can become

}  // namespace

#ifdef __EMSCRIPTEN__

// Writes at most `room` bytes. Returns the bytes that the result needs.
extern "C" uint32_t sluice_fold(const char* text, uint32_t bytes, uint32_t lower, uint32_t accents,
                                char* out, uint32_t room);

bool fold_text(std::string_view text, bool lower, Accents accents, std::string* out) {
  const size_t most = kMaxGrowth * text.size();
  if (!make_room(out, most)) return false;
  out->resize(most);
  out->resize(sluice_fold(text.data(), static_cast<uint32_t>(text.size()), lower ? 1 : 0,
                          static_cast<uint32_t>(accents), out->data(),
                          static_cast<uint32_t>(most)));
  return true;
}

#else

namespace {

void append_lower(uint32_t cp, std::string* out) {
  if (cp == 0x130) {  // a capital I with a dot keeps the dot
    append_utf8('i', out);
    append_utf8(0x307, out);
    return;
  }
  const LowerRange* end = kLower + kLowerCount;
  const LowerRange* range = std::upper_bound(
      kLower, end, cp, [](uint32_t c, const LowerRange& r) { return c < r.first; });
  if (range != kLower && cp <= (--range)->last && (cp - range->first) % range->step == 0) {
    cp = static_cast<uint32_t>(static_cast<int32_t>(cp) + range->by);
  }
  append_utf8(cp, out);
}

bool is_nonspacing(uint32_t cp) {
  const MarkRange* end = kMarks + kMarkCount;
  const MarkRange* range =
      std::lower_bound(kMarks, end, cp, [](const MarkRange& r, uint32_t c) { return r.last < c; });
  return range != end && range->first <= cp;
}

bool goes(uint32_t cp, Accents accents) {
  if (accents == Accents::kFirst) return char_class(cp) == CharClass::kMark;
  return accents == Accents::kStrip && is_nonspacing(cp);
}

}  // namespace

bool fold_text(std::string_view text, bool lower, Accents accents, std::string* out) {
  if (!make_room(out, kMaxGrowth * text.size())) return false;
  std::vector<uint32_t> parts;
  if (!make_room(&parts, 8)) return false;  // a character decomposes into at most four
  for (size_t pos = 0; pos < text.size();) {
    const Decoded c = decode_utf8(text, pos);
    pos += c.bytes;
    parts.clear();
    if (accents == Accents::kKeep || c.cp < 0x80) {
      parts.push_back(c.cp);
    } else {
      decompose(c.cp, &parts);
      if (accents == Accents::kFirst) parts.resize(1);
    }
    for (const uint32_t cp : parts) {
      if (goes(cp, accents)) continue;
      if (lower) {
        append_lower(cp, out);
      } else {
        append_utf8(cp, out);
      }
    }
  }
  return true;
}

#endif

}  // namespace sluice::tokenizer
