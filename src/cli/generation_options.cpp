// Options, sessions and the loop around a generation, shared by `run` and `chat`.
#include "cli/generation_options.h"

#include <cstdio>

#include "base/random.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "generate/context_warning.h"
#include "platform/console.h"

namespace sluice::cli {

using options::find;

void add_sampling(CLI::App& app, sample::Params& s, std::string& seed) {
  add_known(app, find("temperature"), s.temperature);
  add_known(app, find("top_k"), s.top_k);
  add_known(app, find("top_p"), s.top_p);
  add_known(app, find("min_p"), s.min_p);
  add_known(app, find("repeat_penalty"), s.repeat_penalty);
  add_known(app, find("frequency_penalty"), s.frequency_penalty);
  add_known(app, find("presence_penalty"), s.presence_penalty);
  add_known(app, find("penalty_last_n"), s.penalty_last_n);
  const auto seed_problem = [](const std::string& text) -> std::string {
    const Result<uint64_t> parsed = sample::parse_seed(text);
    return parsed.ok() ? std::string() : parsed.status().message();
  };
  add_known(app, find("seed"), seed)->check(CLI::Validator(seed_problem, ""));
}

Result<uint64_t> read_seed(const std::string& text) {
  if (text.empty()) return random_seed();
  return sample::parse_seed(text);
}

void add_drafting(CLI::App& app, DraftOptions& drafting) {
  add_known(app, find("draft"), drafting.choice);
  add_known(app, find("draft_max"), drafting.most);
}

void add_remembering(CLI::App& app, PromptCacheOptions& remembering) {
  app.add_option("--prompt-cache-dir", remembering.directory,
                 "directory of the prompt cache: later prompts with the same prefix reuse its KV "
                 "cache (default: none)");
  app.add_option("--prompt-cache-size", remembering.size,
                 "maximum bytes of the prompt cache, such as 4G (default: 1G)");
}

void add_chat_template_options(CLI::App& app, ChatTemplateOptions& options) {
  const auto problem = [](const std::string& text) -> std::string {
    if (text.find('{') != std::string::npos) return {};
    return "\"" + text.substr(0, 32) + "\" is not a Jinja template, since it has no {";
  };
  CLI::Option* const text =
      app.add_option("--chat-template", options.text,
                     "chat template: the text of a Jinja template (default: the model's)")
          ->check(CLI::Validator(problem, ""));
  app.add_option("--chat-template-file", options.file,
                 "file with such a chat template (default: none)")
      ->excludes(text);
}

Status ChatTemplateOptions::read() {
  if (!file.empty()) {
    Result<std::string> read = read_text(file);
    if (!read.ok()) return read.status();
    text = std::move(*read);
    if (text.empty()) {
      return error(Code::kInvalidArgument, "the chat template file \"%.256s\" is empty",
                   file.c_str());
    }
  }
  return text.empty() ? Status() : chat::Template::create({}, text).status();
}

Result<chat::Template> ChatTemplateOptions::parse(const chat::ModelTexts& texts) const {
  return text.empty() ? chat::Template::create(texts) : chat::Template::create(texts, text);
}

Status PromptCacheOptions::open(native::Model& model) {
  uint64_t most = native::kDefaultPromptCacheBytes;
  if (!size.empty()) {
    const Result<uint64_t> given = parse_size(size);
    if (!given.ok()) return given.status();
    most = *given;
  }
  if (directory.empty()) {
    if (size.empty()) return {};
    return error(Code::kInvalidArgument, "--prompt-cache-size needs --prompt-cache-dir");
  }
  Result<native::PromptCache> opened = native::PromptCache::open(directory, most, model);
  if (!opened.ok()) return opened.status();
  cache.emplace(std::move(*opened));
  return {};
}

void PromptCacheOptions::recall(session::Session& session, std::span<const session::Token> prompt) {
  if (!cache) return;
  const Result<int32_t> found = cache->restore(session, prompt);
  if (!found.ok()) fail(found.status());
}

void PromptCacheOptions::keep(const session::Session& session) {
  if (!cache) return;
  const Status saved = cache->save(session);
  if (!saved.ok()) fail(saved);
}

Result<native::DraftPair> open_models(const std::string& model, const DraftOptions& drafting,
                                      native::LoadOptions load) {
  load.engine.draft_max = drafting.choice == "off" ? 0 : drafting.most;
  load.engine.nextn = drafting.choice == "nextn";
  if (drafting.choice != "off" && drafting.choice != "ngram" && !load.engine.nextn) {
    return native::open_pair(model, drafting.choice, load);
  }
  Result<std::unique_ptr<native::Model>> opened = native::Model::open(model, load);
  if (!opened.ok()) return opened.status();
  native::DraftPair out;
  out.model = std::move(*opened);
  return out;
}

Status open_sessions(LoadedModels& speakers, const DraftOptions& drafting,
                     generate::Options* options) {
  auto session = session::Session::create(speakers.models.model->engine().context());
  if (!session.ok()) return session.status();
  speakers.session = std::move(*session);
  if (speakers.models.draft) {
    auto second = session::Session::create(speakers.models.draft->engine().context());
    if (!second.ok()) return second.status();
    speakers.draft = std::move(*second);
    speakers.drafts = std::make_unique<generate::DraftModel>(*speakers.draft);
  } else if (session::NextnHead* head = speakers.models.model->engine().nextn()) {
    speakers.drafts = std::make_unique<generate::NextnDraft>(*head);
  }
  options->drafts.ngram = drafting.choice != "off";
  options->drafts.model = speakers.drafts.get();
  return {};
}

Status show_preload(native::Model& model, bool quiet) {
  if (quiet || !platform::is_terminal(platform::Stream::kErrors)) return {};
  Progress progress("loading", Unit::kBytes, quiet);
  const auto update = [](void* context, uint64_t loaded, uint64_t total) {
    static_cast<Progress*>(context)->update(loaded, total);
  };
  return model.preload(update, &progress);
}

Status drive_answer(native::DraftPair& models, generate::Generation& generation,
                    const TakeToken& take) {
  Status waited;
  Status status = models.model->drive([&](int32_t max_ops) {
    session::Step step = generation.step(max_ops);
    if (step == session::Step::kBlocked && generation.drafting() && models.draft) {
      waited = models.draft->wait();
      step = waited.ok() ? session::Step::kProgress : session::Step::kDone;
    }
    const std::vector<generate::Piece> pieces = generation.take_pieces();
    bool wanted = !pieces.empty() || take({}, -1);
    for (const generate::Piece& piece : pieces) wanted = wanted && take(piece.text, piece.token);
    if (!wanted) {
      generation.cancel();
      return session::Step::kDone;
    }
    return step;
  });
  if (status.ok()) status = waited;
  if (!status.ok()) generation.cancel();
  const std::string warning =
      generate::context_warning(generation.counts(), models.model->engine().plan());
  if (!warning.empty()) std::fprintf(stderr, "sluice: %s\n", warning.c_str());
  if (!status.ok() && status.code() != Code::kAborted) return status;
  return generation.failure();
}

}  // namespace sluice::cli
