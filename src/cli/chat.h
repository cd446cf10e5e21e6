// `sluice chat`, which `sluice run` without a prompt becomes.
#pragma once

#include <string>

#include "cli/cli.h"
#include "cli/generation_options.h"
#include "cli/pictures.h"

namespace sluice::cli {

struct ChatOptions {
  Common common;
  DraftOptions drafting;
  PromptCacheOptions remembering;
  ChatTemplateOptions chat_template;
  PictureOptions pictures;
  generate::Options generation;
  std::string seed, system;
  int n = -1;  // maximum tokens of a response; -1: as many as fit
  bool quiet = false;
  bool needs_template = false;  // a model without a chat template is an error
};

// Adds the options that `run` and `chat` share, but not -n.
void add_chat_options(CLI::App& app, ChatOptions& options);

// Holds the conversation and returns the exit status.
[[nodiscard]] int run_chat(const ChatOptions& options);

}  // namespace sluice::cli
