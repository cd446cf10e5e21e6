// Sorts a vocabulary.
#include "grammar/vocabulary.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace sluice::grammar {
namespace {

// Number of characters of plain text; 0 if it is not plain or too long for a group.
uint32_t plain_length(std::string_view text) {
  uint32_t n = 0;
  for (size_t i = 0; i < text.size(); ++n) {
    const uint8_t byte = static_cast<uint8_t>(text[i]);
    size_t length = 0;
    if (byte >= 0x20 && byte < 0x7F && byte != '"' && byte != '\\') length = 1;
    for (const PlainLead& lead : kPlainLeads) {
      if (byte < lead.first || byte > lead.last || i + 1 >= text.size()) continue;
      const uint8_t second = static_cast<uint8_t>(text[i + 1]);
      if (second >= lead.lo && second <= lead.hi) length = static_cast<size_t>(lead.length);
    }
    if (length == 0 || i + length > text.size()) return 0;
    for (size_t k = 2; k < length; ++k) {
      if ((static_cast<uint8_t>(text[i + k]) & 0xC0) != 0x80) return 0;
    }
    i += length;
  }
  return n;
}

Plain kind_of(std::string_view text) {
  const auto lower = [](char c) { return c >= 'a' && c <= 'z'; };
  const auto word = [&](char c) {
    return lower(c) || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  };
  if (std::all_of(text.begin(), text.end(), lower)) return Plain::kLower;
  return std::all_of(text.begin(), text.end(), word) ? Plain::kWord : Plain::kAny;
}

uint32_t group_of(std::string_view text) {
  const uint32_t n = plain_length(text);
  for (uint32_t i = 0; i < Vocabulary::kLengths; ++i) {
    if (n >= Vocabulary::kMin[i] && n <= Vocabulary::kMax[i]) {
      return static_cast<uint32_t>(kind_of(text)) * Vocabulary::kLengths + i;
    }
  }
  return Vocabulary::kGroups - 1;
}

}  // namespace

uint64_t Vocabulary::memory_bytes(uint64_t n, uint64_t text_bytes) {
  return sizeof(Vocabulary) + n * (4 + 4 + 1) + kGroups * (n / 8 + 64) + text_bytes + 1024 +
         text_bytes + n * 12;  // the copy that is sorted
}

Result<std::unique_ptr<Vocabulary>> Vocabulary::create(const TokenSource& source) {
  auto made = std::make_unique<Vocabulary>();
  made->source_ = &source;
  made->n_tokens_ = source.n_tokens();
  SLUICE_RETURN_IF_ERROR(made->build());
  return made;
}

Status Vocabulary::build() {
  struct Entry {
    uint32_t at;
    uint32_t length : 8, group : 4, unused : 20;
    Token id;
  };
  const uint32_t n = static_cast<uint32_t>(n_tokens_);
  AlignedBuffer copy, entries;
  uint64_t total = 0;
  SLUICE_RETURN_IF_ERROR(entries.allocate(n * sizeof(Entry) + 1));
  for (Token t = 0; t < n_tokens_; ++t) {
    const std::string bytes = source_->bytes(t);
    if (bytes.size() <= kMaxTokenBytes) total += bytes.size();
    if (source_->ends(t)) ends_.push_back(t);
  }
  SLUICE_RETURN_IF_ERROR(copy.allocate(total + 1));
  const char* const text = copy.as<char>();
  Entry* const list = entries.as<Entry>();
  uint32_t count = 0, at = 0;
  for (Token t = 0; t < n_tokens_; ++t) {
    const std::string bytes = source_->bytes(t);
    if (bytes.empty() || bytes.size() > kMaxTokenBytes || source_->ends(t)) continue;
    std::memcpy(copy.data() + at, bytes.data(), bytes.size());
    list[count++] = {at, static_cast<uint8_t>(bytes.size()),
                     static_cast<uint8_t>(group_of(bytes) & 15), 0, t};
    at += static_cast<uint32_t>(bytes.size());
  }
  const auto view = [text](const Entry& e) { return std::string_view(text + e.at, e.length); };
  std::sort(list, list + count, [&view](const Entry& a, const Entry& b) {
    if (a.group != b.group) return a.group < b.group;
    const int order = view(a).compare(view(b));
    return order != 0 ? order < 0 : a.id < b.id;
  });

  uint64_t kept = 0;
  const auto shared = [&](uint32_t i) -> size_t {
    if (i == 0 || list[i - 1].group != list[i].group) return 0;
    const std::string_view a = view(list[i - 1]), b = view(list[i]);
    return static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first -
                               a.begin());
  };
  for (uint32_t i = 0; i < count; ++i) kept += list[i].length - shared(i);
  const size_t words = mask_words();
  const size_t sizes[] = {(kGroups - 1) * words * 8, count * sizeof(Token),
                          (count + 1) * sizeof(uint32_t), count, static_cast<size_t>(kept)};
  size_t bytes = 0;
  for (const size_t size : sizes) bytes += round_up_to_line(size);
  SLUICE_RETURN_IF_ERROR(memory_.allocate(bytes));
  std::byte* place = memory_.data();
  const auto take = [&place](size_t size) {
    std::byte* const here = place;
    place += round_up_to_line(size);
    return here;
  };
  masks_ = reinterpret_cast<uint64_t*>(take(sizes[0]));
  ids_ = reinterpret_cast<Token*>(take(sizes[1]));
  offset_ = reinterpret_cast<uint32_t*>(take(sizes[2]));
  lcp_ = reinterpret_cast<uint8_t*>(take(sizes[3]));
  text_ = reinterpret_cast<uint8_t*>(take(sizes[4]));
  std::fill_n(masks_, (kGroups - 1) * words, 0);
  uint32_t end = 0;
  for (uint32_t i = 0; i < count; ++i) {
    const size_t same = shared(i);
    ids_[i] = list[i].id;
    lcp_[i] = static_cast<uint8_t>(same);
    offset_[i] = end;
    std::memcpy(text_ + end, text + list[i].at + same, list[i].length - same);
    end += list[i].length - static_cast<uint32_t>(same);
    const uint32_t g = list[i].group;
    group_[g + 1] = i + 1;
    if (g + 1 < kGroups) {
      const uint32_t id = static_cast<uint32_t>(list[i].id);
      masks_[g * words + id / 64] |= uint64_t{1} << (id % 64);
    }
  }
  offset_[count] = end;
  for (uint32_t g = 0; g < kGroups; ++g) group_[g + 1] = std::max(group_[g + 1], group_[g]);
  return {};
}

Token Vocabulary::find(std::string_view name) const {
  for (Token t = 0; t < n_tokens_; ++t) {
    if (source_->name(t) == name) return t;
  }
  return -1;
}

}  // namespace sluice::grammar
