// Reads the lexemes of a template one after another, for the parser. After an error it is at their
// end, so callers only check the status once.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "jinja/lexer.h"

namespace sluice::jinja {

class LexemeReader {
 protected:
  explicit LexemeReader(std::vector<Lexeme> lexemes) : lexemes_(std::move(lexemes)) {}

  [[nodiscard]] const Lexeme& now() const { return lexemes_[at_]; }
  [[nodiscard]] const Lexeme& after() const {
    return lexemes_[at_ + (at_ + 1 < lexemes_.size() ? 1 : 0)];
  }
  [[nodiscard]] bool is(Lex kind) const { return now().kind == kind; }
  [[nodiscard]] bool is_operator(std::string_view text) const {
    return is(Lex::kOperator) && now().text == text;
  }
  [[nodiscard]] bool is_word(std::string_view text) const {
    return is(Lex::kName) && now().text == text;
  }
  void next() { at_ += at_ + 1 < lexemes_.size() ? 1 : 0; }
  bool take_operator(std::string_view text);
  bool take_word(std::string_view text);
  void expect_operator(std::string_view text);
  void expect(Lex kind, const char* what);
  std::string take_name();
  void fail(const char* format, ...) __attribute__((format(SLUICE_PRINTF, 2, 3)));
  [[nodiscard]] bool ok() const { return status_.ok(); }
  [[nodiscard]] std::string shown() const;
  [[nodiscard]] const Status& status() const { return status_; }
  [[nodiscard]] const std::vector<Lexeme>& lexemes() const { return lexemes_; }

  // Counts nesting in its lifetime.
  class Depth {
   public:
    explicit Depth(LexemeReader* reader);
    ~Depth() { --reader_->depth_; }
    Depth(const Depth&) = delete;
    Depth& operator=(const Depth&) = delete;

   private:
    LexemeReader* reader_;
  };

 private:
  std::vector<Lexeme> lexemes_;
  size_t at_ = 0;
  Status status_;
  int depth_ = 0;
};

}  // namespace sluice::jinja
