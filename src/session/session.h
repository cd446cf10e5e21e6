// One mutable timeline over an engine: which tokens are in the KV cache, and the pass that is being
// computed. A pass is stepped: it runs until a unit of weights is missing, until its allowance of
// operations is used, or until logits are ready; nothing blocks and nothing is allocated per token.
// At most one session of an engine may be inside a pass at a time (they share working memory).
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "kv/kv_cache.h"
#include "session/engine.h"

namespace sluice::session {

using Token = tokenizer::Token;

enum class Step : uint8_t { kBlocked = 0, kProgress = 1, kDone = 2, kFailed = 3 };
enum class Wanted : uint8_t { kLastLogits, kAllLogits };

struct PassStats {
  uint64_t tokens = 0;
  double compute_ms = 0;  // inside step()
  uint64_t blocked = 0;   // times step() had to wait for a unit
};

class Session {
 public:
  // Observes a checkpoint: `name` such as "Qcur-0.ROPE"; row t at data + t * stride, [ne0 * ne1].
  using Observer = std::function<void(const char* name, int32_t ne0, int32_t ne1, int32_t n_tokens,
                                      const float* data, int64_t stride)>;

  [[nodiscard]] static Result<std::unique_ptr<Session>> create(Engine& engine);

  // Begins a pass over `tokens`, appended at position(). With kAllLogits there may be at most
  // plan().logits_rows tokens, and at most n_batch.
  // Errors: kPromptEmpty, kPromptTooLong, kContextFull, kInvalidArgument (token id, pass under
  // way).
  [[nodiscard]] Status begin(std::span<const Token> tokens, Wanted wanted = Wanted::kLastLogits);
  // Makes `tokens` the timeline: keeps the longest prefix that it shares with them (at most all but
  // the last token, whose logits are wanted), goes back as far as that needs, and begins a pass
  // over the rest. Returns how many tokens were kept. Errors: begin()'s, after which nothing has
  // changed.
  [[nodiscard]] Result<int32_t> sync(std::span<const Token> tokens,
                                     Wanted wanted = Wanted::kLastLogits);
  // Works on the pass: at most `max_ops` operations (0: no limit).
  [[nodiscard]] Step step(int32_t max_ops = 0);
  [[nodiscard]] bool busy() const { return active_; }

  // Raw logits [n_vocab] of row `row` of the finished pass (row 0 for kLastLogits).
  [[nodiscard]] std::span<float> logits(int32_t row = 0) const;

  [[nodiscard]] int32_t position() const { return position_; }
  [[nodiscard]] std::span<const Token> history() const {
    return {history_.data(), static_cast<size_t>(position_)};
  }
  // Forgets what comes after the first n tokens, and a pass under way. Returns the position
  // reached, which is n, or 0 where a convolution's past is gone.
  int32_t rewind(int32_t n);

  // The timeline's state, and its way back into a session of an engine with the same model.
  [[nodiscard]] uint64_t saved_bytes() const;
  [[nodiscard]] Status save(std::span<uint8_t> out) const;
  [[nodiscard]] Status restore(std::span<const uint8_t> in);

  // For checkpoints of one pass from position 0. Its attention runs in double precision over f32
  // keys and values, so that a comparison does not show the cache's rounding.
  void observe(Observer observer) { observer_ = std::move(observer); }
  [[nodiscard]] const PassStats& stats() const { return stats_; }
  // Layer that is being computed, -1 outside layers.
  [[nodiscard]] int32_t layer() const;
  [[nodiscard]] Engine& engine() const { return engine_; }

 private:
  explicit Session(Engine& engine) : engine_(engine) {}

  // Progress inside an operation that can block.
  struct Cursor {
    bool started = false;
    int32_t part = 0;  // matmul part, or expert, or embedding row
    uint32_t unit = 0;
    int32_t phase = 0;
  };
  // A run of rows of one matrix whose weights are there.
  struct Piece {
    kernels::MatmulArgs args;
    uint32_t unit = 0;
    uint8_t* ring = nullptr;  // of an own read: where the threads' parts are
    int64_t row_bytes = 0;
    int64_t chunk = 0;  // rows of a task
    int64_t first_task = 0;
  };
  // Of a region, by all threads together.
  struct OwnReadTally {
    std::atomic<uint64_t> bytes{0}, ns{0};
    std::atomic<bool> failed{false};
  };
  struct Expert {
    int32_t index = 0;
    int32_t first = 0, count = 0;  // into routed_
  };
  struct Routed {
    int32_t token = 0;
    float weight = 0;
  };
  static constexpr size_t kMaxPieces = 96;

  [[nodiscard]] Status init();
  void begin_batch();
  void end_batch();
  bool run_op(const model::Op& op);  // false: blocked
  void fill_rope_tables();
  [[nodiscard]] bool vectors_ready(const model::Op& op);
  bool need(uint32_t unit);  // false: not there yet

  bool op_embed(const model::Op& op);
  void op_norm(const model::Op& op);
  bool op_matmul(const model::Op& op);
  void op_rope(const model::Op& op);
  void op_attention(const model::Op& op);
  void op_activate(const model::Op& op);
  void op_elementwise(const model::Op& op);
  bool op_moe(const model::Op& op);
  void op_short_conv(const model::Op& op);
  void op_select(const model::Op& op);  // leaves no rows when this batch ends here

  // Products of pieces: y rows get W x for n_tokens rows of `acts`.
  struct Product {
    int32_t mat = -1;
    int32_t bias = -1;
    kernels::Acts acts{};
    float* y = nullptr;
    int64_t ldy = 0;
    float scale = 1;
    bool add = false;
  };
  // Runs products from (cursor_.part, cursor_.unit) on; false: blocked.
  bool run_products(std::span<const Product> products);
  void run_pieces();
  [[nodiscard]] bool read_own(const Piece& p, uint8_t* room, kernels::MatmulArgs* args);
  [[nodiscard]] bool settle_own_reads();
  void quantize(const float* x, int64_t ld, int64_t cols, int32_t n_tokens, uint8_t* out);
  [[nodiscard]] bool wants_q8(int32_t mat) const;

  void store_kv(const model::Op& op);
  void attend_tile(const model::Op& op, int32_t head, int32_t first, int32_t count, int thread);
  void attend_split(const model::Op& op, int32_t head, int32_t split, int thread);
  void merge_splits(const model::Op& op, int32_t head);
  [[nodiscard]] int32_t window_begin(const model::Op& op, int32_t position) const;

  void route(const model::Moe& moe);
  bool run_expert(const model::Op& op, const Expert& expert);
  void observe_before(const model::Op& op);
  void observe_marks();
  void unweighted_norm(const model::Op& op);
  void observe_attention(const model::Op& op);

  // Runs body(row) for each row of the batch, over threads when there are enough rows.
  template <typename Body>
  void for_rows(int32_t n, Body&& body) {
    constexpr int32_t kRowsForThreads = 4;  // below this a region costs more than it saves
    if (n < kRowsForThreads || engine_.pool().n_threads() == 1) {
      for (int32_t row = 0; row < n; ++row) body(row);
      return;
    }
    engine_.pool().parallel_for(n, [&](int64_t row, int) { body(static_cast<int32_t>(row)); });
  }

  Engine& engine_;
  kv::KvCache kv_;
  std::vector<Token> history_;
  int32_t position_ = 0;

  bool active_ = false;
  Wanted wanted_ = Wanted::kLastLogits;
  int32_t pass_end_ = 0;  // history_ up to here belongs to the pass
  int32_t batch_ = 0;     // tokens of the batch under way
  int32_t rows_ = 0;      // rows that go on (after kSelect only those with wanted logits)
  size_t pc_ = 0;
  uint32_t replans_seen_ = 0;
  Cursor cursor_;
  std::vector<Piece> pieces_;
  std::vector<Product> products_;
  std::vector<Expert> experts_;
  std::vector<Routed> routed_;
  std::vector<uint32_t> demand_;
  size_t expert_ = 0;  // index into experts_
  OwnReadTally own_reads_;
  bool read_failed_ = false;
  std::vector<int32_t> chosen_;
  std::vector<uint8_t> row_held_;  // embedding row t came from the resident table
  PassStats stats_;
  Observer observer_;
  size_t mark_ = 0;
  std::vector<float> before_;  // observed passes only
};

}  // namespace sluice::session
