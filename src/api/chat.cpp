// Chat: prompts by the model's chat template, and readers of responses. All of it is src/chat; this
// file turns C strings into its requests, and its results into C strings that the handle owns.
#include "api/handles.h"
#include "base/random.h"
#include "jinja/json_text.h"

// Pointers given to the caller point into the handle.
struct sluice_chat {
  int64_t n_vocab = 0;
  sluice::chat::Prompt prompt;
  std::optional<sluice::chat::AnswerPlan> plan;
  std::optional<sluice::chat::AnswerReader> reader;
  std::vector<sluice::session::Token> tokens;
  std::string text, opening, marked;
  std::vector<const char*> stop, pictures;
  bool default_template = false, finished = false;

  sluice::chat::AnswerPart delta;
  std::vector<sluice_tool_call> delta_calls;
  sluice::chat::AnswerPart message;  // all that was read
};

namespace sluice::api {

ChatTemplate::ChatTemplate(chat::Template made, std::span<const chat::ControlToken> controls)
    : parsed(std::move(made)), formats(parsed, controls) {}

Result<std::shared_ptr<const ChatTemplate>> Loaded::chat_template(const char* source) {
  const std::lock_guard<std::mutex> lock(templates_mutex_);
  std::shared_ptr<const ChatTemplate>& kept = source != nullptr ? given_template_ : own_template_;
  const bool known = kept != nullptr && (source == nullptr || kept->parsed.source() == source);
  if (known) return kept;
  auto parsed =
      source != nullptr ? chat::Template::create(texts_, source) : chat::Template::create(texts_);
  if (!parsed.ok()) return parsed.status();
  kept =
      std::make_shared<const ChatTemplate>(std::move(*parsed), chat::control_tokens(tokenizer()));
  return kept;
}

namespace {

sluice_chat_options default_chat_options() {
  sluice_chat_options options = {};
  options.size = sizeof options;
  options.add_generation_prompt = options.parallel_tool_calls = options.separate_reasoning = 1;
  return options;
}

// Words may stand without JSON's quotes.
std::string tool_choice_json(const char* given) {
  const std::string_view text = text_or_none(given);
  const bool word = !text.empty() && !is_json(text);
  return word ? json_quote(text) : std::string(text);
}

Status check_options(const sluice_chat_options& given) {
  if (given.messages == nullptr) return null_argument("messages");
  SLUICE_RETURN_IF_ERROR(check_flag(given.add_generation_prompt, "add_generation_prompt"));
  SLUICE_RETURN_IF_ERROR(check_flag(given.continue_final_message, "continue_final_message"));
  SLUICE_RETURN_IF_ERROR(check_flag(given.parse_special_in_content, "parse_special_in_content"));
  SLUICE_RETURN_IF_ERROR(check_flag(given.parallel_tool_calls, "parallel_tool_calls"));
  return check_flag(given.separate_reasoning, "separate_reasoning");
}

Status create_chat(Loaded& loaded, const sluice_chat_options& given, sluice_chat** out) {
  SLUICE_RETURN_IF_ERROR(check_options(given));
  const auto used = loaded.chat_template(given.chat_template);
  if (!used.ok()) return used.status();
  const std::string choice = tool_choice_json(given.tool_choice);
  const bool no_tools = json_string(choice) == "none";

  chat::Request request;
  request.messages = given.messages;
  request.tools = no_tools ? std::string_view() : text_or_none(given.tools);
  request.documents = text_or_none(given.documents);
  request.variables = text_or_none(given.variables);
  request.add_generation_prompt = given.add_generation_prompt != 0;
  request.continue_final_message = given.continue_final_message != 0;
  request.parse_special_in_content = given.parse_special_in_content != 0;
  request.pictures = loaded.pictures() != nullptr;
  Result<chat::Prompt> prompt = (*used)->parsed.render(request);
  if (!prompt.ok()) return prompt.status();

  chat::AnswerRequest wanted;
  wanted.tools = request.tools;
  wanted.tool_choice = choice;
  wanted.response_schema = text_or_none(given.response_schema);
  wanted.parallel_tool_calls = given.parallel_tool_calls != 0;
  wanted.separate_reasoning = given.separate_reasoning != 0;
  Result<chat::AnswerPlan> plan = (*used)->formats.plan(wanted, *prompt);
  if (!plan.ok()) return plan.status();

  auto chat = std::make_unique<sluice_chat>();
  chat->n_vocab = loaded.n_vocab();
  chat->prompt = std::move(*prompt);
  chat->plan.emplace(std::move(*plan));
  chat->default_template = (*used)->parsed.is_default();
  for (const chat::Piece& piece : chat->plan->opening) {
    chat->prompt.pieces.push_back(piece);
    chat->opening += piece.text;
  }
  chat->text = chat->prompt.text();
  chat->marked = marked_text(chat->prompt);
  for (const std::string& url : chat->prompt.pictures) chat->pictures.push_back(url.c_str());
  if (chat->pictures.empty()) {
    auto tokens = chat::encode(loaded.tokenizer(), chat->prompt);
    if (!tokens.ok()) return tokens.status();
    chat->tokens = std::move(*tokens);
  }
  for (const std::string& stop : chat->prompt.stop) chat->stop.push_back(stop.c_str());
  chat->reader.emplace(chat->plan->reader(given.id_seed != 0 ? given.id_seed : random_seed()));
  *out = chat.release();
  return {};
}

sluice_chat_prompt prompt_of(const sluice_chat& chat) {
  const chat::AnswerPlan& plan = *chat.plan;
  sluice_chat_prompt out = {};
  out.tokens = chat.pictures.empty() ? chat.tokens.data() : nullptr;
  out.n_tokens = chat.tokens.size();
  out.text = chat.text.c_str();
  out.length = chat.text.size();
  out.opening = chat.opening.c_str();
  out.stop = chat.stop.data();
  out.n_stop = chat.stop.size();
  if (!plan.grammar.empty()) {
    out.constraint = SLUICE_CONSTRAINT_GBNF;
    out.constraint_text = plan.grammar.c_str();
  } else if (!plan.json_schema.empty()) {
    out.constraint = SLUICE_CONSTRAINT_JSON_SCHEMA;
    out.constraint_text = plan.json_schema.c_str();
  }
  out.skip_special_tokens = plan.show_control_tokens ? 0 : 1;
  out.default_template = chat.default_template ? 1 : 0;
  out.shows_tools = chat.prompt.sees_tools ? 1 : 0;
  out.marked_text = chat.marked.c_str();
  out.marked_length = chat.marked.size();
  out.prompt_flags = SLUICE_PARSE_SPECIAL | SLUICE_LITERAL_SPANS;
  if (chat.prompt.add_special) out.prompt_flags |= SLUICE_ADD_SPECIAL;
  out.pictures = chat.pictures.data();
  out.n_pictures = chat.pictures.size();
  return out;
}

// Adds a part to the message and shows it to the caller.
Status hand_over(sluice_chat& chat, chat::AnswerPart part, sluice_chat_delta* delta) {
  chat.message.reasoning += part.reasoning;
  chat.message.content += part.content;
  chat.message.calls.insert(chat.message.calls.end(), part.calls.begin(), part.calls.end());
  chat.delta = std::move(part);
  chat.delta_calls.clear();
  for (const chat::ToolCall& call : chat.delta.calls) {
    chat.delta_calls.push_back({call.id.c_str(), call.name.c_str(), call.arguments.c_str()});
  }
  if (delta == nullptr) return {};
  sluice_chat_delta out = {};
  out.reasoning = chat.delta.reasoning.c_str();
  out.reasoning_length = chat.delta.reasoning.size();
  out.content = chat.delta.content.c_str();
  out.content_length = chat.delta.content.size();
  out.tool_calls = chat.delta_calls.data();
  out.n_tool_calls = chat.delta_calls.size();
  return write_struct(out, delta, delta->size);
}

// Checks what reading needs before it changes anything.
Status check_reading(const sluice_chat& chat, const sluice_chat_delta* delta) {
  if (delta != nullptr) SLUICE_RETURN_IF_ERROR(check_size(*delta));
  if (!chat.finished) return {};
  return error(Code::kInvalidArgument, "the response was finished: create a chat for the next one");
}

std::string message_json(const chat::AnswerPart& message) {
  const bool only_calls = message.content.empty() && !message.calls.empty();
  std::string out = R"({"role":"assistant","content":)";
  out += only_calls ? "null" : json_quote(message.content);
  if (!message.reasoning.empty()) {
    out += R"(,"reasoning_content":)" + json_quote(message.reasoning);
  }
  const char* separator = R"(,"tool_calls":[)";
  for (const chat::ToolCall& call : message.calls) {
    out += separator + (R"({"id":)" + json_quote(call.id));
    out += R"(,"type":"function","function":{"name":)" + json_quote(call.name);
    out += R"(,"arguments":)" + json_quote(call.arguments) + "}}";
    separator = ",";
  }
  return out + (message.calls.empty() ? "}" : "]}");
}

}  // namespace
}  // namespace sluice::api

using namespace sluice;
using namespace sluice::api;

extern "C" {

sluice_status sluice_chat_options_default(sluice_chat_options* options, size_t size) {
  return guarded([&]() -> Status {
    SLUICE_REFUSE_NULL(options);
    return write_struct(default_chat_options(), options, size);
  });
}

sluice_status sluice_chat_create(const sluice_engine* engine, const sluice_chat_options* options,
                                 sluice_chat** chat) {
  return guarded([&]() -> Status {
    SLUICE_REFUSE_NULL(engine);
    SLUICE_REFUSE_NULL(options);
    SLUICE_REFUSE_NULL(chat);
    sluice_chat_options given = {};
    SLUICE_RETURN_IF_ERROR(read_struct(options, &given));
    return create_chat(*engine->loaded, given, chat);
  });
}

void sluice_chat_free(sluice_chat* chat) {
  delete chat;
}

sluice_status sluice_chat_get_prompt(const sluice_chat* chat, sluice_chat_prompt* prompt) {
  return guarded([&]() -> Status {
    SLUICE_REFUSE_NULL(chat);
    SLUICE_REFUSE_NULL(prompt);
    return write_struct(prompt_of(*chat), prompt, prompt->size);
  });
}

sluice_status sluice_chat_push(sluice_chat* chat, const char* text, size_t length, int32_t token,
                               sluice_chat_delta* delta) {
  return guarded([&]() -> Status {
    SLUICE_REFUSE_NULL(chat);
    const Result<std::string_view> piece = text_of(text, length, "text");
    if (!piece.ok()) return piece.status();
    SLUICE_RETURN_IF_ERROR(check_range(token, -1, chat->n_vocab - 1, "token"));
    SLUICE_RETURN_IF_ERROR(check_reading(*chat, delta));
    return hand_over(*chat, chat->reader->push(*piece, token), delta);
  });
}

sluice_status sluice_chat_finish(sluice_chat* chat, sluice_chat_delta* delta) {
  return guarded([&]() -> Status {
    SLUICE_REFUSE_NULL(chat);
    SLUICE_RETURN_IF_ERROR(check_reading(*chat, delta));
    chat->finished = true;
    return hand_over(*chat, chat->reader->finish(), delta);
  });
}

sluice_status sluice_chat_message(const sluice_chat* chat, char* out, size_t capacity,
                                  size_t* count) {
  return guarded([&]() -> Status {
    SLUICE_REFUSE_NULL(chat);
    SLUICE_REFUSE_NULL(count);
    SLUICE_RETURN_IF_ERROR(check_array(out, capacity, "out"));
    const std::string json = message_json(chat->message);
    SLUICE_RETURN_IF_ERROR(copy_out<char>(json, out, capacity, count));
    if (capacity > json.size()) out[json.size()] = '\0';
    return {};
  });
}

}  // extern "C"
