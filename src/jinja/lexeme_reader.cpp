#include "jinja/lexeme_reader.h"

#include <cstdarg>
#include <cstdio>

namespace sluice::jinja {
namespace {

constexpr int kMaxNesting = 600;  // four per bracket

}  // namespace

LexemeReader::Depth::Depth(LexemeReader* reader) : reader_(reader) {
  if (++reader->depth_ > kMaxNesting) reader->fail("nesting is too deep");
}

bool LexemeReader::take_operator(std::string_view text) {
  if (!is_operator(text)) return false;
  next();
  return true;
}

bool LexemeReader::take_word(std::string_view text) {
  if (!is_word(text)) return false;
  next();
  return true;
}

void LexemeReader::expect_operator(std::string_view text) {
  const std::string wanted(text);
  if (!take_operator(text)) {
    fail("expected '%s', not %s", wanted.c_str(), shown().c_str());
  }
}

void LexemeReader::expect(Lex kind, const char* what) {
  if (!is(kind)) return fail("expected %s, not %s", what, shown().c_str());
  next();
}

std::string LexemeReader::take_name() {
  std::string name = now().text;
  expect(Lex::kName, "a name");
  return name;
}

// Only the first error is kept.
void LexemeReader::fail(const char* format, ...) {
  if (!ok()) return;
  va_list args;
  va_start(args, format);
  char text[200];
  std::vsnprintf(text, sizeof text, format, args);
  va_end(args);
  status_ = syntax_error(now().line, "%s", text);
  at_ = lexemes_.size() - 1;
}

std::string LexemeReader::shown() const {
  switch (now().kind) {
    case Lex::kEnd:
      return "the end of the template";
    case Lex::kClosePrint:
    case Lex::kCloseBlock:
      return "the end of the tag";
    default:
      return "'" + now().text.substr(0, 40) + "'";
  }
}

}  // namespace sluice::jinja
