// The engine's Embind API, as typed in web/worker/binding.ts. It has no logic of its own: it
// converts arguments, keeps the last error, and owns the header, the engine, its slots (each a
// session and its running generation), and the binding of a draft model. The member functions are
// defined in load.cpp, sequence.cpp, generation.cpp and stats.cpp.
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

namespace sluice::bindings {

// Whether draft models and continuous batching are supported. Not in the engine with WebGPU: its
// forward passes compute one session, and its binary has a size limit.
#ifdef SLUICE_GPU
inline constexpr bool kDraftModels = false, kSeveral = false;
#else
inline constexpr bool kDraftModels = true, kSeveral = true;
#endif

// Files that every thread can read (web/worker/runtime.ts).
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

  // --- adapters: adds one for inspect(), open() and set_adapters(), as the bytes of a GGUF file,
  // which stay in JavaScript. PEFT is not parsed here, to keep the binary small.
  bool adapter(const val& bytes, float scale);
  bool set_adapters();
  void forget_adapters();
  // Sets memory aside for constraints, unless it has been: plans the same budget again. For an idle
  // engine without pending reads.
  bool reserve_structured_output();

  // --- draft model: a binding owned by this one. Read its header before inspect() and open(),
  // which then apply to both models under one budget.
  EngineBinding* draft();
  // Whether the draft model is computing, so that kBlocked means its weights.
  bool drafting() const;

  std::string inspect(const val& options);
  bool open(const val& options);
  val error() const;

  // --- I/O
  unsigned fill_queue() {
    return static_cast<unsigned>(
        reinterpret_cast<uintptr_t>(&engine_->residency().requests().queue()));
  }
  void poll() {
    engine_->weights().poll();
    if (draft_) draft_->poll();
  }

  // --- text is passed as bytes, because Embind copies strings without checking for memory
  val tokenize(const val& bytes, unsigned how);
  // The tokens of a query and a document as rerankers read them.
  val pair_tokens(const val& query, const val& document);
  std::string control_tokens();
  val token_bytes(Token token) const;
  std::string detokenize(const val& tokens, bool special) {
    return engine_->tokenizer().decode(to_tokens(tokens), special);
  }

  // --- slots, as many as the plan's `parallel`: selects the one that all later calls about the
  // sequence, its state, the generation and embeddings use
  void select(unsigned slot) { slot_ = &slots_[slot]; }

  // --- the sequence
  int position() const { return session().position(); }
  val tokens() const { return copy_out(session().tokens()); }
  void clear();
  bool append(const val& tokens);
  // For models with bidirectional attention: computes the logits of token `row` of these tokens.
  bool append_whole(const val& tokens, int row);
  val logits() { return copy_out(std::span<const float>(session().logits())); }

  // --- its state. Before a state is saved for another engine or restored from one, identify()
  // takes all of weight_samples(), an array of session::WeightSample, one by one from the stage.
  val weight_samples(bool all);
  void identify(unsigned length);
  unsigned state_stage() const {
    return static_cast<unsigned>(reinterpret_cast<uintptr_t>(stage_.data()));
  }
  double state_bytes() const { return static_cast<double>(session().sequence().state_bytes()); }
  bool read_state(double offset, unsigned length);
  bool begin_restore(double bytes);
  bool write_state(unsigned length);

  // --- generation
  bool begin(const val& prompt, const val& options);
  // Steps all running generations, or the forward pass or embeddings that were begun.
  int step(int max_ops);
  // State of the slot's generation: kProgress, kDone or kFailed.
  int outcome();
  void cancel();
  val take_pieces();
  val answer() const;

  // --- embeddings
  // `tokens`: those of all texts, together at most the context length; `ends`: where each text
  // ends.
  bool begin_embed(const val& tokens, const val& ends, const val& options);
  // Begins the next pass: 1; 0 if all are done, -1 if it failed.
  int embed_next();
  // The rows of the completed pass, concatenated.
  val embed_results() const;
  std::string embed_info() const;

#ifdef SLUICE_GPU
  // --- the GPU, which computes from attach_gpu() on; returns GpuExecutor::describe()
  std::string attach_gpu();
  // Leaves the weights of the first `layers` layers to the GPU only.
  bool offload_layers(int layers) {
    return checked(engine_->replanner().offload_layers(layers));
  }
#endif

  // --- statistics
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
  friend class PictureBinding;
  static constexpr size_t kStageBytes = 1 << 16;  // keep equal to web/worker/binding.ts

  // A session and its running generation.
  struct Slot {
    std::unique_ptr<session::Session> session;
    std::unique_ptr<generate::Generation> answer;
    bool with_logprobs = false;
    bool guided = false;  // uses the draft model, which serves one generation at a time
  };

  std::span<Slot> slots() const {
    return {slots_.get(), static_cast<size_t>(engine_->plan().sessions.parallel)};
  }
  session::Session& session() const {
    return *slot_->session;
  }
  // Null: one generation at a time.
  generate::Scheduler* scheduler() const {
    return kSeveral ? batches_.get() : nullptr;
  }
  Result<session::EngineOptions> engine_options(const val& options);
  Result<generate::PairOptions> pair_options(const val& options);
  Status start(const session::EngineOptions& options);
  // Ends all work, so that the engine can be planned again.
  void quiesce();
  // Moves budget from the draft model to the model, so that it has `needed` bytes.
  Status make_room(uint64_t needed);
  void drop_answer(Slot& slot);  // keeps its counts of draft tokens
  void drop_work();              // drops the selected slot's generation, and embeddings under way
  void begin_counting();
  void count();
  bool copy_bytes(const val& bytes, AlignedBuffer* out);
  bool fits(const val& tokens);
  val to_val(const generate::Piece& piece) const;
  void begin_state();
  void note_base();
  bool fail(const Status& status) {
    error_ = status;
    return false;
  }
  bool checked(const Status& status) {
    return status.ok() || fail(status);
  }

  std::unique_ptr<open::Opener> opener_;  // until open(), which frees the header
  uint64_t base_bytes_ = 0;               // of the heap, after the header was parsed
  std::vector<std::unique_ptr<adapter::Adapter>> adapters_;
  std::vector<adapter::Source> sources_;    // of adapters_, until they are loaded
  int32_t min_batch_ = 1;                   // what pictures need
  std::span<const generate::Media> media_;  // of the next prompt
  SharedFiles shared_files_;
  std::string kernels_;
  std::unique_ptr<session::Engine> engine_;
  std::unique_ptr<EngineBinding> draft_;                      // uses this engine's threads
  std::unique_ptr<generate::ModelDraftSource> draft_source_;  // uses draft_'s session
  uint64_t pair_minimum_ = 0;                                 // the smallest budget for both models
  std::unique_ptr<generate::Scheduler> batches_;              // only with several slots
  std::unique_ptr<Slot[]> slots_;
  Slot* slot_ = nullptr;
  std::vector<Token> embed_tokens_, embed_ends_;  // of the embeddings under way
  std::optional<embed::Embedder> embedder_;       // must be destroyed before the session
  generate::Counts draft_counts_;                 // of all earlier generations
  std::array<uint8_t, kStageBytes> stage_;
  std::optional<session::WeightHash> weight_hash_;
  std::vector<uint8_t> states_;
  Status error_;
  uint64_t passes_ = 0, tokens_ = 0, steps_ = 0, blocked_ = 0, pass_tokens_ = 0;
  double compute_ms_ = 0, pass_ms_ = 0;
};

}  // namespace sluice::bindings
