// A string of the interpreter: UTF-8 bytes, plus the spans that came from the caller. Slicing and
// joining keep the spans, so each byte of the finished prompt is known to come from the template or
// from a message, and for each message which of its bytes reached the prompt.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::jinja {

// Bytes from the caller.
struct Span {
  size_t begin = 0;  // bytes of the text
  size_t end = 0;
  uint32_t source = 0;  // which of the caller's strings (Values::given); 0: not known
  // The bytes of the source that are shown. Where escapes made the text longer, the span as a whole
  // shows [from, to).
  uint32_t from = 0;
  uint32_t to = 0;
  bool content = true;  // tokenized without control tokens

  static constexpr uint32_t kSeveral = UINT32_MAX;  // as `source`: a mixture

  // The part [first, last) of the text.
  [[nodiscard]] Span part(size_t first, size_t last) const;
};

class Text {
 public:
  Text() = default;
  explicit Text(std::string_view bytes, bool content = false) { append(bytes, content); }

  [[nodiscard]] std::string_view view() const { return bytes_; }
  [[nodiscard]] size_t size() const { return bytes_.size(); }
  // Spans from the caller: ascending, not empty.
  [[nodiscard]] const std::vector<Span>& spans() const { return spans_; }

  void append(std::string_view bytes, bool content = false);
  // Appends bytes that show what `origin` shows.
  void append(std::string_view bytes, const Span& origin);
  void append(const Text& from) { append(from, 0, from.size()); }
  // Appends bytes [begin, end) of `from`, which must be another object.
  void append(const Text& from, size_t begin, size_t end);
  [[nodiscard]] Text slice(size_t begin, size_t end) const;
  // The same text with other bytes, such as its upper case. If the length differs, all of it
  // becomes one span.
  [[nodiscard]] Text with_bytes(std::string_view bytes) const;

 private:
  void mark(const Span& span);
  std::string bytes_;
  std::vector<Span> spans_;
};

// --- characters, counted as Python does

// White space as in str.strip() and str.isspace().
[[nodiscard]] bool is_space(uint32_t code_point);
// The character at text[at] and its length. An invalid byte is a character of one byte.
[[nodiscard]] uint32_t code_point(std::string_view text, size_t at, size_t* bytes);
[[nodiscard]] size_t count_characters(std::string_view text);
// Byte offset of character `n`, or of the end.
[[nodiscard]] size_t character_offset(std::string_view text, size_t n);
// Length of leading white space; offset of trailing white space.
[[nodiscard]] size_t leading_space(std::string_view text);
[[nodiscard]] size_t trailing_space(std::string_view text);

// Appends `text` with each character replaced by `replace(code point)`, unless that is empty.
template <typename Replace>
void append_replaced(const Text& text, const Replace& replace, Text* out) {
  size_t done = 0, span = 0;
  for (size_t at = 0, bytes = 0; at < text.size(); at += bytes) {
    const std::string other = replace(code_point(text.view(), at, &bytes));
    if (other.empty()) continue;
    out->append(text, done, at);
    done = at + bytes;
    while (span < text.spans().size() && text.spans()[span].end <= at) ++span;
    if (span < text.spans().size() && text.spans()[span].begin <= at) {
      out->append(other, text.spans()[span].part(at, at + bytes));
    } else {
      out->append(other);
    }
  }
  out->append(text, done, text.size());
}

[[nodiscard]] std::string to_lower(std::string_view text);
[[nodiscard]] std::string to_upper(std::string_view text);
// Capitalizes each word; a word is a run of letters.
[[nodiscard]] std::string to_title(std::string_view text);
[[nodiscard]] std::string to_capitalized(std::string_view text);

}  // namespace sluice::jinja
