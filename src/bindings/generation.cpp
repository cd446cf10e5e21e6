// Generation and embeddings. Both run in steps, so that the worker can handle messages in between.
#include <algorithm>

#include "bindings/engine_binding.h"

namespace sluice::bindings {
namespace {

val to_bytes(const std::string& bytes) {
  const auto* data = reinterpret_cast<const unsigned char*>(bytes.data());
  return val::global("Uint8Array").new_(val(emscripten::typed_memory_view(bytes.size(), data)));
}

}  // namespace

bool EngineBinding::begin(const val& prompt, const val& options) {
  drop_work();  // first, because the plan has memory for one generation per slot
  if (!fits(prompt)) return false;
  generate::Options chosen = answer_options(options);
  chosen.media = media_;
  if (engine_->plan().batch.draft_max > 0) {
    chosen.drafts.ngram = true;
    chosen.drafts.model = draft_source_.get();
    for (Slot& slot : slots()) {
      if (!slot.guided) continue;
      if (slot.answer->finish() == generate::Finish::kNone) {
        chosen.drafts.model = nullptr;
      } else {
        drop_answer(slot);
      }
    }
  }
  // A session whose prompt has pictures is in no batch until the prompt is computed.
  const bool batched = scheduler() && media_.empty();
  if (batched && !checked(scheduler()->add(session()))) return false;
  auto answer = generate::Generation::begin(session(), to_tokens(prompt), chosen);
  if (!answer.ok()) {
    drop_answer(*slot_);  // also removes the session from the scheduler
    return fail(answer.status());
  }
  slot_->with_logprobs = chosen.logprobs >= 0;
  slot_->guided = chosen.drafts.model != nullptr;
  slot_->answer = std::move(*answer);
  if (scheduler()) scheduler()->add(*slot_->answer);
  begin_counting();
  return true;
}

int EngineBinding::step(int max_ops) {
  if (draft_) poll();  // each model loads while the other one computes
  const bool alone = !scheduler() || (session().busy() && !session().batch_share().batched);
  const session::Step step = embedder_       ? embedder_->step(max_ops)
                             : !alone        ? scheduler()->step(max_ops)
                             : slot_->answer ? slot_->answer->step(max_ops)
                                             : session().step(max_ops);
  ++steps_;
  if (step == session::Step::kBlocked) ++blocked_;
  if (alone || embedder_) count();
  if (step == session::Step::kFailed) {
    fail(slot_->answer ? slot_->answer->failure() : session().failure());
  }
  return static_cast<int>(step);
}

int EngineBinding::outcome() {
  const generate::Finish finish = slot_->answer->finish();
  if (finish == generate::Finish::kNone) return static_cast<int>(session::Step::kProgress);
  if (finish != generate::Finish::kFailed) return static_cast<int>(session::Step::kDone);
  fail(slot_->answer->failure());
  return static_cast<int>(session::Step::kFailed);
}

bool EngineBinding::drafting() const {
  const std::span<const Slot> all = slots();
  return std::any_of(all.begin(), all.end(),
                     [](const Slot& slot) { return slot.answer && slot.answer->drafting(); });
}

void EngineBinding::cancel() {
  if (slot_->answer) slot_->answer->cancel();
  if (embedder_) session().clear();
  embedder_.reset();
}

val EngineBinding::take_pieces() {
  val list = val::array();
  if (!slot_->answer) return list;
  for (const generate::Piece& piece : slot_->answer->take_pieces()) push(list, to_val(piece));
  return list;
}

val EngineBinding::answer() const {
  val out = val::object();
  if (!slot_->answer) return out;
  const generate::Generation& answer = *slot_->answer;
  const generate::Counts& counts = answer.counts();
  put(out, "finish", std::string(finish_name(answer.finish())));
  put(out, "stopString", answer.stop_string());
  put_flag(out, "inPrompt", answer.in_prompt());
  put(out, "promptTokens", static_cast<double>(counts.prompt));
  put(out, "cachedTokens", static_cast<double>(counts.cached));
  put(out, "completionTokens", static_cast<double>(counts.generated));
  put(out, "promptMs", counts.prompt_ms);
  put(out, "timeToFirstTokenMs", counts.time_to_first_token_ms);
  put(out, "generateMs", counts.generate_ms);
  put(out, "promptTokensPerSecond", counts.prompt_tokens_per_second());
  put(out, "tokensPerSecond", counts.tokens_per_second());
  return out;
}

bool EngineBinding::begin_embed(const val& tokens, const val& ends, const val& options) {
  drop_work();
  if (!fits(tokens) || !fits(ends)) return false;
  embed_tokens_ = to_tokens(tokens);
  embed_ends_ = to_tokens(ends);
  embed::Options chosen;
  const double pooling = number_or(options, "pooling", -1);
  if (pooling >= 0) chosen.pooling = static_cast<model::Pooling>(pooling);
  chosen.normalize = !field(options, "normalize").isFalse();
  chosen.dimensions = static_cast<int32_t>(number_or(options, "dimensions", 0));
  embedder_.emplace(session());
  begin_counting();
  return checked(embedder_->begin(embed_tokens_, embed_ends_, chosen));
}

int EngineBinding::embed_next() {
  const Result<bool> more = embedder_->next();
  if (!more.ok()) return fail(more.status()), -1;
  if (!*more) embedder_.reset();
  return *more ? 1 : 0;
}

val EngineBinding::embed_results() const {
  const size_t n = static_cast<size_t>(embedder_->n_results());
  const size_t width = static_cast<size_t>(embedder_->width());
  const val out = val::global("Float32Array").new_(n * width);
  for (size_t i = 0; i < n; ++i) {
    const std::span<const float> row = embedder_->result(static_cast<int32_t>(i));
    out.call<void>("set", val(emscripten::typed_memory_view(row.size(), row.data())), i * width);
  }
  return out;
}

std::string EngineBinding::embed_info() const {
  const model::Program& program = engine_->program();
  val out = val::object();
  put(out, "pooling", static_cast<double>(program.hp.pooling));
  put(out, "dimensions", program.embed_tail.width);
  put(out, "scores", program.rank_tail.width);
  put(out, "contextLength", engine_->plan().context.n_ctx);
  put_flag(out, "causal", program.hp.attention.causal);
  return to_text(out);
}

void EngineBinding::drop_answer(Slot& slot) {
  if (slot.answer) {
    draft_counts_.drafted += slot.answer->counts().drafted;
    draft_counts_.accepted += slot.answer->counts().accepted;
    if (scheduler()) scheduler()->remove(*slot.answer);
  }
  slot.answer = {};
  slot.guided = false;
  if (scheduler()) scheduler()->remove(*slot.session);
}

void EngineBinding::drop_work() {
  drop_answer(*slot_);
  embedder_.reset();
}

val EngineBinding::token_bytes(Token token) const {
  return to_bytes(engine_->tokenizer().token_bytes(token, /*special=*/true));
}

val EngineBinding::to_val(const generate::Piece& piece) const {
  val out = val::object();
  put(out, "token", piece.token);
  put(out, "text", piece.text);
  if (!slot_->with_logprobs) return out;
  put(out, "bytes", to_bytes(piece.bytes));
  put(out, "logprob", piece.logprob);
  val top = val::array();
  for (const sample::Candidate& c : piece.top) {
    val one = val::object();
    put(one, "token", c.token);
    put(one, "text", engine_->tokenizer().decode({&c.token, 1}, /*special=*/true));
    put(one, "bytes", token_bytes(c.token));
    put(one, "logprob", c.logprob);
    push(top, one);
  }
  put(out, "topLogprobs", top);
  return out;
}

}  // namespace sluice::bindings
