// Slicing and joining of text, and Unicode characters.
#include "jinja/text.h"

#include <algorithm>

#include "platform/unicode_case.h"
#include "tokenizer/fold.h"
#include "tokenizer/unicode.h"
#include "tokenizer/utf8.h"

namespace sluice::jinja {

Span Span::part(size_t first, size_t last) const {
  Span out = *this;
  out.begin = std::max(begin, first);
  out.end = std::min(end, last);
  if (end - begin == to - from) {
    out.from += static_cast<uint32_t>(out.begin - begin);
    out.to -= static_cast<uint32_t>(end - out.end);
  }
  return out;
}

void Text::mark(const Span& span) {
  if (span.begin == span.end) return;
  Span* last = spans_.empty() ? nullptr : &spans_.back();
  if (last != nullptr && last->end == span.begin && last->source == span.source &&
      last->content == span.content && last->to == span.from) {
    last->end = span.end;
    last->to = span.to;
  } else {
    spans_.push_back(span);
  }
}

void Text::append(std::string_view bytes, bool content) {
  const size_t at = bytes_.size();
  bytes_ += bytes;
  if (content) mark({at, bytes_.size()});
}

void Text::append(std::string_view bytes, const Span& origin) {
  Span span = origin;
  span.begin = bytes_.size();
  bytes_ += bytes;
  span.end = bytes_.size();
  mark(span);
}

void Text::append(const Text& from, size_t begin, size_t end) {
  const size_t at = bytes_.size();
  bytes_.append(from.bytes_, begin, end - begin);
  for (const Span& span : from.spans_) {
    if (span.begin >= end) break;
    if (span.end <= begin) continue;
    Span part = span.part(begin, end);
    part.begin = at + part.begin - begin;
    part.end = at + part.end - begin;
    mark(part);
  }
}

Text Text::slice(size_t begin, size_t end) const {
  Text out;
  if (begin < end) out.append(*this, begin, end);
  return out;
}

Text Text::with_bytes(std::string_view bytes) const {
  Text out(bytes);
  if (bytes.size() == bytes_.size()) {
    out.spans_ = spans_;
  } else if (!spans_.empty()) {
    Span all = spans_.front();
    for (const Span& span : spans_) {
      if (span.source != all.source) all.source = Span::kSeveral;
      all.from = std::min(all.from, span.from);
      all.to = std::max(all.to, span.to);
      all.content = all.content || span.content;
    }
    all.begin = 0;
    all.end = bytes.size();
    out.mark(all);
  }
  return out;
}

bool is_space(uint32_t cp) {
  if (cp < 0x80) return (cp >= 0x09 && cp <= 0x0d) || (cp >= 0x1c && cp <= 0x20);
  return tokenizer::char_class(cp) == tokenizer::CharClass::kSpace;
}

uint32_t code_point(std::string_view text, size_t at, size_t* bytes) {
  const tokenizer::Decoded decoded = tokenizer::decode_utf8(text, at);
  *bytes = decoded.cp == tokenizer::kInvalidCodepoint ? 1 : decoded.bytes;
  return decoded.cp == tokenizer::kInvalidCodepoint ? 0xfffd : decoded.cp;
}

size_t count_characters(std::string_view text) {
  size_t n = 0;
  for (size_t at = 0, bytes = 0; at < text.size(); at += bytes, ++n) {
    (void)code_point(text, at, &bytes);
  }
  return n;
}

size_t character_offset(std::string_view text, size_t n) {
  size_t at = 0;
  for (size_t bytes = 0; n > 0 && at < text.size(); at += bytes, --n) {
    (void)code_point(text, at, &bytes);
  }
  return at;
}

size_t leading_space(std::string_view text) {
  size_t at = 0;
  for (size_t bytes = 0; at < text.size() && is_space(code_point(text, at, &bytes));) at += bytes;
  return at;
}

size_t trailing_space(std::string_view text) {
  size_t end = text.size();
  while (end > 0) {
    size_t at = end - 1;
    while (at > 0 && end - at < 4 && (static_cast<uint8_t>(text[at]) & 0xc0) == 0x80) --at;
    size_t bytes = 0;
    if (!is_space(code_point(text, at, &bytes)) || at + bytes != end) break;
    end = at;
  }
  return end;
}

std::string to_lower(std::string_view text) {
  std::string out;
  if (!tokenizer::fold_text(text, true, tokenizer::Accents::kKeep, &out)) return std::string(text);
  return out;
}

std::string to_upper(std::string_view text) {
  std::string out;
  for (size_t at = 0, bytes = 0; at < text.size(); at += bytes) {
    const uint32_t cp = code_point(text, at, &bytes);
    if (cp < 0x80) {
      out += static_cast<char>(cp >= 'a' && cp <= 'z' ? cp - 32 : cp);
    } else if (cp == 0xdf) {
      out += "SS";
    } else if (bytes > 1) {
      tokenizer::append_utf8(platform::upper_case(cp), &out);
    } else {
      out += text.substr(at, bytes);
    }
  }
  return out;
}

std::string to_title(std::string_view text) {
  std::string out;
  bool in_word = false;
  for (size_t at = 0, bytes = 0; at < text.size(); at += bytes) {
    const uint32_t cp = code_point(text, at, &bytes);
    const std::string_view character = text.substr(at, bytes);
    out += in_word ? to_lower(character) : to_upper(character);
    in_word = tokenizer::char_class(cp) == tokenizer::CharClass::kLetter;
  }
  return out;
}

std::string to_capitalized(std::string_view text) {
  const size_t first = character_offset(text, 1);
  return to_upper(text.substr(0, first)) + to_lower(text.substr(first));
}

}  // namespace sluice::jinja
