// Renders templates with the interpreter and splits the output into pieces.
#include "chat/template.h"

#include <algorithm>

#include "chat/messages.h"
#include "chat/pictures.h"
#include "jinja/interpreter.h"
#include "jinja/json.h"
#include "tokenizer/literal_spans.h"
#include "tokenizer/utf8.h"

namespace sluice::chat {

using namespace jinja;
using tokenizer::kMediaMark;

namespace {

constexpr std::string_view kChatMl =
    "{%- for message in messages -%}"
    "{{- '<|im_start|>' + message.role + '\\n' + (message.content or '') + '<|im_end|>\\n' -}}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}";

Result<std::unique_ptr<Program>> read_program(std::string_view source) {
  if (source.size() > kMaxTemplateBytes) {
    return error(Code::kChatTemplate, "the chat template is longer than %zu bytes",
                 kMaxTemplateBytes);
  }
  auto program = std::make_unique<Program>();
  SLUICE_RETURN_IF_ERROR(parse(source, program.get()));
  return program;
}

bool is_given(std::string_view json) {
  return !json.empty() && json != "null";
}

// Replaces content marks inside a text by kReplacement, so that only the marks added here remain.
void append_unmarked(std::string_view text, std::string* out) {
  constexpr std::string_view kMark = tokenizer::kPlainBegin;
  for (size_t at = 0; at < text.size();) {
    const std::string_view here = text.substr(at, kMark.size());
    const bool mark = here == tokenizer::kPlainBegin || here == tokenizer::kPlainEnd;
    *out += mark ? tokenizer::kReplacement : text.substr(at, 1);
    at += mark ? kMark.size() : 1;
  }
}

// Where the prompt shows a picture.
struct Place {
  size_t begin = 0;
  uint32_t picture = 0;
};

// Marks of pictures that are whole, ascending.
std::vector<Place> picture_places(const Text& text, const std::vector<PictureMark>& marks) {
  std::vector<Place> out;
  for (const Span& span : text.spans()) {
    const PictureMark* mark = find_picture(marks, span.source);
    const bool whole = text.view().substr(span.begin, span.end - span.begin) == kMediaMark;
    if (mark != nullptr && whole) out.push_back({span.begin, mark->picture});
  }
  return out;
}

// Replaces what the template printed for each picture that was a part by a mark. False if it
// printed something else, such as numbers.
bool mark_parts(Interpreter& in, Normalized* messages, Text* text) {
  const std::string& printed = messages->picture_text;
  Text out;
  size_t done = 0, from = 0, n = 0;
  auto span = text->spans().begin();
  for (size_t at; (at = text->view().find(printed, from)) != std::string_view::npos;) {
    while (span != text->spans().end() && span->end <= at) ++span;
    from = at + 1;
    if (span != text->spans().end() && span->begin < at + printed.size()) continue;  // a message's
    if (n == messages->picture_parts.size()) return false;
    out.append(*text, done, at);
    const Value mark = in.given(kMediaMark, false);
    if (!in.ok()) return false;
    out.append(mark.string->text);
    messages->marks.push_back({mark.string->text.spans()[0].source, messages->picture_parts[n++]});
    done = from = at + printed.size();
  }
  out.append(*text, done, text->size());
  *text = std::move(out);
  return n == messages->picture_parts.size();
}

// `pictures`: their marks are the template's text; the same text elsewhere is content.
std::vector<Piece> pieces_of(const Text& text, const std::vector<Place>& pictures) {
  std::vector<Piece> out;
  size_t done = 0;
  auto picture = pictures.begin();
  const auto add = [&](size_t end, bool content) {
    if (end <= done) return;
    const std::string_view piece = text.view().substr(done, end - done);
    if (!out.empty() && out.back().content == content) {
      out.back().text += piece;
    } else {
      out.push_back({std::string(piece), content});
    }
    done = end;
  };
  size_t mark = text.view().find(kMediaMark);
  const auto push = [&](size_t end, bool content) {
    while (mark < end) {
      while (picture != pictures.end() && picture->begin < mark) ++picture;
      const bool shows = picture != pictures.end() && picture->begin == mark;
      const size_t behind = std::min(mark + kMediaMark.size(), end);
      if (!content && mark >= done) {
        add(mark, false);
        add(behind, !shows);
      }
      mark = text.view().find(kMediaMark, behind);
    }
    add(end, content);
  };
  const std::vector<Span>& spans = text.spans();
  for (size_t i = 0; i < spans.size(); ++i) {
    if (!spans[i].content) continue;
    const bool begins = i == 0 || !spans[i - 1].content || spans[i - 1].end < spans[i].begin;
    const bool ends =
        i + 1 == spans.size() || !spans[i + 1].content || spans[i].end < spans[i + 1].begin;
    if (begins) push(spans[i].begin, false);
    if (ends) push(spans[i].end, true);
  }
  push(text.size(), false);
  return out;
}

// The prompt up to the end of the last message's text, as in transformers.
Status cut_after_final_message(const Normalized& messages, Text* text) {
  const auto last = static_cast<uint32_t>(messages.roles.size() - 1);
  if (messages.roles[last] != "assistant") {
    return error(Code::kInvalidArgument, "only a last message of the assistant can be continued");
  }
  size_t end = 0;
  for (const Shown& shown : messages.shown) {
    if (shown.message != last || shown.call) continue;
    for (const Span& span : text->spans()) {
      if (span.source == shown.source) end = std::max(end, span.end);
    }
  }
  if (end == 0) {
    return error(Code::kChatTemplate,
                 "the prompt has no text of the last message, so it cannot be continued");
  }
  *text = text->slice(0, end);
  return {};
}

// Whether the output has the name of each tool.
bool shows_tools(Interpreter& in, const Value& tools, const Text& output) {
  if (!tools.is(Kind::kSequence)) return false;
  for (const Value& tool : tools.sequence->items) {
    const Value function = member(in, tool, "function");
    const Value name = member(in, function.is(Kind::kDict) ? function : tool, "name");
    if (!name.is(Kind::kString) || name.string->text.spans().empty()) return false;
    const uint32_t source = name.string->text.spans()[0].source;
    const auto& spans = output.spans();
    const auto shows = [&](const Span& span) {
      return span.source == source || span.source == Span::kSeveral;
    };
    if (std::none_of(spans.begin(), spans.end(), shows)) return false;
  }
  return !tools.sequence->items.empty();
}

}  // namespace

struct Template::Impl {
  // A parsed template, and how messages are written for it.
  struct Parsed {
    Parsed(std::unique_ptr<Program> parsed, const ModelTexts& texts)
        : program(std::move(parsed)),
          plain(*program, texts, false),
          with_tools(*program, texts, true) {}
    std::unique_ptr<Program> program;
    Normalizer plain, with_tools;
  };
  // A request whose pictures have been taken out of its messages.
  struct Asked {
    const Request& request;
    std::string_view messages;
    const std::vector<std::string>& pictures;
    bool picture_marks = false;  // Normalizer::Options
  };
  // The values of one render.
  struct Bound {
    Normalized messages;
    Value tools;
  };

  std::string source, tool_source;
  ModelTexts texts;  // special tokens only
  std::unique_ptr<Parsed> usual;
  std::unique_ptr<Parsed> for_tools;  // null: `usual` is used
  bool is_default = false;

  Result<Bound> bind(Interpreter& in, const Parsed& used, const Asked& asked) const;
  // `other`: whether pictures are to be tried as marks.
  Result<Prompt> render(const Parsed& used, const Asked& asked, bool* other) const;
};

Template::Template(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Template::Template(Template&&) noexcept = default;
Template& Template::operator=(Template&&) noexcept = default;
Template::~Template() = default;

Result<Template> Template::create(const ModelTexts& texts) {
  Result<Template> made = create(texts, texts.chat_template);
  if (!made.ok() || texts.chat_template.empty() || texts.tool_template.empty()) return made;
  Result<std::unique_ptr<Program>> with_tools = read_program(texts.tool_template);
  if (!with_tools.ok()) return with_tools.status();
  Impl& impl = *made->impl_;
  impl.tool_source = texts.tool_template;
  impl.for_tools = std::make_unique<Impl::Parsed>(std::move(*with_tools), impl.texts);
  return made;
}

Result<Template> Template::create(const ModelTexts& texts, std::string_view source) {
  auto impl = std::make_unique<Impl>();
  impl->is_default = source.empty();
  Result<std::unique_ptr<Program>> program = read_program(source.empty() ? kChatMl : source);
  if (!program.ok()) return program.status();
  impl->source = source;
  impl->texts = texts;
  impl->texts.chat_template.clear();
  impl->texts.tool_template.clear();
  impl->usual = std::make_unique<Impl::Parsed>(std::move(*program), impl->texts);
  return Template(std::move(impl));
}

Result<Template::Impl::Bound> Template::Impl::bind(Interpreter& in, const Parsed& used,
                                                   const Asked& asked) const {
  const Request& request = asked.request;
  const bool mark = !request.parse_special_in_content;
  const auto read = [&](const char* name, std::string_view json, Kind kind) -> Result<Value> {
    if (json.size() > kMaxRequestBytes) {
      return error(Code::kInvalidArgument, "%s is longer than %zu bytes", name, kMaxRequestBytes);
    }
    if (!is_given(json)) return none();
    Result<Value> value = read_json(in, *used.program, json, name, mark);
    if (value.ok() && !value->is(Kind::kNone) && !value->is(kind)) {
      return error(Code::kInvalidArgument, "%s must be %s", name,
                   kind == Kind::kDict ? "an object" : "a list");
    }
    return value;
  };
  const Result<Value> variables = read("variables", request.variables, Kind::kDict);
  if (!variables.ok()) return variables.status();
  const Result<Value> messages = read("messages", asked.messages, Kind::kSequence);
  if (!messages.ok()) return messages.status();
  const Result<Value> tools = read("tools", request.tools, Kind::kSequence);
  if (!tools.ok()) return tools.status();
  const Result<Value> documents = read("documents", request.documents, Kind::kSequence);
  if (!documents.ok()) return documents.status();

  Bound out;
  out.tools = in.truth(*tools) ? *tools : none();
  const Normalizer& normalizer = in.truth(*tools) ? used.with_tools : used.plain;
  Result<Normalized> normalized =
      normalizer.normalize(in, *messages, {mark, asked.pictures.size(), asked.picture_marks});
  if (!normalized.ok()) return normalized.status();
  out.messages = std::move(*normalized);
  if (out.tools.is(Kind::kNone) && out.messages.empty_tools) out.tools = in.sequence({});
  if (variables->is(Kind::kDict)) {
    for (const auto& [key, member] : variables->dict->entries) {
      in.set(std::string(key.string->text.view()), member);
    }
  }
  in.set("messages", out.messages.messages);
  in.set("tools", out.tools);
  in.set("documents", *documents);
  in.set("add_generation_prompt",
         Value(request.add_generation_prompt && !request.continue_final_message));
  set_tokens(in, texts);
  if (!in.ok()) return in.failure();
  return out;
}

Result<Prompt> Template::render(const Request& request) const {
  const bool tools =
      is_given(request.tools) && request.tools != "[]" && impl_->for_tools != nullptr;
  const Impl::Parsed& used = tools ? *impl_->for_tools : *impl_->usual;
  if (request.messages.size() > kMaxRequestBytes) {
    return error(Code::kInvalidArgument, "messages is longer than %zu bytes", kMaxRequestBytes);
  }
  std::vector<std::string> pictures;
  std::string messages;
  Impl::Asked asked{request, request.messages, pictures};
  if (request.pictures) {
    Result<std::string> taken = take_pictures(request.messages, &pictures);
    if (!taken.ok()) return taken.status();
    messages = std::move(*taken);
    asked.messages = messages;
  }
  bool other = false;
  Result<Prompt> prompt = impl_->render(used, asked, &other);
  if (other) {
    asked.picture_marks = true;
    prompt = impl_->render(used, asked, &other);
  }
  return prompt;
}

Result<Prompt> Template::Impl::render(const Parsed& used, const Asked& asked, bool* other) const {
  const Request& request = asked.request;
  Interpreter in(*used.program, request.now ? *request.now : std::time(nullptr));
  Result<Bound> bound = bind(in, used, asked);
  if (!bound.ok()) return bound.status();
  Result<Text> text = in.run();
  *other = !bound->messages.picture_parts.empty();
  if (!text.ok()) return text.status();
  const Shown* missing = find_missing(in, *used.program, *text, bound->messages);
  if (missing != nullptr && !request.allow_missing_text) {
    return error(Code::kChatTemplate, "the chat template omits %s of message %u, role '%.40s'",
                 missing->call ? "a tool call" : "text", missing->message,
                 bound->messages.roles[missing->message].c_str());
  }
  if (*other && !mark_parts(in, &bound->messages, &*text)) {
    return in.ok() ? error(Code::kChatTemplate, "the chat template omits a picture") : in.failure();
  }
  *other = false;
  Prompt prompt;
  prompt.sees_tools = shows_tools(in, bound->tools, *text);
  if (request.continue_final_message) {
    SLUICE_RETURN_IF_ERROR(cut_after_final_message(bound->messages, &*text));
  }
  const std::vector<Place> places = picture_places(*text, bound->messages.marks);
  for (const Place& place : places) prompt.pictures.push_back(asked.pictures[place.picture]);
  prompt.pieces = pieces_of(*text, places);
  prompt.add_special = is_default;
  if (is_default) prompt.stop.emplace_back("<|im_end|>");
  return prompt;
}

bool Template::is_default() const {
  return impl_->is_default;
}
const std::string& Template::source(bool with_tools) const {
  return with_tools && impl_->for_tools ? impl_->tool_source : impl_->source;
}

std::string Prompt::text() const {
  std::string out;
  for (const Piece& piece : pieces) out += piece.text;
  return out;
}

std::string marked_text(const Prompt& prompt) {
  std::string marked;
  for (const Piece& piece : prompt.pieces) {
    if (piece.content) marked += tokenizer::kPlainBegin;
    append_unmarked(piece.text, &marked);
    if (piece.content) marked += tokenizer::kPlainEnd;
  }
  return marked;
}

Result<std::vector<tokenizer::Token>> encode(const tokenizer::Tokenizer& tokenizer,
                                             const Prompt& prompt) {
  tokenizer::EncodeOptions options;
  options.add_special = prompt.add_special;
  options.literal_spans = true;
  return tokenizer.try_encode(marked_text(prompt), options);
}

}  // namespace sluice::chat
