// A template's source as tokens: the text between the tags with its white space already controlled
// (trim_blocks and lstrip_blocks on, one newline at the end dropped), and what is inside the tags.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace sluice::chat {

enum class Lex : uint8_t {
  kData,       // text as it is
  kOpenPrint,  // {{
  kClosePrint,
  kOpenBlock,  // {%
  kCloseBlock,
  kName,
  kString,  // `text` without quotes and escapes
  kInt,
  kFloat,
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

// The error of a source that cannot be read.
[[nodiscard]] Status syntax_error(uint32_t line, const char* format, ...)
    __attribute__((format(SLUICE_PRINTF, 2, 3)));

}  // namespace sluice::chat
