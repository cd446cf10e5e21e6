// Reading a grammar's text: characters, positions for errors, numbers. GBNF and regular
// expressions share it.
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
  // The byte here or further on, 0 at the end.
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

  // A whole character, decoded; the position is behind it. Errors: kGrammarSyntax.
  [[nodiscard]] Result<uint32_t> next_char();
  // Exactly n hexadecimal digits. Errors: kGrammarSyntax.
  [[nodiscard]] Result<uint32_t> hex(int n);
  // Decimal digits; at most 2^31 - 1. False without a digit.
  [[nodiscard]] bool number(uint32_t* out);

  // "line 3, column 7: what". kGrammarSyntax.
  [[nodiscard]] Status fail(const char* what) const { return fail_at(at_, what); }
  [[nodiscard]] Status fail_at(size_t position, const char* what) const;

 private:
  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace sluice::grammar
