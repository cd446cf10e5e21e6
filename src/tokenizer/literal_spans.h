// Stretches of a text in which no control token is recognized, and the marks that show them: what
// users say is quoted in a prompt, and must not end their turn. The marks are noncharacters, which
// no text holds for their own sake (Unicode, 23.7); the caller replaces those of the quoted text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::tokenizer {

inline constexpr std::string_view kPlainBegin = "\xEF\xB7\x90";  // U+FDD0
inline constexpr std::string_view kPlainEnd = "\xEF\xB7\x91";    // U+FDD1

struct LiteralSpan {
  uint32_t begin = 0;  // bytes
  uint32_t end = 0;
};

// The text without its marks, and the stretches between them, in order. Marks do not nest: of
// several begins the first counts, and one that nothing ends reaches to the end of the text.
class LiteralText {
 public:
  // False when memory is out. `text` outlives this where it holds no mark.
  [[nodiscard]] bool read(std::string_view text);
  [[nodiscard]] std::string_view text() const { return text_; }
  // Whether [begin, end) touches a plain stretch; `begin` never lies before an earlier call's.
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
