// The working memory of a pass: activations, logits and each thread's scratch. One function lays it
// out; the plan runs it over no memory to learn the size, the engine over memory to carve it.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/aligned.h"
#include "kernels/kernels.h"
#include "model/program.h"
#include "session/embedding_row_cache.h"
#include "session/moe_router.h"

namespace sluice::session {

inline constexpr int32_t kMaxSplits = 16;      // of the positions in attention
inline constexpr int32_t kMinSplit = 512;      // positions
inline constexpr int32_t kMaxTileRows = 64;    // query rows of one attention task
inline constexpr int64_t kTasksPerThread = 4;  // for balance between cores of different speed
inline constexpr int64_t kTaskWork = 1 << 16;  // multiply-adds worth handing to another thread

// Positions of one part of a split attention, given those of the cache; and how many parts there
// are.
[[nodiscard]] int32_t attention_split(int32_t n_ctx);
[[nodiscard]] int32_t split_count(int32_t n_ctx);
// Query tokens of one attention task.
[[nodiscard]] int32_t attention_tile_tokens(const model::AttentionShape& att, int32_t n_batch);

// Hands out aligned pieces of one block; over no memory it only counts.
class Carver {
 public:
  explicit Carver(uint8_t* base) : base_(base) {}
  template <typename T>
  T* take(uint64_t count) {
    T* out = base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + used_);
    used_ += round_up_to_line(static_cast<size_t>(count * sizeof(T)));
    return out;
  }
  [[nodiscard]] uint64_t used() const { return used_; }

 private:
  uint8_t* base_;
  uint64_t used_ = 0;
};

// A thread's scratch during an attention task: `rows` queries against the parts that they see.
struct TileScratch {
  TileScratch(Carver carve, const kernels::Table& table, int32_t rows, int32_t dk, int32_t dv,
              int32_t splits, bool evicts);
  uint8_t* kernel;
  float *q, *out, *max, *sum;       // [rows][dk], [splits][rows][dv], [splits][rows] twice
  int32_t *begin, *end, *position;  // [rows]
  float *slope, *sink;              // [rows]
  float* turned;                    // [rows][dk] queries against the first positions
  uint64_t bytes;
};

// A thread's scratch while a head of keys and values picks what stays of `places` positions.
struct PickScratch {
  // Keys whose weights one call of attention gives: their values are the rows of a unit matrix.
  static constexpr int32_t kChunk = 64;
  PickScratch(Carver carve, const kernels::Table& table, int32_t group, int32_t dk, int32_t dv,
              int32_t places);
  uint8_t* kernel;
  kernels::f16* unit;             // [kChunk][kChunk]
  float *weights, *turned;        // [group][places], [group][dk or dv, the larger]
  float *max, *sum;               // [chunks][group]
  int32_t *begin, *end, *behind;  // [group]; behind all positions
  uint64_t bytes;
};

struct ComputeBufferShape {
  int32_t n_ctx = 0, n_batch = 0, n_threads = 0, logits_rows = 1;
  uint64_t min_scratch = 0;                               // bytes of a thread
  bool evicts = false;                                    // layers do: kv_policy.h
  std::array<uint64_t, model::kMaxTables> cached_rows{};  // of each table
  int32_t eviction = 0;  // positions of a block where layers pick what stays; 0: none do

  // Results that an attention is merged from: where a ring comes round, the part that its place is
  // in is begun twice, and the first positions are a part by themselves.
  [[nodiscard]] int32_t attention_parts() const { return split_count(n_ctx) + (evicts ? 2 : 0); }
};

class ComputeBuffer {
 public:
  struct Sizes {
    uint64_t activations = 0;  // logits included
    uint64_t scratch = 0;      // of one thread
  };
  [[nodiscard]] static Sizes measure(const model::Program& program, const kernels::Table& table,
                                     const ComputeBufferShape& shape);
  // Logits stay where they are, and as they are, while their number does. Errors: kOutOfMemory,
  // after which nothing but another allocate() may be called.
  [[nodiscard]] Status allocate(const model::Program& program, const kernels::Table& table,
                                const ComputeBufferShape& shape);

  // [n_batch][width] of f32; of the logits [logits_rows][width].
  [[nodiscard]] float* buffer(model::Buf b) const { return at_.buffers[static_cast<size_t>(b)]; }
  // Quantized activations, [n_batch][q8_bytes of the widest product], of all heads where each has
  // its own.
  [[nodiscard]] uint8_t* q8() const { return at_.q8; }
  // [n_batch][n_rot/2] cosines, then sines, of RoPE variant i.
  [[nodiscard]] float* rope_table(size_t i) const { return at_.ropes[i]; }
  // The same by which queries are turned back for the first positions, where layers forget.
  [[nodiscard]] float* turn_table(size_t i) const { return at_.turns[i]; }
  // The same for queries that tell what stays of a block, then for each of its keys, which are
  // turned back to position 0.
  [[nodiscard]] float* eviction_table(size_t i) const { return at_.eviction[i]; }
  // Rows of a table of the program as they are in the file, [n_batch][row_bytes].
  [[nodiscard]] uint8_t* table_rows(size_t table) const { return at_.table_rows[table]; }
  [[nodiscard]] EmbeddingRowCache& embedding_row_cache(size_t table) { return row_caches_[table]; }
  [[nodiscard]] const EmbeddingRowCache& embedding_row_cache(size_t table) const {
    return row_caches_[table];
  }
  // Tokens of one expert, gathered: its inputs, then its outputs, [2][n_batch][n_embd].
  [[nodiscard]] float* experts() const { return at_.experts; }
  // Of a mixture: [n_batch][n_used], the same sorted by expert, and the experts that have tokens.
  [[nodiscard]] Choice* choices() const { return at_.choices; }
  [[nodiscard]] Routed* routed() const { return at_.routed; }
  [[nodiscard]] ExpertRun* expert_runs() const { return at_.expert_runs; }
  // Of one token: outputs [parts][heads][dv], then maxima [parts][heads], then sums.
  [[nodiscard]] float* attention_partials() const { return at_.partials; }
  // Sums over a text's rows while they are pooled, [2][n_embd]: of the batches before,
  // and with this one's. They stay as they are while memory is allocated anew.
  [[nodiscard]] double* pool_sums() const { return pool_sums_.as<double>(); }
  [[nodiscard]] uint8_t* scratch(int thread) const {
    return scratch_.as<uint8_t>() + static_cast<size_t>(thread) * scratch_stride_;
  }

 private:
  struct Places {
    std::array<float*, model::kBufCount> buffers{};
    std::vector<float*> ropes, turns, eviction;
    uint8_t* q8 = nullptr;
    std::array<uint8_t*, model::kMaxTables> table_rows{}, cached_rows{};
    float* experts = nullptr;
    Choice* choices = nullptr;
    Routed* routed = nullptr;
    ExpertRun* expert_runs = nullptr;
    float* partials = nullptr;
  };
  static Places lay_out(Carver& carve, const model::Program& program, const kernels::Table& table,
                        const ComputeBufferShape& shape);

  Places at_;
  std::array<EmbeddingRowCache, model::kMaxTables> row_caches_;
  AlignedBuffer activations_, logits_, scratch_, pool_sums_;
  size_t scratch_stride_ = 0;
};

}  // namespace sluice::session
