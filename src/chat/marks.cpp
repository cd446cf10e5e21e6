#include "chat/marks.h"

#include <algorithm>
#include <cstdio>

#include "chat/answer.h"
#include "chat/text_reader.h"

namespace sluice::chat {

Marks::Marks(std::span<const ControlToken> controls, const std::vector<std::string>& texts) {
  for (const ControlToken& control : controls) {
    const bool occurs =
        !control.text.empty() && std::any_of(texts.begin(), texts.end(), [&](const auto& text) {
          return text.find(control.text) != std::string::npos;
        });
    if (occurs) known_.push_back({control.text, control.id});
  }
  std::stable_sort(known_.begin(), known_.end(),
                   [](const Known& a, const Known& b) { return a.text.size() > b.text.size(); });
}

const Marks::Known* Marks::find(std::string_view text, size_t at) const {
  for (const Known& known : known_) {
    if (text.substr(at, known.text.size()) == known.text) return &known;
  }
  return nullptr;
}

std::string Marks::encode(std::string_view mark) const {
  std::string out;
  for (size_t at = 0; at < mark.size();) {
    const Known* known = find(mark, at);
    out += known != nullptr ? kTokenBegin + known->text + kTokenEnd : std::string(1, mark[at]);
    at += known != nullptr ? known->text.size() : 1;
  }
  return out;
}

std::string Marks::gbnf(std::string_view mark) const {
  std::string out, plain;
  const auto add = [&](const std::string& part) { out += (out.empty() ? "" : " ") + part; };
  const auto flush = [&] {
    if (!plain.empty()) add(gbnf_literal(plain));
    plain.clear();
  };
  for (size_t at = 0; at < mark.size();) {
    const Known* known = find(mark, at);
    if (known == nullptr) {
      plain += mark[at++];
      continue;
    }
    flush();
    add("<[" + std::to_string(known->id) + "]>");
    at += known->text.size();
  }
  flush();
  return out.empty() ? "\"\"" : out;
}

bool Marks::has_control(std::string_view mark) const {
  for (size_t at = 0; at < mark.size(); ++at) {
    if (find(mark, at) != nullptr) return true;
  }
  return false;
}

std::string gbnf_literal(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\x%02X", static_cast<unsigned>(c));
      out += c == '\n' ? "\\n" : c == '\r' ? "\\r" : c == '\t' ? "\\t" : escape;
    } else {
      out += c;
    }
  }
  return out + '"';
}

}  // namespace sluice::chat
