// `sluice tokenize` and `sluice logits`: tokens in, logits out, for scripts and tests.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/atomic_file.h"
#include "cli/cli.h"
#include "cli/media_logits.h"

namespace sluice::cli {
namespace {

struct TokenizeOptions {
  Common common;
  std::string text_file;
  bool no_add_special = false, no_parse_special = false;
};

int tokenize(const TokenizeOptions& options) {
  Result<std::string> text = read_text(options.text_file);
  if (!text.ok()) return fail(text.status());
  Result<native::LoadOptions> load = load_options(options.common);
  if (!load.ok()) return fail(load.status());
  Result<native::ModelHeader> header = native::read_header(options.common.model, load->source);
  if (!header.ok()) return fail(header.status());
  auto tokenizer = tokenizer::Tokenizer::create(header->header);
  if (!tokenizer.ok()) return fail(tokenizer.status());
  const std::vector<session::Token> ids =
      (*tokenizer)->encode(*text, {!options.no_add_special, !options.no_parse_special});
  print_json(ids);
  return 0;
}

struct LogitsOptions {
  Common common;
  MediaOptions media;
  std::string tokens, decoder_tokens, out;
};

int logits(const LogitsOptions& options) {
  if (!options.media.projector.empty()) {
    return media_logits(options.common, options.media, options.out);
  }
  if (options.tokens.empty()) {
    return fail(
        error(Code::kInvalidArgument,
              "give --tokens, or --projector with --prompt-file for a prompt with pictures"));
  }
  Result<std::vector<session::Token>> tokens = parse_tokens(options.tokens);
  if (!tokens.ok()) return fail(tokens.status());
  if (!options.decoder_tokens.empty()) {  // marked as decoder tokens
    Result<std::vector<session::Token>> answer = parse_tokens(options.decoder_tokens);
    if (!answer.ok()) return fail(answer.status());
    for (session::Token& token : *tokens) token = ~token;
    tokens->insert(tokens->end(), answer->begin(), answer->end());
  }
  Result<native::LoadOptions> load = load_options(options.common);
  if (!load.ok()) return fail(load.status());
  if (load->engine.n_ctx == 0) load->engine.n_ctx = static_cast<int32_t>(tokens->size());
  // Rows of logits per forward pass. Each pass has as many tokens.
  constexpr int32_t kRows = 64;
  load->engine.logits_rows = load->engine.memory_budget > 0 ? 1 : kRows;
  Result<std::unique_ptr<native::Model>> model = native::Model::open(options.common.model, *load);
  if (!model.ok()) return fail(model.status());
  session::Engine& engine = (*model)->engine();
  auto session = session::Session::create(engine.context());
  if (!session.ok()) return fail(session.status());
  Result<AtomicFile> file = AtomicFile::create(options.out, options.common.model);
  if (!file.ok()) return fail(file.status());
  const size_t step =
      static_cast<size_t>(std::min(engine.plan().batch.logits_rows, engine.plan().batch.n_batch));
  Status status;
  session::Token likeliest = 0;
  const auto source = static_cast<size_t>(session::source_of(*tokens));
  if (source > 0 && engine.program().decoder == 0) {
    return fail(error(Code::kInvalidArgument,
                      "--decoder-tokens needs an encoder-decoder model; \"%s\" has no decoder",
                      engine.program().hp.arch.c_str()));
  }
  for (size_t at = source; at < tokens->size() && status.ok(); at += step) {
    const size_t n = std::min(step, tokens->size() - at);
    const size_t before = at == source ? source : 0;  // run with the first decoder tokens
    // Bidirectional models run all tokens again for each block of rows.
    status =
        engine.program().hp.attention.causal
            ? (*session)->begin({tokens->data() + at - before, before + n},
                                session::Wanted::kAllLogits)
            : (*session)->begin_rows(*tokens, static_cast<int32_t>(at), static_cast<int32_t>(n));
    if (status.ok()) status = (*model)->run(**session);
    for (size_t row = 0; row < n && status.ok(); ++row) {
      const std::span<const float> values = (*session)->logits(static_cast<int32_t>(row));
      likeliest = static_cast<session::Token>(std::max_element(values.begin(), values.end()) -
                                              values.begin());
      file->write(values.data(), values.size_bytes());
    }
  }
  if (status.ok()) status = file->finish();
  if (!status.ok()) return fail(status);
  print_json({{"tokens", tokens->size() - source},
              {"vocabSize", engine.program().hp.n_vocab},
              {"kernels", engine.table().name},
              {"argmax", likeliest},
              {"out", options.out}});
  return 0;
}

}  // namespace

void add_tokenize(CLI::App& app, int* status) {
  auto options = std::make_shared<TokenizeOptions>();
  CLI::App* sub = add_command(app, kInspect, "tokenize", "Print the token ids of a text",
                              "sluice tokenize model.gguf -f text.txt");
  add_common(*sub, options->common);
  sub->add_option("-f,--file", options->text_file, "file with the text; - reads standard input")
      ->required();
  sub->add_flag("--no-add-special", options->no_add_special,
                "do not add special tokens such as BOS (default: add them)");
  sub->add_flag("--no-parse-special", options->no_parse_special,
                "treat special tokens in the text as plain text (default: off)");
  sub->callback([options, status] { *status = tokenize(*options); });
}

void add_logits(CLI::App& app, int* status) {
  auto options = std::make_shared<LogitsOptions>();
  CLI::App* sub = add_command(app, kMeasure, "logits", "Write the logits of every position",
                              "sluice logits model.gguf --tokens 1,2,3 --out logits.f32");
  add_common(*sub, options->common);
  add_lora(*sub, options->common);
  CLI::Option* tokens = sub->add_option(
      "--tokens", options->tokens, "token ids, such as 1,2,3 (default: those of --prompt-file)");
  add_media(*sub, options->media, /*required=*/false);
  sub->get_option("--projector")->excludes(tokens);
  sub->add_option("--decoder-tokens", options->decoder_tokens,
                  "token ids for the decoder of an encoder-decoder model; their logits are written "
                  "(default: none)");
  sub->add_option("--out", options->out, "output file: little-endian f32, [tokens x vocabulary]")
      ->required();
  sub->callback([options, status] {
    const EndsAtSignals watch;
    *status = logits(*options);
  });
}

}  // namespace sluice::cli
