// Literal spans: parts of a prompt in which no control token is recognized, such as the contents of
// chat messages, so that a user's text cannot end a turn. Marks around a span are noncharacters,
// which no text contains on purpose (Unicode standard, 23.7). The caller must replace them in the
// content itself.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::tokenizer {

inline constexpr std::string_view kPlainBegin = "\xEF\xB7\x90";  // U+FDD0
inline constexpr std::string_view kPlainEnd = "\xEF\xB7\x91";    // U+FDD1
// The place of a picture in a prompt, outside of literal spans.
inline constexpr std::string_view kMediaMark = "<__media__>";

struct LiteralSpan {
  uint32_t begin = 0;  // bytes
  uint32_t end = 0;
};

// The text without its marks, and the spans between them, in order. Marks do not nest: the first of
// several begin marks counts, and a span without an end mark extends to the end of the text.
class LiteralText {
 public:
  // False when memory is out. If `text` has no marks, it must outlive this object.
  [[nodiscard]] bool read(std::string_view text);
  [[nodiscard]] std::string_view text() const { return text_; }
  // Whether [begin, end) overlaps a literal span. `begin` must not decrease from call to call.
  [[nodiscard]] bool is_plain(size_t begin, size_t end) {
    while (next_ < ranges_.size() && ranges_[next_].end <= begin) ++next_;
    return next_ < ranges_.size() && ranges_[next_].begin < end;
  }

 private:
  std::string copy_;
  std::string_view text_;
  std::vector<LiteralSpan> ranges_;
  size_t next_ = 0;
};

}  // namespace sluice::tokenizer
