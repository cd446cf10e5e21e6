// The order of the parts is llama.cpp's: other files, the text before the gap, the text after it.
#include "openai/infill.h"

namespace sluice::openai {
namespace {

struct TokenNames {
  std::string InfillTokens::*token;
  std::string_view names[8];
};

constexpr TokenNames kTokenNames[] = {
    {&InfillTokens::prefix,
     {"<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>", "<PRE>", "▁<PRE>",
      "<|code_prefix|>", "<|prefix|>"}},
    {&InfillTokens::suffix,
     {"<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<｜fim▁hole｜>", "<SUF>", "▁<SUF>",
      "<|code_suffix|>", "<|suffix|>"}},
    {&InfillTokens::middle,
     {"<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>", "<MID>", "▁<MID>",
      "<|code_middle|>", "<|middle|>"}},
    {&InfillTokens::repository,
     {"<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"}},
    {&InfillTokens::file, {"<|file_sep|>"}}};

void add(bool content, std::string text, chat::Prompt* out) {
  if (!text.empty()) out->pieces.push_back({std::move(text), content});
}

}  // namespace

void find_infill_tokens(const std::function<bool(std::string_view)>& is_token, InfillTokens* out) {
  for (const TokenNames& each : kTokenNames) {
    for (const std::string_view name : each.names) {
      if (!name.empty() && (out->*each.token).empty() && is_token(name)) out->*each.token = name;
    }
  }
}

void drop_files(Infill* infill) {
  std::vector<Infill::File>& files = infill->files;
  files.erase(files.begin(), files.begin() + static_cast<ptrdiff_t>((files.size() + 1) / 2));
}

Problem infill_prompt(const InfillTokens& tokens, const Infill& infill, chat::Prompt* out) {
  if (!tokens.usable()) {
    return ApiError{.message =
                        "This model cannot fill in the middle: its vocabulary lacks tokens "
                        "such as <|fim_prefix|>, <|fim_suffix|> and <|fim_middle|>.",
                    .code = "NOT_SUPPORTED"};
  }
  out->add_special = true;
  const bool several = !infill.files.empty();
  if (several && !tokens.repository.empty()) add(false, tokens.repository + "myproject\n", out);
  const auto name = [&](const std::string& file) {
    if (tokens.file.empty()) return add(false, "\n\n--- snippet ---\n\n", out);
    add(false, tokens.file, out);
    add(true, file + "\n", out);
  };
  for (const Infill::File& file : infill.files) {
    name(file.name);
    add(true, file.text, out);
  }
  if (several && !tokens.file.empty()) name("filename");
  add(false, tokens.prefix, out);
  add(true, infill.prefix + infill.prompt, out);
  add(false, tokens.suffix, out);
  add(true, infill.suffix, out);
  add(false, tokens.middle, out);
  return {};
}

}  // namespace sluice::openai
