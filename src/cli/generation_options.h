// What `run` and `chat` share: opening a model with the one that drafts for it, options of
// sampling, and driving one answer to its end.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <string_view>

#include "generate/draft_model.h"
#include "generate/generation.h"
#include "generate/nextn_draft.h"
#include "native/draft_pair.h"
#include "native/prompt_cache.h"

namespace sluice::cli {

struct DraftOptions {
  std::string choice = "off";  // ngram, nextn, or a model
  int most = -1;               // guesses in one pass; -1: chosen
};

// Where prompts outlive the process, if anywhere.
struct PromptCacheOptions {
  std::string directory, size;  // "" for both: nowhere, the default
  std::optional<native::PromptCache> cache;

  // Errors: PromptCache::open's, parse_size's.
  [[nodiscard]] Status open(native::Model& model);
  // What is saved of the prompt, into the session; and what the session holds, to the directory.
  // What cannot be read or written is said on standard error.
  void recall(session::Session& session, std::span<const session::Token> prompt);
  void keep(const session::Session& session);
};
void add_remembering(CLI::App& app, PromptCacheOptions& remembering);

// --temp, --top-k, … --seed, which is kept as text for sample::parse_seed.
void add_sampling(CLI::App& app, sample::Params& params, std::string& seed);
void add_drafting(CLI::App& app, DraftOptions& drafting);

// Models with a session each; they outlive what is generated on them.
struct LoadedModels {
  native::DraftPair models;
  std::unique_ptr<session::Session> session, draft;
  std::unique_ptr<generate::ModelDraftSource> drafts;  // of the draft, or of a head of the model
};

// Opens the models. Errors: Model::open's, open_pair's.
[[nodiscard]] Result<native::DraftPair> open_models(const std::string& model,
                                                    const DraftOptions& drafting,
                                                    native::LoadOptions load);
// Begins a session on each, and says in `options` how to draft. Errors: Session::create's.
[[nodiscard]] Status open_sessions(LoadedModels& speakers, const DraftOptions& drafting,
                                   generate::Options* options);

// A bar on standard error, for Model::preload.
void draw_progress(void*, uint64_t loaded, uint64_t total);

// Drives a generation to its end and hands over its text as it becomes certain. `text` returns
// false to end it there. An interrupted one is cancelled, which is no error here.
[[nodiscard]] Status drive_answer(native::DraftPair& models, generate::Generation& generation,
                                  const std::function<bool(std::string_view)>& text);

}  // namespace sluice::cli
