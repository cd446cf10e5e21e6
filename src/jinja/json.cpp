// Reads JSON (RFC 8259) by recursive descent. Numbers are read as Python reads them, except those
// that a double or 64 bits cannot hold: they stay digits.
#include "jinja/json.h"

#include <algorithm>
#include <charconv>

#include "jinja/numbers.h"
#include "tokenizer/utf8.h"

namespace sluice::jinja {
namespace {

constexpr int kMaxJsonDepth = 200;
constexpr uint32_t kReplacementCharacter = 0xfffd;

bool is_word(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
  });
}

class Reader {
 public:
  Reader(Interpreter& in, const Program& program, std::string_view text, bool mark)
      : in_(in), program_(program), text_(text), mark_(mark) {}

  // The whole text as one value. problem() says what is wrong with it, or is null.
  Value all() {
    const Value out = value("", 0);
    skip_space();
    if (at_ < text_.size()) return refuse();
    return out;
  }
  [[nodiscard]] const char* problem() const { return problem_; }

 private:
  // `name`: of the member that is read; inside an array, the array's name.
  Value value(std::string_view name, int depth);
  Value object(int depth);
  Value array(std::string_view name, int depth);
  Value number();
  bool string(std::string* out);
  bool escape(std::string* out);
  bool hex(uint32_t* out);

  void skip_space() { at_ = std::min(text_.find_first_not_of(" \t\n\r", at_), text_.size()); }
  bool take(char c) {
    skip_space();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  size_t take_digits() {
    const size_t begin = at_;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') ++at_;
    return at_ - begin;
  }
  Value refuse(const char* why = "is not JSON") {
    if (problem_ == nullptr) problem_ = why;
    return {};
  }
  [[nodiscard]] bool ok() const { return problem_ == nullptr && in_.ok(); }
  [[nodiscard]] Value given(std::string_view text, bool role) {
    const bool own = is_word(text) && (role || program_.known.count(std::string(text)) > 0);
    return in_.given(text, mark_ && !own);
  }

  Interpreter& in_;
  const Program& program_;
  std::string_view text_;
  size_t at_ = 0;
  bool mark_;
  const char* problem_ = nullptr;
};

Value Reader::value(std::string_view name, int depth) {
  if (depth > kMaxJsonDepth) return refuse("is nested too deeply");
  in_.spend(16);
  skip_space();
  const std::string_view rest = text_.substr(at_);
  const char c = rest.empty() ? '\0' : rest[0];
  if (c == '{') return object(depth);
  if (c == '[') return array(name, depth);
  if (c == '"') {
    std::string text;
    return string(&text) ? given(text, name == "role") : refuse();
  }
  const std::pair<std::string_view, Value> words[] = {
      {"null", none()}, {"true", Value(true)}, {"false", Value(false)}};
  for (const auto& [word, meant] : words) {
    if (!rest.starts_with(word)) continue;
    at_ += word.size();
    return meant;
  }
  return number();
}

Value Reader::object(int depth) {
  ++at_;
  auto* dict = in_.make<Dict>();
  for (bool more = !take('}'); more && ok(); more = take(',')) {
    std::string name;
    skip_space();
    if (at_ == text_.size() || text_[at_] != '"' || !string(&name) || !take(':')) return refuse();
    const Value key = given(name, false);
    in_.put(dict, key, value(name, depth + 1));
    if (take('}')) break;
    if (at_ == text_.size() || text_[at_] != ',') return refuse();
  }
  return Value(dict);
}

Value Reader::array(std::string_view name, int depth) {
  ++at_;
  std::vector<Value> items;
  for (bool more = !take(']'); more && ok(); more = take(',')) {
    items.push_back(value(name, depth + 1));
    if (take(']')) break;
    if (at_ == text_.size() || text_[at_] != ',') return refuse();
  }
  return in_.sequence(std::move(items));
}

Value Reader::number() {
  const size_t begin = at_;
  if (at_ < text_.size() && text_[at_] == '-') ++at_;
  const size_t first = at_, digits = take_digits();
  if (digits == 0 || (digits > 1 && text_[first] == '0')) return refuse();
  bool real = false;
  if (at_ < text_.size() && text_[at_] == '.') {
    ++at_;
    if (take_digits() == 0) return refuse();
    real = true;
  }
  if (at_ < text_.size() && (text_[at_] == 'e' || text_[at_] == 'E')) {
    ++at_;
    if (at_ < text_.size() && (text_[at_] == '+' || text_[at_] == '-')) ++at_;
    if (take_digits() == 0) return refuse();
    real = true;
  }
  const std::string_view text = text_.substr(begin, at_ - begin);
  const char* end = text.data() + text.size();
  if (real) {
    if (const auto out = read_double(text)) return Value(*out);
  } else {
    int64_t out = 0;
    if (std::from_chars(text.data(), end, out).ec == std::errc()) return Value(out);
  }
  Value out = in_.text(text);
  out.kind = Kind::kNumeral;
  return out;
}

// Reads a string, whose opening quote is here.
bool Reader::string(std::string* out) {
  for (++at_; at_ < text_.size();) {
    const size_t end = text_.find_first_of("\"\\", at_);
    if (end == std::string_view::npos) break;
    const std::string_view plain = text_.substr(at_, end - at_);
    if (std::any_of(plain.begin(), plain.end(),
                    [](char c) { return static_cast<uint8_t>(c) < 0x20; }))
      break;
    *out += plain;
    at_ = end + 1;
    if (text_[end] == '"') return true;
    if (!escape(out)) break;
  }
  refuse();
  return false;
}

bool Reader::escape(std::string* out) {
  static constexpr std::string_view kLetters = "\"\\/bfnrt", kMeant = "\"\\/\b\f\n\r\t";
  const char c = at_ < text_.size() ? text_[at_++] : '\0';
  if (const size_t i = kLetters.find(c); i != std::string_view::npos) {
    *out += kMeant[i];
    return true;
  }
  uint32_t code = 0;
  if (c != 'u' || !hex(&code)) return false;
  if (code >= 0xd800 && code < 0xdc00 && text_.substr(at_).starts_with("\\u")) {
    const size_t second = at_;
    uint32_t low = 0;
    at_ += 2;
    if (!hex(&low)) return false;
    if (low >= 0xdc00 && low < 0xe000) {
      code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    } else {
      at_ = second;  // it is read again, as a character of its own
    }
  }
  tokenizer::append_utf8(code >= 0xd800 && code < 0xe000 ? kReplacementCharacter : code, out);
  return true;
}

bool Reader::hex(uint32_t* out) {
  const std::string_view digits = text_.substr(at_, 4);
  const auto [end, bad] = std::from_chars(digits.data(), digits.data() + digits.size(), *out, 16);
  at_ += digits.size();
  return bad == std::errc() && digits.size() == 4 && end == digits.data() + 4;
}

}  // namespace

Result<Value> read_json(Interpreter& in, const Program& program, std::string_view json,
                        const char* what, bool mark) {
  if (!tokenizer::is_valid_utf8(json)) {
    return error(Code::kInvalidArgument, "%s is not JSON: it is not UTF-8", what);
  }
  Reader reader(in, program, json, mark);
  const Value out = reader.all();
  if (!in.ok()) return in.failure();
  if (reader.problem() != nullptr) {
    return error(Code::kInvalidArgument, "%s %s", what, reader.problem());
  }
  return out;
}

}  // namespace sluice::jinja
