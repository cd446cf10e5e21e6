// Formats values as text: str(), repr() and JSON, exactly as Python does.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/concat.h"
#include "jinja/numbers.h"
#include "jinja/values.h"
#include "tokenizer/unicode.h"
#include "tokenizer/utf8.h"

namespace sluice::jinja {
namespace {

// Whether Python prints the character unescaped in a repr.
bool is_printable(uint32_t cp) {
  using tokenizer::CharClass;
  const CharClass kind = tokenizer::char_class(cp);
  return cp == ' ' || (kind != CharClass::kOther && kind != CharClass::kSpace);
}

std::string json_escaped(uint32_t cp) {
  char out[16];
  if (cp < 0x10000) {
    std::snprintf(out, sizeof out, "\\u%04x", cp);
  } else {
    const uint32_t rest = cp - 0x10000;
    std::snprintf(out, sizeof out, "\\u%04x\\u%04x", 0xd800 + (rest >> 10),
                  0xdc00 + (rest & 0x3ff));
  }
  return out;
}

void append_repr(const Text& text, Text* out) {
  const bool doubled = text.view().find('\'') != std::string_view::npos &&
                       text.view().find('"') == std::string_view::npos;
  const char quote = doubled ? '"' : '\'';
  const auto replace = [quote](uint32_t cp) -> std::string {
    if (cp == '\n') return "\\n";
    if (cp == '\r') return "\\r";
    if (cp == '\t') return "\\t";
    if (cp == '\\' || cp == static_cast<uint32_t>(quote)) return {'\\', static_cast<char>(cp)};
    return is_printable(cp) ? std::string() : escaped(cp);
  };
  out->append(std::string(1, quote));
  append_replaced(text, replace, out);
  out->append(std::string(1, quote));
}

void append_bytes_repr(Values& values, const Text& text, Text* out) {
  const auto has = [&](char c) { return text.view().find(c) != std::string_view::npos; };
  const char quote = has('\'') && !has('"') ? '"' : '\'';
  values.spend(8 * text.size());
  if (!values.ok()) return;
  const auto replace = [quote](uint32_t cp) -> std::string {
    if (cp == '\n') return "\\n";
    if (cp == '\r') return "\\r";
    if (cp == '\t') return "\\t";
    if (cp == '\\' || cp == static_cast<uint32_t>(quote)) return {'\\', static_cast<char>(cp)};
    if (cp >= ' ' && cp < 0x7f) return {};
    std::string bytes, shown;
    tokenizer::append_utf8(cp, &bytes);
    for (const char byte : bytes) shown += escaped(static_cast<unsigned char>(byte));
    return shown;
  };
  out->append(concat({"b", std::string_view(&quote, 1)}));
  append_replaced(text, replace, out);
  out->append(std::string(1, quote));
}

void append_json(const Text& text, bool ascii, Text* out) {
  const auto replace = [ascii](uint32_t cp) -> std::string {
    static constexpr std::string_view kFrom = "\"\\\n\r\t\f\b", kTo = "\"\\nrtfb";
    if (cp < 0x80) {
      const size_t at = kFrom.find(static_cast<char>(cp));
      if (at != std::string_view::npos) return {'\\', kTo[at]};
    }
    return cp < 0x20 || (ascii && cp >= 0x7f + 1) ? json_escaped(cp) : std::string();
  };
  out->append("\"");
  append_replaced(text, replace, out);
  out->append("\"");
}

}  // namespace

std::string escaped(uint32_t cp) {
  char out[16];
  const char* format = cp < 0x100 ? "\\x%02x" : cp < 0x10000 ? "\\u%04x" : "\\U%08x";
  std::snprintf(out, sizeof out, format, cp);
  return out;
}

bool is_integer_numeral(const Value& value) {
  return value.is(Kind::kNumeral) &&
         value.string->text.view().find_first_of(".eE") == std::string_view::npos;
}

const char* type_name(const Value& value) {
  switch (value.kind) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kNumeral:
      return is_integer_numeral(value) ? "int" : "float";
    case Kind::kString:
      return value.string->markup ? "Markup" : "str";
    case Kind::kBytes:
      return "bytes";
    case Kind::kSequence: {
      static constexpr const char* kNames[] = {
          "list", "tuple", "generator", "dict_keys", "dict_values", "dict_items", "range"};
      return kNames[static_cast<size_t>(value.sequence->flavor)];
    }
    case Kind::kDict:
      return "dict";
    case Kind::kNamespace:
      return "Namespace";
    case Kind::kMacro:
      return "Macro";
    case Kind::kMethod:
      return "builtin_function_or_method";
    case Kind::kFunction:
      return "function";
    case Kind::kLoop:
      return "LoopContext";
    case Kind::kCycler:
      return value.cycler->joins ? "Joiner" : "Cycler";
  }
  return "object";
}

std::string float_text(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number < 0 ? "-inf" : "inf";
  const std::string text = shortest_text(number);
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

Text Values::str(const Value& value) {
  Text out;
  print(value, &out);
  return out;
}

void Values::print(const Value& value, Text* out) {
  if (value.is(Kind::kUndefined)) return;
  if (value.is(Kind::kString)) {
    spend(value.string->text.size());
    out->append(value.string->text);
    return;
  }
  print_repr(value, out);
}

void Values::print_repr(const Value& value, Text* out) {
  const Deeper deeper(this);
  if (!spend(16)) return;
  if (out->size() > kMaxText) {
    fail("its output is too long");
    return;
  }
  switch (value.kind) {
    case Kind::kUndefined:
      return out->append("Undefined");
    case Kind::kNone:
      return out->append("None");
    case Kind::kBool:
      return out->append(value.boolean ? "True" : "False");
    case Kind::kInt:
      return out->append(std::to_string(value.integer));
    case Kind::kFloat:
      return out->append(float_text(value.number));
    case Kind::kNumeral:
      return out->append(value.string->text);
    case Kind::kString:
      spend(2 * value.string->text.size());
      if (value.string->markup) out->append("Markup(");
      append_repr(value.string->text, out);
      if (value.string->markup) out->append(")");
      return;
    case Kind::kBytes:
      return append_bytes_repr(*this, value.string->text, out);
    case Kind::kSequence: {
      const Sequence& sequence = *value.sequence;
      const std::vector<Value>& all = sequence.items;
      if (sequence.flavor == Flavor::kRange && !all.empty() &&
          all.back().whole() - all[0].whole() + 1 == static_cast<int64_t>(all.size())) {
        return out->append(concat({"range(", std::to_string(all[0].whole()), ", ",
                                   std::to_string(all.back().whole() + 1), ")"}));
      }
      if (sequence.flavor == Flavor::kGenerator || sequence.flavor == Flavor::kRange) {
        fail("a %s cannot be printed", type_name(value));
        return;
      }
      const bool view = sequence.flavor > Flavor::kGenerator;
      const bool tuple = sequence.flavor == Flavor::kTuple;
      if (view) out->append(concat({type_name(value), "("}));
      out->append(tuple ? "(" : "[");
      for (size_t i = 0; i < sequence.items.size() && ok(); ++i) {
        if (i > 0) out->append(", ");
        print_repr(sequence.items[i], out);
      }
      out->append(tuple ? (sequence.items.size() == 1 ? ",)" : ")") : "]");
      if (view) out->append(")");
      return;
    }
    case Kind::kDict:
    case Kind::kNamespace: {
      const bool named = value.is(Kind::kNamespace);
      out->append(named ? "<Namespace {" : "{");
      bool first = true;
      for (const auto& [key, item] : value.dict->entries) {
        if (!ok()) return;
        if (!std::exchange(first, false)) out->append(", ");
        print_repr(key, out);
        out->append(": ");
        print_repr(item, out);
      }
      return out->append(named ? "}>" : "}");
    }
    default:
      fail("a %s cannot be printed", type_name(value));
  }
}

void Values::print_json(const Value& value, const JsonStyle& style, int64_t level, Text* out) {
  const Deeper deeper(this);
  if (!spend(16)) return;
  if (out->size() > kMaxText) {
    fail("its output is too long");
    return;
  }
  const auto line = [&](int64_t depth) {
    if (style.indent < 0) return;
    const auto width = static_cast<size_t>(style.indent * depth);
    spend(width);
    out->append("\n" + std::string(ok() ? width : 0, ' '));
  };
  const auto list = [&](size_t n, std::string_view open, std::string_view close, auto&& each) {
    out->append(open);
    for (size_t i = 0; i < n && ok(); ++i) {
      if (i > 0) out->append(style.item);
      line(level + 1);
      each(i);
    }
    if (n > 0) line(level);
    out->append(close);
  };
  switch (value.kind) {
    case Kind::kNone:
      return out->append("null");
    case Kind::kBool:
      return out->append(value.boolean ? "true" : "false");
    case Kind::kInt:
      return out->append(std::to_string(value.integer));
    case Kind::kFloat: {
      const std::string text = float_text(value.number);
      return out->append(text == "inf"    ? "Infinity"
                         : text == "-inf" ? "-Infinity"
                         : text == "nan"  ? "NaN"
                                          : text);
    }
    case Kind::kNumeral:
      return out->append(value.string->text);
    case Kind::kString:
      spend(2 * value.string->text.size());
      return append_json(value.string->text, style.ascii, out);
    case Kind::kSequence:
      if (value.sequence->flavor > Flavor::kTuple) break;
      return list(value.sequence->items.size(), "[", "]",
                  [&](size_t i) { print_json(value.sequence->items[i], style, level + 1, out); });
    case Kind::kDict: {
      std::vector<Keyed> entries;
      spend(32 * value.dict->entries.size());
      for (const auto& [key, member] : value.dict->entries) entries.push_back({key, member});
      if (style.sorted) sort_keyed(*this, &entries, false);
      return list(entries.size(), "{", "}", [&](size_t i) {
        const Value& key = entries[i].key;
        const bool quoted = !key.is(Kind::kString);
        if (quoted && !key.is_number() && !key.is(Kind::kNumeral) && !key.is(Kind::kNone)) {
          fail("keys must be str, int, float, bool or None, not %s", type_name(key));
        }
        if (quoted) out->append("\"");
        print_json(key, style, level + 1, out);
        if (quoted) out->append("\"");
        out->append(style.key);
        print_json(entries[i].item, style, level + 1, out);
      });
    }
    default:
      break;
  }
  fail("Object of type %s is not JSON serializable", type_name(value));
}

}  // namespace sluice::jinja
