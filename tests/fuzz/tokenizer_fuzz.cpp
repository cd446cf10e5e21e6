// Fuzzes the tokenizers: the first bytes are text, the rest is a GGUF file with a vocabulary. Any
// file gives a typed error, or a tokenizer whose ids are in range, whose stream is valid UTF-8, and
// which makes no control token out of user text.
#include <cstdlib>
#include <string>
#include <string_view>

#include "tokenizer/tokenizer.h"
#include "tokenizer/utf8.h"

namespace {

void check(bool ok) {
  if (!ok) std::abort();
}

void use(const sluice::tokenizer::Tokenizer& tokenizer, std::string_view text) {
  using sluice::tokenizer::Token;
  for (const bool parse_special : {false, true}) {
    const auto ids = tokenizer.encode(text, {.add_special = false, .parse_special = parse_special});
    sluice::tokenizer::StreamDecoder decoder(tokenizer, parse_special);
    for (const Token id : ids) {
      check(id >= 0 && id < tokenizer.n_vocab());
      check(parse_special || !tokenizer.is_control(id));
      (void)tokenizer.is_end_of_generation(id);
      (void)tokenizer.piece(id);
      check(sluice::tokenizer::is_valid_utf8(decoder.push(id, parse_special)));
    }
    check(sluice::tokenizer::is_valid_utf8(decoder.finish()));
    check(sluice::tokenizer::is_valid_utf8(tokenizer.decode(ids, true)));
  }
  (void)tokenizer.encode(text);
  const std::string quoted = "\xEF\xB7\x90" + std::string(text);  // marked as literal to the end
  if (text.find("\xEF\xB7") != text.npos) return;
  for (const Token id : tokenizer.encode(
           quoted, {.add_special = false, .continuation = true, .literal_spans = true})) {
    check(id >= 0 && id < tokenizer.n_vocab() && !tokenizer.is_control(id));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const size_t n_text = data[0] < size - 1 ? data[0] : size - 1;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, n_text);
  const sluice::gguf::Bytes file(data + 1 + n_text, size - 1 - n_text);
  sluice::gguf::Header header;
  const auto parsed = sluice::gguf::parse_header(file, file.size(), &header);
  if (!parsed.ok() || !parsed->done) return 0;
  const auto tokenizer = sluice::tokenizer::Tokenizer::create(header);
  if (!tokenizer.ok()) {
    check(!tokenizer.status().message().empty());
    return 0;
  }
  check((*tokenizer)->memory_bytes() <= sluice::tokenizer::estimate_memory(header));
  use(**tokenizer, text);
  return 0;
}
