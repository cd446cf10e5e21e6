// Every line of every fixture of real vocabularies, compared with reference token ids. Vocabularies
// with llama.cpp's ids are other people's work and are beside the checkout. Those in tests/data,
// for further kinds, were encoded by tests/reference/make_tokenizers.py.
#include "tokenizer/tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "../file_contents.h"
#include "../paths.h"
#include "tokenizer/utf8.h"

namespace sluice::tokenizer {
namespace {

const std::string kFixtures = sluice::test::shared_dir() + "/fixtures";

std::string read_file(const std::string& path) {
  return sluice::test::file_contents(path);
}

// A tokenizer from a file; it keeps no reference to the file's bytes.
std::unique_ptr<Tokenizer> load(const std::string& path) {
  const std::string bytes = read_file(path);
  gguf::Header header;
  const gguf::Bytes span(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  auto parsed = gguf::parse_header(span, bytes.size(), &header);
  EXPECT_TRUE(parsed.ok()) << parsed.status().message();
  EXPECT_TRUE(parsed->done) << path;
  auto tokenizer = Tokenizer::create(header);
  EXPECT_TRUE(tokenizer.ok()) << path << ": " << tokenizer.status().message();
  if (!tokenizer.ok()) return nullptr;
  EXPECT_LE((*tokenizer)->memory_bytes(), estimate_memory(header)) << path;
  return std::move(*tokenizer);
}

std::vector<std::string> split_inputs(const std::string& all) {
  const std::string separator = "\n__ggml_vocab_test__\n";
  std::vector<std::string> inputs;
  for (size_t pos = 0; pos < all.size();) {  // every input is followed by the separator
    const size_t end = std::min(all.find(separator, pos), all.size());
    inputs.push_back(all.substr(pos, end - pos));
    pos = end + separator.size();
  }
  return inputs;
}

std::vector<std::vector<Token>> read_ids(const std::string& path) {
  std::vector<std::vector<Token>> lines;
  std::istringstream file(read_file(path));
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    lines.emplace_back(std::istream_iterator<Token>(words), std::istream_iterator<Token>());
  }
  return lines;
}

std::vector<std::string> vocabulary_files() {
  std::vector<std::string> files;
  const std::string own = sluice::test::source_dir() + "/tests/data";
  for (const std::string& folder : {kFixtures, own}) {
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator(folder + "/tokenizer", ignored)) {
      if (entry.path().extension() != ".gguf") continue;
      files.push_back(entry.path().string());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

// WordPiece strips accents and lowercases, so text does not round-trip.
bool folds(const std::string& file) {
  return file.find("bert") != std::string::npos;
}

TEST(TokenizerFixtures, EveryLineOfEveryVocabulary) {
  const auto files = vocabulary_files();
  ASSERT_FALSE(files.empty());
  size_t read = 0;
  for (const std::string& file : files) {
    SCOPED_TRACE(file);
    const auto tokenizer = load(file);
    ASSERT_NE(tokenizer, nullptr);
    const auto inputs = split_inputs(read_file(file + ".inp"));
    if (inputs.empty()) continue;  // it has only extra texts
    ++read;
    const auto expected = read_ids(file + ".out");
    ASSERT_EQ(inputs.size(), expected.size());
    for (size_t i = 0; i < inputs.size(); ++i) {
      EXPECT_EQ(tokenizer->encode(inputs[i], {.add_special = false}), expected[i])
          << "line " << i + 1 << ": \"" << inputs[i] << '"';
      if (!folds(file)) {
        EXPECT_EQ(tokenizer->decode(expected[i]), inputs[i]) << "line " << i + 1;
      }
    }
  }
  EXPECT_GE(read, 2u);  // in tests/data
}

// The texts of extra.texts.json. Their ids come from a program that reads "\\t" as a tab.
TEST(TokenizerFixtures, ExtraTexts) {
  const std::string folder = kFixtures + "/tokenizer/";
  const std::string texts = read_file(folder + "extra.texts.json");
  if (texts.empty()) GTEST_SKIP() << "no " << folder;
  const auto inputs = nlohmann::json::parse(texts).get<std::vector<std::string>>();
  for (const char* name : {"bert-bge", "gpt-neox"}) {
    SCOPED_TRACE(name);
    const auto tokenizer = load(folder + "ggml-vocab-" + name + ".gguf");
    ASSERT_NE(tokenizer, nullptr);
    const auto expected = nlohmann::json::parse(read_file(folder + name + ".extra.json"))
                              .get<std::vector<std::vector<Token>>>();
    ASSERT_EQ(inputs.size(), expected.size());
    for (size_t i = 0; i < inputs.size(); ++i) {
      std::string text;
      for (size_t at = 0; at < inputs[i].size(); ++at) {
        const bool tab = inputs[i].compare(at, 2, "\\t") == 0;
        text.push_back(tab ? '\t' : inputs[i][at]);
        if (tab) ++at;
      }
      EXPECT_EQ(tokenizer->encode(text, {.add_special = false}), expected[i]) << i << ": " << text;
    }
  }
}

// Random characters from all over Unicode round-trip with any vocabulary.
TEST(TokenizerFixtures, RandomUnicodeComesBack) {
  const auto files = vocabulary_files();
  size_t read = 0;
  for (const std::string& file : files) {
    SCOPED_TRACE(file);
    // These have no byte fallback.
    if (file.find("unigram") != std::string::npos || folds(file)) continue;
    ++read;
    const auto tokenizer = load(file);
    ASSERT_NE(tokenizer, nullptr);
    uint64_t state = 1;
    const auto random = [&state](uint32_t n) {
      state = state * 6364136223846793005ull + 1442695040888963407ull;
      return static_cast<uint32_t>(state >> 33) % n;
    };
    for (int round = 0; round < 500; ++round) {
      std::string text;
      for (uint32_t n = random(50); n > 0; --n) {
        const uint32_t limits[] = {0x80, 0x250, 0x3000, 0xD800, 0x20000};
        uint32_t cp = 0x20 + random(limits[random(5)] - 0x20);
        if (cp >= 0xD800 && cp < 0xE000) cp = 0x1F600;
        if (cp != 0x2581) append_utf8(cp, &text);
        if (random(6) == 0) text += " \n"[random(2)];
        if (random(9) == 0) text += "\xE2\x80\x8D\xEF\xB8\x8F";
      }
      EXPECT_EQ(
          tokenizer->decode(tokenizer->encode(text, {.add_special = true, .parse_special = false})),
          text);
    }
  }
  EXPECT_GE(read, 1u);  // in tests/data
}

// Decodes a JSON string whose only escapes are \uXXXX.
std::string unescape(const std::string& json) {
  std::string text;
  const auto unit = [&](size_t at) {
    return static_cast<uint32_t>(std::stoul(json.substr(at + 2, 4), nullptr, 16));
  };
  for (size_t i = 0; i < json.size(); ++i) {
    if (json[i] != '\\') {
      text += json[i];
      continue;
    }
    uint32_t cp = unit(i);
    i += 5;
    if (cp >= 0xD800 && cp < 0xDC00) {
      cp = 0x10000 + ((cp - 0xD800) << 10) + (unit(i + 1) - 0xDC00);
      i += 6;
    }
    append_utf8(cp, &text);
  }
  return text;
}

// expected.json is read with two searches: its prompts contain no escaped quotes.
TEST(TokenizerFixtures, Stories260KPrompts) {
  const std::string json = read_file(kFixtures + "/stories260K/expected.json");
  if (json.empty()) GTEST_SKIP() << "no " << kFixtures << "/stories260K";
  const auto tokenizer = load(kFixtures + "/stories260K/stories260K-Q8_0.gguf");
  ASSERT_NE(tokenizer, nullptr);
  int checked = 0;
  for (size_t pos = 0; (pos = json.find("\"prompt_ids\"", pos)) != std::string::npos; ++pos) {
    const size_t key = json.rfind("\"prompt\"", pos);
    const size_t open = json.find('"', json.find(':', key)) + 1;
    const std::string prompt = unescape(json.substr(open, json.find('"', open) - open));
    const size_t list = json.find('[', pos) + 1;
    std::string numbers = json.substr(list, json.find(']', list) - list);
    std::replace(numbers.begin(), numbers.end(), ',', ' ');
    std::istringstream words(numbers);
    const std::vector<Token> ids{std::istream_iterator<Token>(words),
                                 std::istream_iterator<Token>()};
    EXPECT_EQ(tokenizer->encode(prompt), ids) << prompt;
    EXPECT_EQ(tokenizer->decode(ids), prompt);
    ++checked;
  }
  EXPECT_GE(checked, 4);
}

}  // namespace
}  // namespace sluice::tokenizer
