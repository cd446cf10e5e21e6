// Makes values of JSON text. Numbers are read as Python reads them, except those that a double or
// 64 bits cannot hold: they stay digits.
#include "jinja/json.h"

#include <algorithm>

#include "jinja/json_text.h"
#include "jinja/numbers.h"
#include "tokenizer/utf8.h"

namespace sluice::jinja {
namespace {

bool is_word(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return digit_value(c) < 36 || c == '_' || c == '-';
  });
}

struct Reader {
  Interpreter& in;
  const Program& program;
  bool mark;

  // `name`: of the member that is read; inside an array, the array's name.
  [[nodiscard]] Value value(std::string_view name, std::string_view json);
  [[nodiscard]] Value number(std::string_view text);
  [[nodiscard]] Value given(std::string_view text, bool role) {
    const bool own = is_word(text) && (role || program.known.count(std::string(text)) > 0);
    return in.given(text, mark && !own);
  }
};

Value Reader::value(std::string_view name, std::string_view json) {
  if (!in.spend(16)) return {};
  switch (json_type(json)) {
    case JsonType::kObject: {
      auto* dict = in.make<Dict>();
      for (const JsonMember& member : json_members(json)) {
        const Value key = given(member.name, false);
        in.put(dict, key, value(member.name, member.value));
      }
      return Value(dict);
    }
    case JsonType::kArray: {
      std::vector<Value> items;
      for (const std::string_view item : json_items(json)) items.push_back(value(name, item));
      return in.sequence(std::move(items));
    }
    case JsonType::kString:
      return given(json_string(json), name == "role");
    case JsonType::kNull:
      return none();
    case JsonType::kBoolean:
      return Value(json.find('t') == 0);
    default:
      return number(json);
  }
}

Value Reader::number(std::string_view text) {
  if (text.find_first_of(".eE") != std::string_view::npos) {
    if (const auto real = read_double(text)) return Value(*real);
  } else if (const auto whole = read_whole(text)) {
    return Value(*whole);
  }
  Value out = in.text(text);
  out.kind = Kind::kNumeral;
  return out;
}

}  // namespace

Result<Value> read_json(Interpreter& in, const Program& program, std::string_view json,
                        const char* what, bool mark) {
  if (!tokenizer::is_valid_utf8(json)) {
    return error(Code::kInvalidArgument, "%s is not JSON: it is not UTF-8", what);
  }
  const JsonCheck check = check_json(json);
  if (check != JsonCheck::kValid) {
    return error(Code::kInvalidArgument, "%s %s", what,
                 check == JsonCheck::kTooDeep ? "is nested too deeply" : "is not JSON");
  }
  const size_t begin = std::min(json.find_first_not_of(" \t\n\r"), json.size());
  const size_t end = json.find_last_not_of(" \t\n\r") + 1;
  const Value out = Reader{in, program, mark}.value("", json.substr(begin, end - begin));
  if (!in.ok()) return in.failure();
  return out;
}

}  // namespace sluice::jinja
