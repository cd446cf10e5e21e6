// A tiny Hugging Face model in memory; tests change its files and describe it.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "hf/config.h"
#include "hf_directory.h"

namespace sluice::hf {

using test::byte_level_tokenizer;
using test::json_text;
using test::SafetensorsBuilder;
using test::tiny_config;
using test::tiny_tensors;

inline std::string_view as_text(Code code) {
  return code_name(code);
}

inline gguf::Bytes as_bytes(const std::string& s) {
  return {reinterpret_cast<const uint8_t*>(s.data()), s.size()};
}

inline Result<SafetensorsFile> parse(const std::string& file) {
  SafetensorsFile out;
  size_t have = 0;
  for (int round = 0; round < 3; round++) {
    // Exact-size blocks, so that the address sanitizer sees a read past the prefix.
    std::vector<uint8_t> prefix(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(have));
    const auto progress = parse_safetensors(prefix, file.size(), "model.safetensors", &out);
    if (!progress.ok()) return progress.status();
    if (progress->done) return out;
    have = static_cast<size_t>(progress->need_bytes);
    if (have > file.size()) return error(Code::kInternal, "more than the file is asked for");
  }
  return error(Code::kInternal, "no progress");
}

struct TinyModel {
  std::string config = tiny_config("qwen3");
  std::string tokenizer = byte_level_tokenizer();
  std::string tokenizer_config;
  std::string chat_template;
  std::vector<std::string> files = {tiny_tensors(true, false, true).build()};

  [[nodiscard]] Result<Model> describe() const {
    Directory d{config, tokenizer, tokenizer_config, chat_template, {}, "tiny"};
    for (const std::string& file : files) {
      const auto parsed = parse(file);
      if (!parsed.ok()) return parsed.status();
      d.shards.push_back(*parsed);
    }
    return describe_model(d);
  }
  void expect_refused(Code code, std::string_view word) const {
    const auto model = describe();
    ASSERT_FALSE(model.ok()) << word;
    EXPECT_EQ(as_text(model.status().code()), as_text(code)) << model.status().message();
    EXPECT_NE(model.status().message().find(word), std::string::npos) << model.status().message();
  }
};

}  // namespace sluice::hf
