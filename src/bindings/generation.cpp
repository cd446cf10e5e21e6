// Generation and embeddings. Both run in steps, so that the worker can handle messages in between.
#include <algorithm>

#include "bindings/engine_binding.h"

namespace sluice::bindings {
namespace {

val to_bytes(const std::string& bytes) {
  const auto* data = reinterpret_cast<const unsigned char*>(bytes.data());
  return val::global("Uint8Array").new_(val(emscripten::typed_memory_view(bytes.size(), data)));
}

val to_val(EngineBinding& b, const generate::Piece& piece) {
  val out = val::object();
  put(out, "token", piece.token);
  put(out, "text", piece.text);
  if (!b.slot->with_logprobs) return out;
  put(out, "bytes", to_bytes(piece.bytes));
  put(out, "logprob", piece.logprob);
  val top = val::array();
  for (const sample::Candidate& c : piece.top) {
    val one = val::object();
    put(one, "token", c.token);
    put(one, "text", b.engine->tokenizer().decode({&c.token, 1}, /*special=*/true));
    put(one, "bytes", token_bytes(b, c.token));
    put(one, "logprob", c.logprob);
    push(top, one);
  }
  put(out, "topLogprobs", top);
  return out;
}

}  // namespace

bool begin(EngineBinding& b, const val& prompt, const val& options) {
  b.drop_work();  // first, because the plan has memory for one generation per slot
  if (!b.fits(prompt)) return false;
  generate::Options chosen = answer_options(options);
  chosen.media = b.media;
  if (b.engine->plan().batch.draft_max > 0) {
    chosen.drafts.ngram = true;
    chosen.drafts.model = b.draft_source.get();
    for (Slot& slot : b.slots()) {
      if (!slot.guided) continue;
      if (slot.answer->finish() == generate::Finish::kNone) {
        chosen.drafts.model = nullptr;
      } else {
        b.drop_answer(slot);
      }
    }
  }
  // A session whose prompt has pictures is in no batch until the prompt is computed.
  const bool batched = b.scheduler() && b.media.empty();
  if (batched && !b.checked(b.scheduler()->add(b.session()))) return false;
  auto answer = generate::Generation::begin(b.session(), to_tokens(prompt), chosen);
  if (!answer.ok()) {
    b.drop_answer(*b.slot);  // also removes the session from the scheduler
    return b.fail(answer.status());
  }
  b.slot->with_logprobs = chosen.logprobs >= 0;
  b.slot->guided = chosen.drafts.model != nullptr;
  b.slot->answer = std::move(*answer);
  if (b.scheduler()) b.scheduler()->add(*b.slot->answer);
  b.begin_counting();
  return true;
}

int step(EngineBinding& b, int max_ops) {
  if (b.draft) b.poll();  // each model loads while the other one computes
  const bool alone = !b.scheduler() || (b.session().busy() && !b.session().batch_share().batched);
  const session::Step step = b.embedder       ? b.embedder->step(max_ops)
                             : !alone         ? b.scheduler()->step(max_ops)
                             : b.slot->answer ? b.slot->answer->step(max_ops)
                                              : b.session().step(max_ops);
  ++b.steps;
  if (step == session::Step::kBlocked) ++b.blocked;
  if (alone || b.embedder) b.count();
  if (step == session::Step::kFailed) {
    b.fail(b.slot->answer ? b.slot->answer->failure() : b.session().failure());
  }
  return static_cast<int>(step);
}

int outcome(EngineBinding& b) {
  const generate::Finish finish = b.slot->answer->finish();
  if (finish == generate::Finish::kNone) return static_cast<int>(session::Step::kProgress);
  if (finish != generate::Finish::kFailed) return static_cast<int>(session::Step::kDone);
  b.fail(b.slot->answer->failure());
  return static_cast<int>(session::Step::kFailed);
}

bool drafting(EngineBinding& b) {
  const std::span<const Slot> all = b.slots();
  return std::any_of(all.begin(), all.end(),
                     [](const Slot& slot) { return slot.answer && slot.answer->drafting(); });
}

void cancel(EngineBinding& b) {
  if (b.slot->answer) b.slot->answer->cancel();
  if (b.embedder) b.session().clear();
  b.embedder.reset();
}

val take_pieces(EngineBinding& b) {
  val list = val::array();
  if (!b.slot->answer) return list;
  for (const generate::Piece& piece : b.slot->answer->take_pieces()) push(list, to_val(b, piece));
  return list;
}

val answer(EngineBinding& b) {
  val out = val::object();
  if (!b.slot->answer) return out;
  const generate::Generation& answer = *b.slot->answer;
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

bool begin_embed(EngineBinding& b, const val& tokens, const val& ends, const val& options) {
  b.drop_work();
  if (!b.fits(tokens) || !b.fits(ends)) return false;
  b.embed_tokens = to_tokens(tokens);
  b.embed_ends = to_tokens(ends);
  embed::Options chosen;
  const double pooling = number_or(options, "pooling", -1);
  if (pooling >= 0) chosen.pooling = static_cast<model::Pooling>(pooling);
  chosen.normalize = !field(options, "normalize").isFalse();
  chosen.dimensions = static_cast<int32_t>(number_or(options, "dimensions", 0));
  b.embedder.emplace(b.session());
  b.begin_counting();
  return b.checked(b.embedder->begin(b.embed_tokens, b.embed_ends, chosen));
}

int embed_next(EngineBinding& b) {
  const Result<bool> more = b.embedder->next();
  if (!more.ok()) return b.fail(more.status()), -1;
  if (!*more) b.embedder.reset();
  return *more ? 1 : 0;
}

val embed_results(EngineBinding& b) {
  const size_t n = static_cast<size_t>(b.embedder->n_results());
  const size_t width = static_cast<size_t>(b.embedder->width());
  const val out = val::global("Float32Array").new_(n * width);
  for (size_t i = 0; i < n; ++i) {
    const std::span<const float> row = b.embedder->result(static_cast<int32_t>(i));
    out.call<void>("set", val(emscripten::typed_memory_view(row.size(), row.data())), i * width);
  }
  return out;
}

std::string embed_info(EngineBinding& b) {
  const model::Program& program = b.engine->program();
  val out = val::object();
  put(out, "pooling", static_cast<double>(program.hp.pooling));
  put(out, "dimensions", program.embed_tail.width);
  put(out, "scores", program.rank_tail.width);
  put(out, "contextLength", b.engine->plan().context.n_ctx);
  put_flag(out, "causal", program.hp.attention.causal);
  return to_text(out);
}

void EngineBinding::drop_answer(Slot& slot) {
  if (slot.answer) {
    draft_counts.drafted += slot.answer->counts().drafted;
    draft_counts.accepted += slot.answer->counts().accepted;
    if (scheduler()) scheduler()->remove(*slot.answer);
  }
  slot.answer = {};
  slot.guided = false;
  if (scheduler()) scheduler()->remove(*slot.session);
}

void EngineBinding::drop_work() {
  drop_answer(*slot);
  embedder.reset();
}

val token_bytes(EngineBinding& b, Token token) {
  return to_bytes(b.engine->tokenizer().token_bytes(token, /*special=*/true));
}

}  // namespace sluice::bindings
