// Renders templates with the interpreter and splits the output into pieces.
#include "chat/template.h"

#include <algorithm>

#include "chat/messages.h"
#include "jinja/interpreter.h"
#include "jinja/json.h"
#include "tokenizer/literal_spans.h"
#include "tokenizer/utf8.h"

namespace sluice::chat {

using namespace jinja;

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

std::vector<Piece> pieces_of(const Text& text) {
  std::vector<Piece> out;
  size_t done = 0;
  const auto push = [&](size_t end, bool content) {
    if (end > done) out.push_back({std::string(text.view().substr(done, end - done)), content});
    done = end;
  };
  for (const Span& span : text.content()) {
    push(span.begin, false);
    push(span.end, true);
  }
  push(text.size(), false);
  return out;
}

}  // namespace

struct Template::Impl {
  std::string source;
  std::unique_ptr<Program> program;
  std::unique_ptr<Program> with_tools;  // null: `program` is used
  ModelTexts texts;                     // special tokens only
  bool is_default = false;

  Status bind(Interpreter& in, const Program& used, const Request& request) const;
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
  made->impl_->with_tools = std::move(*with_tools);
  return made;
}

Result<Template> Template::create(const ModelTexts& texts, std::string_view source) {
  auto impl = std::make_unique<Impl>();
  impl->is_default = source.empty();
  Result<std::unique_ptr<Program>> program = read_program(source.empty() ? kChatMl : source);
  if (!program.ok()) return program.status();
  impl->program = std::move(*program);
  impl->source = source;
  impl->texts = texts;
  impl->texts.chat_template.clear();
  impl->texts.tool_template.clear();
  return Template(std::move(impl));
}

Status Template::Impl::bind(Interpreter& in, const Program& used, const Request& request) const {
  const bool mark = !request.parse_special_in_content;
  const std::pair<const char*, std::string_view> given[] = {{"variables", request.variables},
                                                            {"messages", request.messages},
                                                            {"tools", request.tools},
                                                            {"documents", request.documents}};
  for (const auto& [name, json] : given) {
    if (json.size() > kMaxRequestBytes) {
      return error(Code::kInvalidArgument, "%s is longer than %zu bytes", name, kMaxRequestBytes);
    }
    Result<Value> value(none());
    if (is_given(json)) value = read_json(in, used, json, name, mark);
    if (!value.ok()) return value.status();
    const bool variables = name == given[0].first;
    if (!value->is(Kind::kNone) && value->is(Kind::kDict) != variables) {
      return error(Code::kInvalidArgument, "%s must be %s", name,
                   variables ? "an object" : "a list");
    }
    if (name == given[1].first) SLUICE_RETURN_IF_ERROR(normalize_messages(in, used, *value, mark));
    const bool no_tools = name == given[2].first && !in.truth(*value);  // an empty list
    if (!variables) {
      in.set(name, no_tools ? none() : *value);
    } else if (value->is(Kind::kDict)) {
      for (const auto& [key, member] : value->dict->entries) {
        in.set(std::string(key.string->text.view()), member);
      }
    }
  }
  in.set("add_generation_prompt", Value(request.add_generation_prompt));
  in.set("bos_token", in.text(texts.bos));
  in.set("eos_token", in.text(texts.eos));
  if (texts.unk) in.set("unk_token", in.text(*texts.unk));
  if (texts.pad) in.set("pad_token", in.text(*texts.pad));
  return in.failure();
}

Result<Prompt> Template::render(const Request& request) const {
  const bool tools =
      is_given(request.tools) && request.tools != "[]" && impl_->with_tools != nullptr;
  const Program& used = tools ? *impl_->with_tools : *impl_->program;
  Interpreter in(used, request.now ? *request.now : std::time(nullptr));
  SLUICE_RETURN_IF_ERROR(impl_->bind(in, used, request));
  Result<Text> text = in.run();
  if (!text.ok()) return text.status();
  Prompt prompt;
  prompt.pieces = pieces_of(*text);
  prompt.add_special = impl_->is_default;
  if (impl_->is_default) prompt.stop.emplace_back("<|im_end|>");
  return prompt;
}

bool Template::is_default() const {
  return impl_->is_default;
}
const std::string& Template::source() const {
  return impl_->source;
}

std::string Prompt::text() const {
  std::string out;
  for (const Piece& piece : pieces) out += piece.text;
  return out;
}

bool Prompt::opens_reasoning() const {
  const std::string all = text();
  return std::string_view(all).substr(0, trailing_space(all)).ends_with("<think>");
}

Result<std::vector<tokenizer::Token>> encode(const tokenizer::Tokenizer& tokenizer,
                                             const Prompt& prompt) {
  std::string marked;
  for (const Piece& piece : prompt.pieces) {
    if (piece.content) marked += tokenizer::kPlainBegin;
    append_unmarked(piece.text, &marked);
    if (piece.content) marked += tokenizer::kPlainEnd;
  }
  tokenizer::EncodeOptions options;
  options.add_special = prompt.add_special;
  options.literal_spans = true;
  return tokenizer.try_encode(marked, options);
}

}  // namespace sluice::chat
