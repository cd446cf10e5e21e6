// Reads messages.
#include "chat/message_forms.h"

#include <utility>

#include "chat/message_values.h"
#include "chat/pictures.h"
#include "jinja/json.h"
#include "tokenizer/literal_spans.h"

namespace sluice::chat {

using namespace jinja;

namespace {

// A copy without the members that are null.
Value given_members(Interpreter& in, const Value& from) {
  auto* out = in.make<Dict>();
  for (const auto& [key, value] : from.dict->entries) {
    if (!value.is(Kind::kNone)) in.put(out, key, value);
  }
  return Value(out);
}

// Types of parts that some models read, in the APIs of OpenAI, Anthropic and Hugging Face.
bool is_other_media(std::string_view type) {
  for (const char* each :
       {"audio", "input_audio", "video", "video_url", "file", "input_file", "document"}) {
    if (type == each) return true;
  }
  return false;
}

Status unsupported_part(const Value& type) {
  const std::string shown(type.is(Kind::kString) ? text_of(type) : "none");
  if (is_picture_type(shown)) {
    return error(Code::kNotSupported,
                 "the model takes no pictures: message parts of type '%.40s' are unsupported",
                 shown.c_str());
  }
  return error(is_other_media(shown) ? Code::kNotSupported : Code::kInvalidArgument,
               "message parts of type '%.40s' are unsupported", shown.c_str());
}

// The mark of a picture that take_pictures() has numbered; undefined for other parts.
Value picture_mark(Interpreter& in, const Value& part, size_t n_pictures, Message* out) {
  const Value number = member(in, part, "picture");
  if (text_of(member(in, part, "type")) != "image" || !number.is(Kind::kInt)) return {};
  if (number.integer < 0 || static_cast<uint64_t>(number.integer) >= n_pictures) return {};
  Value mark = in.given(tokenizer::kMediaMark, false);
  if (!in.ok()) return {};
  out->pictures.push_back(
      {mark.string->text.spans()[0].source, static_cast<uint32_t>(number.integer)});
  return mark;
}

// Joins the text parts of a content, and its reasoning parts.
Status read_parts(Interpreter& in, const Value& parts, size_t n_pictures, Message* out) {
  static constexpr std::pair<std::string_view, std::string_view> kTexts[] = {
      {"text", "text"},          {"input_text", "text"},   {"output_text", "text"},
      {"refusal", "refusal"},    {"thinking", "thinking"}, {"reasoning", "text"},
      {"reasoning", "reasoning"}};
  Text text, thought;
  for (const Value& part : parts.sequence->items) {
    const Value type = member(in, part, "type");
    Value found = picture_mark(in, part, n_pictures, out);
    bool thinks = false;
    for (const auto& [name, field] : kTexts) {
      if (found.is(Kind::kString) || text_of(type) != name) continue;
      found = member(in, part, field);
      thinks = name == "thinking" || name == "reasoning";
    }
    if (!found.is(Kind::kString)) return unsupported_part(type);
    (thinks ? thought : text).append(found.string->text);
  }
  out->content = in.text(std::move(text));
  if (thought.size() > 0) out->thought = in.text(std::move(thought));
  return {};
}

Status read_content(Interpreter& in, const Value& message, size_t n_pictures, Message* out) {
  const Value content = member(in, message, "content"), refusal = member(in, message, "refusal");
  out->content = content;
  if (content.is(Kind::kSequence)) {
    SLUICE_RETURN_IF_ERROR(read_parts(in, content, n_pictures, out));
  }
  if (out->content.is_absent() && refusal.is(Kind::kString)) out->content = refusal;
  if (out->content.is_absent() && out->role != "assistant") out->content = in.text("");
  out->form = out->content.is(Kind::kUndefined)                          ? Content::kAbsent
              : out->content.is(Kind::kNone)                             ? Content::kNull
              : out->content.is(Kind::kString) && is_blank(out->content) ? Content::kEmpty
                                                                         : Content::kText;
  return {};
}

void read_reasoning(Interpreter& in, Message* out) {
  for (const Reasoning name :
       {Reasoning::kReasoningContent, Reasoning::kReasoning, Reasoning::kThinking}) {
    const Value given = member(in, out->given, kReasoningNames[static_cast<size_t>(name)]);
    if (out->reasoning != Reasoning::kNone || !given.is(Kind::kString) || is_blank(given)) continue;
    out->reasoning = name;
    out->thought = given;
  }
  if (out->reasoning != Reasoning::kNone || !out->thought.is(Kind::kString)) return;
  out->reasoning = Reasoning::kReasoningContent;
  put_member(in, out->given, kReasoningNames[1], out->thought);
}

Call read_call(Interpreter& in, const Program& program, const Value& given, bool mark) {
  Call out;
  out.call = given;
  const Value function = member(in, given, "function");
  if (!function.is(Kind::kDict)) return out;
  out.call = Value(in.make<Dict>());
  const Value id = member(in, given, "id");
  if (!id.is_absent()) put_member(in, out.call, "id", out.id = id);
  put_member(in, out.call, "type", in.text("function"));
  for (const auto& [key, value] : given.dict->entries) {
    if (!value.is(Kind::kNone)) in.put(out.call.dict, key, value);
  }
  out.function = given_members(in, function);
  put_member(in, out.call, "function", out.function);
  out.arguments = member(in, function, "arguments");
  if (out.arguments.is_absent() || (out.arguments.is(Kind::kString) && is_blank(out.arguments))) {
    out.raw = in.text("{}");
    out.arguments = Value(in.make<Dict>());
  } else if (out.arguments.is(Kind::kString)) {
    out.raw = out.arguments;
    const Result<Value> parsed = read_json(in, program, text_of(out.raw), "arguments", mark);
    out.broken = !parsed.ok();
    if (parsed.ok()) out.arguments = parsed->is(Kind::kNone) ? Value(in.make<Dict>()) : *parsed;
  }
  return out;
}

void read_calls(Interpreter& in, const Program& program, const Value& message, bool mark,
                Message* out) {
  const Value calls = member(in, message, "tool_calls");
  const Value old = member(in, message, "function_call");
  if (calls.is(Kind::kSequence)) {
    for (const Value& call : calls.sequence->items) {
      out->calls.push_back(read_call(in, program, call, mark));
    }
  } else if (old.is(Kind::kDict)) {
    const Value call(in.make<Dict>());
    put_member(in, call, "function", old);
    out->calls.push_back(read_call(in, program, call, mark));
  }
}

Result<Message> read_message(Interpreter& in, const Program& program, const Value& message,
                             bool mark, size_t n_pictures) {
  const Value role = member(in, message, "role");
  if (!role.is(Kind::kString)) {
    return error(Code::kInvalidArgument, "every message needs a role");
  }
  Message out;
  out.role = text_of(role) == "function" ? "tool" : text_of(role);
  out.given = Value(in.make<Dict>());
  for (const auto& [key, value] : message.dict->entries) {
    const std::string_view name = text_of(key);
    const bool old = name == "refusal" || name == "function_call" || name == "audio" ||
                     (name == "annotations" && !in.truth(value));
    // The place of the content and the calls is kept; write_message() fills it.
    const bool filled = name == "content" || name == "tool_calls";
    if (!old && (filled || !value.is(Kind::kNone))) in.put(out.given.dict, key, value);
  }
  if (out.role != text_of(role)) put_member(in, out.given, "role", in.text(out.role));
  if (const Value images = member(in, message, "images");
      images.is(Kind::kSequence) && !images.sequence->items.empty()) {
    return error(Code::kNotSupported, "the model takes no pictures: 'images' is unsupported");
  }
  SLUICE_RETURN_IF_ERROR(read_content(in, message, n_pictures, &out));
  read_reasoning(in, &out);
  read_calls(in, program, message, mark, &out);
  return out;
}

}  // namespace

Value member(Interpreter& in, const Value& value, std::string_view name) {
  if (!value.is(Kind::kDict)) return {};
  const Value* found = in.find(*value.dict, in.text(name));
  return found != nullptr ? *found : Value();
}

Shape shape_of(const Message& message) {
  return {message.form, !message.calls.empty(), message.reasoning};
}

Manner::Manner() {
  for (size_t i = 0; i < contents.size(); ++i) {
    contents[i].form = static_cast<Content>(i / (Shape::kCount / 4));
  }
}

Result<std::vector<Message>> read_messages(Interpreter& in, const Program& program,
                                           const Value& messages, bool mark, size_t n_pictures) {
  if (!messages.is(Kind::kSequence) || messages.sequence->items.empty()) {
    return error(Code::kInvalidArgument, "messages must be a list of at least one message");
  }
  std::vector<Message> out;
  for (const Value& each : messages.sequence->items) {
    Result<Message> message = read_message(in, program, each, mark, n_pictures);
    if (!message.ok()) return message.status();
    message->place = static_cast<uint32_t>(out.size());
    out.push_back(std::move(*message));
    if (!in.ok()) return in.failure();
  }
  return out;
}

Needs needs_of(const std::vector<Message>& messages) {
  Needs out;
  out.texts = true;
  const auto need = [&](Systems kind) { out.systems[static_cast<size_t>(kind)] = true; };
  bool leading = true;
  for (size_t i = 0; i < messages.size(); ++i) {
    const Message& message = messages[i];
    out.pictures = out.pictures || (message.role == "user" && !message.pictures.empty());
    leading = leading && message.is_system();
    if (message.is_system()) {
      const bool developer = message.role == "developer";
      need(leading     ? (developer ? Systems::kDeveloper : Systems::kSystem)
           : developer ? Systems::kLaterDeveloper
                       : Systems::kLaterSystem);
      if (leading && i > 0) need(Systems::kSeveral);
    }
    if (message.role != "assistant") continue;
    const Shape shape = shape_of(message);
    out.calls = out.calls || shape.calls;
    out.parallel = out.parallel || message.calls.size() > 1;
    for (const Call& call : message.calls) out.broken = out.broken || call.broken;
    out.reasoning[static_cast<size_t>(shape.reasoning)] = shape.reasoning != Reasoning::kNone;
    const bool plain =
        shape.form == Content::kText && !shape.calls && shape.reasoning == Reasoning::kNone;
    if (!plain) out.contents[shape.index()] = true;
  }
  return out;
}

}  // namespace sluice::chat
