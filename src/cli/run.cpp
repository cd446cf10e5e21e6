// `sluice run`: text in, text streamed out, with a progress bar and a rate line on a terminal.
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/clock.h"
#include "cli/cli.h"
#include "sample/sampler.h"

namespace sluice::cli {
namespace {

struct RunOptions {
  Common common;
  std::string prompt;
  int n = 128;
  sample::Params sampling;
  std::vector<std::string> stop;
  bool ignore_eos = false;
};

// Turns Ctrl-C into an orderly end: a thread waits for the signal, so that no handler has to be
// async-signal-safe. A second Ctrl-C ends the process at once.
class InterruptWatch {
 public:
  InterruptWatch() {
    sigemptyset(&set_);
    sigaddset(&set_, SIGINT);
    sigaddset(&set_, SIGTERM);
    sigaddset(&set_, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &set_, nullptr);
  }
  void start(native::Model& model) {
    thread_ = std::thread([this, &model] {
      int signal = 0;
      sigwait(&set_, &signal);
      if (signal == SIGUSR1) return;
      model.interrupt();
      sigwait(&set_, &signal);
      if (signal != SIGUSR1) _exit(130);
    });
  }
  ~InterruptWatch() {
    if (!thread_.joinable()) return;
    pthread_kill(thread_.native_handle(), SIGUSR1);
    thread_.join();
  }

 private:
  sigset_t set_;
  std::thread thread_;
};

void draw_progress(void*, uint64_t loaded, uint64_t total) {
  static double last = 0;
  const double now = monotonic_ms();
  if (total == 0 || (now - last < 100 && loaded < total)) return;
  last = now;
  const int width = 30;
  const int filled = static_cast<int>(loaded * width / total);
  std::fprintf(stderr, "\rloading [%.*s%*s] %3d%% %s", filled, "##############################",
               width - filled, "", static_cast<int>(loaded * 100 / total),
               human_bytes(total).c_str());
  if (loaded >= total) std::fprintf(stderr, "\r\033[K");
}

struct Outcome {
  std::string text;
  std::string finish = "length";
  uint64_t prompt_tokens = 0, generated = 0;
  double prompt_ms = 0, generate_ms = 0;
};

// Text that may be the beginning of a stop string is held back until it is known not to be.
class StopFilter {
 public:
  explicit StopFilter(const std::vector<std::string>& stops) : stops_(stops) {}
  // Returns what may be shown; sets *stopped when a stop string is complete.
  std::string push(const std::string& text, bool* stopped) {
    held_ += text;
    size_t cut = std::string::npos;
    for (const std::string& stop : stops_) {
      if (!stop.empty()) cut = std::min(cut, held_.find(stop));
    }
    *stopped = cut != std::string::npos;
    const size_t keep = *stopped ? cut : held_.size() - longest_beginning();
    std::string out = held_.substr(0, keep);
    held_.erase(0, keep);
    return out;
  }
  std::string rest() { return std::move(held_); }

 private:
  [[nodiscard]] size_t longest_beginning() const {
    size_t longest = 0;
    for (const std::string& stop : stops_) {
      for (size_t n = std::min(stop.size(), held_.size()); n > longest; --n) {
        if (held_.compare(held_.size() - n, n, stop, 0, n) == 0) longest = n;
      }
    }
    return longest;
  }
  const std::vector<std::string>& stops_;
  std::string held_;
};

Status generate(native::Model& model, session::Session& session, const RunOptions& options,
                const std::vector<session::Token>& prompt, Outcome* out) {
  const auto emit = [&](const std::string& text) {
    out->text += text;
    if (options.common.json) return;
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  };
  const double start = monotonic_ms();
  SLUICE_RETURN_IF_ERROR(session.begin(prompt));
  if (!options.common.json) {
    std::printf("%s", options.prompt.c_str());
    std::fflush(stdout);
  }
  SLUICE_RETURN_IF_ERROR(model.run(session));
  out->prompt_tokens = prompt.size();
  out->prompt_ms = monotonic_ms() - start;
  const double first = monotonic_ms();
  sample::Sampler sampler(options.sampling, static_cast<int64_t>(session.logits().size()));
  tokenizer::StreamDecoder decoder(model.engine().tokenizer());
  // The decoder sees no prompt: its first token continues a text.
  StopFilter filter(options.stop);
  Status status;
  bool stopped = false;
  while (static_cast<int>(out->generated) < options.n) {
    const session::Token token = sampler.sample(session.logits(), session.tokens());
    if (!options.ignore_eos && model.engine().tokenizer().is_end_of_generation(token)) {
      out->finish = "stop";
      break;
    }
    ++out->generated;
    emit(filter.push(decoder.push(token), &stopped));
    if (stopped) {
      out->finish = "stop";
      break;
    }
    if (static_cast<int>(out->generated) == options.n) break;
    if (session.position() == model.engine().plan().n_ctx) {
      out->finish = "context";
      break;
    }
    status = session.begin({&token, 1});
    if (status.ok()) status = model.run(session);
    if (!status.ok()) break;
  }
  if (!stopped) {
    bool ignored = false;
    emit(filter.push(decoder.finish(), &ignored));
    emit(filter.rest());
  }
  out->generate_ms = monotonic_ms() - first;
  return status;
}

void print_rates(const native::Model& model, const Outcome& out) {
  const double decoded = out.generated > 1 ? static_cast<double>(out.generated - 1) : 0;
  std::fprintf(stderr, "\nprompt %llu tokens %.1f tok/s | generated %llu tokens %.1f tok/s | ",
               static_cast<unsigned long long>(out.prompt_tokens),
               static_cast<double>(out.prompt_tokens) * 1000 / out.prompt_ms,
               static_cast<unsigned long long>(out.generated), decoded * 1000 / out.generate_ms);
  std::fprintf(stderr, "waited %.0f ms for weights\n", model.wait_ms());
}

nlohmann::json outcome_json(native::Model& model, const Outcome& out) {
  const session::MemoryPlan& plan = model.engine().plan();
  return {{"text", out.text},
          {"finishReason", out.finish},
          {"promptTokens", out.prompt_tokens},
          {"promptMs", out.prompt_ms},
          {"generatedTokens", out.generated},
          {"generateMs", out.generate_ms},
          {"waitMs", model.wait_ms()},
          {"bytesFetched", model.bytes_fetched()},
          {"bytesFromStore", model.bytes_from_store()},
          {"bytesRead", model.engine().residency().filled_bytes()},
          {"kernels", model.engine().table().name},
          {"threads", model.engine().pool().n_threads()},
          {"memory",
           {{"budget", plan.budget},
            {"total", plan.total()},
            {"weights", plan.weights.pinned_bytes + plan.weights.ring_bytes()},
            {"kv", plan.kv},
            {"activations", plan.activations},
            {"tokenizer", plan.tokenizer}}}};
}

int run(RunOptions options) {
  InterruptWatch watch;
  Result<std::string> prompt =
      options.prompt == "-" ? read_text("-") : Result<std::string>(options.prompt);
  if (!prompt.ok()) return fail(prompt.status());
  options.prompt = *prompt;
  Result<native::LoadOptions> load = load_options(options.common);
  if (!load.ok()) return fail(load.status());
  Result<std::unique_ptr<native::Model>> model = native::Model::open(options.common.model, *load);
  if (!model.ok()) return fail(model.status());
  watch.start(**model);
  session::Engine& engine = (*model)->engine();
  if (Status s = sample::validate(options.sampling, engine.program().hp.n_vocab); !s.ok()) {
    return fail(s);
  }
  const std::vector<session::Token> tokens = engine.tokenizer().encode(options.prompt);
  if (options.prompt.empty() || tokens.empty()) {
    return fail(error(Code::kPromptEmpty, "the prompt is empty"));
  }
  Result<std::unique_ptr<session::Session>> session = session::Session::create(engine);
  if (!session.ok()) return fail(session.status());
  const bool terminal = isatty(STDERR_FILENO) != 0 && !options.common.json;
  if (terminal) {
    if (Status s = (*model)->preload(draw_progress); !s.ok()) return fail(s);
  }
  Outcome out;
  const Status status = generate(**model, **session, options, tokens, &out);
  if (!options.common.json) std::printf("\n");
  if (!status.ok() && status.code() != Code::kAborted) return fail(status);
  if (!status.ok()) out.finish = "aborted";
  if (options.common.json) {
    std::printf("%s\n", outcome_json(**model, out)
                            .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)
                            .c_str());
  } else if (terminal) {
    print_rates(**model, out);
  }
  return status.ok() ? 0 : 130;
}

}  // namespace

void add_run(CLI::App& app, int* status) {
  auto options = std::make_shared<RunOptions>();
  CLI::App* sub = app.add_subcommand("run", "Generate text from a prompt");
  add_common(*sub, options->common);
  sub->add_option("-p,--prompt", options->prompt, "the prompt; - reads standard input")->required();
  sub->add_option("-n", options->n, "tokens to generate at most")->check(CLI::NonNegativeNumber);
  sample::Params& s = options->sampling;
  sub->add_option("--temp", s.temperature, "temperature; 0 is greedy");
  sub->add_option("--top-k", s.top_k, "keep the k most likely tokens; 0: all");
  sub->add_option("--top-p", s.top_p, "keep the smallest set with this probability");
  sub->add_option("--min-p", s.min_p, "drop tokens less likely than this share of the best");
  sub->add_option("--repeat-penalty", s.repeat_penalty, "1: off");
  sub->add_option("--frequency-penalty", s.frequency_penalty, "0: off");
  sub->add_option("--presence-penalty", s.presence_penalty, "0: off");
  sub->add_option("--repeat-last-n", s.penalty_last_n, "tokens that penalties look back; -1: all");
  sub->add_option("--seed", s.seed, "the same seed gives the same text");
  sub->add_option("--stop", options->stop, "end at this text; may be given several times");
  sub->add_flag("--ignore-eos", options->ignore_eos, "go on after the end-of-text token");
  sub->callback([options, status] { *status = run(*options); });
}

}  // namespace sluice::cli
