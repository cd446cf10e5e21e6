// Pre-tokenizers compared with the published regular expressions, run by another engine (see
// tests/reference/pretokenize.mjs), and the character classes they use.
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "../paths.h"
#include "tokenizer/pretokenize.h"
#include "tokenizer/unicode.h"

namespace sluice::tokenizer {
namespace {

class Collector final : public WordSink {
 public:
  void word(std::string_view text) override { words.emplace_back(text); }
  std::vector<std::string> words;
};

std::vector<std::string> split(const std::string& name, const std::string& text) {
  const PreTokenizer* pre = find_pre_tokenizer(name);
  EXPECT_NE(pre, nullptr) << name;
  Collector collector;
  if (pre != nullptr && !text.empty()) pre_tokenize(text, pre->passes, &collector);
  return collector.words;
}

std::string unescape(const std::string& word) {
  std::string text;
  for (size_t i = 0; i < word.size(); ++i) {
    if (word[i] != '\\') {
      text += word[i];
      continue;
    }
    text += static_cast<char>(std::stoi(word.substr(i + 2, 2), nullptr, 16));
    i += 3;
  }
  return text;
}

TEST(PreTokenizer, SplitsLikeThePublishedExpressions) {
  std::ifstream file(sluice::test::source_dir() + "/tests/data/pretokenize.txt", std::ios::binary);
  int lines = 0;
  for (std::string line; std::getline(file, line); ++lines) {
    const size_t tab = line.find('\t');
    ASSERT_NE(tab, std::string::npos);
    std::vector<std::string> expected;
    std::string text;
    for (size_t pos = tab + 1; pos <= line.size();) {
      const size_t end = std::min(line.find(' ', pos), line.size());
      expected.push_back(unescape(line.substr(pos, end - pos)));
      text += expected.back();
      pos = end + 1;
    }
    EXPECT_EQ(split(line.substr(0, tab), text), expected) << line;
  }
  EXPECT_GE(lines, 400);
}

TEST(PreTokenizer, NamesOfOneFamilySplitAlike) {
  const std::string text =
      "It's 12345 HTTPServer's  na\xC3\xAFve\n\n x=1;\xE4\xBD\xA0\xE5\xA5\xBD~";
  const std::vector<std::vector<std::string>> families = {
      {"gpt-2", "phi-2", "mpt", "olmo", "gpt-neox", "pythia"},
      {"llama-bpe", "llama3", "llama-v3", "dbrx", "lfm2", "smaug-bpe"},
      {"qwen2", "deepseek-r1-qwen", "stablelm2", "megrez"},
      {"starcoder", "refact", "command-r", "smollm"},
      {"gpt-4o", "llama4"},
  };
  for (const auto& names : families) {
    for (const auto& name : names) EXPECT_EQ(split(name, text), split(names[0], text)) << name;
  }
  EXPECT_EQ(find_pre_tokenizer("no such rule"), nullptr);
}

TEST(PreTokenizer, NothingIsLost) {
  const std::string text =
      "a\xC2\xA0 \xE3\x80\x80\r\n\t'\xF0\x9F\x9A\x80"
      "12 \x01\x7F!";
  for (const char* name : {"default", "gpt-2", "llama3", "qwen35", "deepseek-llm", "deepseek-coder",
                           "deepseek-v3", "falcon", "starcoder", "tekken", "gpt-4o", "bloom"}) {
    std::string joined;
    for (const auto& word : split(name, text)) {
      EXPECT_FALSE(word.empty());
      joined += word;
    }
    EXPECT_EQ(joined, text) << name;
  }
}

TEST(Unicode, ClassesOfKnownCharacters) {
  const std::vector<std::pair<uint32_t, CharClass>> known = {
      {'a', CharClass::kLetter},         {'5', CharClass::kNumber},
      {'!', CharClass::kPunctuation},    {'$', CharClass::kSymbol},
      {'~', CharClass::kSymbol},         {'_', CharClass::kPunctuation},
      {' ', CharClass::kSpace},          {'\n', CharClass::kSpace},
      {0x85, CharClass::kSpace},         {0xA0, CharClass::kSpace},
      {0x3000, CharClass::kSpace},       {0x200B, CharClass::kOther},
      {0x1C, CharClass::kOther},         {0xE9, CharClass::kLetter},
      {0x416, CharClass::kLetter},       {0x4F60, CharClass::kLetter},
      {0x9FA5, CharClass::kLetter},      {0xAC00, CharClass::kLetter},
      {0x20000, CharClass::kLetter},     {0x301, CharClass::kMark},
      {0xFE0F, CharClass::kMark},        {0x663, CharClass::kNumber},
      {0xB2, CharClass::kNumber},        {0x2160, CharClass::kNumber},
      {0x20AC, CharClass::kSymbol},      {0x1F680, CharClass::kSymbol},
      {0x3002, CharClass::kPunctuation}, {0xE000, CharClass::kOther},
      {0xD800, CharClass::kOther},       {0x10FFFF, CharClass::kOther},
  };
  for (const auto& [cp, cls] : known) EXPECT_EQ(char_class(cp), cls) << std::hex << cp;
}

}  // namespace
}  // namespace sluice::tokenizer
