// Marks of formats, as a vocabulary spells them: with its control tokens where a mark contains
// some.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::chat {

struct ControlToken;

class Marks {
 public:
  Marks() = default;
  // Keeps the control tokens that occur in `texts`.
  Marks(std::span<const ControlToken> controls, const std::vector<std::string>& texts);

  // The mark as a TextReader meets it (text_reader.h).
  [[nodiscard]] std::string encode(std::string_view mark) const;
  // A GBNF expression of the mark.
  [[nodiscard]] std::string gbnf(std::string_view mark) const;
  // Whether a control token is part of the mark.
  [[nodiscard]] bool has_control(std::string_view mark) const;

 private:
  struct Known {
    std::string text;
    int32_t id;
  };
  // The control token that text[at...] starts with; null if there is none.
  [[nodiscard]] const Known* find(std::string_view text, size_t at) const;
  std::vector<Known> known_;  // longest first
};

// A GBNF literal.
[[nodiscard]] std::string gbnf_literal(std::string_view text);

}  // namespace sluice::chat
