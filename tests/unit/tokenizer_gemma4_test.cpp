// Gemma 4 vocabularies: SentencePiece spelling with a merge list.
#include "tokenizer_vocab.h"

namespace sluice::test {
namespace {

using Ids = std::vector<Token>;
constexpr tokenizer::EncodeOptions kBare{.add_special = false};

TEST(Gemma4, MergesAsListedWithNewlinesApart) {
  VocabFile file = sentencepiece_vocab();  // <unk> <s> </s> and the bytes, 3 to 258
  file.model = "gemma4";
  file.ids = {{"bos_token_id", 1}, {"eos_token_id", 2}, {"unknown_token_id", 0}};
  file.flags = {{"add_bos_token", true}};
  const Token a = file.add("a"), b = file.add("b"), mark = file.add(kMark);
  const Token first = file.add("#");
  const Token ab = file.merge("a", "b"), mark_ab = file.merge(kMark, "ab");
  const Token newline = file.add("\n"), two = file.add("\n\n");
  const Token again = file.add("#");  // a duplicate text: the last one counts
  const Token ba = file.add("ba");    // a token that no merge makes
  const Token line_a = file.add("\na");
  file.merges.push_back("\n a");  // its result is a token, but text is split at newlines first
  const auto made = file.must_create();
  ASSERT_NE(made, nullptr);
  EXPECT_EQ(made->encode("ab ab"), (Ids{1, ab, mark_ab}));  // no space before the text
  EXPECT_EQ(made->encode("bab", kBare), (Ids{b, ab}));
  EXPECT_EQ(made->encode("baa", kBare), (Ids{b, a, a}));
  EXPECT_EQ(made->encode("a\n\na\na", kBare), (Ids{a, two, a, newline, a}));
  EXPECT_EQ(made->encode("\n\n\n", kBare), (Ids{newline, newline, newline}));
  EXPECT_EQ(made->encode("#", kBare), Ids{again});
  EXPECT_EQ(made->encode("\xC3\xA9 ", kBare), (Ids{3 + 0xC3, 3 + 0xA9, mark}));
  EXPECT_EQ(made->decode(Ids{first, again, ab, mark_ab}), "##ab ab");
  EXPECT_NE(ba, line_a);
}

}  // namespace
}  // namespace sluice::test
