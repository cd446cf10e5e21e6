// Small synthetic vocabularies for the tokenizer tests, as GGUF headers in memory, so that the
// tests need no model files.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gguf_builder.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/utf8.h"

namespace sluice::test {

using tokenizer::Token;
using tokenizer::Tokenizer;

inline constexpr tokenizer::EncodeOptions kUserText{.add_special = false, .parse_special = false};
inline const std::string kMark = "\xE2\x96\x81";  // SentencePiece's space

enum : int32_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6
};

// A vocabulary under construction; tests change its fields before build().
struct VocabFile {
  std::string model;
  std::string pre;
  std::vector<std::string> tokens;
  std::vector<float> scores;
  std::vector<int32_t> types;
  std::vector<std::string> merges;
  std::vector<std::pair<std::string, uint32_t>> ids;  // tokenizer.ggml.<key>
  std::vector<std::pair<std::string, bool>> flags;
  std::string name = "a model";

  Token add(const std::string& text, int32_t type = kNormal, float score = 0) {
    tokens.push_back(text);
    types.push_back(type);
    scores.push_back(score);
    return static_cast<Token>(tokens.size() - 1);
  }
  // Adds the concatenation of two tokens to a byte-level BPE vocabulary, and the merge.
  Token merge(const std::string& left, const std::string& right) {
    merges.push_back(left + " " + right);
    return add(left + right);
  }
  [[nodiscard]] std::vector<uint8_t> build() const {
    GgufBuilder file;
    file.string("general.name", name);
    file.string("tokenizer.ggml.model", model);
    if (!pre.empty()) file.string("tokenizer.ggml.pre", pre);
    file.strings("tokenizer.ggml.tokens", tokens);
    if (!types.empty()) file.numbers("tokenizer.ggml.token_type", types);
    if (model == "llama" || model == "t5") file.numbers("tokenizer.ggml.scores", scores);
    if (model == "gpt2" || model == "gemma4") file.strings("tokenizer.ggml.merges", merges);
    for (const auto& [key, id] : ids) file.number("tokenizer.ggml." + key, id);
    for (const auto& [key, flag] : flags) file.number("tokenizer.ggml." + key, flag);
    return file.build();
  }
  [[nodiscard]] Result<std::unique_ptr<Tokenizer>> create() const {
    const std::vector<uint8_t> bytes = build();
    gguf::Header header;
    auto parsed = gguf::parse_header(bytes, bytes.size(), &header);
    if (!parsed.ok()) return parsed.status();
    auto made = Tokenizer::create(header);
    if (made.ok()) {
      EXPECT_LE((*made)->memory_bytes(), tokenizer::estimate_memory(header));
    }
    return made;
  }
  // For valid files.
  [[nodiscard]] std::unique_ptr<Tokenizer> must_create() const {
    auto made = create();
    EXPECT_TRUE(made.ok()) << made.status().message();
    return made.ok() ? std::move(*made) : nullptr;
  }
};

// <unk> <s> </s> and the 256 bytes: ids 3 to 258.
inline VocabFile sentencepiece_vocab() {
  VocabFile file;
  file.model = "llama";
  file.add("<unk>", kUnknown);
  file.add("<s>", kControl);
  file.add("</s>", kControl);
  for (int b = 0; b < 256; ++b) {
    char name[8];
    std::snprintf(name, sizeof name, "<0x%02X>", b);
    file.add(name, kByte);
  }
  return file;
}

// GPT-2's spelling of a byte.
inline std::string spell(int byte) {
  std::string text;
  const auto printable = [](int b) {
    return (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
  };
  uint32_t code = 256;
  for (int b = 0; b < byte; ++b) code += printable(b) ? 0 : 1;
  tokenizer::append_utf8(printable(byte) ? static_cast<uint32_t>(byte) : code, &text);
  return text;
}

// The 256 bytes with id = byte, then what a test adds.
inline VocabFile byte_vocab(const std::string& pre) {
  VocabFile file;
  file.model = "gpt2";
  file.pre = pre;
  for (int b = 0; b < 256; ++b) file.add(spell(b));
  return file;
}

// A simple generator with the same numbers on all platforms.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint32_t below(uint32_t n) {
    state_ = state_ * 6364136223846793005ull + 1442695040888963407ull;
    return static_cast<uint32_t>(state_ >> 33) % n;
  }

 private:
  uint64_t state_;
};

}  // namespace sluice::test
