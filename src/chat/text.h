// A string of the interpreter: UTF-8, and which stretches of it came from the caller of a render.
// It is cut and joined like any other string, and the stretches go along, so that in the finished
// prompt each byte is known to be the template's or a message's.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::chat {

struct Span {
  size_t begin = 0;  // bytes
  size_t end = 0;
};

class Text {
 public:
  Text() = default;
  explicit Text(std::string_view bytes, bool content = false) { append(bytes, content); }

  [[nodiscard]] std::string_view view() const { return bytes_; }
  [[nodiscard]] size_t size() const { return bytes_.size(); }
  // What came from the caller: ascending, none empty, none touching another.
  [[nodiscard]] const std::vector<Span>& content() const { return content_; }

  void append(std::string_view bytes, bool content = false);
  void append(const Text& from) { append(from, 0, from.size()); }
  // Bytes [begin, end) of `from`, which is another text.
  void append(const Text& from, size_t begin, size_t end);
  [[nodiscard]] Text slice(size_t begin, size_t end) const;
  // The text with other bytes of the same meaning, such as its capitals; where their number
  // differs, a text that is content in any part is content as a whole.
  [[nodiscard]] Text with_bytes(std::string_view bytes) const;

 private:
  void mark(size_t begin, size_t end);
  std::string bytes_;
  std::vector<Span> content_;
};

// --- characters, as Python counts them

// White space of str.strip() and str.isspace().
[[nodiscard]] bool is_space(uint32_t code_point);
// The character at text[at] and its bytes; what is not UTF-8 is a character of one byte.
[[nodiscard]] uint32_t code_point(std::string_view text, size_t at, size_t* bytes);
[[nodiscard]] size_t count_characters(std::string_view text);
// Byte offset of character `n`, or of the end.
[[nodiscard]] size_t character_offset(std::string_view text, size_t n);
// Bytes of white space at the beginning; where the white space at the end begins.
[[nodiscard]] size_t leading_space(std::string_view text);
[[nodiscard]] size_t trailing_space(std::string_view text);

[[nodiscard]] std::string to_lower(std::string_view text);
[[nodiscard]] std::string to_upper(std::string_view text);
// Words with a capital each: a word is a run of letters.
[[nodiscard]] std::string to_title(std::string_view text);
[[nodiscard]] std::string to_capitalized(std::string_view text);

}  // namespace sluice::chat
