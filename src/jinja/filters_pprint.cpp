// The filter pprint: Python's pprint.pformat() with its defaults. What fits into 80 columns is one
// line; otherwise each item has its own, and strings are cut at white space. Keys are sorted.
#include <algorithm>

#include "jinja/interpreter.h"

namespace sluice::jinja {
namespace {

constexpr size_t kColumns = 80;

bool is_list(const Value& value) {
  return value.is(Kind::kSequence) && value.sequence->flavor <= Flavor::kTuple;
}
bool is_tuple(const Value& value) {
  return value.sequence->flavor == Flavor::kTuple;
}

// Entries by key. Keys that Python cannot compare are in the order of their types: None, numbers,
// strings, tuples.
std::vector<Keyed> sorted(Interpreter& in, const Dict& dict) {
  in.spend(32 * dict.entries.size());
  std::array<std::vector<Keyed>, 4> by_type;
  for (const auto& [key, item] : dict.entries) {
    const size_t type = key.is(Kind::kNone)     ? 0
                        : key.is_number()       ? 1
                        : key.is(Kind::kString) ? 2
                                                : 3;
    by_type[type].push_back({key, item});
  }
  std::vector<Keyed> out;
  for (std::vector<Keyed>& part : by_type) {
    sort_keyed(in, &part, false);
    out.insert(out.end(), part.begin(), part.end());
  }
  return out;
}

// repr(value), with sorted keys.
void append_repr(Interpreter& in, const Value& value, Text* out) {
  const Interpreter::Deeper deeper(&in);
  if (!is_list(value) && !value.is(Kind::kDict)) return in.print_repr(value, out);
  if (!in.spend(16)) return;
  auto comma = [&, first = true]() mutable {
    if (!std::exchange(first, false)) out->append(", ");
  };
  if (value.is(Kind::kDict)) {
    out->append("{");
    for (const Keyed& each : sorted(in, *value.dict)) {
      if (!in.ok()) return;
      comma();
      append_repr(in, each.key, out);
      out->append(": ");
      append_repr(in, each.item, out);
    }
    return out->append("}");
  }
  const std::vector<Value>& items = value.sequence->items;
  out->append(is_tuple(value) ? "(" : "[");
  for (size_t i = 0; i < items.size() && in.ok(); ++i) {
    comma();
    append_repr(in, items[i], out);
  }
  out->append(!is_tuple(value) ? "]" : items.size() == 1 ? ",)" : ")");
}

Text repr_of(Interpreter& in, const Value& value) {
  Text out;
  append_repr(in, value, &out);
  return out;
}

size_t width_of(Interpreter& in, const Text& text) {
  in.spend(text.size());
  return count_characters(text.view());
}

// Offsets behind runs of characters and the white space that follows them.
std::vector<size_t> ends_of_words(std::string_view text) {
  std::vector<size_t> out;
  bool space = false;
  for (size_t at = 0, bytes = 0; at < text.size(); at += bytes) {
    const bool is_blank = is_space(code_point(text, at, &bytes));
    if (space && !is_blank) out.push_back(at);
    space = is_blank;
  }
  out.push_back(text.size());
  return out;
}

class PrettyPrinter {
 public:
  PrettyPrinter(Interpreter& in, Text* out) : in_(in), out_(out) {}

  // `indent`: columns before the value. `behind`: columns that what follows it needs. `level`: 0
  // for the whole value.
  void print(const Value& value, size_t indent, size_t behind, int level) {
    const Interpreter::Deeper deeper(&in_);
    if (!in_.ok()) return;
    const Text repr = repr_of(in_, value);
    if (width_of(in_, repr) + indent + behind <= kColumns) return out_->append(repr);
    if (value.is(Kind::kDict)) return print_dict(*value.dict, indent, behind + 1, level + 1);
    if (is_list(value)) return print_list(value, indent, behind, level + 1);
    if (value.is(Kind::kString) && !value.string->markup && value.string->text.size() > 0) {
      return print_string(value, indent, behind, level + 1);
    }
    out_->append(repr);
  }

 private:
  void new_line(size_t indent) {
    in_.spend(indent);
    out_->append("\n" + std::string(in_.ok() ? indent : 0, ' '));
  }

  void print_dict(const Dict& dict, size_t indent, size_t behind, int level) {
    const std::vector<Keyed> all = sorted(in_, dict);
    out_->append("{");
    for (size_t i = 0; i < all.size() && in_.ok(); ++i) {
      if (i > 0) {
        out_->append(",");
        new_line(indent + 1);
      }
      const Text key = repr_of(in_, all[i].key);
      out_->append(key);
      out_->append(": ");
      print(all[i].item, indent + 1 + width_of(in_, key) + 2, i + 1 == all.size() ? behind : 1,
            level);
    }
    out_->append("}");
  }

  void print_list(const Value& value, size_t indent, size_t behind, int level) {
    const std::vector<Value>& items = value.sequence->items;
    const std::string_view close = !is_tuple(value) ? "]" : items.size() == 1 ? ",)" : ")";
    out_->append(is_tuple(value) ? "(" : "[");
    for (size_t i = 0; i < items.size() && in_.ok(); ++i) {
      if (i > 0) {
        out_->append(",");
        new_line(indent + 1);
      }
      print(items[i], indent + 1, i + 1 == items.size() ? behind + close.size() : 1, level);
    }
    out_->append(close);
  }

  // Lines of the string, and parts of those that are too long: adjacent literals, as in Python.
  void print_string(const Value& value, size_t indent, size_t behind, int level) {
    const bool whole = level == 1;
    indent += whole ? 1 : 0;
    behind += whole ? 1 : 0;
    const size_t room = kColumns - std::min(indent, kColumns);
    const auto fits = [&](const Text& repr, bool last) {
      return width_of(in_, repr) + (last ? behind : 0) <= room;
    };
    std::vector<Text> chunks;
    Arguments keep_ends;
    keep_ends.places = {Value(true)};
    const std::vector<Value> lines =
        in_.items(call_string_method(in_, value, "splitlines", keep_ends));
    for (size_t i = 0; i < lines.size() && in_.ok(); ++i) {
      const bool last = i + 1 == lines.size();
      Text repr = repr_of(in_, lines[i]);
      if (fits(repr, last)) {
        chunks.push_back(std::move(repr));
        continue;
      }
      const Text& line = lines[i].string->text;
      const std::vector<size_t> ends = ends_of_words(line.view());
      size_t begin = 0, end = 0;  // of the current part
      Text current;
      for (size_t j = 0; j < ends.size() && in_.ok(); ++j) {
        Text candidate = repr_of(in_, in_.text(line.slice(begin, ends[j])));
        if (!fits(candidate, last && j + 1 == ends.size()) && end > begin) {
          chunks.push_back(std::move(current));
          begin = end;
          candidate = repr_of(in_, in_.text(line.slice(begin, ends[j])));
        }
        end = ends[j];
        current = std::move(candidate);
      }
      if (end > begin) chunks.push_back(std::move(current));
    }
    const bool bracketed = whole && chunks.size() > 1;
    if (bracketed) out_->append("(");
    for (size_t i = 0; i < chunks.size() && in_.ok(); ++i) {
      if (i > 0) new_line(indent);
      out_->append(chunks[i]);
    }
    if (bracketed) out_->append(")");
  }

  Interpreter& in_;
  Text* out_;
};

}  // namespace

Value pprint(Interpreter& in, const Value& value, const Arguments& args) {
  (void)bind(in, "pprint", args, "");
  Text out;
  PrettyPrinter(in, &out).print(value, 0, 0, 0);
  return in.text(std::move(out));
}

}  // namespace sluice::jinja
