#include "chat/message_reader.h"

#include <algorithm>
#include <cstring>

#include "chat/marks.h"
#include "chat/template_text.h"
#include "chat/tool_schema.h"
#include "jinja/json_text.h"

namespace sluice::chat {
namespace {

constexpr auto kToken = static_cast<unsigned char>(kTokenBegin);

bool is_function_name(int c) {  // of a function
  return c > 0 && c < 0xfe && !TextReader::is_space(c) &&
         std::strchr("<>{}()[]\"'|=,;:", c) == nullptr;
}

bool is_control(std::string_view mark) {
  return mark.starts_with(kTokenBegin);
}

// The JSON of a Python literal; nullopt if the text is none.
std::optional<std::string> python_value(const std::string& text, std::string_view quote) {
  TextReader reader;
  reader.text = text;
  reader.ended = true;
  Step<std::optional<std::string>> work = reader.literal(quote);
  work.start(&reader);
  reader.resume();
  const bool whole = reader.at >= right_trimmed(text).size();
  return whole ? work.result() : std::nullopt;
}

}  // namespace

void MessageFormat::set_reasoning(const ReasoningFormat& format, const Marks& marks) {
  open = marks.encode(format.open, &encoded);
  close = marks.encode(format.close, &encoded);
  turn = marks.encode(format.turn, &encoded);
  response = marks.encode(format.response, &encoded);
  for (const std::string_view end : format.ends) {
    if (!end.empty()) ends.push_back(marks.encode(end, &encoded));
  }
}

void MessageFormat::set_tools(std::vector<ToolFormat> formats, const Marks& marks) {
  quote = marks.encode(kGemmaQuote);
  for (ToolFormat& format : formats) {
    tool_marks.push_back(marks.encode(format.mark(), &encoded));
    for (std::string_view* text :
         {&format.open, &format.pre, &format.mid, &format.post, &format.close, &format.param_pre,
          &format.param_mid, &format.param_post, &format.plain, &format.block_open,
          &format.block_close}) {
      *text = marks.encode(*text, &encoded);
    }
  }
  tool_formats = std::move(formats);
}

const Tool* MessageFormat::tool(std::string_view name) const {
  for (size_t i = declared.size(); i-- > 0;) {  // of several with one name, the last
    if (declared[i].name == name) return &declared[i];
  }
  return nullptr;
}

MessageReader::MessageReader(const MessageFormat& format, uint64_t id_seed, bool short_ids)
    : ResponseReader(id_seed, short_ids), format_(format) {
  const auto note = [this](std::string_view mark) {
    if (!mark.empty()) first_[static_cast<unsigned char>(mark[0])] = true;
  };
  note(std::string_view(&kTokenBegin, 1));
  for (const std::string_view mark : format.tool_marks) note(mark);
  for (const std::string_view mark : format.ends) note(mark);
  note(format.open);
  note(format.close);
  note(format.turn);
  note(format.response);
  // Marks may begin with white space, which is read before them.
  for (const std::string_view mark : {format.open, format.response}) {
    const size_t at = mark.find_first_not_of(" \n");
    if (at != std::string_view::npos) note(mark.substr(at));
  }
}

Step<bool> MessageReader::run() {
  if (format_.thinking) {
    if (format_.separate) {
      co_await reasoning();
    } else {
      co_await inline_reasoning();
    }
  }
  const bool bare = std::any_of(format_.tool_formats.begin(), format_.tool_formats.end(),
                                [](const ToolFormat& format) { return format.bare; });
  for (;;) {
    compact(in_.at);
    const size_t begin = in_.at;
    if (blank_) co_await in_.skip(any_ ? TextReader::is_separator : TextReader::is_space);
    const size_t lead = in_.at;
    const int c = co_await in_.peek();
    if (c == TextReader::kEnd) {
      if (!any_ || !blank_) out_.content += plain(begin, in_.text.size());
      co_return true;
    }
    if (first_[c]) {
      const bool framed = co_await frame();
      if (framed) continue;
      in_.at = lead;
    }
    Calls calls;
    if (blank_ && bare && c == '{') calls = co_await bare_calls();
    if (!calls) calls = co_await marked(c);
    if (calls) {
      for (ToolCall& call : *calls) add_call(std::move(call));
      blank_ = any_ = true;
      fresh_ = false;
      continue;
    }
    in_.at = lead;
    if (c == kToken) {
      drop_token();
      in_.at = begin;
      continue;
    }
    // Text that cannot start a call is emitted immediately.
    ++in_.at;
    while (in_.at < in_.text.size() && !first_[static_cast<unsigned char>(in_.text[in_.at])]) {
      ++in_.at;
    }
    out_.content += plain(begin, in_.at);
    blank_ = fresh_ = false;
  }
}

// Reads a mark around reasoning or the response proper, with the reasoning; false if there is none.
Step<bool> MessageReader::frame() {
  const bool opens = (fresh_ && !reasoned_) || is_control(format_.open);
  const size_t start = in_.at;
  bool found = false;
  if (opens) found = co_await in_.take(format_.open);
  if (found) {
    if (format_.separate) {
      co_await reasoning();
    } else {
      out_.content += plain(start, in_.at, /*shown=*/true);
      co_await inline_reasoning();
    }
    co_return true;
  }
  // A response may begin with the end of reasoning that did not take place.
  if (fresh_ && !reasoned_) found = co_await in_.begins(format_.close);
  if (found) {
    in_.at += format_.close.size();
    reasoned_ = true;
    co_return true;
  }
  if (!format_.turn.empty() && (fresh_ || is_control(format_.turn))) {
    found = co_await in_.take(format_.turn);
    if (found) {
      fresh_ = blank_ = true;
      reasoned_ = false;
      co_return true;
    }
  }
  if (!format_.response.empty() && fresh_) {
    found = co_await in_.take(format_.response);
    if (found) {
      fresh_ = false;
      responds_ = true;
      co_return true;
    }
  }
  for (const std::string_view end : format_.ends) {
    if (!responds_ && !is_control(end)) continue;
    found = co_await in_.begins(end);
    if (!found) continue;
    in_.at += end.size();
    co_return true;
  }
  co_return false;
}

// Reads reasoning up to the end of its closing mark and the white space behind it. A tool call that
// is a control token ends it, too.
Step<bool> MessageReader::reasoning() {
  fresh_ = blank_ = reasoned_ = true;
  co_await in_.skip(TextReader::is_space);
  size_t done = in_.at;   // emitted up to here
  size_t solid = in_.at;  // white space from here on is held back: at the end it is dropped
  for (;;) {
    while (in_.at < in_.text.size() && in_.text[in_.at] != format_.close[0] &&
           in_.text[in_.at] != kTokenBegin) {
      if (!TextReader::is_space(static_cast<unsigned char>(in_.text[in_.at]))) solid = in_.at + 1;
      ++in_.at;
    }
    out_.reasoning += plain(done, solid);
    done = solid;
    const size_t dropped = compact(done);
    done -= dropped;
    solid -= dropped;
    const int c = co_await in_.peek();
    if (c == TextReader::kEnd) break;
    if (c != kToken && c != static_cast<unsigned char>(format_.close[0])) continue;
    const bool closes = co_await in_.begins(format_.close);
    if (closes) {
      in_.at += format_.close.size();
      co_await in_.skip(TextReader::is_space);
      co_return true;
    }
    if (c != kToken) {
      solid = ++in_.at;
      continue;
    }
    for (const std::string_view mark : format_.tool_marks) {
      if (!is_control(mark)) continue;
      const bool calls = co_await in_.begins(mark);
      if (calls) co_return true;
    }
    drop_token();
  }
  out_.reasoning += plain(done, in_.text.size());
  co_return true;
}

// The same, with reasoning and its closing mark as content.
Step<bool> MessageReader::inline_reasoning() {
  reasoned_ = true;
  fresh_ = blank_ = false;
  for (;;) {
    const size_t begin = in_.at;
    while (in_.at < in_.text.size() && in_.text[in_.at] != format_.close[0] &&
           in_.text[in_.at] != kTokenBegin) {
      ++in_.at;
    }
    out_.content += plain(begin, in_.at);
    compact(in_.at);
    const int c = co_await in_.peek();
    if (c == TextReader::kEnd) co_return true;
    if (c != kToken && c != static_cast<unsigned char>(format_.close[0])) continue;
    const size_t start = in_.at;
    const bool closes = co_await in_.begins(format_.close);
    if (closes) {
      in_.at += format_.close.size();
      out_.content += plain(start, in_.at, /*shown=*/true);
      fresh_ = blank_ = true;
      co_return true;
    }
    if (c == kToken) {
      drop_token();
    } else {
      ++in_.at;
      out_.content += static_cast<char>(c);
    }
  }
}

// The calls of a block that starts here; nullopt if there is none.
Step<MessageReader::Calls> MessageReader::marked(int c) {
  if (!first_[c]) co_return std::nullopt;
  const size_t start = in_.at;
  for (size_t i = 0; i < format_.tool_formats.size(); ++i) {
    const ToolFormat* format = &format_.tool_formats[i];
    in_.at = start;
    const bool begins = co_await in_.begins(format_.tool_marks[i]);
    if (!begins) continue;
    Calls calls;
    if (format->has_block) {
      calls = co_await objects(format);
    } else {
      calls = co_await named(format);
    }
    if (calls) co_return std::move(calls);
  }
  co_return std::nullopt;
}

// JSON values between two marks. The closing mark may be missing at the end of the text.
Step<MessageReader::Calls> MessageReader::objects(const ToolFormat* format) {
  std::vector<ToolCall> calls;
  co_await in_.take(format->block_open);
  const std::string_view close = format->block_close;
  for (;;) {
    co_await in_.skip(TextReader::is_separator);
    if (!close.empty() && !calls.empty()) {
      const bool closed = co_await in_.take(close);
      if (closed) co_return std::move(calls);
    }
    const int c = co_await in_.peek();
    if (c == TextReader::kEnd && !calls.empty()) co_return std::move(calls);
    if (c != '{' && c != '[') co_return std::nullopt;
    const Text value = co_await in_.json();
    if (!value) co_return std::nullopt;
    const std::vector<std::string_view> all =
        c == '[' ? json_items(*value) : std::vector<std::string_view>{*value};
    for (const std::string_view each : all) {
      std::optional<ToolCall> one = as_call(each);
      if (!one) co_return std::nullopt;
      calls.push_back(std::move(*one));
    }
    if (all.empty()) co_return std::nullopt;
    if (close.empty()) co_return std::move(calls);
  }
}

// Calls whose name is outside the arguments.
Step<MessageReader::Calls> MessageReader::named(const ToolFormat* format) {
  std::vector<ToolCall> calls;
  if (!format->plain.empty()) {
    const bool is_text = co_await in_.take(format->plain);
    if (is_text) co_return std::move(calls);
  }
  if (!format->open.empty()) {
    const bool opened = co_await in_.take(format->open);
    if (!opened) co_return std::nullopt;
  }
  for (;;) {
    const size_t start = in_.at;
    std::optional<ToolCall> one;
    const bool begins = co_await in_.take(format->pre);
    if (begins) one = co_await call(format);
    if (!one) {
      in_.at = start;
      break;
    }
    calls.push_back(std::move(*one));
    if (format->open.empty()) co_return std::move(calls);
    co_await in_.skip(TextReader::is_separator);
  }
  if (calls.empty()) co_return std::nullopt;
  if (!format->close.empty()) co_await in_.take(format->close);
  co_return std::move(calls);
}

Step<std::optional<ToolCall>> MessageReader::call(const ToolFormat* format) {
  const size_t begin = in_.at;
  co_await in_.skip(is_function_name);
  const std::string name = in_.text.substr(begin, in_.at - begin);
  if (name.empty()) co_return std::nullopt;
  in_.wild.clear();
  const bool parted = co_await in_.take(format->mid);
  if (!parted) co_return std::nullopt;
  // Mistral's models write an id of nine characters.
  const std::string id = in_.wild.size() == 9 ? in_.wild : std::string();
  Text arguments;
  std::string_view rest = format->post;
  if (format->body == CallBody::kJson) {
    co_await in_.skip(TextReader::is_space);
    arguments = co_await in_.json();
  } else if (format->body == CallBody::kParams) {
    const Tool* tool = format_.tool(name);
    std::string_view schema;
    if (tool != nullptr) schema = tool->parameters;
    arguments = co_await params(format, schema);
  } else {
    const bool gemma = format->body == CallBody::kGemma;
    arguments = co_await in_.members(gemma ? ':' : '=', format->post[0], format_.quote);
    rest.remove_prefix(1);
  }
  if (!arguments) co_return std::nullopt;
  if (!rest.empty()) {
    const bool closed = co_await in_.take(rest);
    const int c = co_await in_.peek();
    if (!closed && c != TextReader::kEnd) co_return std::nullopt;
  }
  co_return make_call(name, *arguments, id);
}

Step<MessageReader::Text> MessageReader::params(const ToolFormat* format, std::string_view schema) {
  ObjectWriter out;
  const std::string mid(right_trimmed(format->param_mid));
  for (;;) {
    const size_t start = in_.at;
    const bool begins = co_await in_.take(format->param_pre);
    if (!begins) co_return out.json();
    const std::string_view next = std::string_view(mid).substr(0, 1);
    const Text name = co_await in_.until(next);
    bool named = name && !name->starts_with('/');
    if (named) {
      --in_.at;
      in_.wild.clear();
      named = co_await in_.take(mid);
    }
    // Not a parameter but the closing tag, if both start with the same text.
    if (!named) {
      in_.at = start;
      co_return out.json();
    }
    const std::string type = in_.wild;
    if (format->param_mid.ends_with('\n')) {
      const int c = co_await in_.peek();
      if (c == '\n') ++in_.at;
    }
    std::string end(format->param_post);
    if (const size_t at = end.find('@'); at != std::string::npos) end.replace(at, 1, *name);
    const bool own_line = end.starts_with('\n');
    end = std::string(right_trimmed(end)).substr(own_line ? 1 : 0);
    bool quoted = false;
    if (format->cdata) quoted = co_await in_.take("<![CDATA[");
    const std::string_view last = quoted ? std::string_view("]]>") : std::string_view(end);
    Text raw = co_await in_.until(last);
    if (!raw) co_return std::nullopt;
    if (quoted) {
      const bool closed = co_await in_.take(end);
      if (!closed) co_return std::nullopt;
    }
    if (own_line && raw->ends_with('\n')) raw->pop_back();
    out.add(*name, parameter_value(without_tokens(*raw), type, schema, *name));
  }
}

// Calls without a mark. They must be the whole response; any other text ends the attempt.
Step<MessageReader::Calls> MessageReader::bare_calls() {
  const size_t start = in_.at;
  std::vector<ToolCall> calls;
  for (;;) {
    const Text members = co_await bare_members();
    std::optional<ToolCall> one;
    if (members) one = as_call(*members);
    if (!one) break;
    calls.push_back(std::move(*one));
    co_await in_.skip(TextReader::is_separator);
    const int c = co_await in_.peek();
    if (c == TextReader::kEnd) co_return std::move(calls);
  }
  in_.at = start;
  co_return std::nullopt;
}

Step<MessageReader::Text> MessageReader::bare_members() {
  co_await in_.skip(TextReader::is_space);
  const size_t start = in_.at;
  bool more = co_await in_.take("{");
  if (!more) co_return std::nullopt;
  while (more) {
    co_await in_.skip(TextReader::is_space);
    int c = co_await in_.peek();
    Text key;
    if (c == '"') key = co_await in_.json();
    const std::string name = key ? json_string(*key) : std::string();
    constexpr std::string_view kKeys[] = {"name", "function",  "type",
                                          "id",   "arguments", "parameters"};
    if (std::find(std::begin(kKeys), std::end(kKeys), name) == std::end(kKeys)) {
      co_return std::nullopt;
    }
    const bool parted = co_await in_.take(":");
    if (!parted) co_return std::nullopt;
    co_await in_.skip(TextReader::is_space);
    c = co_await in_.peek();
    const bool nested = name == "function" && c == '{';
    Text value;
    if (nested) {
      value = co_await bare_members();
    } else {
      value = co_await in_.json();
    }
    if (!value) co_return std::nullopt;
    const std::string text = json_string(*value);
    const bool is_name = name == "name" || (name == "function" && !nested);
    if (is_name && format_.tool(text) == nullptr) co_return std::nullopt;
    if (name == "type" && text != "function") co_return std::nullopt;
    more = co_await in_.take(",");
  }
  const bool closed = co_await in_.take("}");
  if (!closed) co_return std::nullopt;
  co_return in_.text.substr(start, in_.at - start);
}

// A call as models write it: with a "function" object as in OpenAI's API, flat, or as one member
// whose name is the function's.
std::optional<ToolCall> MessageReader::as_call(std::string_view value) {
  const std::vector<JsonMember> members = json_members(value);
  std::string_view inner = value;
  std::optional<std::string_view> name;
  if (const auto function = json_member(value, "function")) {
    if (json_type(*function) == JsonType::kString) name = *function;
    if (json_type(*function) == JsonType::kObject) inner = *function;
  }
  const auto given = [&](std::string_view key) {
    const auto found = json_member(inner, key);
    return found && json_type(*found) != JsonType::kNull ? found : std::nullopt;
  };
  if (const auto tool = given("tool_name")) name = *tool;
  if (const auto plain = given("name")) name = *plain;
  if (name && json_type(*name) == JsonType::kString) {
    auto arguments = given("arguments");
    if (!arguments) arguments = given("parameters");
    return make_call(json_string(*name), arguments.value_or("{}"));
  }
  if (members.size() != 1 || format_.tool(members[0].name) == nullptr) return std::nullopt;
  return make_call(members[0].name, members[0].value);
}

std::string parameter_value(const std::string& text, std::string_view type, std::string_view schema,
                            const std::string& name) {
  const auto properties = json_member(schema, "properties");
  const auto own = properties ? json_member(*properties, name) : std::nullopt;
  const TypeSet types = own ? types_of(*own, schema).value_or(0) : 0;  // 0: not specified
  const bool may_be_text = (types & kStringType) != 0;
  if (type == "true" || type == "string" || types == kStringType) return json_quote(text);
  if (!is_json(text)) {
    if (types == 0 || may_be_text) return json_quote(text);
    return python_value(text, kGemmaQuote).value_or(json_quote(text));  // some templates use Python
  }
  const bool is_text = json_type(text) == JsonType::kString;
  if (type.empty() && (is_text || (may_be_text && (types & type_of(text)) == 0))) {
    return json_quote(text);
  }
  return std::string(trimmed(text));
}

}  // namespace sluice::chat
