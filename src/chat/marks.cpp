#include "chat/marks.h"

#include <algorithm>
#include <cstdio>

#include "chat/answer.h"
#include "chat/text_reader.h"

namespace sluice::chat {

bool occurs_in(std::string_view name, std::span<const std::string_view> texts) {
  for (const std::string_view text : texts) {
    if (text.find(name) != std::string_view::npos) return true;
  }
  return false;
}

Marks::Marks(std::span<const ControlToken> controls, std::span<const std::string_view> texts) {
  for (const ControlToken& control : controls) {
    if (control.text.empty() || !occurs_in(control.text, texts)) continue;
    size_t at = known_.size();
    known_.push_back(&control);
    for (; at > 0 && known_[at - 1]->text.size() < control.text.size(); --at) {
      std::swap(known_[at - 1], known_[at]);
    }
  }
}

const ControlToken* Marks::find(std::string_view text, size_t at) const {
  for (const ControlToken* known : known_) {
    if (text.substr(at).starts_with(known->text)) return known;
  }
  return nullptr;
}

std::string Marks::encode(std::string_view mark) const {
  std::string out;
  for (size_t at = 0; at < mark.size();) {
    const ControlToken* known = find(mark, at);
    if (known == nullptr) {
      out += mark[at++];
      continue;
    }
    out += kTokenBegin;
    out += known->text;
    out += kTokenEnd;
    at += known->text.size();
  }
  return out;
}

std::string_view Marks::encode(std::string_view mark, std::forward_list<std::string>* kept) const {
  if (!has_control(mark)) return mark;
  return kept->emplace_front(encode(mark));
}

std::string Marks::gbnf(std::string_view mark) const {
  std::string out, plain;
  const auto add = [&](const std::string& part) { out += (out.empty() ? "" : " ") + part; };
  const auto flush = [&] {
    if (!plain.empty()) add(gbnf_literal(plain));
    plain.clear();
  };
  for (size_t at = 0; at < mark.size();) {
    const ControlToken* known = find(mark, at);
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
