// Literal spans of marked text, text that continues earlier text, and the memory of encoding:
// compared with a reference that follows the definition, on hostile marks, and with too little
// memory.

#include <cstdlib>
#include <new>

#include "../extent.h"
#include "../sanitized.h"
#include "allocations.h"
#include "tokenizer/literal_spans.h"
#include "tokenizer_vocab.h"

#if !defined(_WIN32)
#include <sys/resource.h>
#endif

namespace sluice::test {
namespace {

using tokenizer::EncodeOptions;
using Ids = std::vector<Token>;

constexpr EncodeOptions kMarked{.add_special = false, .literal_spans = true};
const std::string kBegin(tokenizer::kPlainBegin);
const std::string kEnd(tokenizer::kPlainEnd);

struct Chat {
  std::unique_ptr<Tokenizer> tokenizer;
  std::vector<std::pair<std::string, Token>> controls;
  std::string name;
};

// Vocabularies of each kind with the control tokens <|a|>, <|a|>> and [b], and <c>, user-defined.
std::vector<Chat> chats() {
  VocabFile files[] = {byte_vocab("gpt-2"), sentencepiece_vocab(), sentencepiece_vocab()};
  files[0].merge("a", "b");
  files[0].merge("|", ">");
  files[1].add(kMark, kNormal, -1);
  files[1].add(kMark + "a", kNormal, -2);
  files[1].add("ab", kNormal, -3);
  files[2].model = "t5";
  files[2].types.assign(files[2].types.size(), kNormal);
  files[2].types[0] = kUnknown;
  files[2].types[1] = files[2].types[2] = kControl;
  files[2].ids = {{"unknown_token_id", 0}, {"eos_token_id", 2}};
  files[2].flags = {{"add_space_prefix", true}};
  for (const char* text : {"a", "b", "c", "<", ">", "|", "[", "]", " "}) files[2].add(text);
  files[2].add(kMark, kNormal, -1);
  std::vector<Chat> all;
  for (VocabFile& file : files) {
    Chat chat;
    for (const char* text : {"<|a|>", "<|a|>>", "[b]"}) {
      chat.controls.emplace_back(text, file.add(text, kControl));
    }
    file.add("<c>", kUserDefined);
    chat.name = file.model;
    chat.tokenizer = file.must_create();
    all.push_back(std::move(chat));
  }
  return all;
}

// By definition: at each position the longest control token with no byte in a literal span; the
// text between is encoded as user text.
Ids naive(const Chat& chat, const std::string& text, const std::vector<bool>& plain) {
  Ids ids;
  std::string between;
  const auto flush = [&] {
    if (between.empty()) return;
    for (const Token id : chat.tokenizer->encode(between, kUserText)) ids.push_back(id);
    between.clear();
  };
  for (size_t pos = 0; pos < text.size();) {
    const std::pair<std::string, Token>* best = nullptr;
    for (const auto& control : chat.controls) {
      const size_t n = control.first.size();
      bool free = text.compare(pos, n, control.first) == 0;
      for (size_t i = pos; free && i < pos + n; ++i) free = !plain[i];
      if (free && (best == nullptr || n > best->first.size())) best = &control;
    }
    if (best == nullptr) {
      between += text[pos++];
      continue;
    }
    flush();
    ids.push_back(best->second);
    pos += best->first.size();
  }
  flush();
  return ids;
}

TEST(LiteralSpans, MatchesTheDefinitionOnRandomMarks) {
  Random random(21);
  const std::string pieces[] = {"<|a|>", "[b]", "<", "|a", "|>", ">", "a", "b", " ", "<c>", "]"};
  for (const Chat& chat : chats()) {
    for (int round = 0; round < 2000; ++round) {
      std::string marked, text;
      std::vector<bool> plain;
      bool open = false;
      for (uint32_t n = random.below(14); n > 0; --n) {
        const uint32_t what = random.below(20);
        if (what < 3) {
          marked += kBegin;
          open = true;
        } else if (what < 6) {
          marked += kEnd;
          open = false;
        } else {
          const std::string& piece = pieces[random.below(std::size(pieces))];
          marked += piece;
          text += piece;
          plain.resize(text.size(), open);
        }
      }
      EXPECT_EQ(chat.tokenizer->encode(marked, kMarked), naive(chat, text, plain))
          << chat.name << ": " << marked;
    }
  }
}

TEST(LiteralSpans, ATokenAcrossTwoSpansIsText) {
  for (const Chat& chat : chats()) {
    const Token control = chat.controls[0].second;
    const auto has = [&](const std::string& text) {
      const Ids ids = chat.tokenizer->encode(text, kMarked);
      return std::find(ids.begin(), ids.end(), control) != ids.end();
    };
    EXPECT_TRUE(has("<|a|>"));
    EXPECT_FALSE(has(kBegin + "<|a|>" + kEnd));
    EXPECT_FALSE(has(kBegin + "<|a" + kEnd + "|>"));
    EXPECT_FALSE(has("<|" + kBegin + "a|>" + kEnd));
    EXPECT_FALSE(has("<|" + kBegin + "a" + kEnd + "|>"));
    EXPECT_TRUE(has(kBegin + "<" + kEnd + "<|a|>" + kBegin + ">" + kEnd));
    EXPECT_TRUE(has(kBegin + kEnd + "<|" + kEnd + "a|>")) << "an empty span";
    EXPECT_FALSE(has(kBegin + "x<|a|>")) << "an unmatched begin mark extends to the end";
  }
}

TEST(LiteralSpans, MarksAreTextWithoutTheFlag) {
  const auto tokenizer = byte_vocab("gpt-2").must_create();
  EXPECT_EQ(tokenizer->encode(kBegin, {.add_special = false}), (Ids{0xEF, 0xB7, 0x90}));
  EXPECT_EQ(tokenizer->encode(kBegin + "\xEF\xB7" + kEnd + "\xEF", kMarked),
            tokenizer->encode("\xEF\xB7\xEF", kUserText));
  EXPECT_EQ(tokenizer->encode(kBegin, kMarked), Ids{});
}

TEST(LiteralSpans, WordsContinueAcrossMarks) {
  VocabFile file = byte_vocab("gpt-2");
  const Token ab = file.merge("a", "b");
  const auto tokenizer = file.must_create();
  EXPECT_EQ(tokenizer->encode("a" + kBegin + "b" + kEnd + "a" + kEnd + "b", kMarked),
            (Ids{ab, ab}));
}

TEST(LiteralSpans, VisibleControlTokensAreBlockedToo) {
  VocabFile file = byte_vocab("gpt-2");
  const Token start = file.add("<|start|>", kControl);
  const Token think = file.add("<think>", kUserDefined);
  const auto tokenizer = file.must_create();
  EXPECT_EQ(tokenizer->encode("<|start|><think>", kMarked), (Ids{start, think}));
  const Ids quoted = tokenizer->encode(kBegin + "<|start|><think>" + kEnd, kMarked);
  EXPECT_EQ(quoted.size(), 10u);
  EXPECT_EQ(quoted.back(), think);
  EXPECT_EQ(tokenizer->gated_tokens(), Ids{start});
}

TEST(LiteralSpans, AMillionMarksTakeLinearTime) {
  for (const Chat& chat : chats()) {
    std::string text;
    for (int i = 0; i < (kSanitized ? 30'000 : extent(100'000, 300'000)); ++i)
      text += kBegin + "<|a" + kEnd + "|>" + kBegin;
    const Ids ids = chat.tokenizer->encode(text, kMarked);
    EXPECT_EQ(std::count(ids.begin(), ids.end(), chat.controls[0].second), 0);
  }
}

TEST(Continuation, NeitherBosNorSpaceNorNormalization) {
  VocabFile spm = sentencepiece_vocab();
  spm.flags = {{"remove_extra_whitespaces", true}};
  const Token space = spm.add(kMark, kNormal, -1);
  const Token a = spm.add("a", kNormal, -2);
  const auto tokenizer = spm.must_create();
  const EncodeOptions continues{.continuation = true};
  EXPECT_EQ(tokenizer->encode("a"), (Ids{1, space, a}));
  EXPECT_EQ(tokenizer->encode("a", continues), Ids{a});
  EXPECT_EQ(tokenizer->encode(" a", continues), (Ids{space, a}));
  EXPECT_EQ(tokenizer->encode("a</s>a", continues), (Ids{a, 2, space, a}))
      << "text after a control token begins as usual";

  for (const bool extra : {false, true}) {
    VocabFile file = sentencepiece_vocab();
    file.model = "t5";
    file.types.assign(file.types.size(), kNormal);
    file.types[0] = kUnknown;
    file.ids = {{"unknown_token_id", 0}};
    file.flags = {
        {"add_space_prefix", true}, {"remove_extra_whitespaces", extra}, {"add_eos_token", false}};
    const Token gap = file.add(kMark, kNormal, -1);
    const Token b = file.add("b", kNormal, -2);
    const auto unigram = file.must_create();
    EXPECT_EQ(unigram->encode("b"), (Ids{gap, b}));
    EXPECT_EQ(unigram->encode("b", continues), Ids{b});
    EXPECT_EQ(unigram->encode(" b", continues), (Ids{gap, b}));
  }
}

// The most expensive texts: one endless word, words of one byte, spaces, marks, wide characters.
std::vector<std::string> costly(size_t bytes) {
  std::vector<std::string> texts;
  for (const std::string& part :
       std::vector<std::string>{"a", "a ", " ", "ab", "\xF0\x9F\x9A\x80", "\xC3\xA9", kMark,
                                kBegin + kEnd, "<|a|>", kBegin + "a" + kEnd, "\n", "7", "[b]a"}) {
    std::string text;
    while (text.size() < bytes) text += part;
    texts.push_back(std::move(text));
  }
  return texts;
}

TEST(EncodeMemory, IsAnUpperBound) {
#ifdef SLUICE_SANITIZED
  GTEST_SKIP() << "the sanitizer has its own allocator";
#endif
  for (const Chat& chat : chats()) {
    for (const size_t bytes : {1, 50, 3000, 200'000}) {
      for (const std::string& text : costly(bytes)) {
        allocations = {.on = true};
        const auto ids = chat.tokenizer->try_encode(text, kMarked);
        allocations.on = false;
        ASSERT_TRUE(ids.ok());
        EXPECT_LE(allocations.peak, tokenizer::encode_memory(text.size()))
            << chat.name << ": " << text.substr(0, 12) << " of " << text.size();
      }
    }
  }
}

TEST(EncodeMemory, ATooLongTextIsAnError) {
  const auto tokenizer = byte_vocab("gpt-2").must_create();
  const char one = 'a';  // only this byte may be read
  const auto ids = tokenizer->try_encode({&one, tokenizer::kMaxTextBytes + 1});
  EXPECT_EQ(ids.status().code(), Code::kInvalidArgument);
}

#if !defined(_WIN32)  // Windows has no such limit
// Runs in its own process with limited address space.
void encode_with_little_memory() {
  for (const Chat& chat : chats()) {
    for (const std::string& text : costly(2u << 20)) {
      rlimit old{};
      getrlimit(RLIMIT_AS, &old);
      const rlimit tight{52u << 20, old.rlim_max};
      setrlimit(RLIMIT_AS, &tight);
      for (int again = 0; again < 2; ++again) {
        const auto ids = chat.tokenizer->try_encode(text, kMarked);
        if (!ids.ok() && ids.status().code() != Code::kOutOfMemory) std::_Exit(1);
        if (ids.ok() && text[0] == 'a') std::_Exit(2);
      }
      if (!chat.tokenizer->try_encode("ab ab", kMarked).ok()) std::_Exit(3);
      setrlimit(RLIMIT_AS, &old);
    }
  }
  std::_Exit(0);
}

TEST(EncodeMemory, TooLittleIsAnErrorAndLeavesNothing) {
#ifdef SLUICE_SANITIZED
  GTEST_SKIP() << "the sanitizer needs more memory than the limit";
#endif
  // A fresh process: memory freed by earlier tests would satisfy any limit.
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(encode_with_little_memory(), testing::ExitedWithCode(0), "");
}
#endif

}  // namespace
}  // namespace sluice::test
