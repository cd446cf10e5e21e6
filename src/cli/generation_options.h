// Shared by `run` and `chat`: sampling, draft and chat template options, opening a model with its
// draft model, and driving one generation to its end.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <string_view>

#include "chat/template.h"
#include "generate/draft_model.h"
#include "generate/generation.h"
#include "generate/nextn_draft.h"
#include "native/draft_pair.h"
#include "native/prompt_cache.h"

namespace sluice::cli {

struct DraftOptions {
  std::string choice = "off";  // off, ngram, nextn, or a model
  int most = -1;               // maximum draft tokens per forward pass; -1: chosen
};

// The prompt cache on disk.
struct PromptCacheOptions {
  std::string directory, size;  // "": no prompt cache, and its default size
  std::optional<native::PromptCache> cache;

  // Opens the cache if a directory is set. Errors: those of PromptCache::open and parse_size.
  [[nodiscard]] Status open(native::Model& model);
  // recall() restores the longest cached prefix of the prompt into the session. keep() saves the
  // session's tokens. Both print failures on standard error and continue.
  void recall(session::Session& session, std::span<const session::Token> prompt);
  void keep(const session::Session& session);
};
void add_remembering(CLI::App& app, PromptCacheOptions& remembering);

// A chat template in place of the model's.
struct ChatTemplateOptions {
  std::string text, file;  // "": not given

  [[nodiscard]] bool given() const { return !text.empty() || !file.empty(); }
  // Reads the file and parses the template, before a model is loaded. Errors: kNotFound,
  // kInvalidArgument for an empty file, kChatTemplate.
  [[nodiscard]] Status read();
  // The given template, or the model's. Errors: Template::create's.
  [[nodiscard]] Result<chat::Template> parse(const chat::ModelTexts& texts) const;
};
void add_chat_template_options(CLI::App& app, ChatTemplateOptions& options);

// Adds --temp, --top-k, … and --seed. The seed is kept as text for read_seed().
void add_sampling(CLI::App& app, sample::Params& params, std::string& seed);
// The seed of an option; "": a random one.
[[nodiscard]] Result<uint64_t> read_seed(const std::string& text);
void add_drafting(CLI::App& app, DraftOptions& drafting);

// Models with one session each. Must outlive the generations that use them.
struct LoadedModels {
  native::DraftPair models;
  std::unique_ptr<session::Session> session, draft;
  std::unique_ptr<generate::ModelDraftSource> drafts;  // from the draft model or the MTP head
};

// Opens the model, and the draft model if there is one. Errors: those of Model::open and open_pair.
[[nodiscard]] Result<native::DraftPair> open_models(const std::string& model,
                                                    const DraftOptions& drafting,
                                                    native::LoadOptions load);
// Creates a session per model and sets the draft source in `options`. Errors: Session::create's.
[[nodiscard]] Status open_sessions(LoadedModels& speakers, const DraftOptions& drafting,
                                   generate::Options* options);

// Loads the weights that stay in memory, with progress on a terminal. Without a terminal or with
// `quiet`, does nothing: weights are loaded as they are needed. Errors: Model::preload's.
[[nodiscard]] Status show_preload(native::Model& model, bool quiet);

// Runs a generation to its end and passes its tokens to `take` as they are emitted, with their
// text. An empty text and -1 ask whether to go on. `take` returns false to stop. An interrupt
// cancels the generation, which is not an error here.
using TakeToken = std::function<bool(std::string_view text, session::Token token)>;
[[nodiscard]] Status drive_answer(native::DraftPair& models, generate::Generation& generation,
                                  const TakeToken& take);

}  // namespace sluice::cli
