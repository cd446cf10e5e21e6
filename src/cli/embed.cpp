// `sluice embed`: writes the embedding of a text, or a document's rerank score for a query, for
// scripts and tests.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/atomic_file.h"
#include "cli/cli.h"
#include "embed/embedder.h"

namespace sluice::cli {
namespace {

struct EmbedOptions {
  Common common;
  std::string text_file, tokens, query, pooling, out;
  int dimensions = 0;
  bool no_normalize = false;
};

Result<embed::Options> embed_options(const EmbedOptions& options) {
  embed::Options out;
  out.normalize = !options.no_normalize;
  out.dimensions = options.dimensions;
  constexpr const char* kNames[] = {"none", "mean", "cls", "last", "rank"};
  for (uint8_t i = 0; i < std::size(kNames); ++i) {
    if (options.pooling == kNames[i]) out.pooling = static_cast<model::Pooling>(i);
  }
  if (!options.pooling.empty() && !out.pooling) {
    return error(Code::kInvalidArgument,
                 "unknown pooling \"%.32s\"; use none, mean, cls, last or rank",
                 options.pooling.c_str());
  }
  return out;
}

// The given tokens, or those of the text.
Result<std::vector<session::Token>> input(const EmbedOptions& options,
                                          const tokenizer::Tokenizer& tokenizer) {
  if (options.text_file.empty()) return parse_tokens(options.tokens);
  Result<std::string> text = read_text(options.text_file);
  if (!text.ok()) return text.status();
  if (!options.query.empty()) return embed::pair_tokens(tokenizer, options.query, *text);
  return tokenizer.try_encode(*text, {.parse_special = false});
}

// Checks the model and the output before computing.
int embed_text(const EmbedOptions& options) {
  if (options.text_file.empty() == options.tokens.empty()) {
    return fail(error(Code::kInvalidArgument, "give either --file or --tokens"));
  }
  Result<embed::Options> what = embed_options(options);
  if (!what.ok()) return fail(what.status());
  Result<native::LoadOptions> load = load_options(options.common);
  if (!load.ok()) return fail(load.status());
  Result<native::ModelHeader> header = native::read_header(options.common.model, load->source);
  if (!header.ok()) return fail(header.status());
  auto tokenizer = tokenizer::Tokenizer::create(header->header);
  if (!tokenizer.ok()) return fail(tokenizer.status());
  Result<std::vector<session::Token>> tokens = input(options, **tokenizer);
  if (!tokens.ok()) return fail(tokens.status());
  tokenizer->reset();
  // Default context: just what this text needs.
  if (load->engine.n_ctx == 0) load->engine.n_ctx = static_cast<int32_t>(tokens->size());
  Result<std::unique_ptr<native::Model>> model = native::Model::open(options.common.model, *load);
  if (!model.ok()) return fail(model.status());
  auto session = session::Session::create((*model)->engine().context());
  if (!session.ok()) return fail(session.status());
  Result<AtomicFile> file = AtomicFile::create(options.out, options.common.model);
  if (!file.ok()) return fail(file.status());

  embed::Embedder embedder(**session);
  const int32_t end = static_cast<int32_t>(tokens->size());
  Status status = embedder.begin(*tokens, {&end, 1}, *what);
  size_t rows = 0;
  while (status.ok()) {
    const Result<bool> more = embedder.next();
    if (!more.ok()) status = more.status();
    if (!more.ok() || !*more) break;
    status = (*model)->drive([&](int32_t max_ops) { return embedder.step(max_ops); });
    for (int32_t i = 0; i < embedder.n_results() && status.ok(); ++i, ++rows) {
      file->write(embedder.result(i).data(), embedder.result(i).size_bytes());
    }
  }
  if (status.ok()) status = file->finish();
  if (!status.ok()) return fail(status);
  print_json({{"tokens", tokens->size()},
              {"rows", rows},
              {"dimensions", embedder.width()},
              {"kernels", (*model)->engine().table().name},
              {"out", options.out}});
  return 0;
}

}  // namespace

void add_embed(CLI::App& app, int* status) {
  auto options = std::make_shared<EmbedOptions>();
  CLI::App* sub = add_command(app, kUse, "embed", "Write the embedding of a text",
                              "sluice embed model.gguf -f text.txt --out vector.f32");
  add_common(*sub, options->common);
  add_lora(*sub, options->common);
  sub->add_option("-f,--file", options->text_file,
                  "file with the text; - reads standard input (default: none)");
  sub->add_option("--tokens", options->tokens,
                  "token ids instead of a text, such as 1,2,3 (default: none)");
  sub->add_option("--query", options->query,
                  "query that the text is scored against, with --pooling rank (default: none)");
  sub->add_option("--pooling", options->pooling,
                  "none, mean, cls, last or rank (default: the model's)");
  sub->add_option("--dimensions", options->dimensions,
                  "keep only the first so many values (default: all)")
      ->check(whole_number(1, model::kMaxWidth));
  sub->add_flag("--no-normalize", options->no_normalize,
                "do not scale the embedding to length 1 (default: scale)");
  sub->add_option("--out", options->out, "output file: little-endian f32, [rows x dimensions]")
      ->required();
  sub->callback([options, status] {
    const EndsAtSignals watch;
    *status = embed_text(*options);
  });
}

}  // namespace sluice::cli
