// The engine's Embind API, as typed in web/worker/binding.ts: functions over an EngineBinding,
// which owns the header, the engine, its slots (each a session and its running generation), the
// binding of a draft model, and the last error. They have no logic of their own, and convert
// arguments. They are defined in load.cpp, sequence.cpp, generation.cpp, stats.cpp and
// engine_binding.cpp, which registers them.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "adapter/adapter.h"
#include "bindings/values.h"
#include "embed/embedder.h"
#include "generate/draft_pair.h"
#include "generate/scheduler.h"
#include "open/opener.h"
#include "session/engine.h"
#include "session/session.h"

namespace sluice::gpu {
class GpuExecutor;
}

namespace sluice::bindings {

// Files that every thread can read (web/worker/runtime.ts).
class SharedFiles final : public session::RangeReader {
  bool read(uint32_t file, uint64_t offset, std::span<uint8_t> out) override;
};

// A session and its running generation.
struct Slot {
  std::unique_ptr<session::Session> session;
  std::unique_ptr<generate::Generation> answer;
  bool with_logprobs = false;
  bool guided = false;  // uses the draft model, which serves one generation at a time
};

struct EngineBinding {
  static constexpr size_t kStageBytes = 1 << 16;  // keep equal to web/worker/binding.ts

  std::span<Slot> slots() const {
    return {all_slots.get(), static_cast<size_t>(engine->plan().sessions.parallel)};
  }
  session::Session& session() const { return *slot->session; }
  // Null: one generation at a time.
  generate::Scheduler* scheduler() const { return batches.get(); }

  // Notes the error. Returns false.
  bool fail(const Status& status) {
    error = status;
    return false;
  }
  bool checked(const Status& status) { return status.ok() || fail(status); }
  bool copy_bytes(const val& bytes, AlignedBuffer* out);  // from JavaScript
  // Checks the number of tokens before they are copied: the plan has memory for one context.
  bool fits(const val& tokens);

  void note_base();
  Status start(const session::EngineOptions& options);
  void poll() {
    engine->weights().poll();
    if (draft) draft->poll();
  }
  void drop_answer(Slot& slot);  // keeps its counts of draft tokens
  void drop_work();              // drops the selected slot's generation, and embeddings under way
  void begin_counting();
  void count();

  std::unique_ptr<open::Opener> opener;  // until open(), which frees the header
  uint64_t base_bytes = 0;               // of the heap, after the header was parsed
  std::vector<std::unique_ptr<adapter::Adapter>> adapters;
  std::vector<adapter::Source> sources;    // of the adapters, until they are loaded
  int32_t min_batch = 1;                   // what pictures need
  std::span<const generate::Media> media;  // of the next prompt
  SharedFiles shared_files;
  std::string kernels;
  std::unique_ptr<session::Engine> engine;
  std::unique_ptr<EngineBinding> draft;                      // uses this engine's threads
  std::unique_ptr<generate::ModelDraftSource> draft_source;  // uses the draft's session
  uint64_t pair_minimum = 0;                                 // the smallest budget for both models
  std::unique_ptr<generate::Scheduler> batches;              // only with several slots
  std::unique_ptr<Slot[]> all_slots;
  Slot* slot = nullptr;                         // the selected one
  std::vector<Token> embed_tokens, embed_ends;  // of the embeddings under way
  std::optional<embed::Embedder> embedder;      // must be destroyed before the session
  generate::Counts draft_counts;                // of all earlier generations
  std::array<uint8_t, kStageBytes> stage;
  std::vector<session::WeightHash> weight_hashes;  // of the model and the projector
#ifdef SLUICE_GPU
  Hash64 state_hash;  // of the pieces of a state that have been read, if the GPU has the KV cache
  gpu::GpuExecutor* gpu = nullptr;  // the engine's, once it is attached
#endif
  const gguf::Header* projector = nullptr;
  std::vector<uint8_t> states;
  Status error;
  uint64_t passes = 0, tokens = 0, steps = 0, blocked = 0, pass_tokens = 0;
  double compute_ms = 0, pass_ms = 0;
};

// --- header
void source(EngineBinding& b, const std::string& address, const std::string& names,
            unsigned described);
val need(EngineBinding& b);
unsigned reserve(EngineBinding& b, unsigned bytes);

// --- adapters: adds one for inspect(), open() and set_adapters(), as the bytes of a GGUF file,
// which stay in JavaScript. PEFT is not parsed here, to keep the binary small.
bool adapter(EngineBinding& b, const val& bytes, float scale);
bool set_adapters(EngineBinding& b);
void forget_adapters(EngineBinding& b);
// Sets memory aside for constraints, unless it has been: plans the same budget again. For an idle
// engine without pending reads.
bool reserve_structured_output(EngineBinding& b);

// --- draft model: a binding owned by this one. Read its header before inspect() and open(), which
// then apply to both models under one budget.
EngineBinding* draft(EngineBinding& b);
// Whether the draft model is computing, so that kBlocked means its weights.
bool drafting(EngineBinding& b);

std::string inspect(EngineBinding& b, const val& options);
bool open(EngineBinding& b, const val& options);
val last_error(EngineBinding& b);

// --- text is passed as bytes, because Embind copies strings without checking for memory
val tokenize(EngineBinding& b, const val& bytes, unsigned how);
// The tokens of a query and a document as rerankers read them.
val pair_tokens(EngineBinding& b, const val& query, const val& document);
std::string control_tokens(EngineBinding& b);
val token_bytes(EngineBinding& b, Token token);

// --- the sequence of the selected slot. There are as many slots as the plan's `parallel`.
void clear(EngineBinding& b);
bool append(EngineBinding& b, const val& tokens);
// For models with bidirectional attention: computes the logits of token `row` of these tokens.
bool append_whole(EngineBinding& b, const val& tokens, int row);

// --- its state. Before a state is saved for another engine or restored from one, identify() takes
// all of weight_samples(), an array of session::WeightSample, one by one from the stage: those of
// the model, then those of its projector, whose files have the numbers from kProjectorFiles on.
inline constexpr uint32_t kProjectorFiles = 2 << 20;  // keep equal to web/io/io.ts
val weight_samples(EngineBinding& b, bool all);
void identify(EngineBinding& b, unsigned length);
bool read_state(EngineBinding& b, double offset, unsigned length);
bool begin_restore(EngineBinding& b, double bytes);
bool write_state(EngineBinding& b, unsigned length);

// --- its generation
bool begin(EngineBinding& b, const val& prompt, const val& options);
// Steps all running generations, or the forward pass or embeddings that were begun.
int step(EngineBinding& b, int max_ops);
// State of the slot's generation: kProgress, kDone or kFailed.
int outcome(EngineBinding& b);
void cancel(EngineBinding& b);
val take_pieces(EngineBinding& b);
val answer(EngineBinding& b);

// --- embeddings
// `tokens`: those of all texts, together at most the context length; `ends`: where each text ends.
bool begin_embed(EngineBinding& b, const val& tokens, const val& ends, const val& options);
// Begins the next pass: 1; 0 if all are done, -1 if it failed.
int embed_next(EngineBinding& b);
// The rows of the completed pass, concatenated.
val embed_results(EngineBinding& b);
std::string embed_info(EngineBinding& b);

// --- statistics
std::string memory(EngineBinding& b);
std::string stats(EngineBinding& b);
val unit_states(EngineBinding& b);

}  // namespace sluice::bindings
