// `sluice run`: generates text from a prompt and streams it, with a progress bar and rates on a
// terminal. With a chat template, the prompt is a user's message, and the response is read as
// `sluice chat` does.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <nlohmann/json.hpp>

#include "chat/answer.h"
#include "cli/atomic_file.h"
#include "cli/chat.h"
#include "cli/conversation.h"
#include "cli/expert_trace.h"
#include "cli/terminal.h"
#include "platform/console.h"

namespace sluice::cli {
namespace {

using generate::Finish;
using generate::Generation;

constexpr int kUnset = -2;  // no --n-predict
constexpr int kCompletionTokens = 128;

struct RunOptions : ChatOptions {
  std::string word, prompt, prompt_file;  // PROMPT, --prompt, --file
  bool prompted = false;                  // one of them was given
  std::string grammar, schema;
  std::string record_experts;
  bool raw = false, no_display_prompt = false;
};

// Ctrl-C while the model generates stops it in order. Before that, and at a second Ctrl-C, the
// process ends at once, since a read of standard input or from a server may block forever.
class InterruptWatch {
 public:
  // From now on the first signal interrupts `model`, which must outlive the watch.
  void watch(native::Model& model) { model_ = &model; }

 private:
  void interrupt() {
    native::Model* model = model_.exchange(nullptr);
    if (model == nullptr) {
      end_interrupted();
    }
    model->interrupt();
  }
  std::atomic<native::Model*> model_{nullptr};
  platform::SignalThread signals_{[this](bool) { interrupt(); }};
};

const char* finish_name(Finish finish) {
  switch (finish) {
    case Finish::kStop:
      return "stop";
    case Finish::kContext:
      return "context";
    case Finish::kCancelled:
      return "aborted";
    default:
      return "length";
  }
}

void print_rates(const native::Model& model, const Generation& generation) {
  const generate::Counts& counts = generation.counts();
  std::fprintf(stderr, "prompt %d tokens, %.1f tok/s | generated %d tokens, %.1f tok/s",
               counts.prompt, counts.prompt_tokens_per_second(), counts.generated,
               counts.tokens_per_second());
  if (counts.drafted > 0) {
    std::fprintf(stderr, " | drafted %d, accepted %d, %d forward passes", counts.drafted,
                 counts.accepted, counts.passes);
  }
  if (model.wait_ms() >= 1) std::fprintf(stderr, " | waited %.0f ms for weights", model.wait_ms());
  if (generation.finish() == Finish::kLength) std::fprintf(stderr, " | stopped by --n-predict");
  if (generation.finish() == Finish::kContext) std::fprintf(stderr, " | the context is full");
  std::fputc('\n', stderr);
}

nlohmann::json outcome_json(const native::DraftPair& models, const Generation& generation,
                            const std::string& text) {
  native::Model& model = *models.model;
  const session::MemoryPlan* const draft = models.draft ? &models.draft->engine().plan() : nullptr;
  const uint64_t draft_budget = draft != nullptr ? draft->budget.bytes : 0;
  const uint64_t draft_total = draft != nullptr ? draft->total() : 0;
  const session::MemoryPlan& plan = model.engine().plan();
  const generate::Counts& counts = generation.counts();
  const session::EmbeddingRowCache& rows = model.engine().working().embedding_row_cache(0);
  const session::HeadCounts& head = model.engine().approximate().head;
  const session::ExitCounts& exits = model.engine().approximate().exits;
  return {{"text", text},
          {"finishReason", finish_name(generation.finish())},
          {"promptTokens", counts.prompt},
          {"promptMs", counts.prompt_ms},
          {"promptTokensPerSecond", counts.prompt_tokens_per_second()},
          {"generatedTokens", counts.generated},
          {"forcedTokens", counts.forced},
          {"generateMs", counts.generate_ms},
          {"tokensPerSecond", counts.tokens_per_second()},
          {"draftedTokens", counts.drafted},
          {"acceptedTokens", counts.accepted},
          {"forwardPasses", counts.passes},
          {"waitMs", model.wait_ms()},
          {"bytesFetched", model.bytes_fetched()},
          {"bytesFromCache", model.bytes_from_cache()},
          {"bytesRead", model.engine().residency().counts().filled_bytes},
          {"expertHits", model.engine().residency().counts().expert_hits},
          {"expertMisses", model.engine().residency().counts().expert_misses},
          {"expertBytesRead", model.engine().residency().counts().expert_missed_bytes},
          {"embeddingCacheHits", rows.found()},
          {"embeddingCacheMisses", rows.read()},
          {"clusteredHeadRows", head.rows},
          {"clusteredHeadKnown", head.known},
          {"clusteredHeadProducts", head.products},
          {"earlyExitRows", exits.rows},
          {"earlyExitLeft", exits.left},
          {"earlyExitLayers", exits.layers},
          {"kernels", model.engine().table().name},
          {"threads", model.engine().pool().n_threads()},
          {"memory",
           {{"budget", plan.budget.bytes + draft_budget},
            {"total", plan.total() + draft_total},
            {"draft", draft_total},
            {"weights", plan.weights.pinned_bytes + plan.weights.ring_bytes()},
            {"kv", plan.bytes.kv},
            {"activations", plan.bytes.activations},
            {"tokenizer", plan.bytes.tokenizer}}}};
}

// Checks the options before a model is opened.
Status check(RunOptions& options) {
  Result<uint64_t> seed = read_seed(options.seed);
  if (!seed.ok()) return seed.status();
  options.generation.sampling.seed = *seed;
  SLUICE_RETURN_IF_ERROR(
      sample::validate(options.generation.sampling, std::numeric_limits<session::Token>::max()));
  if (const bool gbnf = !options.grammar.empty(); gbnf || !options.schema.empty()) {
    const auto kind = gbnf ? grammar::Kind::kGbnf : grammar::Kind::kJsonSchema;
    Result<std::string> text = read_constraint(kind, gbnf ? options.grammar : options.schema);
    if (!text.ok()) return text.status();
    options.generation.constraint = {kind, std::move(*text), {}};
  }
  if (!options.word.empty()) options.prompt = options.word;
  if (options.prompt == "-" || !options.prompt_file.empty()) {
    Result<std::string> text =
        read_text(options.prompt_file.empty() ? options.prompt : options.prompt_file);
    if (!text.ok()) return text.status();
    options.prompt = std::move(*text);
  }
  if (options.prompt.empty()) {
    return error(Code::kPromptEmpty,
                 "the prompt is empty: write it after MODEL, as in sluice run "
                 "MODEL \"Hello\"");
  }
  return options.chat_template.read();
}

// The first of the options that only a prompt gives a sense to; "": none.
const char* needs_prompt(const RunOptions& options) {
  if (options.raw) return "--raw";
  if (!options.record_experts.empty()) return "--record-experts";
  if (options.common.json) return "--json";
  if (!options.grammar.empty()) return "--grammar";
  return options.schema.empty() ? "" : "--json-schema";
}

// Without a prompt, a conversation.
int converse(ChatOptions options) {
  if (options.n == kUnset) options.n = -1;
  options.needs_template = !options.chat_template.given();
  return run_chat(options);
}

Result<chat::Template> parse_template(const RunOptions& options, const chat::ModelTexts& texts) {
  Result<chat::Template> out = options.chat_template.parse(texts);
  if (out.ok() || options.chat_template.given()) return out;
  return error(out.status().code(), "%s; --raw continues the prompt without the template",
               out.status().message().c_str());
}

// The prompt with a mark for each picture. Those without a mark come first.
std::string with_marks(const std::string& prompt, size_t pictures) {
  size_t marks = 0;
  for (size_t at = 0; (at = prompt.find(media::kMediaMark, at)) != std::string::npos; ++at) ++marks;
  std::string out;
  for (; marks < pictures; ++marks) out += media::kMediaMark;
  return out + prompt;
}

// The conversation of a prompt as JSON. With pictures, each mark in the prompt is the next one.
Result<std::string> messages_of(const RunOptions& options) {
  std::vector<Message> conversation;
  if (!options.system.empty()) conversation.push_back({"system", options.system, {}});
  conversation.push_back({"user", options.prompt, {}});
  const std::vector<std::string>& images = options.pictures.images;
  if (images.empty()) return to_json(conversation);
  const std::string prompt = with_marks(options.prompt, images.size());
  nlohmann::json parts = nlohmann::json::array();
  size_t n = 0;
  for (size_t at = 0;; ++n) {
    const size_t mark = prompt.find(media::kMediaMark, at);
    if (mark != at && at < prompt.size()) {
      parts.push_back({{"type", "text"}, {"text", prompt.substr(at, mark - at)}});
    }
    if (mark == std::string::npos) break;
    if (n == images.size()) {
      return error(Code::kInvalidArgument, "<__media__> occurs more often than --image");
    }
    parts.push_back({{"type", "image_url"}, {"image_url", {{"url", images[n]}}}});
    at = mark + media::kMediaMark.size();
  }
  nlohmann::json messages = nlohmann::json::parse(to_json(conversation));
  messages.back()["content"] = std::move(parts);
  return messages.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// The prompt's tokens. With a chat template, also sets what its format needs: stop strings, the
// constraint around reasoning, and a reader of the response.
Result<std::vector<session::Token>> prompt_tokens(const tokenizer::Tokenizer& tokenizer,
                                                  const chat::ModelTexts& texts,
                                                  native::PictureFile* pictures,
                                                  RunOptions& options,
                                                  std::optional<chat::AnswerReader>* reader) {
  generate::Options& generation = options.generation;
  generation.max_tokens = options.n == kUnset ? kCompletionTokens : options.n;
  const std::vector<std::string>& images = options.pictures.images;
  const auto plain = [&]() -> Result<std::vector<session::Token>> {
    if (pictures == nullptr) return tokenizer.encode(options.prompt);
    return read_prompt(*pictures, with_marks(options.prompt, images.size()), images,
                       options.pictures, {});
  };
  if (options.raw) return plain();
  const Result<chat::Template> chat = parse_template(options, texts);
  if (!chat.ok()) return chat.status();
  if (chat->is_default()) {
    if (options.system.empty()) return plain();
    return error(Code::kChatTemplate, "--system needs a chat template, which the model lacks");
  }
  Result<std::string> messages = messages_of(options);
  if (!messages.ok()) return messages.status();
  chat::Request request;
  request.messages = *messages;
  request.pictures = pictures != nullptr;
  const Result<chat::Prompt> prompt = chat->render(request);
  if (!prompt.ok()) return prompt.status();
  if (options.n == kUnset) generation.max_tokens = -1;
  chat::AnswerRequest wanted;
  wanted.can_constrain = !generation.constraint;
  const bool schema =
      generation.constraint && generation.constraint->kind == grammar::Kind::kJsonSchema;
  if (schema) wanted.response_schema = generation.constraint->text;
  const chat::AnswerFormat format(chat->source(), chat::control_tokens(tokenizer));
  const Result<chat::AnswerPlan> plan = format.plan(wanted, *prompt);
  if (!plan.ok()) return plan.status();
  if (!plan->grammar.empty()) generation.constraint = {grammar::Kind::kGbnf, plan->grammar, {}};
  generation.special = plan->show_control_tokens;
  generation.stop.insert(generation.stop.end(), prompt->stop.begin(), prompt->stop.end());
  reader->emplace(plan->reader(0));
  return tokens_of(*prompt, tokenizer, pictures, options.pictures);
}

// Streams the output, or collects it for JSON.
class RunOutput {
 public:
  RunOutput(bool stream, std::optional<chat::AnswerReader> reader)
      : stream_(stream), reader_(std::move(reader)) {}

  // Shows the prompt, which the output continues unless a template is between them.
  bool begin(const std::string& prompt) { return !stream_ || reader_ || screen_.write(prompt); }
  bool take(std::string_view piece, session::Token token) {
    if (piece.empty()) return true;
    if (reader_) return take(reader_->push(piece, token));
    text_ += piece;
    return !stream_ || screen_.write(piece);
  }
  void end() {
    if (reader_) take(reader_->finish());
    if (stream_) screen_.end();
  }
  [[nodiscard]] const std::string& text() const { return text_; }
  [[nodiscard]] const std::string* reasoning() const { return reader_ ? &reasoning_ : nullptr; }

 private:
  bool take(const chat::AnswerPart& part) {
    text_ += part.content;
    reasoning_ += part.reasoning;
    if (!stream_) return true;
    return screen_.show_reasoning(part.reasoning) && screen_.show_content(part.content);
  }

  const bool stream_;
  std::optional<chat::AnswerReader> reader_;
  TextOutput screen_;
  std::string text_, reasoning_;
};

Status write_experts(const RunOptions& options, const ExpertRecorder& recorder) {
  Result<AtomicFile> file = AtomicFile::create(options.record_experts, options.common.model);
  if (!file.ok()) return file.status();
  const std::string text = recorder.text();
  file->write(text.data(), text.size());
  return file->finish();
}

int run(RunOptions options) {
  if (!options.prompted) {
    const char* const name = needs_prompt(options);
    if (*name == '\0') return converse(options);
    return fail(error(Code::kPromptEmpty, "%s needs a prompt: write it after MODEL", name));
  }
  LoadedModels speakers;  // must outlive the watch
  InterruptWatch watch;
  if (Status s = check(options); !s.ok()) return fail(s);
  Result<native::LoadOptions> load = load_options(options.common);
  if (!load.ok()) return fail(load.status());
  load->engine.structured_output = options.generation.constraint.has_value();
  chat::ModelTexts texts;
  load->on_header = [&texts](const gguf::Header& header) { texts = chat::read_texts(header); };
  std::unique_ptr<native::PictureFile> pictures;  // null: the prompt has none
  if (!options.pictures.images.empty()) {
    auto found = open_pictures(options.pictures, options.common.model, /*needed=*/true, &*load);
    if (!found.ok()) return fail(found.status());
    pictures = std::move(*found);
  }
  Result<native::DraftPair> opened = open_models(options.common.model, options.drafting, *load);
  if (!opened.ok()) return fail(opened.status());
  speakers.models = std::move(*opened);
  native::Model* const model = speakers.models.model.get();
  if (pictures != nullptr) pictures->attach(*model);
  std::optional<chat::AnswerReader> reader;
  const auto encoded =
      prompt_tokens(model->engine().tokenizer(), texts, pictures.get(), options, &reader);
  if (!encoded.ok()) return fail(encoded.status());
  const std::vector<session::Token>& tokens = *encoded;
  if (Status s = open_sessions(speakers, options.drafting, &options.generation); !s.ok()) {
    return fail(s);
  }
  const bool stream = !options.common.json;
  const bool quiet = options.quiet || !stream;
  if (Status s = show_preload(*model, quiet); !s.ok()) return fail(s);
  if (Status s = options.remembering.open(*model); !s.ok()) return fail(s);
  watch.watch(*model);
  options.remembering.recall(*speakers.session, tokens);
  if (pictures != nullptr) {
    const Status encoded_all = pictures->encode(*speakers.session, tokens, &options.generation,
                                                [model] { return model->interrupted(); });
    if (!encoded_all.ok()) return fail(encoded_all);
  }
  ExpertRecorder recorder;
  session::Engine& engine = model->engine();
  if (!options.record_experts.empty()) {
    const Status attached = recorder.attach(engine.program(), *engine.context().executor);
    if (!attached.ok()) return fail(attached);
  }
  Result<std::unique_ptr<Generation>> generation =
      Generation::begin(*speakers.session, tokens, options.generation);
  if (!generation.ok()) return fail(generation.status());
  RunOutput output(stream, std::move(reader));
  Status status;
  if (output.begin(options.no_display_prompt ? std::string() : options.prompt)) {
    status = drive_answer(
        speakers.models, **generation,
        [&](std::string_view piece, session::Token token) { return output.take(piece, token); });
  }
  output.end();
  if (!stream && status.ok()) {
    nlohmann::json outcome = outcome_json(speakers.models, **generation, output.text());
    if (output.reasoning() != nullptr) outcome.push_back({"reasoning", *output.reasoning()});
    print_json(outcome);
  }
  if (!status.ok()) return fail(status);
  if (!options.record_experts.empty()) {
    if (Status s = write_experts(options, recorder); !s.ok()) return fail(s);
  }
  options.remembering.keep(*speakers.session);
  const bool aborted = model->interrupted() && (*generation)->finish() == Finish::kCancelled;
  const int ended = finish_output(aborted ? 130 : 0);
  if (!quiet && ended != 1) print_rates(*model, **generation);
  return ended;
}

}  // namespace

void add_run(CLI::App& app, int* status) {
  auto options = std::make_shared<RunOptions>();
  CLI::App* sub = add_command(app, kUse, "run", "Answer a prompt; without one, hold a conversation",
                              "sluice run model.gguf \"Why is the sky blue?\"");
  add_chat_options(*sub, *options);
  // After the options before, so that MODEL is the first positional argument.
  CLI::Option* const word = sub->add_option(
      "PROMPT", options->word,
      "prompt text; - reads standard input; a model with a chat template gets it as a user's "
      "message (default: hold a conversation)");
  CLI::Option* const prompt =
      sub->add_option("-p,--prompt", options->prompt, "the same as PROMPT (default: none)")
          ->excludes(word);
  CLI::Option* const file =
      sub->add_option("-f,--file", options->prompt_file,
                      "file with the prompt; - reads standard input (default: none)")
          ->excludes(prompt)
          ->excludes(word);
  options->n = kUnset;
  sub->add_option("-n,--n-predict", options->n,
                  "maximum tokens to generate; -1: as many as fit (default: 128; -1 with a chat "
                  "template)")
      ->check(whole_number(-1, std::numeric_limits<int32_t>::max()));
  sub->add_flag("--raw", options->raw,
                "continue the prompt as it is, without the chat template (default: off)")
      ->excludes("--system")
      ->excludes("--chat-template")
      ->excludes("--chat-template-file");
  sub->add_flag("--no-display-prompt", options->no_display_prompt,
                "do not print the prompt before its continuation (default: off)");
  CLI::Option* const grammar = sub->add_option(
      "--grammar", options->grammar,
      "GBNF grammar that the output must match, or a file with one (default: none)");
  sub->add_option("--json-schema", options->schema,
                  "JSON schema that the output must match, or a file with one (default: none)")
      ->excludes(grammar);
  sub->add_option("--record-experts", options->record_experts,
                  "write the experts that the router of a mixture chooses to this file, one line "
                  "per token (default: none)");
  add_quiet(*sub, options->quiet, "show no progress and no rates");
  sub->callback([=] {
    options->prompted = word->count() + prompt->count() + file->count() > 0;
    *status = run(*options);
  });
}

}  // namespace sluice::cli
