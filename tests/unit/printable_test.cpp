// printable(): strings from untrusted files made safe to show.
#include "gguf/printable.h"

#include <gtest/gtest.h>

#include "tokenizer/utf8.h"

namespace sluice::gguf {
namespace {

TEST(Printable, KeepsTextAndReplacesControls) {
  EXPECT_EQ(printable("llama 3 é 日本 🙂"), "llama 3 é 日本 🙂");
  EXPECT_EQ(printable("a\x1b[2J\n\t\x7f"), "a?[2J???");
  EXPECT_EQ(printable(std::string_view("a\0b", 3)), "a?b");
  EXPECT_EQ(printable("\xc2\x9b\xc2\x80\xc2\xa0"), "??\xc2\xa0");
  EXPECT_EQ(printable("\x9b\xff\xc2"), "???");
  EXPECT_EQ(printable("\xe2\x82|\xf0\x9f\x99|\xc0\x80|\xed\xa0\x80|\xf4\x90\x80\x80"),
            "??|???|??|???|????");
}

TEST(Printable, IsCutBetweenCharacters) {
  EXPECT_EQ(printable("日本", 5), "日");
  EXPECT_EQ(printable("日本", 6), "日本");
  EXPECT_EQ(printable("日本", 2), "");
  EXPECT_EQ(printable("\xff\xff\xff", 2), "??");
}

TEST(Printable, EveryThreeBytesGiveValidText) {
  for (uint32_t i = 0; i < 1u << 24; i += i % 131 + 1) {
    const char bytes[3] = {static_cast<char>(i >> 16), static_cast<char>(i >> 8),
                           static_cast<char>(i)};
    const std::string_view text(bytes, 3);
    const std::string shown = printable(text);
    ASSERT_TRUE(tokenizer::is_valid_utf8(shown)) << i;
    ASSERT_EQ(shown.find_first_of("\x1b\x7f\n"), std::string::npos) << i;
    ASSERT_EQ(printable(shown), shown) << i;
    if (tokenizer::is_valid_utf8(text) && (bytes[0] & 0x60) != 0 && (bytes[1] & 0x60) != 0 &&
        (bytes[2] & 0x60) != 0 && text.find('\x7f') == std::string_view::npos) {
      ASSERT_EQ(shown, text) << i;
    }
  }
}

}  // namespace
}  // namespace sluice::gguf
