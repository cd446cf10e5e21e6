// Sets of code points, and their UTF-8 encoding as byte ranges.
#include "grammar/char_class.h"

#include <algorithm>
#include <string>

namespace sluice::grammar {
namespace {

// Splits [first, last] into runs: where the number of bytes changes, and where a leading byte would
// no longer be fixed, or followed by the full range.
void split(uint32_t first, uint32_t last, std::vector<ByteRun>* out) {
  for (const uint32_t edge : {0x7Fu, 0x7FFu, 0xFFFFu}) {
    if (first <= edge && last > edge) {
      split(first, edge, out);
      split(edge + 1, last, out);
      return;
    }
  }
  if (first >= 0x80) {
    for (int bits = 6; bits <= 18; bits += 6) {
      const uint32_t low = (1u << bits) - 1;
      if ((first & ~low) == (last & ~low)) break;
      if ((first & low) != 0) {
        split(first, first | low, out);
        split((first | low) + 1, last, out);
        return;
      }
      if ((last & low) != low) {
        split(first, (last & ~low) - 1, out);
        split(last & ~low, last, out);
        return;
      }
    }
  }
  std::string a, b;
  append_utf8(first, &a);
  append_utf8(last, &b);
  ByteRun run{static_cast<int>(a.size()), {}, {}};
  for (size_t i = 0; i < a.size(); ++i) {
    run.lo[i] = static_cast<uint8_t>(a[i]);
    run.hi[i] = static_cast<uint8_t>(b[i]);
  }
  out->push_back(run);
}

}  // namespace

CharClass::CharClass(std::initializer_list<CharRange> ranges) : ranges_(ranges) {
  settle();
}

CharClass CharClass::all() {
  return CharClass().inverse();
}

void CharClass::add(uint32_t first, uint32_t last) {
  ranges_.push_back({first, last});
  settle();
}

void CharClass::add(const CharClass& other) {
  ranges_.insert(ranges_.end(), other.ranges_.begin(), other.ranges_.end());
  settle();
}

void CharClass::settle() {
  std::sort(ranges_.begin(), ranges_.end(),
            [](const CharRange& a, const CharRange& b) { return a.first < b.first; });
  std::vector<CharRange> out;
  const auto put = [&out](uint32_t first, uint32_t last) {
    if (first > last) return;
    if (!out.empty() && first <= out.back().last + 1) {
      out.back().last = std::max(out.back().last, last);
    } else {
      out.push_back({first, last});
    }
  };
  for (const CharRange& r : ranges_) {
    if (r.first <= r.last) {
      put(r.first, std::min(r.last, 0xD7FFu));
      put(std::max(r.first, 0xE000u), std::min(r.last, kMaxChar));
    }
  }
  ranges_ = std::move(out);
}

CharClass CharClass::inverse() const {
  CharClass out;
  uint32_t next = 0;
  for (const CharRange& r : ranges_) {
    if (r.first > next) out.ranges_.push_back({next, r.first - 1});
    next = r.last + 1;
  }
  if (next <= kMaxChar) out.ranges_.push_back({next, kMaxChar});
  out.settle();
  return out;
}

CharClass CharClass::minus(const CharClass& other) const {
  CharClass out = inverse();
  out.add(other);
  return out.inverse();
}

bool CharClass::contains(uint32_t c) const {
  return std::any_of(ranges_.begin(), ranges_.end(),
                     [c](const CharRange& r) { return c >= r.first && c <= r.last; });
}

std::vector<ByteRun> utf8_runs(const CharClass& set) {
  std::vector<ByteRun> out;
  for (const CharRange& r : set.ranges()) split(r.first, r.last, &out);
  return out;
}

}  // namespace sluice::grammar
