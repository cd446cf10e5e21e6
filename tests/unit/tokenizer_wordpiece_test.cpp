// WordPiece: splitting text into words and words into tokens, and inconsistent files.
#include "hf_tiny_model.h"
#include "tokenizer/fold.h"
#include "tokenizer_vocab.h"

namespace sluice::test {
namespace {

using Ids = std::vector<Token>;
constexpr tokenizer::EncodeOptions kWithoutSpecial{.add_special = false};

enum : Token { kUnk, kCls, kSep, kMask };

VocabFile wordpiece_vocab(const std::vector<std::string>& words,
                          const std::vector<std::string>& parts) {
  VocabFile file;
  file.model = "bert";
  for (const char* name : {"[UNK]", "[CLS]", "[SEP]", "[MASK]"}) file.add(name, kControl);
  for (const std::string& word : words) file.add(kMark + word);
  for (const std::string& part : parts) file.add(part);
  file.ids = {{"unknown_token_id", kUnk}, {"cls_token_id", kCls}, {"seperator_token_id", kSep}};
  return file;
}

TEST(WordPiece, TakesTheLongestTokenFirst) {
  const auto made = wordpiece_vocab({"a", "ab", "x"}, {"b", "bc", "c"}).must_create();
  ASSERT_NE(made, nullptr);
  const Token a = 4, ab = 5, x = 6, b = 7, bc = 8, c = 9;
  EXPECT_EQ(made->encode("abc", kWithoutSpecial), (Ids{ab, c}));  // not a + bc
  EXPECT_EQ(made->encode("ab bc", kWithoutSpecial), (Ids{ab, kUnk}));
  EXPECT_EQ(made->encode("abcbcb x", kWithoutSpecial), (Ids{ab, c, bc, b, x}));
  EXPECT_EQ(made->encode("abd a", kWithoutSpecial), (Ids{kUnk, a}));  // the whole word is unknown
  EXPECT_EQ(made->encode("abc"), (Ids{kCls, ab, c, kSep}));
  EXPECT_EQ(made->encode(""), (Ids{kCls, kSep}));
  EXPECT_EQ(made->encode("a [MASK] b", kWithoutSpecial), (Ids{a, kMask, kUnk}));
  EXPECT_EQ(made->decode(Ids{ab, c, x}), "abc x");
  EXPECT_TRUE(made->adds_eos());
}

TEST(WordPiece, SplitsAtSpacePunctuationAndChinese) {
  const auto made =
      wordpiece_vocab({"a", "!", "$", "-", "\xE4\xB8\x96", "\xE2\x84\xA2"}, {"a", "\xE2\x84\xA2"})
          .must_create();
  ASSERT_NE(made, nullptr);
  const Token a = 4, bang = 5, dollar = 6, dash = 7, world = 8, tail = 10, trade = 11;
  EXPECT_EQ(made->encode("a!a$a-a", kWithoutSpecial), (Ids{a, bang, a, dollar, a, dash, a}));
  EXPECT_EQ(made->encode("a\xE4\xB8\x96"
                         "a",
                         kWithoutSpecial),
            (Ids{a, world, a}));
  EXPECT_EQ(made->encode("a\xE3\x80\x80\n\ta", kWithoutSpecial), (Ids{a, a}));
  EXPECT_EQ(made->encode("a\xE2\x84\xA2", kWithoutSpecial),
            (Ids{a, trade}));  // a symbol beyond ASCII stays
  // Removed within a word: zero width space, soft hyphen, NUL, invalid UTF-8.
  EXPECT_EQ(made->encode(std::string("a\xE2\x80\x8B\xC2\xAD\0\xFF"
                                     "a",
                                     9),
                         kWithoutSpecial),
            (Ids{a, tail}));
}

TEST(WordPiece, StripsAccentsAndLowercases) {
  const auto made = wordpiece_vocab({"cafe", "\xCE\xB1\xCF\x83"}, {}).must_create();
  ASSERT_NE(made, nullptr);
  for (const char* text : {"caf\xC3\xA9", "CAF\xC3\x89", "cafe\xCC\x81", "CaFe"}) {
    EXPECT_EQ(made->encode(text, kWithoutSpecial), Ids{4}) << text;
  }
  EXPECT_EQ(made->encode("\xCE\x86\xCE\xA3", kWithoutSpecial), Ids{5});  // no final sigma
}

TEST(WordPiece, Folding) {
  using tokenizer::Accents;
  const auto fold = [](const char* text, bool lower, Accents accents) {
    std::string out;
    EXPECT_TRUE(tokenizer::fold_text(text, lower, accents, &out));
    return out;
  };
  EXPECT_EQ(fold("\xC3\x84\xC3\x9F\xE1\xBA\x9E", true, Accents::kStrip), "a\xC3\x9F\xC3\x9F");
  EXPECT_EQ(fold("\xC3\x84", false, Accents::kStrip), "A");
  EXPECT_EQ(fold("\xC3\x84", true, Accents::kKeep), "\xC3\xA4");
  EXPECT_EQ(fold("\xC4\xB0", true, Accents::kKeep), "i\xCC\x87");
  EXPECT_EQ(fold("\xC4\xB0", true, Accents::kStrip), "i");
  // A Hangul syllable, and a Devanagari vowel sign that is a spacing mark.
  EXPECT_EQ(fold("\xED\x95\x9C", true, Accents::kStrip), "\xE1\x84\x92\xE1\x85\xA1\xE1\x86\xAB");
  EXPECT_EQ(fold("\xED\x95\x9C", true, Accents::kFirst), "\xE1\x84\x92");
  EXPECT_EQ(fold("\xE0\xA4\xA8\xE0\xA4\xBF", true, Accents::kStrip), "\xE0\xA4\xA8\xE0\xA4\xBF");
  EXPECT_EQ(fold("\xE0\xA4\xA8\xE0\xA4\xBF", true, Accents::kFirst), "\xE0\xA4\xA8");
  EXPECT_EQ(fold("\xC7\x84\xC4\x80\xC4\x81\xD4\xB1", true, Accents::kKeep),
            "\xC7\x86\xC4\x81\xC4\x81\xD5\xA1");
}

TEST(WordPiece, InconsistentFilesAreErrors) {
  VocabFile file = wordpiece_vocab({"a"}, {});
  file.ids[0] = {"unknown_token_id", 77};
  EXPECT_STREQ(code_name(file.create().status().code()), "BAD_TOKENIZER");
  file = wordpiece_vocab({"a"}, {});
  file.ids.clear();  // ids such as 100 do not exist
  EXPECT_STREQ(code_name(file.create().status().code()), "BAD_TOKENIZER");
  file = wordpiece_vocab({std::string(2000, 'a')}, {});
  EXPECT_STREQ(code_name(file.create().status().code()), "BAD_TOKENIZER");
}

TEST(WordPiece, FromTokenizerJson) {
  hf::TinyModel tiny;
  std::string vocab =
      R"("[UNK]":0,"[CLS]":1,"[SEP]":2,"caf":3,"##e":4,"\u00e9":5,"##\u00e9":6,"CAF":7)";
  for (int i = 8; i < 260; i++) vocab += ",\"<" + std::to_string(i) + ">\":" + std::to_string(i);
  const auto json = [&](const std::string& normalizer) {
    return R"({"added_tokens":[{"id":0,"content":"[UNK]","special":true},)"
           R"({"id":1,"content":"[CLS]","special":true},{"id":2,"content":"[SEP]","special":true}],)"
           R"("normalizer":{"type":"BertNormalizer","clean_text":true,)" +
           normalizer +
           R"(},"pre_tokenizer":{"type":"BertPreTokenizer"},"model":{"type":"WordPiece",)"
           R"("unk_token":"[UNK]","continuing_subword_prefix":"##","max_input_chars_per_word":5,)"
           R"("vocab":{)" +
           vocab + "}}}";
  };
  tiny.tokenizer_config = R"({"cls_token":"[CLS]","sep_token":"[SEP]","unk_token":"[UNK]"})";
  const auto ids = [&](const char* text, const std::string& normalizer) {
    tiny.tokenizer = json(normalizer);
    const auto model = tiny.describe();
    EXPECT_TRUE(model.ok()) << model.status().message();
    const auto made = Tokenizer::create(model->header);
    EXPECT_TRUE(made.ok()) << made.status().message();
    return (*made)->encode(text);
  };
  const std::string uncased =
      R"("handle_chinese_chars":true,"strip_accents":null,"lowercase":true)";
  const std::string cased = R"("handle_chinese_chars":true,"strip_accents":null,"lowercase":false)";
  EXPECT_EQ(ids("CAF\xC3\x89", uncased), (Ids{1, 3, 4, 2}));
  EXPECT_EQ(ids("CAF\xC3\xA9", cased), (Ids{1, 7, 6, 2}));
  const std::string stripped =
      R"("handle_chinese_chars":true,"strip_accents":true,"lowercase":false)";
  EXPECT_EQ(ids("caf\xC3\xA9", stripped), (Ids{1, 3, 4, 2}));
  EXPECT_EQ(ids("cafeee", uncased), (Ids{1, 0, 2}));  // six characters exceed the limit
  tiny.tokenizer = json(R"("clean_text":false)");
  tiny.tokenizer.replace(tiny.tokenizer.find(R"("clean_text":true,)"), 18, "");
  tiny.expect_refused(Code::kUnsupportedTokenizer, "clean_text");
}

}  // namespace
}  // namespace sluice::test
