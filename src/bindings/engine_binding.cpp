// The Embind surface of the engine, as web/binding.ts types it. No logic: it converts arguments,
// keeps the last error, and owns the header, the engine and its one session.
#include <emscripten/bind.h>
#include <emscripten/val.h>
#include <unistd.h>

#include <memory>

#include "base/aligned.h"
#include "open/opener.h"
#include "sample/sampler.h"
#include "session/session.h"
#include "session/speed.h"

namespace sluice::bindings {
namespace {

using emscripten::val;
using session::Token;

extern "C" int sluice_read(uint32_t file, double offset, uint8_t* dst, uint32_t length);

// The files that each thread has open (web/glue.d.ts).
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
  p.temperature = static_cast<float>(number_or(o, "temperature", p.temperature));
  p.top_k = static_cast<int32_t>(number_or(o, "top_k", p.top_k));
  p.top_p = static_cast<float>(number_or(o, "top_p", p.top_p));
  p.min_p = static_cast<float>(number_or(o, "min_p", p.min_p));
  p.repeat_penalty = static_cast<float>(number_or(o, "repeat_penalty", p.repeat_penalty));
  p.frequency_penalty = static_cast<float>(number_or(o, "frequency_penalty", 0));
  p.presence_penalty = static_cast<float>(number_or(o, "presence_penalty", 0));
  p.penalty_last_n = static_cast<int32_t>(number_or(o, "penalty_last_n", p.penalty_last_n));
  p.seed = static_cast<uint64_t>(std::max(0.0, number_or(o, "seed", 0)));
  const val bias = o["logit_bias"];
  if (bias.isArray()) {
    const size_t n = bias["length"].as<size_t>();
    for (size_t i = 0; i < n; ++i) {
      p.logit_bias.emplace_back(bias[i][0].as<int32_t>(), bias[i][1].as<float>());
    }
  }
  return p;
}

}  // namespace

class EngineBinding {
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

  bool opened(double bytes) { return done(opener_->opened(static_cast<uint64_t>(bytes))); }
  bool absent(const std::string& why) { return done(opener_->absent(why)); }
  bool supply() { return done(opener_->supply()); }
  unsigned reserve(unsigned bytes) {
    const Result<std::span<uint8_t>> place = opener_->reserve(bytes);
    if (!place.ok()) return fail(place.status()), 0;
    return static_cast<unsigned>(reinterpret_cast<uintptr_t>(place->data()));
  }
  val synthesized_file() const {
    const std::span<const uint8_t> bytes = opener_->synthesized_file();
    return copy_out(bytes.data(), bytes.size(), "Uint8Array");
  }

  std::string inspect(const val& options) {
    Result<session::Inspection> found =
        session::inspect(opener_->header(), engine_options(options));
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
    if (options["storeBandwidth"].isNumber()) {
      const double rate = number_or(options, "storeBandwidth", 0);
      const bool shared = options["ownReads"].isTrue() && rate > 1e6 * residency::kMemorySpeed;
      session::report_speed(*found, {rate, 1, shared}, sink);
    }
    val layers = val::array();
    for (const uint32_t unit : session::layer_units(*found)) layers.call<void>("push", unit);
    out["plan"].set("layerUnits", layers);
    return to_text(out);
  }

  bool open(const val& options) {
    Result<std::unique_ptr<session::Engine>> engine =
        session::Engine::open(opener_->header(), engine_options(options));
    if (!engine.ok()) return fail(engine.status());
    engine_ = std::move(*engine);
    Result<std::unique_ptr<session::Session>> session = session::Session::create(*engine_);
    if (!session.ok()) return fail(session.status());
    session_ = std::move(*session);
    decoder_ = std::make_unique<tokenizer::StreamDecoder>(engine_->tokenizer());
    sampler_ = std::make_unique<sample::Sampler>(sample::Params{}, engine_->program().hp.n_vocab);
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
  void pump() { engine_->pump(); }

  // --- text
  val tokenize(const std::string& text, bool add_bos, bool parse_special) {
    const std::vector<Token> ids = engine_->tokenizer().encode(text, {add_bos, parse_special});
    return copy_out(ids.data(), ids.size(), "Int32Array");
  }
  std::string detokenize(const val& tokens, bool special) {
    return engine_->tokenizer().decode(to_tokens(tokens), special);
  }
  std::string decode_push(Token token, bool special) { return decoder_->push(token, special); }
  std::string decode_finish() {
    std::string rest = decoder_->finish();
    decoder_->reset();
    return rest;
  }
  bool is_end_of_generation(Token token) {
    return engine_->tokenizer().is_end_of_generation(token);
  }

  // --- one timeline
  int position() const { return session_->position(); }
  void rewind(int n) { session_->rewind(n); }
  bool prefill(const val& tokens) {
    const Status status = session_->begin(to_tokens(tokens));
    return status.ok() ? true : fail(status);
  }
  int step(int max_ops) {
    const session::Step step = session_->step(max_ops);
    ++steps_;
    compute_ms_ += session_->stats().compute_ms - pass_ms_;
    pass_ms_ = session_->stats().compute_ms;
    if (step == session::Step::kBlocked) ++blocked_;
    if (step == session::Step::kDone) {
      pass_ms_ = 0;
      ++passes_;
      tokens_ += session_->stats().tokens;
    }
    return static_cast<int>(step);
  }
  bool set_sampler(const std::string& json) {
    const int64_t n_vocab = engine_->program().hp.n_vocab;
    const sample::Params params = sampling_params(val::global("JSON").call<val>("parse", json));
    const Status status = sample::validate(params, n_vocab);
    if (!status.ok()) return fail(status);
    sampler_ = std::make_unique<sample::Sampler>(params, n_vocab);
    return true;
  }
  int sample() { return sampler_->sample(session_->logits(), session_->history()); }
  std::string top_logprobs(int n, Token chosen) {
    val out = val::array();
    int i = 0;
    for (const sample::Candidate& c : sample::top_logprobs(session_->logits(), n, chosen)) {
      val pair = val::array();
      pair.set(0, c.token);
      pair.set(1, c.logprob);
      out.set(i++, pair);
    }
    return to_text(out);
  }
  val logits() {
    const std::span<float> values = session_->logits();
    return copy_out(values.data(), values.size(), "Float32Array");
  }
  val save_state() {
    AlignedBuffer state;
    const size_t n = static_cast<size_t>(session_->saved_bytes());
    Status status = state.allocate(n);
    if (status.ok()) status = session_->save({state.as<uint8_t>(), n});
    if (!status.ok()) {
      fail(status);
      return copy_out(static_cast<const uint8_t*>(nullptr), 0, "Uint8Array");
    }
    return copy_out(state.as<uint8_t>(), n, "Uint8Array");
  }
  bool restore_state(const val& bytes) {
    AlignedBuffer state;
    const size_t n = bytes["length"].as<size_t>();
    Status status = state.allocate(n);
    if (status.ok() && n > 0) {
      val(emscripten::typed_memory_view(n, state.as<uint8_t>())).call<void>("set", bytes);
      status = session_->restore({state.as<uint8_t>(), n});
    }
    return status.ok() ? true : fail(status);
  }

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
  std::string kernel_name() const { return engine_->table().name; }
  int threads() const { return engine_->pool().n_threads(); }

 private:
  session::EngineOptions engine_options(const val& o) {
    session::EngineOptions options;
    // The budget is the memory's maximum, in whole pages; what lies below the heap's end (stack,
    // constants, the header just parsed) is taken from it already.
    options.page_bytes = 65536;
    options.memory_budget = static_cast<uint64_t>(number_or(o, "memoryBudget", 0));
    options.memory_budget -= options.memory_budget % options.page_bytes;
    options.base_bytes = base_bytes_;
    options.spare = beside_heap;
    options.n_ctx = static_cast<int32_t>(number_or(o, "contextLength", 0));
    options.n_threads = static_cast<int32_t>(number_or(o, "threads", 0));
    const val kernels = o["kernels"];
    options.reader = &shared_files_;
    if (o["ownReads"].isTrue()) options.own_reads = residency::OwnReads::kOnceLocal;
    kernels_ = kernels.isString() ? kernels.as<std::string>() : "";
    options.kernels = kernels_.c_str();
    return options;
  }
  // Beside the heap, the tab holds compiled code and a JavaScript engine for each worker: up to 48
  // MB that this package brings about. Budgets that can spare it leave that free.
  static uint64_t beside_heap(uint64_t budget) {
    constexpr uint64_t kFree = 64 << 20, kMost = 48 << 20;
    return budget > kFree ? std::min(kMost, (budget - kFree) / 4) : 0;
  }
  bool fail(const Status& status) {
    error_ = status;
    return false;
  }
  bool done(const Status& status) { return status.ok() ? true : fail(status); }
  // What the heap holds once the header is parsed. The rest is what malloc loses to alignment and
  // to the holes that the header leaves.
  void note_base() { base_bytes_ = reinterpret_cast<uintptr_t>(sbrk(0)) + (128 << 10); }

  std::unique_ptr<open::Opener> opener_;  // until open(), which lets the header go
  uint64_t base_bytes_ = 0;               // of the heap, once the header is parsed
  SharedFiles shared_files_;
  std::string kernels_;
  std::unique_ptr<session::Engine> engine_;
  std::unique_ptr<session::Session> session_;
  std::unique_ptr<tokenizer::StreamDecoder> decoder_;
  std::unique_ptr<sample::Sampler> sampler_;
  std::vector<uint8_t> states_;
  Status error_;
  uint64_t passes_ = 0, tokens_ = 0, steps_ = 0, blocked_ = 0;
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
      .function("inspect", &EngineBinding::inspect)
      .function("open", &EngineBinding::open)
      .function("error", &EngineBinding::error)
      .function("fillQueue", &EngineBinding::fill_queue)
      .function("pump", &EngineBinding::pump)
      .function("tokenize", &EngineBinding::tokenize)
      .function("detokenize", &EngineBinding::detokenize)
      .function("decodePush", &EngineBinding::decode_push)
      .function("decodeFinish", &EngineBinding::decode_finish)
      .function("isEndOfGeneration", &EngineBinding::is_end_of_generation)
      .function("position", &EngineBinding::position)
      .function("rewind", &EngineBinding::rewind)
      .function("prefill", &EngineBinding::prefill)
      .function("step", &EngineBinding::step)
      .function("setSampler", &EngineBinding::set_sampler)
      .function("sample", &EngineBinding::sample)
      .function("topLogprobs", &EngineBinding::top_logprobs)
      .function("logits", &EngineBinding::logits)
      .function("saveState", &EngineBinding::save_state)
      .function("restoreState", &EngineBinding::restore_state)
      .function("memory", &EngineBinding::memory)
      .function("stats", &EngineBinding::stats)
      .function("unitStates", &EngineBinding::unit_states)
      .function("kernelName", &EngineBinding::kernel_name)
      .function("threads", &EngineBinding::threads);
}

}  // namespace sluice::bindings
