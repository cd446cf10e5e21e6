// A cursor over a grammar's source: characters, numbers, and positions for errors. Shared by GBNF
// and regular expressions.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "base/status.h"

namespace sluice::grammar {

class Source {
 public:
  explicit Source(std::string_view text) : text_(text) {}

  [[nodiscard]] bool at_end() const { return at_ >= text_.size(); }
  [[nodiscard]] size_t position() const { return at_; }
  void go_to(size_t position) { at_ = position; }
  // The byte at the position plus `ahead`; 0 at the end.
  [[nodiscard]] char peek(size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }
  void skip(size_t n = 1) { at_ += n; }
  [[nodiscard]] bool take(std::string_view expected) {
    if (!text_.substr(at_).starts_with(expected)) return false;
    at_ += expected.size();
    return true;
  }
  [[nodiscard]] std::string_view since(size_t start) const {
    return text_.substr(start, at_ - start);
  }

  [[nodiscard]] std::string_view rest() const { return text_.substr(std::min(at_, text_.size())); }

  // Reads and decodes one character. Errors: kGrammarSyntax.
  [[nodiscard]] Result<uint32_t> next_char();
  // Reads exactly n hexadecimal digits. Errors: kGrammarSyntax.
  [[nodiscard]] Result<uint32_t> hex(int n);
  // Reads a decimal number, capped at 2^31 - 1. False if there is no digit.
  [[nodiscard]] bool number(uint32_t* out);

  // An error such as "line 3, column 7: what", with kGrammarSyntax.
  [[nodiscard]] Status fail(const char* what) const { return fail_at(at_, what); }
  [[nodiscard]] Status fail_at(size_t position, const char* what) const;

 private:
  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace sluice::grammar
