// Decomposes, sorts marks into canonical order and composes. Hangul is done by arithmetic (Unicode
// standard, section 3.12).
#include "tokenizer/nfc.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tokenizer/nfc_tables.h"
#include "tokenizer/try_reserve.h"
#include "tokenizer/utf8.h"

namespace sluice::tokenizer {

bool is_plainly_nfc(std::string_view text) {
  // U+0300 is CC 80, so characters below it have lead bytes below CC.
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<uint8_t>(c) < 0xCC; });
}

#ifdef __EMSCRIPTEN__

// Writes at most `room` bytes. Returns the bytes that the result needs.
extern "C" uint32_t sluice_nfc(const char* text, uint32_t bytes, char* out, uint32_t room);

bool normalize_nfc(std::string_view text, std::string* out) {
  const size_t most = 3 * text.size();  // upper bound of the normalized size
  if (!make_room(out, most)) return false;
  out->resize(most);
  const auto room = static_cast<uint32_t>(most);
  out->resize(sluice_nfc(text.data(), static_cast<uint32_t>(text.size()), out->data(), room));
  return true;
}

#else

namespace {

constexpr uint32_t kS = 0xAC00, kL = 0x1100, kV = 0x1161, kT = 0x11A7;
constexpr uint32_t kLs = 19, kVs = 21, kTs = 28;

// Canonical combining class; 0: a starter.
uint8_t class_of(uint32_t cp) {
  if (cp < 0x300) return 0;
  const auto* range =
      std::lower_bound(kCombining, kCombining + kCombiningCount, cp,
                       [](const CombiningRange& r, uint32_t c) { return r.last < c; });
  return range != kCombining + kCombiningCount && range->first <= cp ? range->combining : 0;
}

// The composition of two characters; 0: there is none.
uint32_t compose(uint32_t first, uint32_t second) {
  if (first - kL < kLs && second - kV < kVs) {
    return kS + ((first - kL) * kVs + second - kV) * kTs;
  }
  if (first - kS < kLs * kVs * kTs && (first - kS) % kTs == 0 && second - kT - 1 < kTs - 1) {
    return first + second - kT;
  }
  const auto* end = kCompositions + kCompositionCount;
  const auto* found = std::lower_bound(
      kCompositions, end, std::pair(first, second), [](uint16_t i, const auto& pair) {
        return std::pair(kDecompositions[i].first, kDecompositions[i].second) < pair;
      });
  if (found == end) return 0;
  const Decomposition& d = kDecompositions[*found];
  return d.first == first && d.second == second ? d.cp : 0;
}

void order_marks(std::vector<uint32_t>* text) {
  for (auto at = text->begin(); at != text->end();) {
    const auto is_starter = [](uint32_t cp) { return class_of(cp) == 0; };
    at = std::find_if_not(at, text->end(), is_starter);
    const auto end = std::find_if(at, text->end(), is_starter);
    std::stable_sort(at, end, [](uint32_t a, uint32_t b) { return class_of(a) < class_of(b); });
    at = end;
  }
}

void compose_all(std::vector<uint32_t>* text) {
  size_t kept = 0;
  size_t starter = SIZE_MAX;
  uint8_t before = 0;  // class of the last uncomposed character after the starter
  for (const uint32_t cp : *text) {
    const uint8_t combining = class_of(cp);
    const bool blocked =
        starter == SIZE_MAX || (kept > starter + 1 && (before >= combining || before == 0));
    const uint32_t one = blocked ? 0 : compose((*text)[starter], cp);
    if (one != 0) {
      (*text)[starter] = one;
      continue;
    }
    if (combining == 0) starter = kept;
    before = combining;
    (*text)[kept++] = cp;
  }
  text->resize(kept);
}

}  // namespace

void decompose(uint32_t cp, std::vector<uint32_t>* out) {
  if (cp - kS < kLs * kVs * kTs) {
    const uint32_t s = cp - kS;
    out->push_back(kL + s / (kVs * kTs));
    out->push_back(kV + s / kTs % kVs);
    if (s % kTs != 0) out->push_back(kT + s % kTs);
    return;
  }
  const auto* end = kDecompositions + kDecompositionCount;
  const auto* found =
      cp < 0xC0 ? end
                : std::lower_bound(kDecompositions, end, cp,
                                   [](const Decomposition& d, uint32_t c) { return d.cp < c; });
  if (found == end || found->cp != cp) {
    out->push_back(cp);
    return;
  }
  decompose(found->first, out);  // at most four levels
  if (found->second != 0) out->push_back(found->second);
}

bool normalize_nfc(std::string_view text, std::string* out) {
  std::vector<uint32_t> characters;
  if (!make_room(&characters, text.size() + 4)) return false;
  for (size_t pos = 0; pos < text.size();) {
    const Decoded c = decode_utf8(text, pos);
    if (!make_room_for(&characters, 4)) return false;
    decompose(c.cp, &characters);
    pos += c.bytes;
  }
  order_marks(&characters);
  compose_all(&characters);
  if (!make_room(out, 4 * characters.size())) return false;
  for (const uint32_t cp : characters) append_utf8(cp, out);
  return true;
}

#endif

}  // namespace sluice::tokenizer
