// `sluice run`: generates text from a prompt and streams it, with a progress bar and rates on a
// terminal.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <nlohmann/json.hpp>

#include "cli/atomic_file.h"
#include "cli/cli.h"
#include "cli/generation_options.h"
#include "platform/console.h"

namespace sluice::cli {
namespace {

using generate::Finish;
using generate::Generation;

struct RunOptions {
  Common common;
  std::string prompt, prompt_file;
  int n = 128;
  std::string seed = "0";
  std::string grammar, schema;
  DraftOptions drafting;
  PromptCacheOptions remembering;
  generate::Options generation;
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

// Writes text to standard output and flushes. False on failure.
bool show(std::string_view text) {
  return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() &&
         std::fflush(stdout) == 0;
}

void print_rates(const native::Model& model, const generate::Counts& counts) {
  std::fprintf(stderr, "\nprompt %d tokens %.1f tok/s | generated %d tokens %.1f tok/s | ",
               counts.prompt, counts.prompt_tokens_per_second(), counts.generated,
               counts.tokens_per_second());
  if (counts.drafted > 0) {
    std::fprintf(stderr, "drafted %d, accepted %d, %d forward passes | ", counts.drafted,
                 counts.accepted, counts.passes);
  }
  std::fprintf(stderr, "waited %.0f ms for weights\n", model.wait_ms());
}

std::string outcome_json(const native::DraftPair& models, const Generation& generation,
                         const std::string& text) {
  native::Model& model = *models.model;
  const session::MemoryPlan* const draft = models.draft ? &models.draft->engine().plan() : nullptr;
  const uint64_t draft_budget = draft != nullptr ? draft->budget : 0;
  const uint64_t draft_total = draft != nullptr ? draft->total() : 0;
  const session::MemoryPlan& plan = model.engine().plan();
  const generate::Counts& counts = generation.counts();
  const session::EmbeddingRowCache& rows = model.engine().working().embedding_row_cache(0);
  const session::HeadCounts& head = model.engine().head_counts();
  const session::ExitCounts& exits = model.engine().exit_counts();
  const nlohmann::json out = {{"text", text},
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
                              {"bytesRead", model.engine().residency().filled_bytes()},
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
                               {{"budget", plan.budget + draft_budget},
                                {"total", plan.total() + draft_total},
                                {"draft", draft_total},
                                {"weights", plan.weights.pinned_bytes + plan.weights.ring_bytes()},
                                {"kv", plan.kv},
                                {"activations", plan.activations},
                                {"tokenizer", plan.tokenizer}}}};
  return out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

// Checks the options before a model is opened.
Status check(RunOptions& options) {
  Result<uint64_t> seed = sample::parse_seed(options.seed);
  if (!seed.ok()) return seed.status();
  options.generation.sampling.seed = *seed;
  options.generation.max_tokens = options.n;
  SLUICE_RETURN_IF_ERROR(
      sample::validate(options.generation.sampling, std::numeric_limits<session::Token>::max()));
  if (!options.grammar.empty() && !options.schema.empty()) {
    return error(Code::kInvalidArgument, "give either --grammar or --json-schema, not both");
  }
  if (const bool gbnf = !options.grammar.empty(); gbnf || !options.schema.empty()) {
    Result<std::string> text = read_text(gbnf ? options.grammar : options.schema);
    if (!text.ok()) return text.status();
    options.generation.constraint = {
        gbnf ? grammar::Kind::kGbnf : grammar::Kind::kJsonSchema, std::move(*text), {}};
  }
  if (options.prompt == "-" || !options.prompt_file.empty()) {
    Result<std::string> text =
        read_text(options.prompt_file.empty() ? options.prompt : options.prompt_file);
    if (!text.ok()) return text.status();
    options.prompt = std::move(*text);
  }
  if (options.prompt.empty())
    return error(Code::kPromptEmpty, "the prompt is empty: give one with --prompt or --file");
  return {};
}

int run(RunOptions options) {
  LoadedModels speakers;  // must outlive the watch
  InterruptWatch watch;
  if (Status s = check(options); !s.ok()) return fail(s);
  Result<native::LoadOptions> load = load_options(options.common);
  if (!load.ok()) return fail(load.status());
  load->engine.structured_output = options.generation.constraint.has_value();
  Result<native::DraftPair> opened = open_models(options.common.model, options.drafting, *load);
  if (!opened.ok()) return fail(opened.status());
  speakers.models = std::move(*opened);
  native::Model* const model = speakers.models.model.get();
  const std::vector<session::Token> tokens = model->engine().tokenizer().encode(options.prompt);
  if (Status s = open_sessions(speakers, options.drafting, &options.generation); !s.ok()) {
    return fail(s);
  }
  const bool stream = !options.common.json;
  const bool terminal = stream && platform::is_terminal(platform::Stream::kErrors);
  if (terminal) {
    if (Status s = model->preload(draw_progress); !s.ok()) return fail(s);
  }
  if (Status s = options.remembering.open(*model); !s.ok()) return fail(s);
  watch.watch(*model);
  options.remembering.recall(*speakers.session, tokens);
  Result<std::unique_ptr<Generation>> generation =
      Generation::begin(*speakers.session, tokens, options.generation);
  if (!generation.ok()) return fail(generation.status());
  std::string text;
  Status status;
  if (!stream || show(options.prompt)) {
    status =
        drive_answer(speakers.models, **generation, [&](std::string_view piece, session::Token) {
          if (stream) return piece.empty() || show(piece);
          text += piece;
          return true;
        });
  }
  if (stream) {
    show("\n");
  } else if (status.ok()) {
    show(outcome_json(speakers.models, **generation, text));
  }
  if (!status.ok()) return fail(status);
  options.remembering.keep(*speakers.session);
  if (terminal) print_rates(*model, (*generation)->counts());
  const bool aborted = model->interrupted() && (*generation)->finish() == Finish::kCancelled;
  return finish_output(aborted ? 130 : 0);
}

}  // namespace

void add_run(CLI::App& app, int* status) {
  auto options = std::make_shared<RunOptions>();
  CLI::App* sub = app.add_subcommand("run", "Generate text from a prompt");
  add_common(*sub, options->common);
  add_lora(*sub, options->common);
  CLI::Option* const prompt =
      sub->add_option("-p,--prompt", options->prompt, "prompt text; - reads standard input");
  sub->add_option("-f,--file", options->prompt_file, "file with the prompt, in place of -p")
      ->excludes(prompt);
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
  sub->add_option("-n,--n-predict", options->n, "maximum tokens to generate (default: 128)")
      ->check(whole_number(0, kMax));
  generate::Options& g = options->generation;
  add_sampling(*sub, g.sampling, options->seed);
  sub->add_option("--stop", g.stop, "stop at this text; may be repeated")
      ->allow_extra_args(false);  // one text per option, verbatim: "[a,b]" is not a list
  sub->add_option("--grammar", options->grammar,
                  "file with a GBNF grammar that the output must match");
  sub->add_option("--json-schema", options->schema,
                  "file with a JSON schema that the output must match");
  add_drafting(*sub, options->drafting);
  add_remembering(*sub, options->remembering);
  sub->add_flag("--ignore-eos", g.ignore_eos,
                "continue after the end-of-text token (default: off)");
  sub->callback([options, status] { *status = run(*options); });
}

}  // namespace sluice::cli
