// A tiny model that says what a test wants, as web/scripted-model.mjs makes it: its next token is a
// function of the last one. A script begins behind a token of its own, which a template writes at
// the end of the prompt.
#pragma once

#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "unit/gguf_builder.h"

namespace sluice::test {

struct Script {
  std::string begins;               // a control token
  std::vector<std::string> pieces;  // each is one token; a piece of text occurs once in a model
};

struct ScriptedModel {
  std::string chat_template, tool_template;  // "": none
  std::vector<Script> scripts;
  std::vector<std::string> controls;  // further control tokens

  void write(const std::string& path) const {
    const std::vector<uint8_t> bytes = build();
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
  }

 private:
  static constexpr size_t kHead = 64;  // values of a head, and of the feed-forward layer
  static constexpr const char* kEnd = "<|end|>";

  // GPT-2's characters for bytes.
  static std::string spelled(const std::string& text) {
    std::string out;
    for (const char c : text) out += byte_names()[static_cast<uint8_t>(c)];
    return out;
  }
  static const std::vector<std::string>& byte_names() {
    static const std::vector<std::string> names = [] {
      std::vector<std::string> made;
      unsigned others = 256;
      for (unsigned b = 0; b < 256; ++b) {
        const bool printable = (b > 32 && b < 127) || (b > 160 && b != 173);
        const unsigned code = printable ? b : others++;
        std::string name;
        if (code < 0x80) {
          name += static_cast<char>(code);
        } else {
          name += static_cast<char>(0xC0 | (code >> 6));
          name += static_cast<char>(0x80 | (code & 0x3F));
        }
        made.push_back(name);
      }
      return made;
    }();
    return names;
  }

  [[nodiscard]] std::vector<uint8_t> build() const {
    std::vector<std::string> texts = byte_names();
    std::vector<int32_t> types(texts.size(), 1);
    std::map<std::string, size_t> marks;
    const auto add = [&](const std::string& text, int32_t type) {
      const auto known = std::find(texts.begin(), texts.end(), text);
      if (known != texts.end()) return static_cast<size_t>(known - texts.begin());
      texts.push_back(text);
      types.push_back(type);
      return texts.size() - 1;
    };
    const auto add_mark = [&](const std::string& text) { marks[text] = add(text, 3); };
    add_mark(kEnd);
    for (const std::string& text : controls) add_mark(text);
    for (const Script& script : scripts) add_mark(script.begins);
    std::map<size_t, size_t> follows;
    for (const Script& script : scripts) {
      size_t last = marks[script.begins];
      for (const std::string& piece : script.pieces) {
        const auto mark = marks.find(piece);
        const size_t next = mark != marks.end() ? mark->second : add(spelled(piece), 1);
        follows[last] = next;
        last = next;
      }
      follows[last] = marks[kEnd];
    }
    return file(texts, types, follows, marks[kEnd]);
  }

  [[nodiscard]] std::vector<uint8_t> file(const std::vector<std::string>& texts,
                                          const std::vector<int32_t>& types,
                                          const std::map<size_t, size_t>& follows,
                                          size_t end) const {
    const size_t n = texts.size(), width = (n + kHead - 1) / kHead * kHead;
    std::vector<float> embedding(n * width), output(n * width);
    for (size_t i = 0; i < n; ++i) {
      const auto next = follows.find(i);
      embedding[i * width + i] = 1;
      output[(next != follows.end() ? next->second : end) * width + i] = 10;
    }
    GgufBuilder out;
    out.string("general.architecture", "llama").string("general.name", "script");
    out.number("llama.context_length", uint32_t{4096}).number("llama.block_count", uint32_t{1});
    out.number("llama.embedding_length", static_cast<uint32_t>(width));
    out.number("llama.feed_forward_length", static_cast<uint32_t>(kHead));
    out.number("llama.attention.head_count", static_cast<uint32_t>(width / kHead));
    out.number("llama.attention.layer_norm_rms_epsilon", 1e-5f);
    out.string("tokenizer.ggml.model", "gpt2").string("tokenizer.ggml.pre", "gpt-2");
    out.strings("tokenizer.ggml.tokens", texts).numbers("tokenizer.ggml.token_type", types);
    out.strings("tokenizer.ggml.merges", {});
    out.number("tokenizer.ggml.eos_token_id", static_cast<uint32_t>(end));
    if (!chat_template.empty()) out.string("tokenizer.chat_template", chat_template);
    if (!tool_template.empty()) out.string("tokenizer.chat_template.tool_use", tool_template);
    const auto tensor = [&out](const char* name, const std::vector<uint64_t>& shape,
                               const std::vector<float>& values) {
      std::vector<uint8_t> bytes(values.size() * sizeof(float));
      std::memcpy(bytes.data(), values.data(), bytes.size());
      out.tensor(name, 0, shape, bytes);
    };
    const std::vector<float> ones(width, 1), square(width * width), wide(width * kHead);
    tensor("token_embd.weight", {width, n}, embedding);
    tensor("output.weight", {width, n}, output);
    tensor("output_norm.weight", {width}, ones);
    tensor("blk.0.attn_norm.weight", {width}, ones);
    tensor("blk.0.ffn_norm.weight", {width}, ones);
    for (const char* name : {"blk.0.attn_q.weight", "blk.0.attn_k.weight", "blk.0.attn_v.weight",
                             "blk.0.attn_output.weight"}) {
      tensor(name, {width, width}, square);
    }
    tensor("blk.0.ffn_gate.weight", {width, kHead}, wide);
    tensor("blk.0.ffn_up.weight", {width, kHead}, wide);
    tensor("blk.0.ffn_down.weight", {kHead, width}, wide);
    return out.build();
  }
};

}  // namespace sluice::test
