// The Embind surface of the engine, as web/worker/binding.ts types it. No logic: it converts
// arguments, keeps the last error, and owns the header, the engine, its slots (each a session and
// the answer under way on it), and the binding of a smaller model that guesses for it. Members are
// defined by what they are about: load.cpp, sequence.cpp, generation.cpp and stats.cpp.
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
#include "session/session.h"

namespace sluice::bindings {

// Whether a smaller model may guess, and several answers be computed at once. Not where a GPU
// computes: its passes are of one session, and that engine is held to a size, too.
#ifdef SLUICE_GPU
inline constexpr bool kDraftModels = false, kSeveral = false;
#else
inline constexpr bool kDraftModels = true, kSeveral = true;
#endif

// The files that each thread has open (web/worker/glue.d.ts).
class SharedFiles final : public session::RangeReader {
  bool read(uint32_t file, uint64_t offset, std::span<uint8_t> out) override;
};

class EngineBinding {
 public:
  // --- header
  void source(const std::string& address, const std::string& names, unsigned described);
  val need();
  bool opened(double bytes) { return checked(opener_->opened(static_cast<uint64_t>(bytes))); }
  bool supply() { return checked(opener_->supply()); }
  unsigned reserve(unsigned bytes);

  // --- adapters: one more of those that inspect(), open() and set_adapters() take, a GGUF file
  // whose bytes stay JavaScript's. PEFT's form is left to native programs: it would cost every
  // page.
  bool adapter(const val& bytes, float scale);
  bool set_adapters();
  void forget_adapters();

  // --- a smaller model that guesses for this one: a binding whose header is read as this one's is,
  // before inspect() and open(), which then are of both under one budget. It goes with this one.
  EngineBinding* draft();
  // The last step waits for the draft's weights.
  bool drafting() const;

  std::string inspect(const val& options);
  bool open(const val& options);
  val error() const;

  // --- I/O
  unsigned fill_queue() {
    return static_cast<unsigned>(reinterpret_cast<uintptr_t>(&engine_->residency().queue()));
  }
  void poll() {
    engine_->poll();
    if (draft_) draft_->poll();
  }

  // --- text, which comes as bytes, because a string is copied in without asking for room
  val tokenize(const val& bytes, unsigned how);
  // Of a query and a document as rerankers read them.
  val pair_tokens(const val& query, const val& document);
  std::string control_texts();
  std::string detokenize(const val& tokens, bool special) {
    return engine_->tokenizer().decode(to_tokens(tokens), special);
  }

  // --- slots, as many as the plan's `parallel`: which one all calls about a sequence, its state,
  // an answer or embeddings mean from now on
  void select(unsigned slot) { slot_ = &slots_[slot]; }

  // --- the sequence
  int position() const { return session().position(); }
  val tokens() const { return copy_out(session().tokens()); }
  void clear();
  bool append(const val& tokens);
  // The same for the logits of token `row` of a text that is read whole.
  bool append_whole(const val& tokens, int row);
  val logits() { return copy_out(std::span<const float>(session().logits())); }

  // --- its state
  unsigned state_stage() const {
    return static_cast<unsigned>(reinterpret_cast<uintptr_t>(stage_.data()));
  }
  double state_bytes() const { return static_cast<double>(session().state_bytes()); }
  bool read_state(double offset, unsigned length);
  bool begin_restore(double bytes);
  bool write_state(unsigned length);

  // --- answers
  bool begin(const val& prompt, const val& options);
  // Of all answers under way, or of the pass or the embeddings that were begun.
  int step(int max_ops);
  // Of the slot's answer: kProgress, kDone or kFailed.
  int outcome();
  void cancel();
  val take_pieces();
  val answer() const;

  // --- embeddings
  // Texts of at most the context's tokens together, and where each ends.
  bool begin_embed(const val& tokens, const val& ends, const val& options);
  // Begins the next pass over them: 1; 0 when all are done, -1 when it failed.
  int embed_next();
  // The rows of the pass that is done, one after the other.
  val embed_results() const;
  std::string embed_info() const;

#ifdef SLUICE_GPU
  // --- the GPU, which computes from now on
  std::string attach_gpu();
  // The first so many layers are the GPU's alone.
  bool offload_layers(int layers) {
    return checked(engine_->offload_layers(layers));
  }
#endif

  // --- insight
  std::string memory();
  std::string stats();
  val unit_states();
  std::string kernel_name() const {
    return engine_->table().name;
  }
  int threads() const {
    return engine_->pool().n_threads();
  }

 private:
  static constexpr size_t kStageBytes = 1 << 16;  // web/worker/binding.ts has it, too

  // A sequence, and the answer under way on it.
  struct Slot {
    std::unique_ptr<session::Session> session;
    std::unique_ptr<generate::Generation> answer;
    bool with_logprobs = false;
    bool guided = false;  // by the smaller model, which guesses for one text at a time
  };

  std::span<Slot> slots() const {
    return {slots_.get(), static_cast<size_t>(engine_->plan().parallel)};
  }
  session::Session& session() const {
    return *slot_->session;
  }
  // Null: one answer at a time.
  generate::Scheduler* scheduler() const {
    return kSeveral ? batches_.get() : nullptr;
  }
  Result<session::EngineOptions> engine_options(const val& options);
  Result<generate::PairOptions> pair_options(const val& options);
  Status start(const session::EngineOptions& options);
  void drop_answer(Slot& slot);  // its counts of guesses stay
  void drop_work();              // the selected slot's answer, and the texts that are embedded
  void begin_counting();
  void count();
  bool copy_bytes(const val& bytes, AlignedBuffer* out);
  bool fits(const val& tokens);
  val to_val(const generate::Piece& piece) const;
  void note_base();
  bool fail(const Status& status) {
    error_ = status;
    return false;
  }
  bool checked(const Status& status) {
    return status.ok() || fail(status);
  }

  std::unique_ptr<open::Opener> opener_;  // until open(), which lets the header go
  uint64_t base_bytes_ = 0;               // of the heap, once the header is parsed
  std::vector<std::unique_ptr<adapter::Adapter>> adapters_;
  std::vector<adapter::Source> sources_;  // of them, until they are loaded
  SharedFiles shared_files_;
  std::string kernels_;
  std::unique_ptr<session::Engine> engine_;
  std::unique_ptr<EngineBinding> draft_;                      // computes on this engine's threads
  std::unique_ptr<generate::ModelDraftSource> draft_source_;  // by its session
  uint64_t pair_minimum_ = 0;                                 // the smallest budget for both
  std::unique_ptr<generate::Scheduler> batches_;              // where there are several slots
  std::unique_ptr<Slot[]> slots_;
  Slot* slot_ = nullptr;
  std::vector<Token> embed_tokens_, embed_ends_;  // of the texts under way
  std::optional<embed::Embedder> embedder_;       // goes before the session
  generate::Counts draft_counts_;                 // of all answers before
  std::array<uint8_t, kStageBytes> stage_;
  std::vector<uint8_t> states_;
  Status error_;
  uint64_t passes_ = 0, tokens_ = 0, steps_ = 0, blocked_ = 0, pass_tokens_ = 0;
  double compute_ms_ = 0, pass_ms_ = 0;
};

}  // namespace sluice::bindings
