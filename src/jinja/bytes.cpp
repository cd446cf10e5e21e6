// str.encode(), and the bytes that it makes. Templates use them to count bytes, to drop or escape
// characters, and as a round trip; so bytes can be decoded, measured and printed. They are always
// valid UTF-8 and keep content marks.
#include <cstdio>

#include "base/concat.h"
#include "jinja/interpreter.h"

namespace sluice::jinja {
namespace {

enum class Encoding : uint8_t { kUtf8, kAscii, kEscape, kUnknown };

// The argument as text, or the default.
std::string_view text_or(Interpreter& in, const Value* value, std::string_view fallback) {
  if (value == nullptr) return fallback;
  if (value->is(Kind::kString)) return value->string->text.view();
  in.fail("the encoding must be str, not %s", type_name(*value));
  return fallback;
}

Encoding encoding_of(Interpreter& in, const Value* value) {
  std::string name = to_lower(text_or(in, value, "utf-8"));
  for (char& c : name) {
    if (c == '_' || c == ' ') c = '-';
  }
  if (name == "utf-8" || name == "utf8") return Encoding::kUtf8;
  if (name == "ascii" || name == "us-ascii") return Encoding::kAscii;
  if (name == "unicode-escape") return Encoding::kEscape;
  in.fail("the encoding '%.40s' is unsupported: use utf-8, ascii or unicode_escape", name.c_str());
  return Encoding::kUnknown;
}

Value bytes_of(Interpreter& in, Text text) {
  Value out = in.text(std::move(text));
  out.kind = Kind::kBytes;
  return out;
}

std::string unicode_escape(uint32_t cp) {
  if (cp == '\n') return "\\n";
  if (cp == '\r') return "\\r";
  if (cp == '\t') return "\\t";
  if (cp == '\\') return "\\\\";
  return cp >= ' ' && cp < 0x7f ? std::string() : escaped(cp);
}

}  // namespace

Value encode(Interpreter& in, const Value& self, const Arguments& args) {
  const auto a = bind(in, "encode", args, "encoding errors");
  const Encoding encoding = encoding_of(in, a[0]);
  const std::string_view errors = text_or(in, a[1], "strict");
  const Text& text = self.string->text;
  if (!in.spend(10 * text.size())) return {};
  if (encoding == Encoding::kUtf8) return bytes_of(in, text);
  Text out;
  if (encoding == Encoding::kEscape) {
    append_replaced(text, unicode_escape, &out);
    return bytes_of(in, std::move(out));
  }
  const bool known = errors == "strict" || errors == "ignore" || errors == "replace" ||
                     errors == "backslashreplace" || errors == "xmlcharrefreplace";
  if (!known) in.fail("unknown error handler name '%.40s'", std::string(errors).c_str());
  for (size_t at = 0, bytes = 0; at < text.size() && in.ok(); at += bytes) {
    const uint32_t cp = code_point(text.view(), at, &bytes);
    if (cp < 0x80) {
      out.append(text, at, at + bytes);
      continue;
    }
    if (errors == "strict") {
      return in.fail(
          "'ascii' codec can't encode character '%s' in position %zu: ordinal not in range(128)",
          escaped(cp).c_str(), count_characters(text.view().substr(0, at)));
    }
    const std::string other = errors == "replace"            ? "?"
                              : errors == "backslashreplace" ? escaped(cp)
                              : errors == "ignore"           ? std::string()
                                                   : concat({"&#", std::to_string(cp), ";"});
    const Text shown = text.slice(at, at + bytes);
    out.append(other.empty() ? Text() : shown.with_bytes(other));
  }
  return bytes_of(in, std::move(out));
}

// decode() and hex().
Value call_bytes_method(Interpreter& in, const Value& self, std::string_view name,
                        const Arguments& args) {
  const Text& text = self.string->text;
  if (!in.spend(3 * text.size())) return {};
  if (name == "hex") {
    (void)bind(in, "hex", args, "");
    std::string out;
    for (const char byte : text.view()) {
      for (const int nibble : {(byte >> 4) & 15, byte & 15}) out += "0123456789abcdef"[nibble];
    }
    return in.text(text.with_bytes(out));
  }
  const auto a = bind(in, "decode", args, "encoding errors");
  const Encoding encoding = encoding_of(in, a[0]);
  if (encoding == Encoding::kEscape) return in.fail("decode('unicode_escape') is unsupported");
  if (encoding == Encoding::kAscii) {
    for (size_t at = 0; at < text.size(); ++at) {
      const auto byte = static_cast<unsigned char>(text.view()[at]);
      if (byte < 0x80) continue;
      return in.fail(
          "'ascii' codec can't decode byte 0x%x in position %zu: ordinal not in range(128)", byte,
          at);
    }
  }
  return in.text(text);
}

}  // namespace sluice::jinja
