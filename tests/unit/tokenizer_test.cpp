// Tokenizers on synthetic vocabularies: merging compared with a naive version, special tokens, byte
// fallback, streaming.
#include <algorithm>
#include <map>

#include "../extent.h"
#include "tokenizer_vocab.h"

namespace sluice::test {
namespace {

using tokenizer::EncodeOptions;
using tokenizer::StreamDecoder;
using Ids = std::vector<Token>;

constexpr EncodeOptions kSpecial{.add_special = false, .parse_special = true};

std::vector<std::string> characters(const std::string& text) {
  std::vector<std::string> result;
  for (size_t pos = 0; pos < text.size();) {
    result.push_back(text.substr(pos, tokenizer::decode_utf8(text, pos).bytes));
    pos += result.back().size();
  }
  return result;
}

// SentencePiece BPE by definition: join the neighbours with the best score (the leftmost of equals)
// until none joins. Quadratic and obvious.
std::vector<std::string> naive_sentencepiece(const std::string& text,
                                             const std::map<std::string, float>& scores) {
  std::vector<std::string> symbols = characters(text);
  for (;;) {
    size_t best = symbols.size();
    float best_score = 0;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto found = scores.find(symbols[i] + symbols[i + 1]);
      if (found == scores.end()) continue;
      if (best == symbols.size() || found->second > best_score) {
        best = i;
        best_score = found->second;
      }
    }
    if (best == symbols.size()) return symbols;
    symbols[best] += symbols[best + 1];
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

std::string random_text(Random* random, const std::vector<std::string>& alphabet, uint32_t most) {
  std::string text;
  for (uint32_t n = random->below(most + 1); n > 0; --n) {
    text += alphabet[random->below(static_cast<uint32_t>(alphabet.size()))];
  }
  return text;
}

TEST(SentencePiece, MergesLikeTheDefinition) {
  Random random(7);
  const std::vector<std::string> alphabet = {"a", "b", "c", kMark, "\xC3\xA9"};
  for (int round = 0; round < extent(20, 60); ++round) {
    VocabFile file = sentencepiece_vocab();
    file.flags = {{"add_space_prefix", false}};
    std::map<std::string, float> scores;
    for (const auto& letter : alphabet) scores[letter] = -100;
    for (int i = 0; i < 40; ++i) {
      const std::string token = random_text(&random, alphabet, 5);
      // Few distinct scores, so that ties occur.
      if (characters(token).size() > 1) scores[token] = -static_cast<float>(random.below(8));
    }
    std::map<std::string, Token> ids;
    for (const auto& [text, score] : scores) ids[text] = file.add(text, kNormal, score);
    const auto tokenizer = file.must_create();
    ASSERT_NE(tokenizer, nullptr);
    for (int i = 0; i < 20; ++i) {
      // Lengths on both sides of the limit for scanning.
      std::string text = random_text(&random, alphabet, i % 2 == 0 ? 20 : 200);
      Ids expected;
      for (const auto& piece : naive_sentencepiece(text, scores)) expected.push_back(ids.at(piece));
      std::string spaced = text;
      for (size_t at; (at = spaced.find(kMark)) != std::string::npos;)
        spaced.replace(at, 3, 1, ' ');
      EXPECT_EQ(tokenizer->encode(spaced, kSpecial), expected) << text;
      EXPECT_EQ(tokenizer->decode(expected), spaced);
    }
  }
}

TEST(SentencePiece, AddsBosAndTheLeadingSpace) {
  VocabFile file = sentencepiece_vocab();
  const Token mark = file.add(kMark, kNormal, -1);
  const Token a = file.add("a", kNormal, -2);
  auto tokenizer = file.must_create();
  EXPECT_EQ(tokenizer->encode("a"), (Ids{1, mark, a}));
  EXPECT_EQ(tokenizer->encode("a", kSpecial), (Ids{mark, a}));
  EXPECT_EQ(tokenizer->encode(""), (Ids{1}));
  EXPECT_EQ(tokenizer->decode(Ids{1, mark, a}), "a");
  EXPECT_TRUE(tokenizer->strips_leading_space());
  // The space is added again after a special token.
  EXPECT_EQ(tokenizer->encode("a</s>a", kSpecial), (Ids{mark, a, 2, mark, a}));
  file.flags = {{"add_space_prefix", false}, {"add_eos_token", true}, {"add_bos_token", false}};
  tokenizer = file.must_create();
  EXPECT_EQ(tokenizer->encode(" a"), (Ids{mark, a, 2}));
  EXPECT_EQ(tokenizer->decode(Ids{mark, a}), " a");
  file.flags = {{"remove_extra_whitespaces", true}};
  tokenizer = file.must_create();
  EXPECT_EQ(tokenizer->encode("  a   a", kSpecial), (Ids{mark, a, mark, a}));
}

TEST(SentencePiece, FallsBackToBytesAndNeverMakesControlTokens) {
  VocabFile file = sentencepiece_vocab();
  file.flags = {{"add_space_prefix", false}};
  for (const char* text :
       {"<", "/", "s", ">", "</", "</s", "0", "x", "4", "1", "<0", "<0x", "<0x4", "<0x41"}) {
    file.add(text, kNormal, -1);
  }
  const auto tokenizer = file.must_create();
  EXPECT_EQ(tokenizer->encode("\xC3\xA9\xFF", kSpecial), (Ids{3 + 0xC3, 3 + 0xA9, 3 + 0xFF}));
  EXPECT_EQ(tokenizer->encode("</s>", kSpecial), (Ids{2}));
  for (const Token id : tokenizer->encode("</s><s><unk>", kUserText)) {
    EXPECT_FALSE(tokenizer->is_control(id));
  }
  // Text that looks like a byte token stays text.
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("<0x41>", kSpecial)), "<0x41>");
  EXPECT_EQ(tokenizer->token_bytes(3 + 0x41), "A");
}

// BPE with a merge list, by definition.
std::vector<std::string> naive_bpe(const std::string& word,
                                   const std::vector<std::string>& merges) {
  std::map<std::string, size_t> ranks;
  for (const std::string& merge : merges) ranks.emplace(merge, ranks.size());
  std::vector<std::string> symbols;
  for (const char c : word) symbols.push_back(std::string(1, c));
  for (;;) {
    size_t best = symbols.size();
    size_t best_rank = ranks.size();
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto found = ranks.find(symbols[i] + " " + symbols[i + 1]);
      if (found == ranks.end() || found->second >= best_rank) continue;
      best = i;
      best_rank = found->second;
    }
    if (best == symbols.size()) return symbols;
    symbols[best] += symbols[best + 1];
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

TEST(ByteBpe, MergesLikeTheDefinition) {
  Random random(11);
  const std::vector<std::string> letters = {"a", "b", "c"};
  for (int round = 0; round < extent(20, 60); ++round) {
    VocabFile file = byte_vocab("gpt-2");
    std::vector<std::string> known = letters;
    std::map<std::string, Token> ids;
    for (const auto& letter : letters) ids[letter] = letter[0];
    while (known.size() < 25) {
      const auto& left = known[random.below(static_cast<uint32_t>(known.size()))];
      const auto& right = known[random.below(static_cast<uint32_t>(known.size()))];
      const std::string joined = left + right;
      if (joined.size() > 12 || ids.count(joined) != 0) continue;
      ids[joined] = file.merge(left, right);
      known.push_back(joined);
    }
    const auto tokenizer = file.must_create();
    ASSERT_NE(tokenizer, nullptr);
    for (int i = 0; i < 20; ++i) {
      const std::string text = random_text(&random, letters, i % 2 == 0 ? 20 : 200);
      Ids expected;
      for (const auto& piece : naive_bpe(text, file.merges)) expected.push_back(ids.at(piece));
      EXPECT_EQ(tokenizer->encode(text, kSpecial), expected) << text;
    }
  }
}

TEST(ByteBpe, TakesWholeWordsIfTheFamilyDoes) {
  // "abc" is a token that no merge reaches.
  for (const auto& [pre, whole] :
       {std::pair{"llama-bpe", true}, std::pair{"tekken", true}, std::pair{"qwen2", false}}) {
    VocabFile file = byte_vocab(pre);
    const Token ab = file.merge("a", "b");
    const Token abc = file.add("abc");
    file.flags = {{"add_bos_token", false}};
    const auto tokenizer = file.must_create();
    EXPECT_EQ(tokenizer->encode("abc"), whole ? (Ids{abc}) : (Ids{ab, 'c'})) << pre;
  }
}

TEST(ByteBpe, BosFollowsTheMetadataThenTheFamily) {
  VocabFile file = byte_vocab("llama-bpe");
  const Token bos = file.add("<|begin_of_text|>", kControl);
  file.ids = {{"bos_token_id", static_cast<uint32_t>(bos)}};
  EXPECT_EQ(file.must_create()->encode("a"), (Ids{bos, 'a'}));
  EXPECT_EQ(file.must_create()->encode("a", kSpecial), (Ids{'a'}));
  file.flags = {{"add_bos_token", false}};
  EXPECT_EQ(file.must_create()->encode("a"), (Ids{'a'}));
  file.flags.clear();
  file.pre = "qwen2";
  EXPECT_EQ(file.must_create()->encode("a"), (Ids{'a'}));
}

TEST(ByteBpe, InvalidInputBecomesReplacementCharacters) {
  const auto tokenizer = byte_vocab("gpt-2").must_create();
  EXPECT_EQ(tokenizer->encode("a\xFFz", kSpecial), (Ids{'a', 0xEF, 0xBF, 0xBD, 'z'}));
  EXPECT_EQ(tokenizer->encode("\xE2\x82", kSpecial),
            (Ids{0xEF, 0xBF, 0xBD, 0xEF, 0xBF, 0xBD}));  // one per byte
}

TEST(SpecialTokens, LongestWinsAndUserTextMakesNoControlTokens) {
  VocabFile file = byte_vocab("gpt-2");
  const Token im = file.add("<|im", kControl);
  const Token start = file.add("<|im_start|>", kControl);
  const Token end = file.add("<|im_end|>", kControl);
  const Token think = file.add("<think>", kUserDefined);
  const auto tokenizer = file.must_create();
  EXPECT_EQ(tokenizer->encode("<|im_start|>a<|im_end|><think><|im", kSpecial),
            (Ids{start, 'a', end, think, im}));
  const Ids plain = tokenizer->encode("<|im_start|><think>", kUserText);
  EXPECT_EQ(plain.size(), 13u);  // twelve bytes and the user-defined token
  EXPECT_EQ(plain.back(), think);
  EXPECT_EQ(tokenizer->decode(plain), "<|im_start|><think>");
  EXPECT_EQ(tokenizer->decode(Ids{start, 'a', end}), "a");
  EXPECT_EQ(tokenizer->decode(Ids{start, 'a', end}, true), "<|im_start|>a<|im_end|>");
  EXPECT_TRUE(tokenizer->is_end_of_generation(end));
  EXPECT_FALSE(tokenizer->is_end_of_generation(start));
  EXPECT_FALSE(tokenizer->is_end_of_generation(-1));
  EXPECT_TRUE(tokenizer->is_control(start));
  EXPECT_FALSE(tokenizer->is_control(think));
}

TEST(SpecialTokens, MergesNeverMakeControlTokens) {
  VocabFile file = byte_vocab("gpt-2");
  file.merge("<", "<");
  const Token end = file.merge("<<", "!");
  file.types[static_cast<size_t>(end)] = kControl;
  const auto tokenizer = file.must_create();
  EXPECT_EQ(tokenizer->encode("<<!", kUserText), (Ids{256, '!'}));
  EXPECT_EQ(tokenizer->encode("<<!", kSpecial), (Ids{end}));
}

TEST(SpecialTokens, UnknownTextMakesNoControlTokens) {
  VocabFile file = sentencepiece_vocab();
  file.add(kMark, kNormal, -1);
  file.tokens[3 + 0xFF] = "no byte token";
  EXPECT_EQ(file.must_create()->encode("\xFF", kUserText), (Ids{259, 0}));
  file.types[0] = kControl;  // as in Phi-3's file
  EXPECT_EQ(file.must_create()->encode("\xFF", kUserText), (Ids{259, 0}));
  EXPECT_FALSE(file.must_create()->is_control(0));
  file.ids = {{"unknown_token_id", 2}};  // end of text and unknown are one token
  EXPECT_EQ(file.create().status().code(), Code::kBadTokenizer);
}

TEST(SpecialTokens, EndOfGenerationByIdAndByName) {
  VocabFile file = byte_vocab("gpt-2");
  const Token eos = file.add("stop", kControl);
  const Token eot = file.add("turn", kControl);
  const Token named = file.add("<end_of_turn>");  // not marked as control, but recognized by name
  file.ids = {{"eos_token_id", static_cast<uint32_t>(eos)},
              {"eot_token_id", static_cast<uint32_t>(eot)}};
  const auto tokenizer = file.must_create();
  EXPECT_EQ(tokenizer->eos(), eos);
  for (const Token id : {eos, eot, named}) EXPECT_TRUE(tokenizer->is_end_of_generation(id));
  EXPECT_TRUE(tokenizer->is_control(named));
}

TEST(SpecialTokens, ChannelEndIsNotTheEndIfReturnIs) {
  VocabFile file = byte_vocab("gpt-4o");
  const Token end = file.add("<|end|>", kControl);
  const Token ret = file.add("<|return|>", kControl);
  file.add("<|call|>", kControl);
  const auto tokenizer = file.must_create();
  EXPECT_FALSE(tokenizer->is_end_of_generation(end));
  EXPECT_TRUE(tokenizer->is_end_of_generation(ret));
}

TEST(SpecialTokens, Phi3StripsTheSpaceAfter) {
  VocabFile file = sentencepiece_vocab();
  file.flags = {{"add_space_prefix", false}};
  const Token user = file.add("<|user|>", kControl);
  const Token a = file.add("a", kNormal, -1);
  const Token mark = file.add(kMark, kNormal, -1);
  EXPECT_EQ(file.must_create()->encode("<|user|> \na", kSpecial), (Ids{user, mark, 13, a}));
  file.name = "Phi-3 mini";
  EXPECT_EQ(file.must_create()->encode("<|user|> \na", kSpecial), (Ids{user, a}));
}

TEST(StreamDecoder, NeverEmitsHalfACharacter) {
  const auto tokenizer = byte_vocab("gpt-2").must_create();
  StreamDecoder decoder(*tokenizer);
  const std::string rocket = "\xF0\x9F\x9A\x80";
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(decoder.push(static_cast<uint8_t>(rocket[i])), "");
  }
  EXPECT_EQ(decoder.push(0x80), rocket);
  EXPECT_EQ(decoder.push('a'), "a");
  EXPECT_EQ(decoder.finish(), "");
}

TEST(StreamDecoder, InvalidBytesBecomeReplacementCharacters) {
  const auto tokenizer = byte_vocab("gpt-2").must_create();
  const std::string mark = "\xEF\xBF\xBD";
  StreamDecoder decoder(*tokenizer);
  EXPECT_EQ(decoder.push(0xFF), mark);
  EXPECT_EQ(decoder.push(0xE2), "");
  EXPECT_EQ(decoder.push(0x82), "");
  EXPECT_EQ(decoder.push('a'), mark + "a");  // one replacement for the unfinished character
  EXPECT_EQ(decoder.push(0xF0), "");
  EXPECT_EQ(decoder.push(0x9F), "");
  EXPECT_EQ(decoder.finish(), mark);
  EXPECT_EQ(decoder.push(0xED), "");
  EXPECT_EQ(decoder.push(0xA0), mark + mark);  // a surrogate is not a character
  decoder.reset();
  EXPECT_EQ(decoder.finish(), "");
}

TEST(StreamDecoder, KeepsTheSpaceOfContinuedText) {
  VocabFile file = sentencepiece_vocab();
  const Token word = file.add(kMark + "a", kNormal, -1);
  const auto tokenizer = file.must_create();
  StreamDecoder continues(*tokenizer);
  EXPECT_EQ(continues.push(word), " a");
  StreamDecoder begins(*tokenizer, true);
  EXPECT_EQ(begins.push(1), "");
  EXPECT_EQ(begins.push(word), "a");
  EXPECT_EQ(begins.push(word), " a");
  begins.reset();
  EXPECT_EQ(begins.push(word), "a");
}

TEST(StreamDecoder, SplitAnywhereGivesTheSameText) {
  const auto tokenizer = byte_vocab("gpt-2").must_create();
  Random random(3);
  for (int round = 0; round < 300; ++round) {
    std::string bytes;
    for (uint32_t n = random.below(40); n > 0; --n) {
      if (random.below(3) == 0) {
        bytes += static_cast<char>(random.below(256));
      } else {
        tokenizer::append_utf8(random.below(0xD800), &bytes);
      }
    }
    StreamDecoder decoder(*tokenizer);
    std::string streamed;
    for (const char c : bytes) {
      const std::string shown = decoder.push(static_cast<uint8_t>(c));
      EXPECT_TRUE(tokenizer::is_valid_utf8(shown));
      streamed += shown;
    }
    streamed += decoder.finish();
    std::string whole;
    tokenizer::append_valid_utf8(bytes, tokenizer::Replace::kEachPart, &whole);
    EXPECT_EQ(streamed, whole);
  }
}

// Random Unicode: scripts, marks, emoji sequences, controls.
std::string random_unicode(Random* random) {
  std::string text;
  for (uint32_t n = random->below(60); n > 0; --n) {
    switch (random->below(8)) {
      case 0:
        text += ' ';
        break;
      case 1:
        tokenizer::append_utf8(0x1F300 + random->below(0x300), &text);
        break;
      case 2:
        text += "\xE2\x80\x8D\xEF\xB8\x8F";  // joiner, emoji style
        break;
      case 3:
        tokenizer::append_utf8(0x300 + random->below(0x70), &text);
        break;
      case 4:
        tokenizer::append_utf8(random->below(0x80), &text);
        break;
      case 5:
        tokenizer::append_utf8(0xE000 + random->below(0x110000 - 0xE000), &text);
        break;
      default:
        tokenizer::append_utf8(random->below(0xD800), &text);
    }
  }
  return text;
}

TEST(RoundTrip, RandomUnicodeComesBack) {
  Random random(5);
  VocabFile spm = sentencepiece_vocab();
  spm.add(kMark, kNormal, -1);
  spm.add(kMark + kMark, kNormal, -2);
  spm.add("\xC3\xA9", kNormal, -3);
  std::vector<std::unique_ptr<Tokenizer>> all;
  all.push_back(spm.must_create());
  for (const char* pre : {"gpt-2", "llama-bpe", "qwen2", "deepseek-llm", "deepseek-coder",
                          "deepseek-v3", "falcon", "starcoder", "tekken", "gpt-4o", "default"}) {
    VocabFile file = byte_vocab(pre);
    file.flags = {{"add_bos_token", false}};
    file.merge("a", "b");
    all.push_back(file.must_create());
  }
  for (int round = 0; round < 400; ++round) {
    std::string text = random_unicode(&random);
    for (size_t at; (at = text.find(kMark)) != std::string::npos;) text.erase(at, 3);
    for (const auto& tokenizer : all) {
      EXPECT_EQ(tokenizer->decode(tokenizer->encode(text, kUserText)), text);
    }
  }
}

TEST(RoundTrip, InvalidBytesSurviveByteFallback) {
  VocabFile file = sentencepiece_vocab();
  file.add(kMark, kNormal, -1);
  const auto tokenizer = file.must_create();
  Random random(9);
  for (int round = 0; round < 200; ++round) {
    std::string text;
    for (uint32_t n = 1 + random.below(30); n > 0; --n) {
      text += static_cast<char>(random.below(256));
    }
    if (text.find(kMark) != std::string::npos) continue;
    std::string bytes;
    for (const Token id : tokenizer->encode(text, kUserText)) bytes += tokenizer->token_bytes(id);
    EXPECT_EQ(bytes, std::string(1, ' ').append(text));
  }
}

}  // namespace
}  // namespace sluice::test
