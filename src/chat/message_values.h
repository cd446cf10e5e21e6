// Small helpers for values, shared by what reads and what writes messages.
#pragma once

#include <string_view>

#include "jinja/interpreter.h"

namespace sluice::chat {

// The bytes of a string; "" for other values.
[[nodiscard]] inline std::string_view text_of(const jinja::Value& value) {
  return value.is(jinja::Kind::kString) ? value.string->text.view() : std::string_view();
}

[[nodiscard]] inline bool is_blank(const jinja::Value& text) {
  return jinja::leading_space(text_of(text)) == text_of(text).size();
}

inline void put_member(jinja::Interpreter& in, const jinja::Value& dict, std::string_view name,
                       const jinja::Value& value) {
  in.put(dict.dict, in.text(name), value);
}

}  // namespace sluice::chat
