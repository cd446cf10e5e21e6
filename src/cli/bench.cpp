// `sluice bench`: prefill and decode rates by thread count, context depth and batch of sessions,
// with the memory traffic and arithmetic that they amount to. Each figure is the best of several
// repetitions, because other load on the machine only slows a run down. With --no-page-cache it is
// the median, because disk speed varies in both directions.
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/clock.h"
#include "cli/bench_speculative.h"
#include "cli/expert_trace.h"
#include "cli/options.h"
#include "io/address.h"
#include "session/batcher.h"
#include "session/report.h"

namespace sluice::cli {
namespace {

struct BenchOptions {
  Common common;
  int prompt = 128, generate = 32, repeat = 3;
  std::vector<int> threads;
  std::vector<int> depths{0};
  std::vector<int> parallel{1};
  std::string output = "table";
  bool no_page_cache = false;
  std::string direct_io = "auto";
  bool no_joined_reads = false;
  bool ascending_experts = false, fixed_experts = false;
  std::vector<std::string> drafts;
  std::string replay;
  bool breakdown = false;
  std::string expert_trace;
};

// Reads of weights while tokens are generated.
struct DecodeReads {
  uint64_t tokens = 0, bytes = 0;
  uint64_t expert_hits = 0, expert_misses = 0;
  io::SystemReads system;  // of the files

  void add(native::Model& model, int sign) {
    const auto step = [sign](uint64_t* sum, uint64_t n) { *sum += sign < 0 ? ~n + 1 : n; };
    const residency::Residency& r = model.engine().residency();
    const io::SystemReads read = model.system_reads();
    step(&system.count, read.count);
    step(&system.bytes, read.bytes);
    step(&bytes, r.counts().filled_bytes);
    step(&expert_hits, r.counts().expert_hits);
    step(&expert_misses, r.counts().expert_misses);
  }
  [[nodiscard]] double bytes_per_token() const {
    return tokens == 0 ? 0 : static_cast<double>(bytes) / static_cast<double>(tokens);
  }
  [[nodiscard]] double reads_per_token() const {
    return tokens == 0 ? 0 : static_cast<double>(system.count) / static_cast<double>(tokens);
  }
  [[nodiscard]] uint64_t bytes_per_read() const {
    return system.count == 0 ? 0 : system.bytes / system.count;
  }
};

struct Row {
  int threads = 0, depth = 0, parallel = 1;
  double prefill = 0, decode = 0;  // tokens per second
  double ms = 0;                   // of a decode step over all sessions
  double gmacs_prefill = 0, gmacs_decode = 0;
  double gb_decode = 0;  // weight bytes read per second
  uint64_t bytes_per_pass = 0;
  double store = 0;  // bytes per second of plain reads; 0 if no weights are streamed
  uint64_t memory = 0;
  std::string kernels;
  session::TimeSums prefill_times, decode_times;  // per token of a sequence
  DecodeReads reads;
  bool direct_io = false;
};

io::DirectIo parse_direct_io(const std::string& text) {
  return text == "on"    ? io::DirectIo::kOn
         : text == "off" ? io::DirectIo::kOff
                         : io::DirectIo::kAuto;
}

session::TimeSums per_token(const session::TimeSums& all, int tokens) {
  session::TimeSums out = all;
  const double n = std::max(1, tokens);
  for (double& ms : out.parts) ms /= n;
  out.total /= n;
  return out;
}

double typical(std::vector<double>& rates, bool no_page_cache) {
  if (rates.empty()) return 0;
  std::sort(rates.begin(), rates.end());
  return no_page_cache ? rates[rates.size() / 2] : rates.back();
}

// Sessions that are fed the same tokens; several run in one batch.
class Conversations {
 public:
  explicit Conversations(native::Model& model)
      : model_(model), batcher_(model.engine().context()) {}
  Status start(int n) {
    for (int i = 0; i < n; ++i) {
      auto session = session::Session::create(model_.engine().context());
      if (!session.ok()) return session.status();
      sessions_.push_back(std::move(*session));
      if (n > 1) SLUICE_RETURN_IF_ERROR(batcher_.add(*sessions_.back()));
    }
    return {};
  }
  Status pass(std::span<const session::Token> tokens) {
    for (auto& session : sessions_) SLUICE_RETURN_IF_ERROR(session->begin(tokens));
    if (sessions_.size() == 1) return model_.run(*sessions_[0]);
    while (batcher_.waiting()) {
      SLUICE_RETURN_IF_ERROR(model_.drive([this](int32_t n) { return batcher_.step(n); }));
    }
    return sessions_[0]->failure();
  }
  int32_t rewind(int32_t n) {
    int32_t at = 0;
    for (auto& session : sessions_) at = session->rewind(n);
    return at;
  }

 private:
  native::Model& model_;
  session::Batcher batcher_;
  std::vector<std::unique_ptr<session::Session>> sessions_;
};

// Times forward passes over `n` tokens from position `first`, several times each.
class Measurement {
 public:
  Measurement(const BenchOptions& options, native::Model& model,
              std::span<const session::Token> text)
      : options_(options), model_(model), text_(text), sessions_(model) {}
  Status start(int parallel) {
    SLUICE_RETURN_IF_ERROR(sessions_.start(parallel));
    return pass(0, 1);  // loads and packs the weights
  }
  Status prefill(double* rate, session::TimeSums* times) {
    std::vector<double> rates;
    session::TimeSums all;
    for (int i = 0; options_.prompt > 0 && i < options_.repeat; ++i) {
      SLUICE_RETURN_IF_ERROR(sample_store());
      sessions_.rewind(0);
      const session::TimeSums before = model_.engine().passes().times().sums();
      const double start = monotonic_ms();
      SLUICE_RETURN_IF_ERROR(pass(0, options_.prompt));
      rates.push_back(options_.prompt * 1000 / (monotonic_ms() - start));
      all.add(model_.engine().passes().times().sums().since(before));
    }
    *rate = typical(rates, options_.no_page_cache);
    *times = per_token(all, options_.prompt * options_.repeat);
    return {};
  }
  Status decode(int depth, double* rate, session::TimeSums* times, DecodeReads* reads) {
    std::vector<double> rates;
    session::TimeSums all;
    for (int i = 0; options_.generate > 0 && i < options_.repeat; ++i) {
      SLUICE_RETURN_IF_ERROR(sample_store());
      if (const int32_t at = sessions_.rewind(depth); at < depth) {
        SLUICE_RETURN_IF_ERROR(pass(at, depth - at));
      }
      const session::TimeSums before = model_.engine().passes().times().sums();
      reads->add(model_, -1);
      const double start = monotonic_ms();
      for (int t = 0; t < options_.generate; ++t) SLUICE_RETURN_IF_ERROR(pass(depth + t, 1));
      rates.push_back(options_.generate * 1000 / (monotonic_ms() - start));
      all.add(model_.engine().passes().times().sums().since(before));
      reads->add(model_, 1);
      reads->tokens += static_cast<uint64_t>(options_.generate);
    }
    *rate = typical(rates, options_.no_page_cache);
    *times = per_token(all, options_.generate * options_.repeat);
    return {};
  }
  // Bytes per second of plain reads; 0 if no weights are streamed.
  [[nodiscard]] double store() { return typical(stores_, options_.no_page_cache); }

 private:
  Status pass(int first, int n) {
    return sessions_.pass(text_.subspan(static_cast<size_t>(first), static_cast<size_t>(n)));
  }
  Status sample_store() {
    constexpr uint64_t kStoreSample = 256 << 20;
    if (model_.engine().plan().weights.streamed_bytes == 0) return {};
    const uint64_t at = stores_.size() * kStoreSample % model_.source().size();
    const Result<io::ReadRate> rate = io::measure_reads(model_.source(), at, kStoreSample);
    if (!rate.ok()) return rate.status();
    stores_.push_back(rate->bytes_per_second);
    return {};
  }

  const BenchOptions& options_;
  native::Model& model_;
  std::span<const session::Token> text_;
  Conversations sessions_;
  std::vector<double> stores_;
};

// Chooses the experts, the order in which they are computed, and whether those in memory change.
Status steer_experts(const BenchOptions& options, session::Engine& engine,
                     std::optional<ExpertReplay>* routing) {
  session::Executor& executor = *engine.context().executor;
  if (options.fixed_experts) engine.residency().fix_experts();
  if (options.expert_trace.empty()) {
    executor.hook_routing({.ascending = options.ascending_experts});
    return {};
  }
  Result<ExpertTrace> trace = read_expert_trace(options.expert_trace);
  if (!trace.ok()) return trace.status();
  return routing->emplace(std::move(*trace))
      .attach(engine.program(), executor, options.ascending_experts);
}

// Measures all depths in one context, so that a shared prefix is computed once.
Status measure(const BenchOptions& options, int threads, int parallel, std::vector<Row>* rows) {
  Result<native::LoadOptions> load = load_options(options.common);
  if (!load.ok()) return load.status();
  load->engine.n_threads = threads;
  load->engine.parallel = parallel;
  load->engine.time_breakdown = options.breakdown;
  load->source.no_page_cache = options.no_page_cache;
  load->source.direct_io = parse_direct_io(options.direct_io);
  load->source.join_reads = !options.no_joined_reads;
  const int deepest = *std::max_element(options.depths.begin(), options.depths.end());
  const int longest = std::max(options.prompt, deepest + options.generate) + 1;
  if (load->engine.n_ctx == 0) load->engine.n_ctx = longest;
  Result<std::unique_ptr<native::Model>> model = native::Model::open(options.common.model, *load);
  if (!model.ok()) return model.status();
  session::Engine& engine = (*model)->engine();
  std::optional<ExpertReplay> routing;
  SLUICE_RETURN_IF_ERROR(steer_experts(options, engine, &routing));
  const int64_t n_vocab = engine.program().hp.n_vocab;
  std::vector<session::Token> tokens(static_cast<size_t>(longest));
  for (size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<session::Token>((i * 7919 + 13) % static_cast<size_t>(n_vocab));
  }
  Measurement measured(options, **model, tokens);
  SLUICE_RETURN_IF_ERROR(measured.start(parallel));
  double prefill = 0;
  session::TimeSums prefill_times;
  SLUICE_RETURN_IF_ERROR(measured.prefill(&prefill, &prefill_times));
  prefill *= parallel;
  const auto [macs, bytes] = session::work_per_token(engine.program());
  for (const int depth : options.depths) {
    double decode = 0;
    session::TimeSums decode_times;
    DecodeReads reads;
    SLUICE_RETURN_IF_ERROR(measured.decode(depth, &decode, &decode_times, &reads));
    rows->push_back({engine.pool().n_threads(), depth, parallel, prefill, decode * parallel,
                     decode > 0 ? 1000 / decode : 0, macs * prefill / 1e9,
                     macs * decode * parallel / 1e9, bytes * decode / 1e9,
                     engine.plan().weights.streamed_bytes, measured.store(), engine.plan().total(),
                     engine.table().name, prefill_times, decode_times, reads,
                     (*model)->direct_io()});
  }
  return {};
}

bool json(const BenchOptions& options) {
  return options.output == "json" || options.common.json;
}

nlohmann::json breakdown_json(const session::TimeSums& times) {
  nlohmann::json out;
  for (size_t i = 0; i < session::kTimeParts; ++i) {
    out[session::kTimePartNames[i]] = times.parts[i];
  }
  out["total"] = times.total;
  return out;
}

// One line per phase of each row: milliseconds per token, by part.
void print_breakdown(const std::vector<Row>& rows, const BenchOptions& options) {
  const bool csv = options.output == "csv";
  std::printf(csv ? "\nthreads,depth,parallel,phase" : "\nthreads  depth  parallel  phase  ");
  for (const char* name : session::kTimePartNames) std::printf(csv ? ",%s" : "  %s", name);
  std::printf(csv ? ",total\n" : "  total ms/token\n");
  const auto line = [&](const Row& r, const char* phase, const session::TimeSums& times) {
    if (times.total <= 0) return;
    std::printf(csv ? "%d,%d,%d,%s" : "%7d %6d %9d  %-7s", r.threads, r.depth, r.parallel, phase);
    for (size_t i = 0; i < session::kTimeParts; ++i) {
      const int width = static_cast<int>(std::string_view(session::kTimePartNames[i]).size());
      std::printf(csv ? ",%.*f" : "  %*.4f", csv ? 4 : std::max(width, 6), times.parts[i]);
    }
    std::printf(csv ? ",%.4f\n" : "  %14.4f\n", times.total);
  };
  for (const Row& r : rows) {
    if (r.depth == options.depths.front()) line(r, "prefill", r.prefill_times);
    line(r, "decode", r.decode_times);
  }
}

void print_rows(const std::vector<Row>& rows, const BenchOptions& options) {
  if (json(options)) {
    nlohmann::json out = nlohmann::json::array();
    for (const Row& r : rows) {
      out.push_back({{"model", io::public_source(options.common.model)},
                     {"kernels", r.kernels},
                     {"threads", r.threads},
                     {"depth", r.depth},
                     {"parallel", r.parallel},
                     {"promptTokens", options.prompt},
                     {"prefillTokensPerSecond", r.prefill},
                     {"decodeTokensPerSecond", r.decode},
                     {"millisecondsPerToken", r.ms},
                     {"prefillGmacs", r.gmacs_prefill},
                     {"decodeGmacs", r.gmacs_decode},
                     {"decodeGBytes", r.gb_decode},
                     {"bytesPerPass", r.bytes_per_pass},
                     {"cacheBytesPerSecond", r.store},
                     {"bytesPerToken", r.reads.bytes_per_token()},
                     {"directIo", r.direct_io},
                     {"readsPerToken", r.reads.reads_per_token()},
                     {"bytesPerRead", r.reads.bytes_per_read()},
                     {"expertHits", r.reads.expert_hits},
                     {"expertMisses", r.reads.expert_misses},
                     {"memory", r.memory}});
      if (!options.breakdown) continue;
      out.back()["prefillBreakdown"] = breakdown_json(r.prefill_times);
      out.back()["decodeBreakdown"] = breakdown_json(r.decode_times);
    }
    print_json(out, 2);
    return;
  }
  const bool csv = options.output == "csv";
  std::printf(
      csv ? "kernels,threads,depth,parallel,prefill_tok_s,decode_tok_s,prefill_gmac_s,"
            "decode_gmac_s,decode_gb_s,streamed_bytes,ms_token\n"
          : "kernels     threads  depth  parallel  prefill tok/s  decode tok/s  prefill GMAC/s  "
            "decode GMAC/s  decode GB/s  streamed/pass    ms/token\n");
  for (const Row& r : rows) {
    std::printf(
        csv ? "%s,%d,%d,%d,%.2f,%.2f,%.2f,%.2f,%.2f,%s,%.3f\n"
            : "%-11s %7d %6d %9d %14.2f %13.2f %15.2f %14.2f %12.2f  %13s %11.3f\n",
        r.kernels.c_str(), r.threads, r.depth, r.parallel, r.prefill, r.decode, r.gmacs_prefill,
        r.gmacs_decode, r.gb_decode,
        csv ? std::to_string(r.bytes_per_pass).c_str() : human_bytes(r.bytes_per_pass).c_str(),
        r.ms);
    const uint64_t uses = r.reads.expert_hits + r.reads.expert_misses;
    if (csv || uses == 0) continue;
    std::printf("  experts: %.1f %% of %llu uses in memory, %s read per token\n",
                100.0 * static_cast<double>(r.reads.expert_hits) / static_cast<double>(uses),
                static_cast<unsigned long long>(uses),
                human_bytes(static_cast<uint64_t>(r.reads.bytes_per_token())).c_str());
  }
  if (options.breakdown) print_breakdown(rows, options);
}

int bench(const BenchOptions& options) {
  if (options.output != "table" && options.output != "json" && options.output != "csv") {
    return fail(error(Code::kInvalidArgument,
                      "unknown output format \"%.32s\"; use table, json or csv",
                      options.output.c_str()));
  }
  if (!options.drafts.empty()) {
    return bench_drafts({.common = options.common,
                         .drafts = options.drafts,
                         .replay = options.replay,
                         .generate = options.generate,
                         .prompt = options.prompt,
                         .repeat = options.repeat,
                         .no_page_cache = options.no_page_cache,
                         .json = json(options)});
  }
  std::vector<Row> rows;
  std::vector<int> threads = options.threads;
  if (threads.empty()) threads.push_back(options.common.threads);
  for (const int t : threads) {
    for (const int parallel : options.parallel) {
      if (Status s = measure(options, t, parallel, &rows); !s.ok()) return fail(s);
    }
  }
  print_rows(rows, options);
  return 0;
}

}  // namespace

void add_bench(CLI::App& app, int* status) {
  auto options = std::make_shared<BenchOptions>();
  CLI::App* sub = add_command(app, kMeasure, "bench", "Measure prefill and decode speed",
                              "sluice bench model.gguf -p 512 -n 128");
  add_common(*sub, options->common);
  sub->remove_option(sub->get_option("--threads"));  // bench takes a list instead
  add_lora(*sub, options->common);
  const auto tokens = [](CLI::Option* option) { return limit(option, options::find("n_ctx")); };
  tokens(sub->add_option("-p,--n-prompt", options->prompt,
                         "prompt tokens; 0 skips prefill (default: 128)"));
  tokens(sub->add_option("-n,--n-gen", options->generate,
                         "tokens to generate; 0 skips decode (default: 32)"));
  // A list is one argument, or the option is repeated, so that MODEL may follow it.
  const auto list = [](CLI::Option* option) {
    return option->delimiter(',')->allow_extra_args(false);
  };
  constexpr const options::Option& kThreads = options::find("threads");
  limit(list(sub->add_option(kThreads.cli, options->threads,
                             "thread counts, such as 1,2 (default: chosen)")),
        kThreads);
  tokens(list(sub->add_option("-d,--n-depth", options->depths,
                              "context depths at which decode is measured, such as 0,2048 "
                              "(default: 0)")));
  limit(list(sub->add_option("--parallel", options->parallel,
                             "sessions in one batch, such as 1,8 (default: 1)")),
        options::find("sessions"));
  sub->add_option("-r,--repetitions", options->repeat, "repetitions (default: 3)")
      ->check(whole_number(1, 1 << 20));
  sub->add_flag(
      "--no-page-cache", options->no_page_cache,
      "read weights without the page cache, as if the file did not fit in memory (default: off)");
  sub->add_option("--direct-io", options->direct_io,
                  "read weights without the page cache, from several threads: on, off or auto: if "
                  "the files exceed the available memory and it is faster (default: auto)")
      ->check(CLI::IsMember({"auto", "on", "off"}));
  sub->add_flag(
      "--no-joined-reads", options->no_joined_reads,
      "with direct I/O, read neighbours in the file one by one (default: they are one read)");
  CLI::Option* breakdown = sub->add_flag(
      "--breakdown", options->breakdown,
      "also show where the time of a token goes: waiting, decompressing, matrix multiplications, "
      "attention (default: off)");
  list(sub->add_option(options::find("draft").cli, options->drafts,
                       "compare these kinds of speculative decoding, such as "
                       "off,ngram,SMALLER_MODEL (default: none)"))
      ->excludes(breakdown);
  sub->add_option("--replay", options->replay,
                  "JSON file {\"prompt\": [ids], \"answer\": [ids]}: these tokens are generated "
                  "instead of the model's choice (default: none)")
      ->needs("--draft");
  sub->add_option("--expert-trace", options->expert_trace,
                  "replay the experts of this trace in place of the router's choices "
                  "(default: none)");
  sub->add_flag("--ascending-experts", options->ascending_experts,
                "compute experts in ascending order (default: first those in memory)");
  sub->add_flag("--fixed-experts", options->fixed_experts,
                "keep the experts in memory that are loaded first (default: off)");
  sub->add_option("-o,--output", options->output, "output format: table (default), json or csv");
  sub->callback([options, status] { *status = bench(*options); });
}

}  // namespace sluice::cli
