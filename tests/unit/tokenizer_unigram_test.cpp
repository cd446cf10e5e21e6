// SentencePiece unigram compared with trying every split, its normalization rules, and files with
// wrong rules.
#include <limits>
#include <map>

#include "../sanitized.h"
#include "tokenizer_vocab.h"

namespace sluice::test {
namespace {

using Ids = std::vector<Token>;

VocabFile unigram_vocab() {
  VocabFile file;
  file.model = "t5";
  file.add("<pad>", kControl);
  file.add("</s>", kControl);
  file.add("<unk>", kUnknown);
  return file;
}

// The best sum of scores over every way to split text[pos..]; all letters are tokens.
double best_score(const std::string& text, size_t pos, const std::map<std::string, float>& scores) {
  if (pos == text.size()) return 0;
  double best = -1e9;
  for (size_t n = 1; pos + n <= text.size(); ++n) {
    const auto found = scores.find(text.substr(pos, n));
    if (found == scores.end()) continue;
    best = std::max(best, static_cast<double>(found->second) + best_score(text, pos + n, scores));
  }
  return best;
}

TEST(Unigram, FindsTheBestOfAllSplits) {
  Random random(13);
  for (int round = 0; round < 40; ++round) {
    std::map<std::string, float> scores = {{"a", -9.f}, {"b", -9.f}, {"c", -9.f}};
    for (int i = 0; i < 20; ++i) {
      std::string token;
      for (uint32_t n = 2 + random.below(4); n > 0; --n) token += "abc"[random.below(3)];
      scores[token] = -1.f - static_cast<float>(random.below(1000)) / 64.f;
    }
    VocabFile file = unigram_vocab();
    for (const auto& [text, score] : scores) file.add(text, kNormal, score);
    const auto tokenizer = file.must_create();
    ASSERT_NE(tokenizer, nullptr);
    for (int i = 0; i < 20; ++i) {
      std::string text;
      for (uint32_t n = random.below(14); n > 0; --n) text += "abc"[random.below(3)];
      double sum = 0;
      const Ids ids = tokenizer->encode(text, kUserText);
      for (const Token id : ids)
        sum += static_cast<double>(scores.at(std::string(tokenizer->piece(id))));
      EXPECT_NEAR(sum, best_score(text, 0, scores), 1e-4) << text;
      EXPECT_EQ(tokenizer->decode(ids), text);
    }
  }
}

TEST(Unigram, UnknownCharactersMergeAndEosIsAdded) {
  VocabFile file = unigram_vocab();
  const Token a = file.add("a", kNormal, -1);
  const auto tokenizer = file.must_create();
  EXPECT_EQ(tokenizer->encode("a\xC3\xA9\xE4\xBD\xA0"
                              "a"),
            (Ids{a, 2, a, 1}));
  EXPECT_EQ(tokenizer->encode("\xFF"
                              "a",
                              kUserText),
            (Ids{2, a}));
  EXPECT_TRUE(tokenizer->encode("", kUserText).empty());
}

TEST(Unigram, SpacesFollowTheMetadata) {
  VocabFile file = unigram_vocab();
  const Token mark = file.add(kMark, kNormal, -3);
  const Token a = file.add("a", kNormal, -3);
  const Token mark_a = file.add(kMark + "a", kNormal, -1);
  file.flags = {{"add_space_prefix", true}};
  EXPECT_EQ(file.must_create()->encode("a  a", kUserText), (Ids{mark_a, mark, mark_a}));
  file.flags = {{"add_space_prefix", true}, {"remove_extra_whitespaces", true}};
  EXPECT_EQ(file.must_create()->encode("  a  a ", kUserText), (Ids{mark_a, mark_a}));
  file.flags.clear();
  EXPECT_EQ(file.must_create()->encode("a", kUserText), (Ids{a}));
}

// A double array with the single rule "A" -> "a".
std::vector<uint8_t> one_rule() {
  std::vector<uint32_t> units(834, 0x80000000u);
  units[0] = 256u << 10;
  units[256 ^ 'A'] = 512u << 10 | 1u << 8 | 'A';
  units[256 ^ 'A' ^ 512] = 0x80000000u | 0u;
  std::vector<uint8_t> blob;
  GgufBuilder::put(blob, static_cast<uint32_t>(units.size() * 4));
  for (const uint32_t unit : units) GgufBuilder::put(blob, unit);
  blob.push_back('a');
  blob.push_back(0);
  return blob;
}

Result<std::unique_ptr<Tokenizer>> create_with_rules(const std::vector<uint8_t>& blob) {
  GgufBuilder file;
  file.string("tokenizer.ggml.model", "t5");
  file.strings("tokenizer.ggml.tokens", {"<pad>", "</s>", "<unk>", "a", "b"});
  file.numbers("tokenizer.ggml.token_type", std::vector<int32_t>{3, 3, 2, 1, 1});
  file.numbers("tokenizer.ggml.scores", std::vector<float>{0, 0, 0, -1, -1});
  file.numbers("tokenizer.ggml.precompiled_charsmap", blob);
  const auto bytes = file.build();
  gguf::Header header;
  EXPECT_TRUE(gguf::parse_header(bytes, bytes.size(), &header).ok());
  return Tokenizer::create(header);
}

TEST(Unigram, AppliesTheFilesNormalizationRules) {
  auto made = create_with_rules(one_rule());
  ASSERT_TRUE(made.ok()) << made.status().message();
  EXPECT_EQ((*made)->encode("AabA", kUserText), (Ids{3, 3, 4, 3}));
}

TEST(Unigram, DamagedRulesNeverReadOutOfBounds) {
  const std::vector<uint8_t> good = one_rule();
  for (const size_t size : {size_t{1}, size_t{4}, size_t{100}}) {
    const auto made = create_with_rules({good.begin(), good.begin() + static_cast<long>(size)});
    ASSERT_FALSE(made.ok());
    EXPECT_NE(made.status().message().find("precompiled_charsmap"), std::string::npos);
  }
  Random random(17);
  for (int round = 0; round < 300; ++round) {
    std::vector<uint8_t> bad = good;
    for (int i = 0; i < 40; ++i) {
      bad[4 + random.below(static_cast<uint32_t>(bad.size() - 4))] =
          static_cast<uint8_t>(random.below(256));
    }
    // Sets the units that look up "A" to wild offsets.
    const size_t at = 4 + 4 * (256 ^ 'A');
    bad[at + 1] = static_cast<uint8_t>(1 | random.below(256));
    bad[at + 3] = static_cast<uint8_t>(random.below(128));
    const auto made = create_with_rules(bad);
    ASSERT_TRUE(made.ok());
    for (const Token id : (*made)->encode("AabAA", kUserText)) EXPECT_LT(id, 5);
  }
}

TEST(Unigram, LongRunsFinish) {
  VocabFile file = unigram_vocab();
  std::string run = "a";
  for (int i = 0; i < 9; ++i, run += run) file.add(run, kNormal, -1.f - static_cast<float>(i));
  const auto tokenizer = file.must_create();
  const std::string text(kSanitized ? 1u << 14 : 1u << 18, 'a');
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(text, kUserText)), text);
}

TEST(Unigram, NonFiniteScoresAreErrors) {
  VocabFile file = unigram_vocab();
  file.scores[1] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(file.create().status().code(), Code::kBadTokenizer);
  file.scores.pop_back();
  EXPECT_EQ(file.create().status().code(), Code::kBadTokenizer);
}

}  // namespace
}  // namespace sluice::test
