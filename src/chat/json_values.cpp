// Reads JSON with a SAX parser, without an intermediate tree.
#include "chat/json_values.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace sluice::chat {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxJsonDepth = 200;

bool is_word(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
  });
}

class Reader final : public nlohmann::json_sax<Json> {
 public:
  Reader(Interpreter& in, const Program& program, bool mark)
      : in_(in), program_(program), mark_(mark) {}

  bool null() override { return add(none()); }
  bool boolean(bool value) override { return add(Value(value)); }
  bool number_integer(int64_t value) override { return add(Value(value)); }
  bool number_unsigned(uint64_t value) override {
    if (value > INT64_MAX) return refuse("has an integer outside 64 bits");
    return add(Value(static_cast<int64_t>(value)));
  }
  bool number_float(double value, const std::string& digits) override {
    if (digits.find_first_of(".eE") == std::string::npos) {
      return refuse("has an integer outside 64 bits");
    }
    return add(Value(value));
  }
  bool string(std::string& text) override {
    const bool role = !open_.empty() && open_.back().name == "role";
    return add(in_.text(Text(text, is_content(text, role))));
  }
  bool binary(Json::binary_t&) override { return false; }
  bool start_object(size_t) override { return open(Value(in_.make<Dict>())); }
  bool start_array(size_t) override { return open(in_.sequence({})); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(std::string& name) override {
    open_.back().name = name;
    open_.back().key = in_.text(Text(name, is_content(name, false)));
    return in_.ok();
  }
  bool parse_error(size_t, const std::string&, const Json::exception&) override {
    return refuse("is not JSON");
  }

  Value out;
  const char* problem = "";

 private:
  struct Open {
    Value container;
    Value key;
    std::string name;  // name of the current member; inside an array, the array's name
  };

  [[nodiscard]] bool is_content(const std::string& text, bool role) const {
    return mark_ && !(is_word(text) && (role || program_.known.count(text) > 0));
  }
  bool refuse(const char* why) {
    if (*problem == '\0') problem = why;
    return false;
  }
  bool add(Value value) {
    if (!in_.spend(16)) return false;
    if (open_.empty()) {
      out = value;
    } else if (open_.back().container.is(Kind::kDict)) {
      in_.put(open_.back().container.dict, open_.back().key, value);
    } else {
      open_.back().container.sequence->items.push_back(value);
    }
    return in_.ok();
  }
  bool open(Value container) {
    if (open_.size() == kMaxJsonDepth) return refuse("is nested too deeply");
    if (!add(container)) return false;
    const std::string name =
        !open_.empty() && container.is(Kind::kSequence) ? open_.back().name : "";
    open_.push_back({container, {}, name});
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  Interpreter& in_;
  const Program& program_;
  bool mark_;
  std::vector<Open> open_;
};

Status invalid(const char* message) {
  return error(Code::kInvalidArgument, "%s", message);
}

// The member of a dictionary; undefined if missing or not a dictionary.
Value member(Interpreter& in, const Value& value, std::string_view name) {
  if (!value.is(Kind::kDict)) return {};
  const Value* found = in.find(*value.dict, in.text(name));
  return found != nullptr ? *found : Value();
}

Status join_parts(Interpreter& in, Dict* message, const Value& parts) {
  Text joined;
  for (const Value& part : parts.sequence->items) {
    const Value type = member(in, part, "type"), text = member(in, part, "text");
    if (!type.is(Kind::kString) || type.string->text.view() != "text" || !text.is(Kind::kString)) {
      const std::string shown(type.is(Kind::kString) ? type.string->text.view() : "none");
      return error(Code::kInvalidArgument,
                   "message parts of type '%.40s' are unsupported; only 'text' parts are",
                   shown.c_str());
    }
    joined.append(text.string->text);
  }
  in.put(message, in.text("content"), in.text(std::move(joined)));
  return {};
}

}  // namespace

Result<Value> read_json(Interpreter& in, const Program& program, std::string_view json,
                        const char* what, bool mark) {
  Reader reader(in, program, mark);
  const bool read = Json::sax_parse(json, &reader);
  if (!in.ok()) return in.failure();
  if (!read) return error(Code::kInvalidArgument, "%s %s", what, reader.problem);
  return reader.out;
}

Status normalize_messages(Interpreter& in, const Program& program, const Value& messages,
                          bool mark) {
  if (!messages.is(Kind::kSequence) || messages.sequence->items.empty()) {
    return invalid("messages must be a list of at least one message");
  }
  for (const Value& message : messages.sequence->items) {
    if (!member(in, message, "role").is(Kind::kString)) {
      return invalid("every message needs a role");
    }
    const Value content = member(in, message, "content");
    if (content.is(Kind::kSequence)) {
      SLUICE_RETURN_IF_ERROR(join_parts(in, message.dict, content));
    }
    const Value calls = member(in, message, "tool_calls");
    if (!calls.is(Kind::kSequence)) continue;
    for (const Value& call : calls.sequence->items) {
      const Value function = member(in, call, "function");
      const Value arguments = member(in, function, "arguments");
      if (!arguments.is(Kind::kString)) continue;
      const Result<Value> parsed =
          read_json(in, program, arguments.string->text.view(), "arguments", mark);
      if (parsed.ok()) in.put(function.dict, in.text("arguments"), *parsed);
    }
  }
  return in.failure();
}

}  // namespace sluice::chat
