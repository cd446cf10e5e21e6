// Attacks on the tokenizer: texts on which naive merging takes forever, and files with wrong data.
#include <limits>

#include "../extent.h"
#include "../sanitized.h"
#include "tokenizer_vocab.h"

namespace sluice::test {
namespace {

using Ids = std::vector<Token>;

constexpr tokenizer::EncodeOptions kPlain{.add_special = false, .parse_special = true};

// A mebibyte that makes naive merging quadratic. Nothing is timed: a quadratic implementation would
// take hours, so finishing is the proof.
TEST(Pathological, LongRunsFinish) {
  constexpr size_t kBytes = kSanitized ? 1u << 16 : 1u << 20;  // quadratic: hours
  constexpr size_t kFewerBytes =
      kSanitized ? 1u << 13 : 1u << 17;  // quadratic: minutes, for each of many
  VocabFile spm = sentencepiece_vocab();
  VocabFile bpe = byte_vocab("llama-bpe");
  bpe.flags = {{"add_bos_token", false}};
  for (const std::string& unit : {std::string("a"), std::string(" "), std::string("\n")}) {
    std::string run = unit == " " ? kMark : unit;
    std::string spelled = spell(static_cast<uint8_t>(unit[0]));
    spm.add(run, kNormal, -1);
    for (int i = 0; i < 6; ++i) {
      spm.add(run + run, kNormal, -2 - static_cast<float>(i));
      bpe.merge(spelled, spelled);
      run += run;
      spelled += spelled;
    }
  }
  const auto spm_tokenizer = spm.must_create();
  const auto bpe_tokenizer = bpe.must_create();
  for (const char* unit : {"a", " ", "\n", "ab", " a", "\xC3\xA9", "'", "\r\n ", "<", "1"}) {
    std::string text = unit;
    const bool longest = text == "a" || (text == " " && long_suite());
    while (text.size() < (longest ? kBytes : kFewerBytes)) text += unit;
    for (const auto* tokenizer : {spm_tokenizer.get(), bpe_tokenizer.get()}) {
      const Ids ids = tokenizer->encode(text, kPlain);
      EXPECT_EQ(tokenizer->decode(ids), text) << '"' << unit << '"';
      if (std::string(unit) == "a") {
        EXPECT_LE(ids.size(), kBytes / 64 + 2);
      }
    }
  }
}

TEST(Pathological, SpecialTokensThatNearlyMatch) {
  VocabFile file = byte_vocab("gpt-2");
  file.add(std::string(250, '<'), kControl);
  const auto tokenizer = file.must_create();
  std::string text;
  while (text.size() < (kSanitized ? 1u << 15 : 1u << 18)) text += std::string(249, '<') + "a";
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(text, kPlain)), text);
}

void expect_refused(const VocabFile& file, Code code, const std::string& named) {
  const auto made = file.create();
  ASSERT_FALSE(made.ok()) << named;
  EXPECT_EQ(made.status().code(), code) << made.status().message();
  EXPECT_NE(made.status().message().find(named), std::string::npos) << made.status().message();
}

TEST(HostileVocabulary, ErrorsNameTheDefect) {
  VocabFile file = byte_vocab("gpt-2");
  file.merges = {"a b"};
  expect_refused(file, Code::kBadTokenizer, "merge 0 \"a b\" has an unknown token");
  file.merges = {"ab"};
  expect_refused(file, Code::kBadTokenizer, "merge 0 \"ab\"");
  file.merges = {""};
  expect_refused(file, Code::kBadTokenizer, "merge 0");

  file = byte_vocab("gpt-2");
  file.add("a");
  expect_refused(file, Code::kBadTokenizer, "tokens 97 and 256 have the same text \"a\"");

  file = byte_vocab("gpt-2");
  file.types.pop_back();
  expect_refused(file, Code::kBadTokenizer, "token_type has 255 entries for 256 tokens");

  file = byte_vocab("gpt-2");
  file.tokens[0x41] = "something else";
  expect_refused(file, Code::kBadTokenizer, "byte 0x41");

  file = byte_vocab("gpt-2");
  file.ids = {{"eos_token_id", 256}};
  expect_refused(file, Code::kBadTokenizer, "eos_token_id is 256");

  file = byte_vocab("gpt-2");
  file.add(std::string(1 << 15, 'x'));
  expect_refused(file, Code::kBadTokenizer, "token 256 has 32768 bytes");

  file = byte_vocab("gpt-2");
  file.add(std::string(300, 'x'), kControl);
  expect_refused(file, Code::kBadTokenizer, "special token 256");

  file = byte_vocab("brand-new");
  expect_refused(file, Code::kUnsupportedTokenizer, "\"brand-new\"");
  file.model = "runes";
  expect_refused(file, Code::kUnsupportedTokenizer, "\"runes\"");

  file = sentencepiece_vocab();
  file.scores.pop_back();
  expect_refused(file, Code::kBadTokenizer, "scores has 258 entries for 259 tokens");

  file = sentencepiece_vocab();
  file.scores[5] = std::numeric_limits<float>::quiet_NaN();
  expect_refused(file, Code::kBadTokenizer, "score of token 5");

  file = sentencepiece_vocab();
  file.tokens.clear();
  file.types.clear();
  file.scores.clear();
  expect_refused(file, Code::kBadTokenizer, "tokenizer.ggml.tokens has 0 entries");
}

TEST(HostileVocabulary, MissingBosIsNotAdded) {
  VocabFile file = byte_vocab("gpt-2");
  file.tokens.resize(5);  // too short for the default BOS of 11
  file.types.resize(5);
  file.flags = {{"add_bos_token", true}};
  expect_refused(file, Code::kBadTokenizer, "add_bos_token");
}

TEST(HostileVocabulary, MissingArrays) {
  GgufBuilder none;
  const auto bytes = none.string("tokenizer.ggml.model", "gpt2").build();
  gguf::Header header;
  ASSERT_TRUE(gguf::parse_header(bytes, bytes.size(), &header).ok());
  const auto made = Tokenizer::create(header);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.status().code(), Code::kBadTokenizer);
  header.metadata.clear();
  EXPECT_EQ(Tokenizer::create(header).status().code(), Code::kBadTokenizer);
}

TEST(HostileVocabulary, EmptyTokensGetNamesAndUnknownTypesAreText) {
  VocabFile file = byte_vocab("gpt-2");
  file.add("");
  file.add("");
  file.add("odd", 77);
  const auto tokenizer = file.must_create();
  EXPECT_EQ(tokenizer->piece(256), "[EMPTY_256]");
  EXPECT_EQ(tokenizer->token_bytes(258), "odd");
  for (const Token id : {-1, 259, INT32_MAX, INT32_MIN}) {
    EXPECT_EQ(tokenizer->token_bytes(id), "");
    EXPECT_EQ(tokenizer->piece(id), "");
    EXPECT_FALSE(tokenizer->is_control(id));
  }
}

}  // namespace
}  // namespace sluice::test
