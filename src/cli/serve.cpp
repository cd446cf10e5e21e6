// `sluice serve`: the OpenAI-compatible HTTP server. The first signal lets running requests finish;
// the second one stops at once.
#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/byte_size.h"
#include "base/clock.h"
#include "cli/atomic_file.h"
#include "cli/cli.h"
#include "cli/generation_options.h"
#include "cli/options.h"
#include "cli/pictures.h"
#include "endpoints/pages.h"
#include "io/address.h"
#include "native/hub_files.h"
#include "platform/console.h"
#include "serve/http_server.h"

namespace sluice::cli {
namespace {

struct ServeOptions {
  Common common;
  serve::HttpOptions http;
  PromptCacheOptions remembering;
  ChatTemplateOptions chat_template;
  PictureOptions pictures;
  native::PictureUrls picture_urls;
  int parallel = 1, conversations = 64, queue = 64, timeout = 600, grace = 10;
  std::string max_body, api_key, draft = "off", swap_to = "off";
  [[nodiscard]] bool swaps() const { return swap_to != "off"; }
  bool no_structured_output = false, quiet = false;
};

constexpr uint64_t kPictureBody = 32u << 20;  // of a request, where pictures may be in it

// Counts signals. Until ready() is called a signal ends the process at once, since loading a model
// may block forever.
class SignalWatch {
 public:
  void ready() {
    const std::lock_guard<std::mutex> lock(mutex_);
    ready_ = true;
  }
  // Waits until `signals` have arrived, or `timeout_ms` have passed.
  void wait(int signals, double timeout_ms) {
    std::unique_lock<std::mutex> lock(mutex_);
    came_.wait_for(lock, std::chrono::duration<double, std::milli>(timeout_ms),
                   [&] { return count_ >= signals; });
  }
  [[nodiscard]] int count() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return count_;
  }

 private:
  void count_signal() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!ready_) {
      end_interrupted();
    }
    ++count_;
    came_.notify_all();
  }
  std::mutex mutex_;
  std::condition_variable came_;
  bool ready_ = false;
  int count_ = 0;
  platform::SignalThread signals_{[this](bool) { count_signal(); }};
};

// What outlives the header of the model's file.
struct Described {
  std::string name;
  chat::ModelTexts texts;
  ollama::ModelFacts about;
  media::TextModel text_model;
  int64_t prefix = -1, suffix = -1, middle = -1;  // fill-in-the-middle tokens
};

Described describe(const gguf::Header& header) {
  Described out;
  out.name = header.get_string("general.name").value_or("");
  out.texts = chat::read_texts(header);
  out.text_model = media::TextModel::from(header);
  std::map<std::string, uint64_t> types;
  for (const gguf::Tensor& tensor : header.tensors) {
    out.about.bytes += tensor.bytes;
    out.about.parameters += tensor.cols() * tensor.rows();
    if (const gguf::TypeInfo* type = gguf::type_info(tensor.type))
      types[type->name] += tensor.bytes;
  }
  const auto most = std::max_element(
      types.begin(), types.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  if (most != types.end()) out.about.quantization = most->first;
  const std::string family(header.get_string("general.architecture").value_or(""));
  out.about.embeds = header.find(family + ".pooling_type") != nullptr;
  const auto id = [&](const char* key, const char* old) {
    const std::string base = "tokenizer.ggml.";
    const auto found = header.get_u64(base + key);
    return static_cast<int64_t>(found ? *found : header.get_u64(base + old).value_or(UINT64_MAX));
  };
  out.prefix = id("fim_pre_token_id", "prefix_token_id");
  out.suffix = id("fim_suf_token_id", "suffix_token_id");
  out.middle = id("fim_mid_token_id", "middle_token_id");
  return out;
}

openai::InfillTokens infill_tokens(const Described& described,
                                   const tokenizer::Tokenizer& tokenizer) {
  openai::InfillTokens out;
  const auto set = [&](int64_t id, std::string* text) {
    if (id >= 0 && id < tokenizer.n_vocab()) {
      *text = tokenizer.piece(static_cast<tokenizer::Token>(id));
    }
  };
  set(described.prefix, &out.prefix);
  set(described.suffix, &out.suffix);
  set(described.middle, &out.middle);
  openai::find_infill_tokens(
      [&](std::string_view name) {
        const auto tokens = tokenizer.try_encode(name, {.add_special = false});
        return tokens.ok() && tokens->size() == 1 && tokenizer.piece(tokens->front()) == name;
      },
      &out);
  return out;
}

ollama::ModelFacts facts_of(const Described& described, const session::Engine& engine,
                            const chat::Template* chat_template,
                            const openai::InfillTokens& infill) {
  const model::Program& program = engine.program();
  const model::HParams& hp = program.hp;
  ollama::ModelFacts out = described.about;
  out.architecture = hp.arch;
  out.parallel = engine.plan().sessions.parallel;
  out.n_ctx_train = hp.n_ctx_train;
  out.n_layer = hp.n_layer;
  out.n_embd = hp.n_embd;
  out.n_vocab = hp.n_vocab;
  out.n_head = hp.attention.n_head;
  out.n_head_kv = hp.attention.n_head_kv;
  out.completes = hp.attention.causal && program.head >= 0;
  out.embeds = out.embeds && program.rank_tail.width == 0;  // not a reranker
  endpoints::find_abilities(
      infill.usable(), chat_template == nullptr ? "" : chat_template->source(/*with_tools=*/true),
      &out);
  return out;
}

void set_memory(const session::MemoryPlan& plan, serve::Metrics& metrics) {
  const auto set = [&](const char* name, uint64_t bytes) {
    metrics.set_constant(std::string("sluice_memory_") + name + "_bytes",
                         static_cast<double>(bytes));
  };
  set("budget", plan.budget.bytes);
  set("total", plan.total());
  set("weights", plan.weights.pinned_bytes + plan.weights.ring_bytes());
  set("kv", plan.bytes.kv);
  metrics.set_constant("sluice_context_tokens", plan.context.n_ctx);
  metrics.set_constant("sluice_sessions", plan.sessions.n_sessions);
}

std::string url_of(const std::string& host, int port) {
  const bool v6 = host.find(':') != std::string::npos;
  return "http://" + (v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

void announce(const ServeOptions& options, const std::string& name, int port) {
  const std::string url = url_of(options.http.host, port);
  if (options.common.json) {
    print_json({{"url", url}, {"model", name}});
  } else {
    std::printf("sluice: serving %s at %s\n", name.c_str(), url.c_str());
  }
  std::fflush(stdout);
  const std::string& host = options.http.host;
  const bool loopback = host.rfind("127.", 0) == 0 || host == "localhost" || host == "::1";
  if (!loopback && options.api_key.empty()) {
    std::fprintf(
        stderr,
        "sluice: warning: --api-key is not set, so anyone who can reach %s can use this server\n",
        url.c_str());
  }
}

// Shuts down: ends idle connections and incomplete requests, waits up to `grace_s` for running
// ones, then stops.
void end(SignalWatch& watch, int grace_s, serve::Service& service, serve::Worker& worker,
         serve::HttpServer& server) {
  service.close();
  worker.close();
  server.close();
  const double latest = monotonic_ms() + 1e3 * grace_s;
  while (server.in_flight() > 0 && monotonic_ms() < latest && watch.count() < 2) watch.wait(2, 10);
  worker.stop();
  server.stop();
}

Status check(ServeOptions& options, serve::Limits* limits) {
  if (!options.max_body.empty()) {
    const Result<uint64_t> most = parse_size(options.max_body);
    if (!most.ok()) return most.status();
    limits->max_body = *most;
  }
  limits->request_ms = 1e3 * options.timeout;
  if (const char* key = std::getenv("SLUICE_API_KEY"); key != nullptr && options.api_key.empty()) {
    options.api_key = key;
  }
  options.http.log = !options.quiet;
  return {};
}

// The name of a model without one in its file.
std::string name_of(const std::string& model) {
  if (native::HubReference::is_one(model)) {
    const Result<native::HubReference> reference = native::HubReference::parse(model);
    if (reference.ok() && reference->path.empty()) return reference->repository;
  }
  return std::filesystem::path(io::public_source(model)).stem().string();
}

int serve_model(ServeOptions options) {
  std::unique_ptr<native::Model> model;  // must outlive the worker
  SignalWatch watch;
  serve::Limits limits;
  if (Status s = check(options, &limits); !s.ok()) return fail(s);
  if (Status s = options.chat_template.read(); !s.ok()) return fail(s);
  Result<native::LoadOptions> load = load_options(options.common);
  if (!load.ok()) return fail(load.status());
  load->engine.parallel = options.parallel;
  load->engine.structured_output = !options.no_structured_output;
  if (options.swaps()) load->engine.base_bytes += native::kSwapBytes;
  load->engine.draft_max = options.draft != "off" ? -1 : 0;
  load->engine.nextn = options.draft == "nextn";
  auto pictures = open_pictures(options.pictures, options.common.model, /*needed=*/false, &*load);
  if (!pictures.ok()) return fail(pictures.status());
  native::PictureFile* const eyes = pictures->get();
  if (eyes != nullptr && options.max_body.empty()) limits.max_body = kPictureBody;
  Described described;
  load->on_header = [&](const gguf::Header& header) { described = describe(header); };
  auto opened = native::Model::open(options.common.model, *load);
  if (!opened.ok()) return fail(opened.status());
  model = std::move(*opened);
  if (eyes != nullptr) eyes->attach(*model);
  if (described.name.empty()) described.name = name_of(options.common.model);
  const Result<chat::Template> chat_template = options.chat_template.parse(described.texts);

  const session::Engine& engine = model->engine();
  serve::Metrics metrics;
  set_memory(engine.plan(), metrics);
  serve::Worker worker(*model, metrics, static_cast<size_t>(options.queue));
  if (options.swaps()) {
    const Status s = worker.swap_to(options.swap_to, static_cast<size_t>(options.conversations));
    if (!s.ok()) return fail(s);
  }
  if (Status s = options.remembering.open(*model); !s.ok()) return fail(s);
  if (options.remembering.cache) {
    worker.remember({[&](session::Session& session, std::span<const session::Token> prompt) {
                       options.remembering.recall(session, prompt);
                     },
                     [&](const session::Session& session) { options.remembering.keep(session); }});
  }
  const chat::Template* with_template = chat_template.ok() ? &chat_template.value() : nullptr;
  const openai::InfillTokens infill = infill_tokens(described, engine.tokenizer());
  serve::ModelFacts facts{.name = described.name,
                          .tokenizer = &engine.tokenizer(),
                          .chat_template = with_template,
                          .n_ctx = engine.plan().context.n_ctx,
                          .n_vocab = engine.program().hp.n_vocab,
                          .width = engine.program().embed_tail.width,
                          .n_scores = engine.program().rank_tail.width,
                          .text_model = described.text_model,
                          .ngram_drafts = options.draft != "off",
                          .infill = infill,
                          .about = facts_of(described, engine, with_template, infill)};
  if (eyes != nullptr) {
    facts.pictures = options.picture_urls;
    facts.projector = &eyes->pictures();
    facts.decoding = *options.pictures.decoding();
    worker.see(eyes, facts.decoding);
  }
  serve::Service service(worker, metrics, std::move(facts), limits, options.api_key);
  serve::HttpServer server(service, options.http);
  const Result<int> port = server.bind();
  if (!port.ok()) return fail(port.status());
  if (!chat_template.ok()) fail(chat_template.status());  // reported; other endpoints still work
  if (Status s = show_preload(*model, options.quiet); !s.ok()) return fail(s);
  if (Status s = model->preload(); !s.ok()) return fail(s);
  if (Status s = worker.start(); !s.ok()) return fail(s);
  watch.ready();
  std::thread listener([&] { server.run(); });
  announce(options, described.name, *port);
  while (watch.count() == 0) watch.wait(1, 1e9);
  end(watch, options.grace, service, worker, server);
  listener.join();
  return finish_output();
}

}  // namespace

void add_serve(CLI::App& app, int* status) {
  auto options = std::make_shared<ServeOptions>();
  CLI::App* sub = add_command(app, kUse, "serve", "Serve the APIs of OpenAI, Anthropic and Ollama",
                              "sluice serve model.gguf --port 8080 --parallel 4");
  add_common(*sub, options->common);
  add_lora(*sub, options->common);
  sub->add_option("--port", options->http.port, "TCP port; 0: any free one (default: 8080)")
      ->check(whole_number(0, 65535));
  sub->add_option("--host", options->http.host, "address to listen on (default: 127.0.0.1)");
  limit(sub->add_option("--parallel", options->parallel,
                        "parallel requests in one batch, and sessions kept in memory (default: 1)"),
        options::find("sessions"));
  sub->add_option(
      "--swap-dir", options->swap_to,
      "directory for sessions swapped out of memory, deleted when the server stops; off (default)");
  sub->add_option("--max-sessions", options->conversations,
                  "with --swap-dir, sessions kept in memory and on disk (default: 64)")
      ->check(whole_number(1, native::kMaxConversations));
  sub->add_option("--max-queue", options->queue,
                  "requests that may wait in the queue (default: 64)")
      ->check(whole_number(1, 4096));
  sub->add_option("--api-key", options->api_key,
                  "the API key that requests must send (default: SLUICE_API_KEY)");
  sub->add_option("--cors-origin", options->http.cors_origin,
                  "origin of pages that may use the server; * for all (default: none)");
  sub->add_option("--max-body-size", options->max_body,
                  "maximum bytes of a request, 1k to 64M (default: 4M; 32M with a projector)")
      ->check(byte_size(1u << 10, 64u << 20));
  sub->add_option("--timeout", options->timeout, "maximum seconds for a request (default: 600)")
      ->check(whole_number(1, 86400));
  sub->add_option("--shutdown-timeout", options->grace,
                  "seconds that running requests get when the server stops (default: 10)")
      ->check(whole_number(0, 3600));
  sub->add_option(
         options::find("draft").cli, options->draft,
         "speculative decoding: ngram (repeat earlier text), nextn (also the model's multi-token "
         "prediction head, for a single request) or off (default)")
      ->check(one_of({"ngram", "nextn", "off"}));
  add_pictures(*sub, options->pictures, /*with_images=*/false);
  CLI::Option* const urls =
      sub->add_flag("--allow-image-urls", options->picture_urls.http,
                    "fetch pictures that requests name by http(s) URLs from public addresses; data "
                    "URLs need no option (default: off)");
  sub->add_flag("--allow-private-image-urls", options->picture_urls.private_addresses,
                "with --allow-image-urls, also from loopback and private addresses (default: off)")
      ->needs(urls);
  add_remembering(*sub, options->remembering);
  add_chat_template_options(*sub, options->chat_template);
  sub->add_flag("--no-structured-output", options->no_structured_output,
                "disable response_format and reserve no memory for it (default: off)");
  add_quiet(*sub, options->quiet, "log no requests, and show no progress");
  sub->callback([options, status] { *status = serve_model(*options); });
}

}  // namespace sluice::cli
