// The Embind surface of the engine, as web/worker/binding.ts types it. No logic: it converts
// arguments, keeps the last error, and owns the header, the engine, its one session and the answer
// under way.
#include <emscripten/bind.h>
#include <emscripten/val.h>
#include <unistd.h>

#include <memory>

#include "adapter/adapter.h"
#include "base/aligned.h"
#include "embed/embedder.h"
#include "generate/generation.h"
#ifdef SLUICE_GPU
#include "gpu/gpu_executor.h"
#endif
#include "open/opener.h"
#include "session/session.h"
#include "session/speed.h"

namespace sluice::bindings {
namespace {

using emscripten::val;
using session::Token;

extern "C" int sluice_read(uint32_t file, double offset, uint8_t* dst, uint32_t length);

// The files that each thread has open (web/worker/glue.d.ts).
class SharedFiles final : public session::RangeReader {
  bool read(uint32_t file, uint64_t offset, std::span<uint8_t> out) override {
    const uint32_t length = static_cast<uint32_t>(out.size());
    return sluice_read(file, static_cast<double>(offset), out.data(), length) ==
           static_cast<int>(length);
  }
};

double number_or(const val& object, const char* key, double fallback) {
  const val field = object[key];
  return field.isNumber() ? field.as<double>() : fallback;
}

std::string to_text(const val& object) {
  return val::global("JSON").call<std::string>("stringify", object);
}

template <typename T>
val copy_out(const T* data, size_t n, const char* type) {
  return val::global(type).new_(val(emscripten::typed_memory_view(n, data)));
}

std::vector<Token> to_tokens(const val& array) {
  const size_t n = array["length"].as<size_t>();
  std::vector<Token> tokens(n);
  if (n > 0) val(emscripten::typed_memory_view(n, tokens.data())).call<void>("set", array);
  return tokens;
}

sample::Params sampling_params(const val& o) {
  sample::Params p;
  const auto number = [&o](const char* key, auto fallback) {
    return static_cast<decltype(fallback)>(number_or(o, key, static_cast<double>(fallback)));
  };
  p.temperature = number("temperature", p.temperature);
  p.top_k = number("topK", p.top_k);
  p.top_p = number("topP", p.top_p);
  p.min_p = number("minP", p.min_p);
  p.repeat_penalty = number("repeatPenalty", p.repeat_penalty);
  p.frequency_penalty = number("frequencyPenalty", p.frequency_penalty);
  p.presence_penalty = number("presencePenalty", p.presence_penalty);
  p.penalty_last_n = number("penaltyLastN", p.penalty_last_n);
  const val seed = o["seed"];  // text, since numbers end at 2^53
  if (seed.isString()) p.seed = std::strtoull(seed.as<std::string>().c_str(), nullptr, 10);
  const val bias = o["logitBias"];
  if (bias.isUndefined() || bias.isNull()) return p;
  const val entries = val::global("Object").call<val>("entries", bias);
  const size_t n = std::min<size_t>(entries["length"].as<size_t>(), sample::kMaxLogitBias + 1);
  for (size_t i = 0; i < n; ++i) {
    const std::string token = entries[i][0].as<std::string>();
    p.logit_bias.emplace_back(std::atoi(token.c_str()), entries[i][1].as<float>());
  }
  return p;
}

generate::Options answer_options(const val& o) {
  generate::Options out;
  out.sampling = sampling_params(o);
  const double most = number_or(o, "maxTokens", -1);
  out.max_tokens = most < 0 || most > INT32_MAX ? -1 : static_cast<int64_t>(most);
  const val stops = o["stop"];
  const size_t n = std::min<size_t>(stops["length"].as<size_t>(), generate::kMaxStops + 1);
  for (size_t i = 0; i < n; ++i) out.stop.push_back(stops[i].as<std::string>());
  out.logprobs = static_cast<int32_t>(number_or(o, "logprobs", -1));
  out.special = o["special"].isTrue();
  out.ignore_eos = o["ignoreEos"].isTrue();
  out.reuse_prefix = o["reusePrefix"].isTrue();
  const val constraint = o["constraint"];  // { kind, text, compact }
  if (!constraint.isUndefined() && !constraint.isNull()) {
    out.constraint = generate::Constraint();
    out.constraint->kind = static_cast<grammar::Kind>(
        std::clamp(static_cast<int>(number_or(constraint, "kind", 3)), 0, 4));
    out.constraint->text = constraint["text"].as<std::string>();
    out.constraint->options.compact = !constraint["compact"].isFalse();
  }
  return out;
}

const char* finish_name(generate::Finish finish) {
  switch (finish) {
    case generate::Finish::kStop:
      return "stop";
    case generate::Finish::kLength:
    case generate::Finish::kContext:
      return "length";
    case generate::Finish::kCancelled:
      return "cancelled";
    case generate::Finish::kNone:
    case generate::Finish::kFailed:
      break;
  }
  return "";
}

}  // namespace

class EngineBinding {
  static constexpr size_t kStageBytes = 1 << 16;  // web/worker/binding.ts has it, too

 public:
  // --- header
  void source(const std::string& address, const std::string& names) {
    open::Source source{address, false, {}};
    for (size_t at = 0, end; at < names.size(); at = end + 1) {  // each ends with a '/'
      end = names.find('/', at);
      source.names.push_back(names.substr(at, end - at));
    }
    opener_ = std::make_unique<open::Opener>(std::move(source));
  }

  val need() {
    const Result<open::Need> need = opener_->need();
    if (!need.ok()) return fail(need.status()), val::null();
    if (need->want == open::Want::kDone) note_base();
    val out = val::object();
    const auto number = [&out](const char* key, double value) { out.set(key, value); };
    number("want", static_cast<double>(need->want));
    number("file", need->file);
    number("choice", need->choice);
    number("offset", static_cast<double>(need->offset));
    number("length", static_cast<double>(need->length));
    out.set("name", need->name);
    out.set("optional", need->optional);
    return out;
  }

  bool opened(double bytes) { return checked(opener_->opened(static_cast<uint64_t>(bytes))); }
  bool absent(const std::string& why) { return checked(opener_->absent(why)); }
  bool supply() { return checked(opener_->supply()); }
  unsigned reserve(unsigned bytes) {
    const Result<std::span<uint8_t>> place = opener_->reserve(bytes);
    if (!place.ok()) return fail(place.status()), 0;
    return static_cast<unsigned>(reinterpret_cast<uintptr_t>(place->data()));
  }
  val synthesized_file() const {
    const std::span<const uint8_t> bytes = opener_->synthesized_file();
    return copy_out(bytes.data(), bytes.size(), "Uint8Array");
  }

  // --- adapters: one more of those that inspect(), open() and set_adapters() take, a GGUF file
  // whose bytes stay JavaScript's. PEFT's form is left to native programs: it would cost every
  // page.
  bool adapter(const val& bytes, float scale) {
    auto read = std::make_unique<adapter::Adapter>();
    const uint64_t size = bytes["length"].as<uint32_t>();
    AlignedBuffer prefix;
    uint64_t had = 0, need = kStageBytes;
    for (;;) {
      need = std::min({std::max(need, had + 1), size, adapter::kMaxDirectory});
      if (!copy_in(bytes.call<val>("subarray", 0, static_cast<double>(need)), &prefix)) {
        return false;
      }
      const auto parsed =
          adapter::parse_gguf({prefix.as<uint8_t>(), prefix.size()}, size, read.get());
      if (!parsed.ok()) return fail(parsed.status());
      if (parsed->done) break;
      if (need == had) {
        return fail(sluice::error(Code::kBadHeader, "the adapter's description is impossible"));
      }
      had = need;
      need = parsed->need_bytes;
    }
    const auto copy = [bytes](uint64_t offset, std::span<uint8_t> out) {
      const double from = static_cast<double>(offset), n = static_cast<double>(out.size());
      val(emscripten::typed_memory_view(out.size(), out.data()))
          .call<void>("set", bytes.call<val>("subarray", from, from + n));
      return Status();
    };
    sources_.push_back({read.get(), scale, copy});
    adapters_.push_back(std::move(read));
    prefix = {};
    if (opener_) note_base();
    return true;
  }
  bool set_adapters() {
    drop_answer();
    embedder_.reset();
    engine_->residency().collect();
    return checked(engine_->set_adapters(sources_));
  }
  void forget_adapters() {
    sources_.clear();
    adapters_.clear();
  }

  std::string inspect(const val& options) {
    const Result<session::EngineOptions> engine_with = engine_options(options);
    Result<session::Inspection> found = engine_with.ok()
                                            ? session::inspect(opener_->header(), *engine_with)
                                            : Result<session::Inspection>(engine_with.status());
    if (!found.ok()) {
      fail(found.status());
      val problem = val::object();
      problem.set("error", error());
      return to_text(problem);
    }
    val out = val::object();
    const session::ReportSink sink = [&out](const char* section, const char* key,
                                            const session::ReportValue& value) {
      val target = out;
      if (section != nullptr) {
        if (out[section].isUndefined()) out.set(section, val::object());
        target = out[section];
      }
      std::visit([&](const auto& v) { target.set(key, v); }, value);
    };
    session::report_model(opener_->header(), *found, sink);
    session::report_plan(found->plan, sink);
    session::report_kv_types(*found, sink);
    if (options["storeBandwidth"].isNumber()) {
      const double rate = number_or(options, "storeBandwidth", 0);
      const bool shared = options["directReads"].isTrue() && rate > 1e6 * residency::kMemorySpeed;
      session::report_speed(*found, {rate, 1, shared}, sink);
    }
    val layers = val::array();
    for (const uint32_t unit : session::layer_units(*found)) layers.call<void>("push", unit);
    out["plan"].set("layerUnits", layers);
    return to_text(out);
  }

  bool open(const val& options) {
    const Result<session::EngineOptions> engine_with = engine_options(options);
    if (!engine_with.ok()) return fail(engine_with.status());
    Result<std::unique_ptr<session::Engine>> engine =
        session::Engine::open(opener_->header(), *engine_with);
    if (!engine.ok()) return fail(engine.status());
    engine_ = std::move(*engine);
    Result<std::unique_ptr<session::Session>> session = session::Session::create(*engine_);
    if (!session.ok()) return fail(session.status());
    session_ = std::move(*session);
    opener_.reset();
    return true;
  }

  val error() const {
    val out = val::object();
    out.set("code", std::string(code_name(error_.code())));
    out.set("message", error_.message());
    return out;
  }

  // --- I/O
  unsigned fill_queue() {
    return static_cast<unsigned>(reinterpret_cast<uintptr_t>(&engine_->residency().queue()));
  }
  void poll() { engine_->poll(); }

  // --- text
  // The text comes as bytes, because a string is copied in without asking for room.
  val tokenize(const val& bytes, unsigned how) {
    AlignedBuffer text;
    if (!copy_in(bytes, &text)) return val::null();
    const auto ids =
        engine_->tokenizer().try_encode(view_of(text), {.add_bos = (how & 1) != 0,
                                                        .parse_special = (how & 2) != 0,
                                                        .continues = (how & 4) != 0,
                                                        .marked = (how & 8) != 0});
    if (!ids.ok()) return fail(ids.status()), val::null();
    return copy_out(ids->data(), ids->size(), "Int32Array");
  }
  // Of a query and a document as rerankers read them.
  val pair_tokens(const val& query, const val& document) {
    AlignedBuffer first, second;
    if (!copy_in(query, &first) || !copy_in(document, &second)) return val::null();
    const auto ids = embed::pair_tokens(engine_->tokenizer(), view_of(first), view_of(second));
    if (!ids.ok()) return fail(ids.status()), val::null();
    return copy_out(ids->data(), ids->size(), "Int32Array");
  }
  std::string control_texts() {
    val out = val::array();
    for (const Token id : engine_->tokenizer().gated_tokens()) {
      out.call<void>("push", std::string(engine_->tokenizer().piece(id)));
    }
    return to_text(out);
  }
  std::string detokenize(const val& tokens, bool special) {
    return engine_->tokenizer().decode(to_tokens(tokens), special);
  }

  // --- the timeline
  int position() const { return session_->position(); }
  val tokens() const {
    const std::span<const Token> held = session_->tokens();
    return copy_out(held.data(), held.size(), "Int32Array");
  }
  void clear() {
    drop_answer();
    embedder_.reset();
    session_->clear();
  }
  bool append(const val& tokens) {
    drop_answer();
    embedder_.reset();
    pass_ms_ = 0;
    pass_tokens_ = 0;
    if (!fits(tokens)) return false;
    return checked(session_->begin(to_tokens(tokens)));
  }
  // The same for the logits of token `row` of a text that is read whole.
  bool append_whole(const val& tokens, int row) {
    clear();
    pass_ms_ = 0;
    pass_tokens_ = 0;
    if (!fits(tokens)) return false;
    return checked(session_->begin_rows(to_tokens(tokens), row, 1));
  }
  val logits() {
    const std::span<float> values = session_->logits();
    return copy_out(values.data(), values.size(), "Float32Array");
  }
  bool begin(const val& prompt, const val& options) {
    drop_answer();  // before the next one, so that there is memory for one at a time
    embedder_.reset();
    if (!fits(prompt)) return false;
    generate::Options chosen = answer_options(options);
    chosen.drafts.ngram = engine_->plan().draft_max > 0;
    with_logprobs_ = chosen.logprobs >= 0;
    auto answer = generate::Generation::begin(*session_, to_tokens(prompt), chosen);
    if (!answer.ok()) return fail(answer.status());
    answer_ = std::move(*answer);
    pass_ms_ = 0;
    pass_tokens_ = 0;
    return true;
  }
  int step(int max_ops) {
    const session::Step step = answer_     ? answer_->step(max_ops)
                               : embedder_ ? embedder_->step(max_ops)
                                           : session_->step(max_ops);
    count(step);
    if (step == session::Step::kFailed) {
      fail(answer_ ? answer_->failure() : session_->failure());
    }
    return static_cast<int>(step);
  }
  void cancel() {
    if (answer_) answer_->cancel();
    if (embedder_) session_->clear();
    embedder_.reset();
  }
  val take_pieces() {
    val list = val::array();
    if (!answer_) return list;
    for (const generate::Piece& piece : answer_->take_pieces()) {
      list.call<void>("push", to_val(piece));
    }
    return list;
  }
  val answer() const {
    val out = val::object();
    if (!answer_) return out;
    const generate::Counts& counts = answer_->counts();
    out.set("finish", std::string(finish_name(answer_->finish())));
    out.set("stopString", answer_->stop_string());
    out.set("inPrompt", answer_->in_prompt());
    out.set("promptTokens", counts.prompt);
    out.set("cachedTokens", counts.cached);
    out.set("completionTokens", counts.generated);
    out.set("promptMs", counts.prompt_ms);
    out.set("firstMs", counts.first_ms);
    out.set("generateMs", counts.generate_ms);
    out.set("promptRate", counts.prompt_rate());
    out.set("generateRate", counts.generate_rate());
    return out;
  }

  // --- embeddings
  // Texts of at most the context's tokens together, and where each ends.
  bool begin_embed(const val& tokens, const val& ends, const val& options) {
    drop_answer();
    embedder_.reset();
    if (!fits(tokens) || !fits(ends)) return false;
    embed_tokens_ = to_tokens(tokens);
    embed_ends_ = to_tokens(ends);
    embed::Options chosen;
    const double pooling = number_or(options, "pooling", -1);
    if (pooling >= 0) chosen.pooling = static_cast<model::Pooling>(pooling);
    chosen.normalize = !options["normalize"].isFalse();
    chosen.dimensions = static_cast<int32_t>(number_or(options, "dimensions", 0));
    embedder_.emplace(*session_);
    pass_ms_ = 0;
    pass_tokens_ = 0;
    return checked(embedder_->begin(embed_tokens_, embed_ends_, chosen));
  }
  // Begins the next pass over them: 1; 0 when all are done, -1 when it failed.
  int embed_next() {
    const Result<bool> more = embedder_->next();
    if (!more.ok()) return fail(more.status()), -1;
    if (!*more) embedder_.reset();
    return *more ? 1 : 0;
  }
  // The rows of the pass that is done, one after the other.
  val embed_results() const {
    const size_t n = static_cast<size_t>(embedder_->n_results());
    const size_t width = static_cast<size_t>(embedder_->width());
    const val out = val::global("Float32Array").new_(n * width);
    for (size_t i = 0; i < n; ++i) {
      const std::span<const float> row = embedder_->result(static_cast<int32_t>(i));
      out.call<void>("set", val(emscripten::typed_memory_view(row.size(), row.data())), i * width);
    }
    return out;
  }
  std::string embed_info() const {
    const model::Program& program = engine_->program();
    val out = val::object();
    out.set("pooling", static_cast<int>(program.hp.pooling));
    out.set("dimensions", program.embed_tail.width);
    out.set("scores", program.rank_tail.width);
    out.set("contextLength", engine_->plan().n_ctx);
    out.set("causal", program.hp.causal);
    return to_text(out);
  }

  // --- its state
  unsigned state_stage() const {
    return static_cast<unsigned>(reinterpret_cast<uintptr_t>(stage_.data()));
  }
  double state_bytes() const { return static_cast<double>(session_->state_bytes()); }
  bool read_state(double offset, unsigned length) {
    if (length > stage_.size()) return fail(too_long());
    return checked(session_->read_state(static_cast<uint64_t>(offset), {stage_.data(), length}));
  }
  bool begin_restore(double bytes) {
    drop_answer();
    return checked(session_->begin_restore(static_cast<uint64_t>(bytes)));
  }
  bool write_state(unsigned length) {
    if (length > stage_.size()) return fail(too_long());
    return checked(session_->write_state({stage_.data(), length}));
  }

#ifdef SLUICE_GPU
  // --- the graphics card, which computes from now on
  std::string attach_card() {
    auto executor = std::make_unique<gpu::GpuExecutor>(*engine_);
    const std::string about = executor->describe();
    engine_->compute_with(std::move(executor));
    return about;
  }
#endif

  // --- insight
  std::string memory() {
    val out = val::object();
    session::report_plan(engine_->plan(),
                         [&out](const char*, const char* key, const session::ReportValue& value) {
                           std::visit([&](const auto& v) { out.set(key, v); }, value);
                         });
    out.set("heap", static_cast<double>(__builtin_wasm_memory_size(0)) * 65536.0);
    return to_text(out);
  }
  std::string stats() {
    val out = val::object();
    const residency::Residency& r = engine_->residency();
    const auto guesses = [this](int32_t generate::Counts::*count) {
      return guesses_.*count + (answer_ ? answer_->counts().*count : 0);
    };
    out.set("drafted", guesses(&generate::Counts::drafted));
    out.set("accepted", guesses(&generate::Counts::accepted));
    out.set("passes", static_cast<double>(passes_));
    out.set("tokens", static_cast<double>(tokens_));
    out.set("steps", static_cast<double>(steps_));
    out.set("blocked", static_cast<double>(blocked_));
    out.set("computeMs", compute_ms_);
    out.set("fills", static_cast<double>(r.fills()));
    out.set("filledBytes", static_cast<double>(r.filled_bytes()));
    out.set("ownBytes", static_cast<double>(r.own_bytes()));
    out.set("filledAtFirstUse", static_cast<double>(r.filled_at_first_use()));
    out.set("bytesPerPass", static_cast<double>(r.plan().streamed_bytes));
    out.set("pinsAbsent", static_cast<double>(r.pins_absent()));
    return to_text(out);
  }
  val unit_states() {
    const residency::Residency& r = engine_->residency();
    const size_t n = r.plan().units.size();
    states_.resize(n);
    for (uint32_t u = 0; u < n; ++u) {
      const bool pinned = r.plan().units[u].pinned;
      switch (r.state(u)) {
        case residency::UnitState::kAbsent:
          states_[u] = pinned ? 4 : 0;
          break;
        case residency::UnitState::kLoading:
          states_[u] = 1;
          break;
        case residency::UnitState::kArrived:
        case residency::UnitState::kReady:
          states_[u] = pinned ? 3 : 2;
          break;
      }
    }
    if (n > 0 && session_->busy()) states_[r.cursor_unit()] |= 16;
    return copy_out(states_.data(), n, "Uint8Array");
  }
  std::string kernel_name() const {
    return engine_->table().name;
  }
  int threads() const {
    return engine_->pool().n_threads();
  }

 private:
  Result<session::EngineOptions> engine_options(const val& o) {
    session::EngineOptions options;
    if (const val type = o["kvType"]; type.isString()) {
      const Result<kv::KvTypes> types = kv::parse_kv_types(type.as<std::string>());
      if (!types.ok()) return types.status();
      options.kv = *types;
    }
    if (const val policy = o["kvPolicy"]; policy.isString()) {
      const Result<kv::KvPolicy> parsed = kv::parse_kv_policy(
          policy.as<std::string>(), static_cast<int32_t>(number_or(o, "kvKeep", -1)),
          static_cast<int32_t>(number_or(o, "kvSize", 0)));
      if (!parsed.ok()) return parsed.status();
      options.kv_policy = *parsed;
    }
    // The budget is the memory's maximum, in whole pages; what lies below the heap's end (stack,
    // constants, the header just parsed) is taken from it already.
    options.page_bytes = 65536;
    options.memory_budget = static_cast<uint64_t>(number_or(o, "memoryBudget", 0));
    options.memory_budget -= options.memory_budget % options.page_bytes;
    options.base_bytes = base_bytes_ + static_cast<uint64_t>(number_or(o, "held", 0));
    options.grammars = o["grammars"].isTrue();
    options.draft_max = o["draft"].isTrue() ? -1 : 0;
    options.spare = beside_heap;
    options.n_ctx = static_cast<int32_t>(number_or(o, "contextLength", 0));
    options.n_threads = static_cast<int32_t>(number_or(o, "threads", 0));
    const val kernels = o["kernels"];
    options.reader = &shared_files_;
    options.adapters = sources_;
    if (o["directReads"].isTrue()) options.direct_reads = residency::DirectReads::kOnceLocal;
    kernels_ = kernels.isString() ? kernels.as<std::string>() : "";
    options.kernels = kernels_.c_str();
    return options;
  }
  // Beside the heap, the tab holds compiled code and a JavaScript engine for each worker: up to 48
  // MB that this package brings about, and 16 at the least that a token takes. Budgets that can
  // spare it leave that free.
  static uint64_t beside_heap(uint64_t budget) {
    constexpr uint64_t kFree = 32 << 20, kMost = 48 << 20;
    return budget > kFree ? std::min({kMost, (budget - kFree) / 2, budget / 4}) : 0;
  }
  // Its counts of guesses stay.
  void drop_answer() {
    if (answer_) {
      guesses_.drafted += answer_->counts().drafted;
      guesses_.accepted += answer_->counts().accepted;
    }
    answer_ = {};
  }
  bool fail(const Status& status) {
    error_ = status;
    return false;
  }
  bool checked(const Status& status) {
    return status.ok() || fail(status);
  }
  static Status too_long() {
    return sluice::error(Code::kInvalidArgument, "a piece of a state has at most %zu bytes",
                         kStageBytes);
  }
  // Bytes of JavaScript's, as a copy.
  bool copy_in(const val& bytes, AlignedBuffer* out) {
    const size_t n = bytes["length"].as<size_t>();
    if (Status s = out->allocate(n); !s.ok()) return fail(s);
    if (n > 0) {
      val(emscripten::typed_memory_view(n, out->as<uint8_t>())).call<void>("set", bytes);
    }
    return true;
  }
  static std::string_view view_of(const AlignedBuffer& bytes) {
    return {bytes.as<char>(), static_cast<size_t>(bytes.size())};
  }
  // Tokens are copied, and the plan has room for as many as the context holds.
  bool fits(const val& tokens) {
    const size_t n = tokens["length"].as<size_t>();
    const int32_t n_ctx = engine_->plan().n_ctx;
    if (n <= static_cast<size_t>(n_ctx)) return true;
    return fail(sluice::error(
        Code::kPromptTooLong,
        "the prompt has %zu tokens but the context holds %d: shorten it, or load with a larger one",
        n, n_ctx));
  }
  val to_val(const generate::Piece& piece) const {
    val out = val::object();
    out.set("token", piece.token);
    out.set("text", piece.text);
    if (!with_logprobs_) return out;
    out.set("logprob", piece.logprob);
    val top = val::array();
    for (const sample::Candidate& c : piece.top) {
      val one = val::object();
      one.set("token", c.token);
      one.set("text", engine_->tokenizer().decode({&c.token, 1}, /*special=*/true));
      one.set("logprob", c.logprob);
      top.call<void>("push", one);
    }
    out.set("topLogprobs", top);
    return out;
  }
  // What a session counts of a pass begins anew with the next one.
  void count(session::Step step) {
    const session::PassStats& stats = session_->stats();
    ++steps_;
    if (step == session::Step::kBlocked) ++blocked_;
    if (stats.compute_ms < pass_ms_ || stats.tokens < pass_tokens_) {
      pass_ms_ = 0;
      pass_tokens_ = 0;
    }
    if (stats.tokens > 0 && pass_tokens_ == 0) ++passes_;
    compute_ms_ += stats.compute_ms - pass_ms_;
    tokens_ += stats.tokens - pass_tokens_;
    pass_ms_ = stats.compute_ms;
    pass_tokens_ = stats.tokens;
  }
  // What the heap holds once the header is parsed. The rest is what malloc loses to alignment and
  // to the holes that the header leaves.
  void note_base() {
    base_bytes_ = reinterpret_cast<uintptr_t>(sbrk(0)) + (128 << 10);
  }

  std::unique_ptr<open::Opener> opener_;  // until open(), which lets the header go
  uint64_t base_bytes_ = 0;               // of the heap, once the header is parsed
  std::vector<std::unique_ptr<adapter::Adapter>> adapters_;
  std::vector<adapter::Source> sources_;  // of them, until they are loaded
  SharedFiles shared_files_;
  std::string kernels_;
  std::unique_ptr<session::Engine> engine_;
  std::unique_ptr<session::Session> session_;
  std::unique_ptr<generate::Generation> answer_;
  std::vector<Token> embed_tokens_, embed_ends_;  // of the texts under way
  std::optional<embed::Embedder> embedder_;       // goes before the session
  bool with_logprobs_ = false;
  generate::Counts guesses_;  // of all answers before
  std::array<uint8_t, kStageBytes> stage_;
  std::vector<uint8_t> states_;
  Status error_;
  uint64_t passes_ = 0, tokens_ = 0, steps_ = 0, blocked_ = 0, pass_tokens_ = 0;
  double compute_ms_ = 0, pass_ms_ = 0;
};

EMSCRIPTEN_BINDINGS(sluice) {
  emscripten::class_<EngineBinding>("Engine")
      .constructor<>()
      .function("source", &EngineBinding::source)
      .function("need", &EngineBinding::need)
      .function("opened", &EngineBinding::opened)
      .function("absent", &EngineBinding::absent)
      .function("reserve", &EngineBinding::reserve)
      .function("supply", &EngineBinding::supply)
      .function("synthesizedFile", &EngineBinding::synthesized_file)
      .function("adapter", &EngineBinding::adapter)
      .function("setAdapters", &EngineBinding::set_adapters)
      .function("forgetAdapters", &EngineBinding::forget_adapters)
      .function("inspect", &EngineBinding::inspect)
      .function("open", &EngineBinding::open)
      .function("error", &EngineBinding::error)
      .function("fillQueue", &EngineBinding::fill_queue)
      .function("poll", &EngineBinding::poll)
      .function("tokenize", &EngineBinding::tokenize)
      .function("pairTokens", &EngineBinding::pair_tokens)
      .function("embed", &EngineBinding::begin_embed)
      .function("embedNext", &EngineBinding::embed_next)
      .function("embedResults", &EngineBinding::embed_results)
      .function("embedInfo", &EngineBinding::embed_info)
      .function("controlTexts", &EngineBinding::control_texts)
      .function("detokenize", &EngineBinding::detokenize)
      .function("position", &EngineBinding::position)
      .function("tokens", &EngineBinding::tokens)
      .function("clear", &EngineBinding::clear)
      .function("append", &EngineBinding::append)
      .function("appendWhole", &EngineBinding::append_whole)
      .function("logits", &EngineBinding::logits)
      .function("begin", &EngineBinding::begin)
      .function("step", &EngineBinding::step)
      .function("cancel", &EngineBinding::cancel)
      .function("takePieces", &EngineBinding::take_pieces)
      .function("answer", &EngineBinding::answer)
      .function("stateStage", &EngineBinding::state_stage)
      .function("stateBytes", &EngineBinding::state_bytes)
      .function("readState", &EngineBinding::read_state)
      .function("beginRestore", &EngineBinding::begin_restore)
      .function("writeState", &EngineBinding::write_state)
#ifdef SLUICE_GPU
      .function("attachCard", &EngineBinding::attach_card)
#endif
      .function("memory", &EngineBinding::memory)
      .function("stats", &EngineBinding::stats)
      .function("unitStates", &EngineBinding::unit_states)
      .function("kernelName", &EngineBinding::kernel_name)
      .function("threads", &EngineBinding::threads);
}

}  // namespace sluice::bindings
