// Normalizes messages.
#include "chat/messages.h"

#include "jinja/json.h"

namespace sluice::chat {

using namespace jinja;

namespace {

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
