// Marks of formats, as a vocabulary spells them: with its control tokens where a mark contains
// some.
#pragma once

#include <cstdint>
#include <forward_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::chat {

struct ControlToken;

class Marks {
 public:
  Marks() = default;
  // Keeps the control tokens that occur in `texts`. Points to them.
  Marks(std::span<const ControlToken> controls, std::span<const std::string_view> texts);

  // The mark as a TextReader meets it (text_reader.h).
  [[nodiscard]] std::string encode(std::string_view mark) const;
  // The same, owned by `kept`. A mark without control tokens is returned as it is.
  [[nodiscard]] std::string_view encode(std::string_view mark,
                                        std::forward_list<std::string>* kept) const;
  // A GBNF expression of the mark.
  [[nodiscard]] std::string gbnf(std::string_view mark) const;
  // Whether a control token is part of the mark.
  [[nodiscard]] bool has_control(std::string_view mark) const;

 private:
  // The control token that text[at...] starts with; null if there is none.
  [[nodiscard]] const ControlToken* find(std::string_view text, size_t at) const;
  std::vector<const ControlToken*> known_;  // longest first
};

// Strings of Gemma's tool calls stand between two of these.
inline constexpr std::string_view kGemmaQuote = "<|\"|>";

// Whether one of the texts contains `name`.
[[nodiscard]] bool occurs_in(std::string_view name, std::span<const std::string_view> texts);

// A GBNF literal.
[[nodiscard]] std::string gbnf_literal(std::string_view text);

}  // namespace sluice::chat
