// Splits a template's source into lexemes: the text between tags, with white space already trimmed
// (trim_blocks and lstrip_blocks, one newline at the end dropped), and the contents of tags.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace sluice::jinja {

enum class Lex : uint8_t {
  kData,       // text between tags
  kOpenPrint,  // {{
  kClosePrint,
  kOpenBlock,  // {%
  kCloseBlock,
  kName,
  kString,  // `text` is unquoted and unescaped
  kInt,
  kFloat,
  kNumeral,  // an integer beyond 64 bits: `text`
  kOperator,
  kEnd,
};

struct Lexeme {
  Lex kind = Lex::kEnd;
  std::string text;
  int64_t integer = 0;
  double number = 0;
  uint32_t line = 1;
};

// Errors: kChatTemplate with the line. The last lexeme is kEnd.
[[nodiscard]] Result<std::vector<Lexeme>> lex(std::string_view source);

// The error for invalid source.
[[nodiscard]] Status syntax_error(uint32_t line, const char* format, ...)
    __attribute__((format(SLUICE_PRINTF, 2, 3)));

}  // namespace sluice::jinja
