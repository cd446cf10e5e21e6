// Removes the marks from a text and records the spans.
#include "tokenizer/literal_spans.h"

#include "tokenizer/try_reserve.h"

namespace sluice::tokenizer {

namespace {

// The two marks differ only in their last byte.
constexpr std::string_view kMarkStart = kPlainBegin.substr(0, 2);

// The next mark at or after `from`; npos when there is none.
size_t find_mark(std::string_view text, size_t from) {
  for (size_t at; (at = text.find(kMarkStart, from)) != std::string_view::npos; from = at + 1) {
    const std::string_view mark = text.substr(at, kPlainBegin.size());
    if (mark == kPlainBegin || mark == kPlainEnd) return at;
  }
  return std::string_view::npos;
}

}  // namespace

bool LiteralText::read(std::string_view text) {
  text_ = text;
  size_t begins = 0;
  size_t mark = find_mark(text, 0);
  if (mark == std::string_view::npos) return true;
  for (size_t at = mark; at != std::string_view::npos; at = find_mark(text, at + 1)) {
    begins += text.substr(at, kPlainBegin.size()) == kPlainBegin ? 1 : 0;
  }
  if (!make_room(&copy_, text.size()) || !make_room(&ranges_, begins)) return false;
  bool open = false;
  size_t from = 0;
  for (; mark != std::string_view::npos; mark = find_mark(text, from)) {
    copy_ += text.substr(from, mark - from);
    from = mark + kPlainBegin.size();
    const auto here = static_cast<uint32_t>(copy_.size());
    const bool begin = text.substr(mark, kPlainBegin.size()) == kPlainBegin;
    if (begin && !open) ranges_.push_back({here, UINT32_MAX});
    if (!begin && open) {
      ranges_.back().end = here;
      if (ranges_.back().begin == here) ranges_.pop_back();
    }
    open = begin;
  }
  copy_ += text.substr(from);
  text_ = copy_;
  return true;
}

}  // namespace sluice::tokenizer
