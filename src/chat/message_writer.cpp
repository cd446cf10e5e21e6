// Writes messages.
#include <algorithm>
#include <utility>

#include "base/concat.h"
#include "chat/message_forms.h"
#include "chat/message_values.h"

namespace sluice::chat {

using namespace jinja;

namespace {

constexpr std::string_view kBetweenTexts = "\n\n";

Value joined_texts(Interpreter& in, const Value& first, std::string_view between,
                   const Value& second) {
  if (is_blank(first)) return second;
  if (is_blank(second)) return first;
  Text out = first.string->text;
  out.append(between);
  out.append(second.string->text);
  return in.text(std::move(out));
}

// A short name of an id, as Mistral's templates want it: the same for the same id.
std::string short_id(std::string_view id) {
  static constexpr std::string_view kDigits =
      "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  constexpr size_t kLength = 9;
  const bool fits = id.size() == kLength && id.find_first_not_of(kDigits) == std::string_view::npos;
  if (fits) return std::string(id);
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const char c : id) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  std::string out;
  for (size_t i = 0; i < kLength; ++i, hash /= kDigits.size())
    out += kDigits[hash % kDigits.size()];
  return out;
}

class Writer {
 public:
  Writer(Interpreter& in, const Manner& manner) : in_(in), manner_(manner) {}

  Normalized write(std::vector<Message> messages) {
    for (const Message& message : messages) {
      out_.roles.push_back(message.role);
      show(message.content, message.place, false);
      out_.marks.insert(out_.marks.end(), message.pictures.begin(), message.pictures.end());
    }
    name_calls(&messages);
    if (manner_.call_text != CallText::kNone) {
      for (Message& message : messages) put_calls_into_text(&message);
    }
    if (manner_.user_results) give_results_to_user(&messages);
    place_systems(&messages);
    for (size_t i = 0; i < messages.size() && in_.ok(); ++i) {
      const Message& message = messages[i];
      if (manner_.one_call && message.calls.size() > 1) {
        i += one_by_one(messages, i);
      } else {
        write_shaped(message);
      }
    }
    out_.messages = in_.sequence(std::move(written_));
    out_.picture_text = manner_.picture_text;
    std::erase_if(out_.shown, [this](const Shown& shown) { return is_part(shown.source); });
    std::erase_if(out_.marks, [this](const PictureMark& mark) { return is_part(mark.source); });
    out_.empty_tools = manner_.empty_tools;
    return std::move(out_);
  }

 private:
  // Notes the strings of a value.
  void show(const Value& value, uint32_t place, bool call, int depth = 0);
  void name_calls(std::vector<Message>* messages);
  void put_calls_into_text(Message* message);
  void append_call(const Call& call, Text* out);
  void give_results_to_user(std::vector<Message>* messages);
  void place_systems(std::vector<Message>* messages);
  size_t one_by_one(const std::vector<Message>& messages, size_t at);
  void write_shaped(const Message& message);
  void write_message(const Message& message, Content form, bool reasoning);
  [[nodiscard]] Value written_content(const Message& message, Content form);
  [[nodiscard]] Value text_part(const Value& text);
  [[nodiscard]] Value picture_part(const PictureMark& picture);
  // A text with marks as a list of parts.
  [[nodiscard]] Value parts_of(const Text& text);
  [[nodiscard]] bool is_part(uint32_t source) const {
    return std::binary_search(parts_.begin(), parts_.end(), source);
  }
  [[nodiscard]] Value written_call(const Call& call, uint32_t place);

  Interpreter& in_;
  const Manner& manner_;
  std::vector<Value> written_;
  std::vector<uint32_t> parts_;  // sources of the marks that have become parts, ascending
  Normalized out_;
};

void Writer::show(const Value& value, uint32_t place, bool call, int depth) {
  constexpr int kMaxDepth = 200;
  if (depth > kMaxDepth || !in_.spend(4)) return;
  if (value.is(Kind::kString)) {
    for (const Span& span : value.string->text.spans()) {
      if (span.source > 0) out_.shown.push_back({span.source, place, call});
    }
  } else if (value.is(Kind::kSequence)) {
    for (const Value& item : value.sequence->items) show(item, place, call, depth + 1);
  } else if (value.is(Kind::kDict)) {
    for (const auto& [key, item] : value.dict->entries) {
      if (item.is(Kind::kNone)) continue;  // some templates omit such arguments
      show(key, place, call, depth + 1);
      show(item, place, call, depth + 1);
    }
  }
}

// Gives calls their ids, and results the id and the name of their call.
void Writer::name_calls(std::vector<Message>* messages) {
  struct Open {
    Value id, name;
    bool answered = false;
  };
  std::vector<Open> open;
  const auto fitting = [&](const Value& id) {
    return manner_.short_ids && id.is(Kind::kString) ? in_.text(short_id(text_of(id))) : id;
  };
  for (Message& message : *messages) {
    if (!message.calls.empty()) open.clear();
    for (Call& call : message.calls) {
      if (!call.function.is(Kind::kDict)) continue;
      if (call.id.is(Kind::kUndefined) && manner_.make_ids) {
        call.id = in_.text(
            concat({"call_", std::to_string(message.place), "_", std::to_string(open.size())}));
      }
      call.id = fitting(call.id);
      open.push_back({call.id, member(in_, call.function, "name")});
    }
    if (message.role != "tool") continue;
    const Value given = fitting(member(in_, message.given, "tool_call_id"));
    const auto call = std::find_if(open.begin(), open.end(), [&](const Open& each) {
      return given.is(Kind::kUndefined) ? !each.answered : in_.equal(each.id, given);
    });
    message.answered = given;
    if (call != open.end()) {
      call->answered = true;
      message.answered = call->id;
      const bool named = !member(in_, message.given, "name").is(Kind::kUndefined);
      if (manner_.tool_names && !named) put_member(in_, message.given, "name", call->name);
    }
    if (!message.answered.is(Kind::kUndefined)) {
      put_member(in_, message.given, "tool_call_id", message.answered);
    }
  }
}

void Writer::append_call(const Call& call, Text* out) {
  const Value name = member(in_, call.function, "name");
  if (manner_.call_text == CallText::kPython && call.arguments.is(Kind::kDict)) {
    in_.print(name, out);
    out->append("(");
    bool first = true;
    for (const auto& [key, value] : call.arguments.dict->entries) {
      if (!std::exchange(first, false)) out->append(", ");
      in_.print(key, out);
      out->append("=");
      value.is(Kind::kString) ? in_.print_json(value, {}, 0, out) : in_.print_repr(value, out);
    }
    return out->append(")");
  }
  out->append("{\"name\": ");
  in_.print_json(name, {}, 0, out);
  out->append(", \"arguments\": ");
  call.raw.is(Kind::kString) ? in_.print(call.raw, out)
                             : in_.print_json(call.arguments, {}, 0, out);
  out->append("}");
}

void Writer::put_calls_into_text(Message* message) {
  if (message->calls.empty()) return;
  const bool hermes = manner_.call_text == CallText::kHermes;
  Text out;
  if (message->content.is(Kind::kString) && !is_blank(message->content)) {
    out.append(message->content.string->text);
    out.append("\n");
  }
  if (!hermes) {
    out.append(manner_.call_text == CallText::kList ? "<|tool_call|>[" : "<|tool_call_start|>[");
  }
  bool first = true;
  for (Call& call : message->calls) {
    if (!call.function.is(Kind::kDict)) continue;
    if (!std::exchange(first, false)) out.append(hermes ? "\n" : ", ");
    if (hermes) out.append("<tool_call>\n");
    append_call(call, &out);
    if (hermes) out.append("\n</tool_call>");
    show(member(in_, call.function, "name"), message->place, true);
    show(call.raw.is(Kind::kString) && manner_.call_text != CallText::kPython ? call.raw
                                                                              : call.arguments,
         message->place, true);
  }
  if (!hermes) out.append("]");
  if (manner_.call_text == CallText::kPython) out.append("<|tool_call_end|>");
  message->content = in_.text(std::move(out));
  message->form = Content::kText;
  message->calls.clear();
}

// Consecutive messages of the user become one, which templates with strict turns want.
void Writer::give_results_to_user(std::vector<Message>* messages) {
  std::vector<Message> out;
  bool joins = false;  // the last message has results
  for (Message& message : *messages) {
    const bool result = message.role == "tool";
    if (result) {
      Text text("<tool_response>\n");
      in_.print(message.content, &text);
      text.append("\n</tool_response>");
      message.content = in_.text(std::move(text));
      message.form = Content::kText;
      message.role = "user";
      const Value content = message.content;
      message.given = Value(in_.make<Dict>());
      put_member(in_, message.given, "role", in_.text("user"));
      put_member(in_, message.given, "content", content);
    }
    if (joins && message.role == "user" && message.content.is(Kind::kString)) {
      out.back().content = joined_texts(in_, out.back().content, "\n", message.content);
    } else {
      out.push_back(std::move(message));
      joins = result;
    }
  }
  *messages = std::move(out);
}

void Writer::place_systems(std::vector<Message>* messages) {
  const auto as = [&](Systems kind) { return manner_.systems[static_cast<size_t>(kind)]; };
  size_t leading = 0;
  while (leading < messages->size() && (*messages)[leading].is_system()) ++leading;
  const auto join = [&](size_t first) {  // with the message that follows
    Message& next = (*messages)[first + 1];
    next.content = joined_texts(in_, (*messages)[first].content, kBetweenTexts, next.content);
    if (!is_blank(next.content)) next.form = Content::kText;
  };
  if (as(Systems::kSeveral) == SystemAs::kJoined && leading > 1) {
    const Value given = (*messages)[0].given;
    const std::string role = (*messages)[0].role;
    for (size_t i = 0; i + 1 < leading; ++i) join(i);
    messages->erase(messages->begin(), messages->begin() + static_cast<ptrdiff_t>(leading - 1));
    (*messages)[0].given = given;
    (*messages)[0].role = role;
    leading = 1;
  }
  for (size_t i = messages->size(); i-- > 0 && in_.ok();) {
    Message& message = (*messages)[i];
    if (!message.is_system()) continue;
    const bool developer = message.role == "developer";
    const SystemAs how = as(i < leading ? (developer ? Systems::kDeveloper : Systems::kSystem)
                            : developer ? Systems::kLaterDeveloper
                                        : Systems::kLaterSystem);
    const bool merges = i + 1 < messages->size() && (*messages)[i + 1].role == "user" &&
                        message.content.is(Kind::kString) &&
                        (*messages)[i + 1].content.is(Kind::kString);
    if (how == SystemAs::kMerged && merges) {
      join(i);
      messages->erase(messages->begin() + static_cast<ptrdiff_t>(i));
    } else if (how != SystemAs::kGiven) {
      message.role = how == SystemAs::kSystem ? "system" : "user";
      put_member(in_, message.given, "role", in_.text(message.role));
    }
  }
}

// Writes the parallel calls of messages[at], each with its results; returns the number of results.
size_t Writer::one_by_one(const std::vector<Message>& messages, size_t at) {
  size_t results = 0;
  while (at + 1 + results < messages.size() && messages[at + 1 + results].role == "tool") ++results;
  std::vector<bool> done(results);
  const auto answers = [&](const Message& result, const Call& call) {
    return !call.id.is(Kind::kUndefined) && in_.equal(result.answered, call.id);
  };
  for (size_t k = 0; k < messages[at].calls.size(); ++k) {
    Message one = messages[at];
    one.calls = {messages[at].calls[k]};
    if (k > 0) {
      one.form = manner_.call_content;
      one.content = in_.text("");
      write_message(one, one.form, false);
    } else {
      write_shaped(one);
    }
    const bool last = k + 1 == messages[at].calls.size();
    for (size_t i = 0; i < results; ++i) {
      const Message& result = messages[at + 1 + i];
      if (done[i] || !(last || answers(result, one.calls[0]))) continue;
      done[i] = true;
      write_shaped(result);
    }
  }
  return results;
}

void Writer::write_shaped(const Message& message) {
  if (message.role != "assistant") return write_message(message, message.form, true);
  const Manner::Writing& writing = manner_.contents[shape_of(message).index()];
  if (!writing.split) return write_message(message, writing.form, writing.reasoning);
  Message text = message;
  text.calls.clear();
  write_message(text, message.form, false);
  write_message(message, manner_.call_content, writing.reasoning);
}

Value Writer::written_content(const Message& message, Content form) {
  if (form == Content::kNull) return none();
  const Value text =
      form == Content::kEmpty && message.form != form ? in_.text("") : message.content;
  if (!text.is(Kind::kString)) return text;
  if (message.role == "user" && manner_.pictures != PictureAs::kMark) {
    const Value parts = parts_of(text.string->text);
    if (!parts.is(Kind::kUndefined)) return parts;
  }
  return manner_.text_parts ? in_.sequence({text_part(text)}) : text;
}

Value Writer::text_part(const Value& text) {
  const Value part(in_.make<Dict>());
  put_member(in_, part, "type", in_.text("text"));
  put_member(in_, part, "text", text);
  return part;
}

Value Writer::picture_part(const PictureMark& picture) {
  out_.picture_parts.push_back(picture.picture);
  parts_.push_back(picture.source);
  const Value part(in_.make<Dict>());
  const bool url = manner_.pictures == PictureAs::kImageUrl;
  put_member(in_, part, "type", in_.text(url ? "image_url" : "image"));
  if (url) {
    const Value empty(in_.make<Dict>());
    put_member(in_, empty, "url", in_.text(""));
    put_member(in_, part, "image_url", empty);
  }
  return part;
}

// Undefined if the text has no picture.
Value Writer::parts_of(const Text& text) {
  std::vector<Value> parts;
  size_t done = 0;
  const auto take_text = [&](size_t end) {
    if (end > done) parts.push_back(text_part(in_.text(text.slice(done, end))));
  };
  for (const Span& span : text.spans()) {
    const PictureMark* picture = find_picture(out_.marks, span.source);
    if (picture == nullptr) continue;
    take_text(span.begin);
    parts.push_back(picture_part(*picture));
    done = span.end;
  }
  if (done == 0) return {};
  take_text(text.size());
  return in_.sequence(std::move(parts));
}

Value Writer::written_call(const Call& call, uint32_t place) {
  if (!call.function.is(Kind::kDict)) {
    show(call.call, place, true);
    return call.call;
  }
  Value arguments = call.arguments;
  if (manner_.text_arguments && call.raw.is(Kind::kString)) {
    arguments = call.raw;
  } else if (manner_.wrap_broken && call.broken) {
    arguments = Value(in_.make<Dict>());
    put_member(in_, arguments, "arguments", call.raw);
  } else if (manner_.text_arguments && !arguments.is(Kind::kString)) {
    Text text;
    in_.print_json(arguments, {}, 0, &text);
    arguments = in_.text(std::move(text));
  }
  if (!call.id.is(Kind::kUndefined)) put_member(in_, call.call, "id", call.id);
  put_member(in_, call.function, "arguments", arguments);
  show(member(in_, call.function, "name"), place, true);
  show(arguments, place, true);
  return call.call;
}

void Writer::write_message(const Message& message, Content form, bool reasoning) {
  const Value out(in_.make<Dict>());
  std::vector<Value> calls;
  for (const Call& call : message.calls) calls.push_back(written_call(call, message.place));
  const auto fill = [&](std::string_view name) {
    if (name == "content" && form != Content::kAbsent) {
      put_member(in_, out, name, written_content(message, form));
    } else if (name == "tool_calls" && !message.calls.empty()) {
      put_member(in_, out, name, in_.sequence(calls));
    }
  };
  for (const auto& [key, value] : message.given.dict->entries) {
    const std::string_view name = text_of(key);
    const bool thought = message.reasoning != Reasoning::kNone &&
                         std::find(std::begin(kReasoningNames) + 1, std::end(kReasoningNames),
                                   name) != std::end(kReasoningNames);
    if (name == "content" || name == "tool_calls") {
      fill(name);
    } else if (reasoning || !thought) {
      in_.put(out.dict, key, value);
    }
  }
  for (const char* name : {"content", "tool_calls"}) {
    if (member(in_, out, name).is(Kind::kUndefined)) fill(name);
  }
  if (reasoning && message.reasoning != Reasoning::kNone) {
    const auto read = manner_.reasoning[static_cast<size_t>(message.reasoning)];
    put_member(in_, out, kReasoningNames[static_cast<size_t>(read)], message.thought);
  }
  written_.push_back(out);
}

}  // namespace

const PictureMark* find_picture(const std::vector<PictureMark>& marks, uint32_t source) {
  const auto before = [](const PictureMark& mark, uint32_t sought) { return mark.source < sought; };
  const auto at = std::lower_bound(marks.begin(), marks.end(), source, before);
  return at == marks.end() || at->source != source ? nullptr : &*at;
}

Normalized write_messages(Interpreter& in, const Manner& manner, std::vector<Message> messages) {
  return Writer(in, manner).write(std::move(messages));
}

}  // namespace sluice::chat
