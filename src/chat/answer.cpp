#include "chat/answer.h"

#include <algorithm>
#include <cstring>

#include "chat/harmony.h"
#include "chat/marks.h"
#include "chat/message_reader.h"
#include "chat/reasoning.h"
#include "chat/template_text.h"
#include "chat/tool_formats.h"
#include "chat/tool_grammar.h"
#include "jinja/json_text.h"

namespace sluice::chat {
namespace {

constexpr size_t kMaxToolBytes = 1u << 20;  // of each JSON text of a request

bool has_json(std::string_view json) {
  return json_type(json) != JsonType::kNone && json_type(json) != JsonType::kNull;
}

// All literal text of a format, to find the control tokens in it.
void spell(const ToolFormat& format, std::vector<std::string_view>* out) {
  for (const std::string_view text :
       {format.open, format.pre, format.mid, format.post, format.close, format.param_pre,
        format.param_mid, format.param_post, format.plain, format.block_open, format.block_close,
        format.mark()}) {
    out->push_back(text);
  }
}

// Whether a control token may occur in free text: marks of reasoning and of the response proper.
bool is_loose(std::string_view name) {
  constexpr std::string_view kNever[] = {"end_of", "endof", "begin_of", "beginof",
                                         "eos",    "eot",   "eom",      "tool"};
  for (const std::string_view word : kNever) {
    if (mentions(name, word)) return false;
  }
  return mentions(name, "think") || mentions(name, "respon") || mentions(name, "text");
}

// Text that is passed on as it is, with the names of control tokens.
class RawReader : public ResponseReader {
 public:
  RawReader() : ResponseReader(0, false) {}

 private:
  Step<bool> run() override {
    for (;;) {
      const int c = co_await in_.peek();
      if (c == TextReader::kEnd) co_return true;
      out_.content += plain(in_.at, in_.text.size(), /*shown=*/true);
      in_.text.clear();
      in_.at = 0;
    }
  }
};

// What a request says of tools.
struct Choice {
  std::vector<Tool> tools;     // that may be called
  std::vector<Tool> declared;  // all
  bool required = false;
  std::string name;  // of the function to call; "": any
  bool strict = false;
};

Status invalid_request(const char* message) {
  return error(Code::kInvalidArgument, "%s", message);
}

Result<std::vector<Tool>> read_tools(std::string_view json) {
  std::vector<Tool> out;
  if (!has_json(json)) return out;
  if (json_type(json) != JsonType::kArray)
    return invalid_request("tools must be a list of functions");
  for (const std::string_view item : json_items(json)) {
    const auto type = json_member(item, "type"), function = json_member(item, "function");
    const auto name = function ? json_member(*function, "name") : std::nullopt;
    Tool tool;
    if (name) tool.name = json_string(*name);
    if (!type || json_string(*type) != "function" || tool.name.empty()) {
      return invalid_request("every tool needs type 'function' and function.name");
    }
    tool.parameters = json_member(*function, "parameters").value_or("");
    tool.strict = json_compact(json_member(*function, "strict").value_or("")) == "true";
    out.push_back(std::move(tool));
  }
  return out;
}

Result<Choice> read_choice(const AnswerRequest& request) {
  for (const std::string_view json :
       {request.tools, request.tool_choice, request.response_schema}) {
    if (json.size() > kMaxToolBytes) return invalid_request("the tools or the schema are too long");
    if (!json.empty() && !is_json(json))
      return invalid_request("a part of the request is not JSON");
  }
  Choice out;
  const std::string choice = json_string(request.tool_choice);
  if (choice == "none") return out;
  Result<std::vector<Tool>> tools = read_tools(request.tools);
  if (!tools.ok()) return tools.status();
  out.declared = out.tools = std::move(*tools);
  if (json_type(request.tool_choice) == JsonType::kObject) {
    const auto function = json_member(request.tool_choice, "function");
    const auto name = function ? json_member(*function, "name") : std::nullopt;
    if (name) out.name = json_string(*name);
  }
  out.required = choice == "required" || !out.name.empty();
  if (!out.required && has_json(request.tool_choice) && choice != "auto") {
    return invalid_request(
        "tool_choice must be 'none', 'auto', 'required' or {type: 'function', function: {name}}");
  }
  if (!out.name.empty()) {
    std::erase_if(out.tools, [&](const Tool& tool) { return tool.name != out.name; });
  }
  if (!request.allowed.empty()) {
    std::erase_if(out.tools, [&](const Tool& tool) {
      const auto& names = request.allowed;
      return std::find(names.begin(), names.end(), tool.name) == names.end();
    });
  }
  if (out.required && out.tools.size() == 1) out.name = out.tools.front().name;
  if (out.required && out.tools.empty()) {
    return invalid_request("tool_choice names a function that is not in tools");
  }
  out.strict =
      std::any_of(out.tools.begin(), out.tools.end(), [](const Tool& tool) { return tool.strict; });
  return out;
}

}  // namespace

std::vector<ControlToken> control_tokens(const tokenizer::Tokenizer& tokenizer) {
  std::vector<ControlToken> out;
  for (const tokenizer::Token token : tokenizer.gated_tokens()) {
    out.push_back({std::string(tokenizer.piece(token)), token});
  }
  return out;
}

// --- the format

struct AnswerFormat::Impl {
  std::vector<ControlToken> controls;
  Marks marks;
  const ToolFormat* tools = nullptr;
  const ReasoningFormat* reasoning = nullptr;
  bool harmony = false;
  bool teaches_reasoning = false;
  bool short_ids = false;
  std::vector<std::string_view> loose;  // control tokens that may occur in free text
};

struct AnswerPlan::Impl {
  std::shared_ptr<const AnswerFormat::Impl> format;
  MessageFormat message;
  std::optional<HarmonyFormat> harmony;
  bool raw = false;
  std::string begun;  // start of the response that is in the prompt, encoded
};

AnswerFormat::AnswerFormat(std::string_view source, std::span<const ControlToken> controls) {
  auto impl = std::make_shared<Impl>();
  impl->controls.assign(controls.begin(), controls.end());
  impl->harmony = is_harmony(source);
  impl->tools = impl->harmony ? nullptr : tool_format(source);
  impl->reasoning = &reasoning_format(source);
  impl->teaches_reasoning = chat::teaches_reasoning(source);
  impl->short_ids = needs_short_ids(source);
  const ReasoningFormat& reasoning = *impl->reasoning;
  std::vector<std::string_view> texts;
  for (const std::string_view mark : {reasoning.open, reasoning.close, reasoning.turn,
                                      reasoning.response, reasoning.ends[0], reasoning.ends[1]}) {
    texts.push_back(mark);
  }
  for (const ControlToken& control : impl->controls) {
    const bool taught = source.find(control.text) != std::string_view::npos;
    if (!control.text.empty() &&
        (occurs_in(control.text, texts) || (taught && is_loose(control.text)))) {
      impl->loose.push_back(control.text);
    }
  }
  for (const ToolFormat& format : formats_to_read(impl->tools, /*strictly=*/false)) {
    spell(format, &texts);
  }
  if (impl->harmony) {
    for (const std::string_view mark : kHarmonyMarks) texts.push_back(mark);
  }
  texts.push_back(kGemmaQuote);
  for (const std::string_view name : impl->loose) texts.push_back(name);
  impl->marks = Marks(impl->controls, texts);
  impl_ = std::move(impl);
}

bool AnswerFormat::has_tools() const {
  return impl_->harmony || impl_->tools != nullptr;
}

bool AnswerFormat::opens_reasoning(const Prompt& prompt) const {
  if (impl_->harmony) return false;
  const std::string text = prompt.text();
  return right_trimmed(text).ends_with(right_trimmed(impl_->reasoning->open));
}

Result<AnswerPlan> AnswerFormat::plan(const AnswerRequest& request, const Prompt& prompt) const {
  Result<Choice> choice = read_choice(request);
  if (!choice.ok()) return choice.status();
  const bool harmony = impl_->harmony;
  if ((choice->required || choice->strict) && !has_tools()) {
    return error(Code::kInvalidArgument,
                 "the model's chat template does not support tools: %s, or use another model",
                 choice->required ? "use tool_choice 'auto'" : "omit strict");
  }
  const std::string schema(has_json(request.response_schema) ? request.response_schema : "");
  const bool calls = !choice->tools.empty();
  const bool thinking = opens_reasoning(prompt);
  const ToolFormat* tools = calls ? impl_->tools : nullptr;

  AnswerPlan plan;
  auto made = std::make_shared<AnswerPlan::Impl>();
  made->format = impl_;
  ResponseShape shape;
  shape.format = tools;
  shape.tools = choice->tools;
  shape.reasoning = impl_->reasoning;
  shape.thinks = impl_->teaches_reasoning;
  shape.thinking = thinking;
  shape.required = choice->required;
  shape.parallel = request.parallel_tool_calls;
  shape.schema = schema;
  shape.loose = impl_->loose;
  if (tools != nullptr && !tools->plain.empty() && prompt.text().ends_with(tools->pre)) {
    shape.begun = tools->pre;
  }
  const bool bound =
      !schema.empty() || choice->strict || (choice->required && request.can_constrain);
  if (bound && !calls && !harmony && !shape.thinks && !thinking) {
    plan.json_schema = schema;
  } else if (bound) {
    Result<std::string> grammar =
        harmony ? harmony_grammar(shape, impl_->marks) : answer_grammar(shape, impl_->marks);
    if (!grammar.ok()) return grammar.status();
    plan.grammar = std::move(*grammar);
  }
  std::string begun(shape.begun);
  if (choice->required && !bound) {  // a call that no grammar enforces is begun in the prompt
    const CallOpening opening =
        harmony ? harmony_opening(choice->name) : call_opening(*tools, choice->name);
    begun = opening.before + opening.name + opening.behind;
    const ReasoningFormat& reasoning = *impl_->reasoning;
    std::string before;
    if (thinking) {
      const char* line = reasoning.lines ? "\n" : "";
      before = line + std::string(reasoning.close) + line + line;
    }
    plan.opening.push_back({before + opening.before, false});
    // The caller's name of a tool must not become a control token.
    if (!opening.name.empty()) plan.opening.push_back({opening.name, true});
    if (!opening.behind.empty()) plan.opening.push_back({opening.behind, false});
  }
  made->begun = impl_->marks.encode(begun);

  // How to read it.
  made->raw = harmony && !request.separate_reasoning;
  if (harmony) made->harmony.emplace(impl_->marks);
  MessageFormat& message = made->message;
  message.separate = request.separate_reasoning;
  message.thinking = thinking && plan.opening.empty();
  message.set_reasoning(*impl_->reasoning, impl_->marks);
  if (calls && !harmony) {
    message.set_tools(formats_to_read(tools, choice->strict), impl_->marks);
    message.declared = std::move(choice->declared);
  }
  plan.show_control_tokens = harmony || !message.encoded.empty();
  plan.impl_ = std::move(made);
  return plan;
}

AnswerFormats::AnswerFormats(const Template& with, std::span<const ControlToken> controls)
    : format_(with.source(), controls),
      tool_format_(&with.source(true) == &with.source()
                       ? format_
                       : AnswerFormat(with.source(true), controls)) {}

Result<AnswerPlan> AnswerFormats::plan(const AnswerRequest& request, const Prompt& prompt) const {
  return (json_items(request.tools).empty() ? format_ : tool_format_).plan(request, prompt);
}

// --- readers

struct AnswerReader::Impl {
  std::shared_ptr<const AnswerPlan::Impl> plan;
  std::unique_ptr<ResponseReader> reader;
};

AnswerReader AnswerPlan::reader(uint64_t id_seed) const {
  auto impl = std::make_unique<AnswerReader::Impl>();
  impl->plan = impl_;
  if (impl_->raw) {
    impl->reader = std::make_unique<RawReader>();
  } else if (impl_->harmony) {
    impl->reader = std::make_unique<HarmonyReader>(*impl_->harmony, id_seed);
  } else {
    impl->reader =
        std::make_unique<MessageReader>(impl_->message, id_seed, impl_->format->short_ids);
  }
  if (!impl_->begun.empty()) static_cast<void>(impl->reader->push(impl_->begun));
  return AnswerReader(std::move(impl));
}

AnswerReader::AnswerReader(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
AnswerReader::AnswerReader(AnswerReader&&) noexcept = default;
AnswerReader& AnswerReader::operator=(AnswerReader&&) noexcept = default;
AnswerReader::~AnswerReader() = default;

AnswerPart AnswerReader::push(std::string_view text, int32_t token) {
  const std::vector<ControlToken>& controls = impl_->plan->format->controls;
  const auto known = std::find_if(controls.begin(), controls.end(),
                                  [&](const ControlToken& control) { return control.id == token; });
  std::string encoded(text);
  for (char& c : encoded) {
    if (c == kTokenBegin || c == kTokenEnd) c = '?';  // not UTF-8
  }
  const bool is_control =
      known != controls.end() && !known->text.empty() && encoded.ends_with(known->text);
  if (is_control) {
    encoded.insert(encoded.size() - known->text.size(), 1, kTokenBegin);
    encoded += kTokenEnd;
  }
  return impl_->reader->push(encoded);
}

AnswerPart AnswerReader::finish() {
  return impl_->reader->finish();
}

size_t AnswerReader::calls() const {
  return impl_->reader->calls();
}

}  // namespace sluice::chat
