// `sluice chat`: a conversation in the terminal. A line is a message or a command. The response
// streams, and Ctrl-C stops it without ending the program. The KV cache is reused between messages.
#include "cli/chat.h"

#include <algorithm>
#include <cstdio>
#include <limits>

#include "chat/answer.h"
#include "chat/template.h"
#include "cli/conversation.h"
#include "cli/nearest.h"
#include "cli/terminal.h"
#include "gguf/printable.h"
#include "io/address.h"
#include "platform/console.h"

namespace sluice::cli {
namespace {

struct Command {
  const char* name;
  std::string_view others;  // further names, separated by spaces
  const char* usage;
  const char* help;
};
constexpr Command kCommands[] = {
    {"/system", "", "/system TEXT", "set the system message; without TEXT: show it"},
    {"/image", "", "/image FILE", "show a picture with the next message"},
    {"/save", "", "/save FILE", "save the conversation as JSON"},
    {"/load", "", "/load FILE", "continue a saved conversation"},
    {"/clear", "/reset", "/clear, /reset", "forget the conversation; the system message stays"},
    {"/stats", "", "/stats", "show tokens, speed and memory"},
    {"/bye", "/quit /exit", "/bye, /quit, /exit", "quit; so does Ctrl-D, or Ctrl-C twice"},
    {"/help", "/?", "/help, /?", "show this list"},
};
constexpr const char* kHelp =
    "Ctrl-C stops a response. A line that ends with \\ continues on the next one, and pasted text\n"
    "is one message. A message that starts with a slash is written with two: //.\n";

std::string rate_of(const generate::Counts& counts) {
  char text[96];
  std::snprintf(text, sizeof text, "[%d tokens, %.1f tok/s]", counts.generated,
                counts.tokens_per_second());
  return text;
}

constexpr const char* kNoTemplate =
    "the model has no chat template: ChatML is used, which the model may not know";

// Text of several lines is a message, unless it is a system message: what is pasted may well begin
// with a path.
bool is_command(const std::string& message) {
  if (!message.starts_with('/') || message.starts_with("//")) return false;
  return message.find('\n') == std::string::npos || message.starts_with("/system ");
}

// Calls `take` with every name of every command.
template <typename Take>
void each_name(Take&& take) {
  for (const Command& command : kCommands) {
    take(command, std::string_view(command.name));
    for (std::string_view rest = command.others; !rest.empty();) {
      const size_t end = std::min(rest.find(' '), rest.size());
      take(command, rest.substr(0, end));
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
  }
}

Status unknown_command(const std::string& name) {
  std::vector<std::string> names;
  each_name([&](const Command&, std::string_view known) { names.emplace_back(known); });
  return error(Code::kInvalidArgument, "unknown command %.40s%s; /help lists the commands",
               name.c_str(), did_you_mean(name, names).c_str());
}

class Chat {
 public:
  Chat(ChatOptions options, Signals& signals) : options_(std::move(options)), signals_(signals) {}
  Status open();
  int run();

 private:
  enum class After : uint8_t { kGoOn, kQuit };
  After interrupted(const LineReader& reader);
  Status command(const std::string& line, After* after);
  void set_system(const std::string& text);
  Status add_picture(const std::string& file);
  void forget_picture(const std::string& file);
  void print_stats() const;
  Status answer(const std::string& text);
  Status generate(const chat::Prompt& prompt, std::span<const session::Token> tokens);
  void print_header() const;
  void print_commands() const;
  void end_answer(const generate::Generation& generation);
  [[nodiscard]] Status explained(const Status& status) const;

  ChatOptions options_;
  Signals& signals_;
  std::optional<chat::Template> template_;
  std::optional<chat::AnswerFormat> format_;
  LoadedModels speakers_;
  std::unique_ptr<native::PictureFile> pictures_;  // null: the model takes none
  std::vector<Message> messages_;
  std::vector<std::string> next_pictures_;  // files, for the next message
  PictureFiles shown_;                      // of the conversation and the next message
  generate::Counts last_;
  TextOutput output_;
  uint64_t answers_ = 0;
  bool asked_to_end_ = false;  // Ctrl-C was pressed once at the prompt
};

// --- the model

Status Chat::open() {
  if (options_.common.json) {
    return error(Code::kInvalidArgument, "chat has no --json; use run or serve");
  }
  Result<uint64_t> seed = read_seed(options_.seed);
  if (!seed.ok()) return seed.status();
  options_.generation.sampling.seed = *seed;
  options_.generation.max_tokens = options_.n;
  SLUICE_RETURN_IF_ERROR(
      sample::validate(options_.generation.sampling, std::numeric_limits<session::Token>::max()));
  SLUICE_RETURN_IF_ERROR(options_.chat_template.read());
  Result<native::LoadOptions> load = load_options(options_.common);
  if (!load.ok()) return load.status();
  chat::ModelTexts texts;
  load->on_header = [&texts](const gguf::Header& header) { texts = chat::read_texts(header); };
  auto pictures = open_pictures(options_.pictures, options_.common.model,
                                !options_.pictures.images.empty(), &*load);
  if (!pictures.ok()) return pictures.status();
  pictures_ = std::move(*pictures);
  Result<native::DraftPair> opened = open_models(options_.common.model, options_.drafting, *load);
  if (!opened.ok()) return opened.status();
  speakers_.models = std::move(*opened);
  if (pictures_ != nullptr) pictures_->attach(*speakers_.models.model);
  Result<chat::Template> chat = options_.chat_template.parse(texts);
  if (!chat.ok()) return chat.status();
  template_.emplace(std::move(*chat));
  if (options_.needs_template && template_->is_default()) {
    return error(Code::kPromptEmpty,
                 "the model has no chat template to begin a conversation with: give a prompt after "
                 "MODEL or with --prompt, or use sluice chat");
  }
  format_.emplace(template_->source(),
                  chat::control_tokens(speakers_.models.model->engine().tokenizer()));
  SLUICE_RETURN_IF_ERROR(open_sessions(speakers_, options_.drafting, &options_.generation));
  SLUICE_RETURN_IF_ERROR(options_.remembering.open(*speakers_.models.model));
  SLUICE_RETURN_IF_ERROR(show_preload(*speakers_.models.model, options_.quiet));
  if (!options_.system.empty()) set_system(options_.system);
  for (const std::string& file : options_.pictures.images) {
    SLUICE_RETURN_IF_ERROR(add_picture(file));
  }
  signals_.handle([this] {
    speakers_.models.model->wake();
    if (speakers_.models.draft) speakers_.models.draft->wake();
  });
  return {};
}

// --- lines

int Chat::run() {
  LineReader reader(signals_, "> ");
  int failures = 0;
  if (reader.interactive() && !options_.quiet) {
    print_header();
  } else if (template_->is_default()) {
    std::fprintf(stderr, "sluice: %s\n", kNoTemplate);
  }
  std::string message;
  while (!signals_.terminated()) {
    std::string line;
    const Input input = reader.read(&line);
    if (input == Input::kEnd && reader.interactive()) std::printf("\n");
    if (input == Input::kEnd && message.empty()) break;
    if (input == Input::kInterrupted) {
      message.clear();
      if (interrupted(reader) == After::kQuit) return finish_output(130);
      continue;
    }
    asked_to_end_ = false;
    if (input == Input::kLine && line.ends_with('\\')) {
      message += line.substr(0, line.size() - 1) + "\n";
      if (message.size() <= kMaxLine) continue;
    }
    message += line;
    Status status;
    After after = After::kGoOn;
    if (input == Input::kTooLong || message.size() > kMaxLine) {
      status = error(Code::kInvalidArgument, "a message may have at most %zu bytes", kMaxLine);
    } else if (is_command(message)) {
      status = command(message, &after);
    } else if (!message.empty()) {
      status = answer(message.substr(message.starts_with("//") ? 1 : 0));
    }
    message.clear();
    if (!status.ok()) fail(status);
    if (!status.ok() && !reader.interactive()) ++failures;
    if (after == After::kQuit || std::ferror(stdout) != 0) break;
  }
  if (signals_.terminated()) return finish_output(130);
  return finish_output(failures > 0 ? 1 : 0);
}

void Chat::print_header() const {
  const session::Engine& engine = speakers_.models.model->engine();
  const session::MemoryPlan& plan = engine.plan();
  const model::HParams& hp = engine.program().hp;
  const std::string name =
      hp.name.empty() ? io::public_source(options_.common.model) : std::string(hp.name);
  native::Model* const draft = speakers_.models.draft.get();
  const uint64_t draft_total = draft != nullptr ? draft->engine().plan().total() : 0;
  std::printf("%s (%s), context %d tokens, memory %s", gguf::printable(name, 256).c_str(),
              gguf::printable(hp.arch).c_str(), plan.context.n_ctx,
              human_bytes(plan.total() + draft_total).c_str());
  if (!options_.common.memory_budget.empty()) {
    std::printf(" of a budget of %s", shown(options_.common.memory_budget).c_str());
  }
  std::printf("\n%s\n/? lists the commands.\n",
              options_.chat_template.given() ? "chat template: from the command line"
              : template_->is_default()      ? kNoTemplate
                                             : "chat template: the model's");
}

void Chat::print_commands() const {
  for (const Command& command : kCommands) std::printf("%-19s %s\n", command.usage, command.help);
  std::printf("%s", kHelp);
}

Chat::After Chat::interrupted(const LineReader& reader) {
  signals_.clear();
  if (reader.interactive()) std::printf("\n");
  if (asked_to_end_ || signals_.terminated() || !reader.interactive()) return After::kQuit;
  asked_to_end_ = true;
  std::printf("(press Ctrl-C again to quit)\n");
  return After::kGoOn;
}

Status Chat::command(const std::string& line, After* after) {
  const size_t end = std::min(line.find(' '), line.size());
  const std::string name = line.substr(0, end);
  const size_t begin = std::min(line.find_first_not_of(' ', end), line.size());
  const std::string rest = line.substr(begin, line.find_last_not_of(' ') + 1 - begin);
  std::string_view known;
  each_name([&](const Command& command, std::string_view each) {
    if (each == name) known = command.name;
  });
  if ((known == "/save" || known == "/load" || known == "/image") && rest.empty()) {
    return error(Code::kInvalidArgument, "%s needs a file name", name.c_str());
  }
  if (known == "/bye") {
    *after = After::kQuit;
  } else if (known == "/help") {
    print_commands();
  } else if (known == "/stats") {
    print_stats();
  } else if (known == "/clear") {
    const bool keeps = !messages_.empty() && messages_[0].role == "system";
    messages_.resize(keeps ? 1 : 0);
    next_pictures_.clear();
    shown_.clear();
  } else if (known == "/image") {
    return add_picture(rest);
  } else if (known == "/system" && !rest.empty()) {
    set_system(rest);
  } else if (known == "/system") {
    const bool set = !messages_.empty() && messages_[0].role == "system";
    std::printf("%s\n", set ? shown(messages_[0].content).c_str() : "(none)");
  } else if (known == "/save") {
    return save(messages_, rest, options_.common.model);
  } else if (known == "/load") {
    Result<std::vector<Message>> loaded = load(rest);
    if (!loaded.ok()) return loaded.status();
    messages_ = std::move(*loaded);
    shown_.clear();
    std::printf("%zu messages\n", messages_.size());
  } else {
    return unknown_command(name);
  }
  std::fflush(stdout);
  return {};
}

void Chat::set_system(const std::string& text) {
  if (messages_.empty() || messages_[0].role != "system") {
    messages_.insert(messages_.begin(), Message{"system", {}, {}});
  }
  messages_[0].content = text;
}

Status Chat::add_picture(const std::string& file) {
  if (pictures_ == nullptr) return no_pictures();
  const Result<media::DecodeOptions> decoding = options_.pictures.decoding();
  if (!decoding.ok()) return decoding.status();
  Result<std::vector<uint8_t>> bytes = native::read_picture_file(file);
  if (!bytes.ok()) return bytes.status();
  if (const auto found = shown_.find(file); found != shown_.end() && found->second != *bytes) {
    return error(Code::kInvalidArgument,
                 "%.256s is not the picture that the conversation shows by this name: rename it",
                 file.c_str());
  }
  const Result<media::ImageInfo> image = media::image_info(*bytes, *decoding);
  if (!image.ok()) {
    return error(image.status().code(), "%.256s: %s", file.c_str(),
                 image.status().message().c_str());
  }
  const auto plan = pictures_->pictures().plan(image->width, image->height);
  if (!plan.ok()) return plan.status();
  next_pictures_.push_back(file);
  shown_[file] = std::move(*bytes);
  if (options_.quiet) return {};
  std::printf("%u x %u pixels, %u tokens, for the next message\n", image->width, image->height,
              plan->n_tokens);
  std::fflush(stdout);
  return {};
}

// Unless a message shows it.
void Chat::forget_picture(const std::string& file) {
  for (const Message& message : messages_) {
    if (std::ranges::find(message.pictures, file) != message.pictures.end()) return;
  }
  shown_.erase(file);
}

void Chat::print_stats() const {
  const session::Engine& engine = speakers_.models.model->engine();
  const session::MemoryPlan& plan = engine.plan();
  std::printf("%zu messages, %d of %d tokens of the context\n", messages_.size(),
              speakers_.session->position(), plan.context.n_ctx);
  if (answers_ > 0) {
    std::printf("last response: prompt %d tokens, %d of them cached, the rest at %.1f tok/s; ",
                last_.prompt, last_.cached, last_.prompt_tokens_per_second());
    std::printf("generated %d tokens at %.1f tok/s\n", last_.generated, last_.tokens_per_second());
  }
  if (last_.drafted > 0) {
    std::printf("drafted %d tokens, accepted %d, in %d forward passes\n", last_.drafted,
                last_.accepted, last_.passes);
  }
  std::printf("memory %s, kernels %s, %d threads\n", human_bytes(plan.total()).c_str(),
              engine.table().name, plan.threads.n_threads);
}

// --- responses

Status Chat::answer(const std::string& text) {
  messages_.push_back({"user", text, {}, std::move(next_pictures_)});
  next_pictures_.clear();
  const std::string messages = to_json(messages_);
  chat::Request request;
  request.messages = messages;
  request.pictures = pictures_ != nullptr;
  Status status;
  const Result<chat::Prompt> prompt = template_->render(request);
  if (prompt.ok()) {
    const auto tokens = tokens_of(*prompt, speakers_.models.model->engine().tokenizer(),
                                  pictures_.get(), options_.pictures, &shown_);
    status = tokens.ok() ? generate(*prompt, *tokens) : tokens.status();
  } else {
    status = prompt.status();
  }
  if (pictures_ != nullptr) {
    const Status ended = pictures_->end();
    if (status.ok()) status = ended;
  }
  if (messages_.back().role == "user") {  // no response was generated
    std::vector<std::string> pictures = std::move(messages_.back().pictures);
    messages_.pop_back();
    const bool failed = !status.ok() && !signals_.interrupted();
    if (failed && !pictures.empty()) {  // which would fail again with every message
      for (const std::string& file : pictures) forget_picture(file);
      status = error(status.code(), "%s; the next message has no picture, unless /image names one",
                     status.message().c_str());
    } else {
      next_pictures_ = std::move(pictures);
    }
  }
  signals_.clear();
  return explained(status);
}

Status Chat::generate(const chat::Prompt& prompt, std::span<const session::Token> tokens) {
  generate::Options options = options_.generation;
  options.sampling.seed += answers_;
  options.stop.insert(options.stop.end(), prompt.stop.begin(), prompt.stop.end());
  const Result<chat::AnswerPlan> plan = format_->plan({}, prompt);
  if (!plan.ok()) return plan.status();
  options.special = plan->show_control_tokens;
  if (speakers_.session->position() == 0) options_.remembering.recall(*speakers_.session, tokens);
  if (!prompt.pictures.empty()) {
    SLUICE_RETURN_IF_ERROR(pictures_->encode(*speakers_.session, tokens, &options,
                                             [this] { return signals_.interrupted(); }));
  }
  auto generation = generate::Generation::begin(*speakers_.session, tokens, options);
  if (!generation.ok()) return generation.status();
  chat::AnswerReader reader = plan->reader(0);
  Message answer{"assistant", {}, {}};
  bool lost = false;
  const auto take = [&](const chat::AnswerPart& part) {
    answer.thought += part.reasoning;
    answer.content += part.content;
    lost = lost || !output_.show_reasoning(part.reasoning) || !output_.show_content(part.content);
  };
  const Status status = drive_answer(speakers_.models, **generation,
                                     [&](std::string_view text, session::Token token) {
                                       if (!text.empty()) take(reader.push(text, token));
                                       return !lost && !signals_.interrupted();
                                     });
  take(reader.finish());
  end_answer(**generation);
  options_.remembering.keep(*speakers_.session);
  if (!answer.content.empty() || !answer.thought.empty()) messages_.push_back(std::move(answer));
  return status;
}

void Chat::end_answer(const generate::Generation& generation) {
  output_.end();
  last_ = generation.counts();
  ++answers_;
  if (!options_.quiet) output_.note(rate_of(last_));
  if (generation.finish() == generate::Finish::kContext) {
    fail(explained(error(Code::kContextFull, "full")));
  }
}

Status Chat::explained(const Status& status) const {
  const bool full = status.code() == Code::kPromptTooLong || status.code() == Code::kContextFull;
  if (!full) return status;
  return error(Code::kContextFull,
               "the conversation fills the context of %d tokens: use /clear to start a new one, or "
               "a larger --ctx",
               speakers_.models.model->engine().plan().context.n_ctx);
}

}  // namespace

int run_chat(const ChatOptions& options) {
  Signals signals;
  Chat chat(options, signals);
  const Status opened = chat.open();
  const int status = opened.ok() ? chat.run() : fail(opened);
  signals.handle([] {});
  return status;
}

void add_chat_options(CLI::App& app, ChatOptions& options) {
  add_common(app, options.common);
  add_lora(app, options.common);
  app.add_option("--system", options.system, "system message (default: none)");
  add_sampling(app, options.generation.sampling, options.seed);
  app.add_option("--stop", options.generation.stop,
                 "stop at this text; may be repeated (default: none)")
      ->allow_extra_args(false);  // one text per option, verbatim: "[a,b]" is not a list
  app.add_flag("--ignore-eos", options.generation.ignore_eos,
               "continue after the end-of-text token (default: off)");
  add_chat_template_options(app, options.chat_template);
  add_drafting(app, options.drafting);
  add_remembering(app, options.remembering);
  add_pictures(app, options.pictures, /*with_images=*/true);
}

void add_chat(CLI::App& app, int* status) {
  auto options = std::make_shared<ChatOptions>();
  CLI::App* sub = add_command(app, kUse, "chat", "Hold a conversation in the terminal",
                              "sluice chat model.gguf --system \"Be brief.\"");
  add_chat_options(*sub, *options);
  sub->add_option("-n,--n-predict", options->n,
                  "maximum tokens of a response; -1: as many as fit (default: -1)")
      ->check(whole_number(-1, std::numeric_limits<int32_t>::max()));
  add_quiet(*sub, options->quiet, "show no header and progress, and no rate below responses");
  sub->callback([options, status] { *status = run_chat(*options); });
}

}  // namespace sluice::cli
