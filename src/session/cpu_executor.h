// Runs the program of operations on the CPU: one function per kind of operation, over the rows of
// the batch. An operation that needs weights records its progress and resumes there; nothing blocks
// and nothing is allocated per token.
#pragma once

#include <algorithm>
#include <vector>

#include "session/embedding_rows.h"
#include "session/executor.h"
#include "session/weight_stream.h"

namespace sluice::session {

// The first position that a query sees through its window.
[[nodiscard]] inline int32_t window_begin(const model::AttentionOp& op, int32_t position) {
  if (op.window == 0) return 0;
  if (op.chunked) return position / op.window * op.window;
  return std::max(0, op.att.causal ? position + 1 - op.window : position - op.window / 2);
}
// One past the last position that it sees, in an input of `length` tokens.
[[nodiscard]] inline int32_t window_end(const model::AttentionOp& op, int32_t position,
                                        int32_t length) {
  if (op.att.causal) return position + 1;
  return op.window == 0 ? length : std::min(length, position + op.window / 2 + 1);
}

// ALiBi's slope: subtracted from a head's scores per position between key and query.
[[nodiscard]] float alibi_slope(const model::AttentionOp& op, int32_t head);

// Attention arguments of one KV head, over all of its positions.
[[nodiscard]] kernels::AttentionArgs base_args(const kv::KvCache& cache,
                                               const model::AttentionOp& op, int32_t head);

class CpuExecutor final : public Executor {
 public:
  explicit CpuExecutor(Engine& engine);

  void begin(Sequence& sequence, int32_t n, const BatchSpec& spec) override;
  [[nodiscard]] Step step(int32_t* max_ops) override;
  [[nodiscard]] int32_t max_parts() const override { return kMaxSessions; }
  void drop(const Sequence& sequence) override;
  void abandon() override { active_ = false; }
  [[nodiscard]] const Sequence* sequence() const override { return sequence_; }
  [[nodiscard]] const Status& failure() const override { return failure_; }
  [[nodiscard]] std::span<float> logits(int32_t row) const override;
  [[nodiscard]] std::span<float> embedding(int32_t i) const override;
  [[nodiscard]] int32_t layer() const override;
  // The next operation.
  [[nodiscard]] size_t at() const { return pc_; }
  // Continues a batch that has begun at `op`: everything before is done, its rows of kX are set.
  void go_on_at(size_t op) { pc_ = op; }
  // Requests the weights of the next operation, whose layer is not in the streaming order.
  void demand_weights();
  void observe(Observer observer) override { observer_ = std::move(observer); }
  void watch_products(ProductWatch watch) override { watch_ = watch; }

 private:
  // Progress inside an operation that can block.
  struct Cursor {
    bool started = false;
    int32_t phase = 0;  // of an expert
  };

  // One sequence's rows among the current rows.
  struct Lane {
    BatchPart part;             // null sequence: dropped, its rows are meaningless
    int32_t row = 0, rows = 0;  // its first row, and how many
    int32_t first = 0;          // position of its first row
    int32_t token = 0;          // index of its first token in the batch
  };

  void restart();
  void enter(const Lane& lane);
  [[nodiscard]] bool run_op(const model::Op& op);  // false: blocked
  [[nodiscard]] bool run_products();
  [[nodiscard]] bool settle(WeightRun ran);  // false: not done
  void add_low_rank(const Product& product);
  void add_low_rank_rows(model::Buf out, float scale);
  void enter_part();
  void end_part();
  [[nodiscard]] bool in_nextn() const { return model::kNextn && spec_.nextn != nullptr; }
  [[nodiscard]] bool is_normed() const;
  void note_states_begin();
  void note_states();
  void enter_nextn();
  void leave_nextn();
  void demand_nextn();
  [[nodiscard]] bool in_part() const { return kPartialForward && spec_.part != nullptr; }
  void next_op();
  void expect_decoder();
  [[nodiscard]] bool vectors_ready(const model::Op& op);
  void fill_rope_tables();
  [[nodiscard]] const float* rope_factors(size_t rope) const;

  [[nodiscard]] bool op_embed(const model::Op& op);
  void op_norm(const model::Op& op);
  [[nodiscard]] bool op_matmul(const model::Op& op);
  void op_rope(const model::Op& op);
  void complete_rows(const model::Op& op);
  [[nodiscard]] bool op_approximate(const model::Op& op);
  void op_attention(int32_t layer, const model::AttentionOp& op);
  void fill_cache(int32_t layer, const model::AttentionOp& op);
  void op_cross(const model::CrossOp& op);
  void op_activate(const model::Op& op);
  void op_gate(const model::Op& op);
  void op_elementwise(const model::Op& op);
  [[nodiscard]] bool op_moe(const model::Op& op);
  void op_convolve(const model::Op& op);
  void op_state(const model::Op& op);
  void op_scan(const model::Op& op);
  void op_shift(const model::Op& op);
  void op_unary(const model::Op& op);
  void op_gated(const model::Op& op);
  void op_decay(const model::Op& op);
  void op_lerp(const model::Op& op);
  void op_rwkv7_keys(const model::Op& op);
  void op_rwkv7_mix(const model::Op& op);
  void op_rwkv7_bonus(const model::Op& op);
  template <typename Body>
  void for_tasks(int64_t n_tasks, int64_t work, Body&& body);
  template <typename Body>
  void through_checkpoints(const model::Op& op, int64_t at, int64_t rows, int64_t ld,
                           int64_t columns, Body&& body);
  // Columns of the rows from `first` on, `more` after the place; null if there is no place.
  [[nodiscard]] kernels::TokenRows rows_at(const model::Place& place, int64_t more,
                                           int32_t first) const;
  [[nodiscard]] float* row_at(model::Buf buf, int64_t col, int32_t t) const;
  void op_select();  // leaves no rows if the batch ends here
  void op_vectors(const model::Op& op);
  void op_temperature(const model::Op& op);
  [[nodiscard]] bool op_rows(const model::Op& op);
  [[nodiscard]] bool op_head_matmul(const model::Op& op);
  void op_pool(const model::Op& op);
  [[nodiscard]] const model::Tail& tail() const;
  [[nodiscard]] size_t after(size_t pc) const;  // the next operation; after the last: the end

  // Activates n values at `gate` in place. Gated kinds multiply by the n values after them.
  void activate(model::Activation act, float* gate, int64_t n,
                const kernels::Xielu* xielu = nullptr);
  void quantize(const float* x, int64_t ld, int64_t cols, int32_t n_tokens, uint8_t* out);
  [[nodiscard]] bool wants_q8(int32_t mat) const;

  void store_vector(const kv::LayerShape& layer, kernels::KvType type, const float* x, int32_t n,
                    int32_t position, uint8_t* cache, kernels::f16* copies);
  void store_kv(int32_t layer, const model::AttentionShape& att);
  void quantize_groups(const model::AttentionShape& att);
  void rotate_key(const model::AttentionShape& att, float* x);
  void rotate_heads(int32_t layer, const model::AttentionShape& att);
  void attend(const model::AttentionOp& op);
  void attend_tile(const model::AttentionOp& op, int32_t head, int32_t first, int32_t count,
                   int thread);
  // Positions that one query sees: from `begin` on, in parts that begin at multiples of `length`,
  // plus `kept` positions outside the ring (sinks or heavy hitters).
  struct Parts {
    int32_t begin, length, first, last, kept;
    [[nodiscard]] int32_t count() const { return last + 1 - first + (kept > 0 ? 1 : 0); }
  };
  [[nodiscard]] int32_t part_length(const kv::LayerShape& layer) const;
  [[nodiscard]] Parts parts_of(const model::AttentionOp& op, int32_t position) const;
  void attend_first(const model::AttentionOp& op, int32_t head, const TileScratch& s, int32_t from,
                    int32_t rows, int32_t position, kernels::AttentionArgs a);
  void keep_observers(const model::AttentionOp& op);
  void fill_eviction_table(size_t rope);
  void evict_block(int32_t layer, const model::AttentionOp& op);
  void add_attention(const model::AttentionOp& op, int32_t head, const PickScratch& s);
  void observe_one(const model::AttentionOp& op, int32_t head, int32_t index, const PickScratch& s,
                   float* sums);
  void pick(const model::AttentionOp& op, int32_t head, const PickScratch& s);
  void turn(const model::AttentionOp& op, float* x, int32_t row);
  void widen(const model::AttentionOp& op, int32_t head, int32_t place, bool key,
             const PickScratch& s);
  void attend_part(const model::AttentionOp& op, int32_t head, int32_t index, int thread);
  void merge_parts(const model::AttentionOp& op, int32_t head);
  struct TextTile {
    int32_t text, length;  // the input's first row, and its tokens
    int32_t first, count;  // the tile's tokens within the input
  };
  // `cross`: cross-attention; all rows are of one decoder input and see the encoder's output.
  void attend_texts(const model::AttentionOp& op, bool cross);
  void attend_text_tile(const model::AttentionOp& op, int32_t head, const TextTile& tile,
                        bool cross, int thread);
  void row_terms(const model::AttentionOp& op, int32_t head, int32_t rows, const TileScratch& s,
                 kernels::AttentionArgs& a) const;
  [[nodiscard]] float sink(const model::AttentionOp& op, int32_t head) const {
    return op.sinks >= 0 ? engine_.vec(op.sinks)[head] : kernels::kNoSink;
  }

  void route(const model::Moe& moe);
  void demand_from(const model::Moe& moe, int32_t first);
  [[nodiscard]] bool run_expert(const model::Op& op, const ExpertRun& run);
  void gather_tokens(const model::Op& op, const ExpertRun& run, float* to);
  void scatter_tokens(const model::Op& op, const ExpertRun& run, const float* from);

  void observe_before(const model::Op& op);
  void observe_marks();
  void add_deepstack();
  void unweighted_norm(const model::Op& op);
  void observe_attention(int32_t layer, const model::AttentionOp& op);

  // Calls body() for each sequence of the batch, with the executor's rows set to its rows.
  template <typename Body>
  void for_lanes(Body&& body) {
    if (lanes_.size() == 1) return body();
    const int32_t all = rows_;
    for (const Lane& lane : lanes_) {
      if (lane.part.sequence == nullptr || lane.rows == 0) continue;
      enter(lane);
      body();
    }
    row_ = 0;
    rows_ = all;
  }

  // The first position that a query sees: a decoder's tokens do not attend to the encoder's input.
  [[nodiscard]] int32_t seen_from(const model::AttentionOp& op, int32_t position) const {
    return std::max(sequence_->source(), window_begin(op, position));
  }
  // The end of the positions that a query sees: that of its picture, if the picture's tokens see
  // each other in this layer.
  [[nodiscard]] int32_t seen_to(const model::AttentionOp& op, int32_t position) const {
    const bool whole =
        spec_.media.non_causal && (op.window > 0 || engine_.program().hp.media.sees_all);
    return whole ? first_ + rows_ : position + 1;
  }
  // The position of row t within its own input.
  [[nodiscard]] int32_t position_of(int32_t t) const;
  // Calls body(first row, tokens) for each input of the batch.
  template <typename Body>
  void for_texts(Body&& body) const {
    int32_t first = 0;
    for (const int32_t end : spec_.ends) {
      body(first, end - first);
      first = end;
    }
  }

  [[nodiscard]] float* buffer(model::Buf b) const {
    return engine_.working().buffer(b) + row_ * engine_.width(b);
  }
  // Runs body(row) for each row of the batch, on several threads if there are enough rows.
  template <typename Body>
  void for_rows(int32_t n, Body&& body) {
    constexpr int32_t kRowsForThreads = 4;  // with fewer, a region costs more than it saves
    if (n < kRowsForThreads || engine_.pool().n_threads() == 1) {
      for (int32_t row = 0; row < n; ++row) body(row);
      return;
    }
    engine_.pool().parallel_for(n, [&](int64_t row, int) { body(static_cast<int32_t>(row)); });
  }

  Engine& engine_;
  WeightStream feed_;
  EmbeddingRows row_feed_;
  std::vector<Lane> lanes_;
  std::vector<Token> tokens_;  // of the batch
  Sequence* sequence_ = nullptr;
  bool active_ = false;
  int32_t row_ = 0;    // first row of the current lane
  int32_t first_ = 0;  // its position
  int32_t token_ = 0;  // index of its token in the batch
  int32_t batch_ = 0;  // tokens in the batch
  BatchSpec spec_;
  int32_t rows_ = 0;  // current rows (after kSelect only those with wanted logits)
  size_t pc_ = 0;
  uint32_t replans_seen_ = 0;
  bool read_failed_ = false;
  Status failure_;
  Cursor cursor_;
  std::vector<TextTile> tiles_;
  std::vector<Product> products_;
  std::vector<uint32_t> demand_;
  int32_t n_runs_ = 0, run_ = 0;  // experts with tokens, and the current one
  Observer observer_;
  ProductWatch watch_;
  size_t mark_ = 0;
  std::vector<float> before_;  // observed batches only
};

}  // namespace sluice::session
