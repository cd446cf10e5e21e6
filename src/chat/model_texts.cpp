// Reads chat templates and special tokens from a header.
#include "chat/template.h"

namespace sluice::chat {
namespace {

// The text of the token whose id is under `key`; nullopt if there is none.
std::optional<std::string> token_text(const gguf::Header& header, const char* key) {
  const std::optional<uint64_t> id = header.get_u64(key);
  const gguf::Value* tokens = header.find("tokenizer.ggml.tokens");
  if (!id || tokens == nullptr || *id >= tokens->count) return std::nullopt;
  gguf::StringCursor cursor(*tokens);
  std::string_view text;
  for (uint64_t i = 0; i <= *id; ++i) {
    if (!cursor.next(&text)) return std::nullopt;
  }
  return std::string(text);
}

}  // namespace

ModelTexts read_texts(const gguf::Header& header) {
  ModelTexts texts;
  texts.chat_template = header.get_string("tokenizer.chat_template").value_or("");
  texts.tool_template = header.get_string("tokenizer.chat_template.tool_use").value_or("");
  // As in llama.cpp, a model's only template is used for every request.
  if (texts.chat_template.empty()) texts.chat_template.swap(texts.tool_template);
  texts.bos = token_text(header, "tokenizer.ggml.bos_token_id").value_or("");
  texts.eos = token_text(header, "tokenizer.ggml.eos_token_id").value_or("");
  texts.unk = token_text(header, "tokenizer.ggml.unknown_token_id");
  texts.pad = token_text(header, "tokenizer.ggml.padding_token_id");
  return texts;
}

}  // namespace sluice::chat
