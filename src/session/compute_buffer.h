// The compute buffer of a forward pass: activations, logits and per-thread scratch. One function
// defines the layout. The plan runs it without memory to learn the size; the engine runs it again
// to carve the allocated memory.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "base/aligned.h"
#include "kernels/kernels.h"
#include "model/program.h"
#include "session/embedding_row_cache.h"
#include "session/moe_router.h"

namespace sluice::session {

inline constexpr int32_t kMaxSplits = 16;      // parts of the positions in attention
inline constexpr int32_t kMinSplit = 512;      // positions of a part
inline constexpr int32_t kMaxTileRows = 64;    // query rows of one attention task
inline constexpr int64_t kTasksPerThread = 4;  // balances cores of different speed
inline constexpr int64_t kTaskWork = 1 << 16;  // fewest multiply-adds worth a task of their own

// Attention is split by position: positions per part for a cache of `n_ctx`.
// Parts double in size, so that a longer context never takes a shorter ring.
[[nodiscard]] int32_t attention_split(int32_t n_ctx);
// Query tokens of one attention task.
[[nodiscard]] int32_t attention_tile_tokens(const model::AttentionShape& att, int32_t n_batch);

// Hands out aligned pieces of one block. With a null base it only counts bytes.
class Carver {
 public:
  explicit Carver(uint8_t* base) : base_(base) {}
  template <typename T>
  T* take(uint64_t count) {
    T* out = base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + used_);
    used_ += round_up_to_line(count * sizeof(T));
    return out;
  }
  [[nodiscard]] uint64_t used() const { return used_; }

 private:
  uint8_t* base_;
  uint64_t used_ = 0;
};

// A thread's scratch for one attention task: `rows` queries and the position parts they see.
struct TileScratch {
  TileScratch(Carver carve, const kernels::Table& table, int32_t rows, int32_t dk, int32_t dv,
              int32_t splits, bool evicts);
  uint8_t* kernel;
  float *q, *out, *max, *sum;       // [rows][dk], [splits][rows][dv], [splits][rows] twice
  int32_t *begin, *end, *position;  // [rows]
  float *slope, *sink;              // [rows]
  float* turned;                    // [rows][dk] queries rotated for the attention sinks
  uint64_t bytes;
};

// A thread's scratch while a KV head chooses which evicted positions to keep, of `places`.
struct PickScratch {
  // Keys per attention call. Their values are the rows of a unit matrix, so the output is weights.
  static constexpr int32_t kChunk = 64;
  PickScratch(Carver carve, const kernels::Table& table, int32_t group, int32_t dk, int32_t dv,
              int32_t places);
  uint8_t* kernel;
  kernels::f16* unit;             // [kChunk][kChunk]
  float *weights, *turned;        // [group][places], [group][dk or dv, the larger]
  float *max, *sum;               // [chunks][group]
  int32_t *begin, *end, *behind;  // [group]; behind: a position after all others
  uint64_t bytes;
};

struct ComputeBufferShape {
  int32_t n_ctx = 0, n_batch = 0, n_threads = 0, logits_rows = 1;
  uint64_t min_scratch = 0;                               // bytes per thread
  bool evicts = false;                                    // some layers evict: kv_policy.h
  std::array<uint64_t, model::kMaxTables> cached_rows{};  // of each table
  int32_t eviction = 0;  // positions of a block under the heavy-hitter policy; 0: another policy

  // Partial results merged by one attention. Where the ring wraps, one part is computed in two
  // halves, and the sinks are a part of their own. As many as any shorter context has.
  [[nodiscard]] int32_t attention_parts() const {
    return std::min(kMaxSplits, (n_ctx + kMinSplit - 1) / kMinSplit) + (evicts ? 2 : 0);
  }
};

class ComputeBuffer {
 public:
  struct Sizes {
    uint64_t activations = 0;  // including logits
    uint64_t scratch = 0;      // per thread
  };
  [[nodiscard]] static Sizes measure(const model::Program& program, const kernels::Table& table,
                                     const ComputeBufferShape& shape);
  // Logits keep their address and contents if their size does not change. Errors: kOutOfMemory;
  // only another allocate() may be called after it.
  [[nodiscard]] Status allocate(const model::Program& program, const kernels::Table& table,
                                const ComputeBufferShape& shape);

  // [n_batch][width] of f32; for logits [logits_rows][width].
  [[nodiscard]] float* buffer(model::Buf b) const { return at_.buffers[static_cast<size_t>(b)]; }
  // Quantized activations, [n_batch][q8_bytes of the widest multiplication], or of all heads if
  // each has its own matrix.
  [[nodiscard]] uint8_t* q8() const { return at_.q8; }
  // [n_batch][n_rot/2] cosines, then sines, of RoPE variant i.
  [[nodiscard]] float* rope_table(size_t i) const { return at_.ropes[i]; }
  // The same, to rotate queries back for the attention sinks, in layers that evict.
  [[nodiscard]] float* turn_table(size_t i) const { return at_.turns[i]; }
  // The same for observer queries, then for each key of an evicted block, which is rotated back to
  // position 0.
  [[nodiscard]] float* eviction_table(size_t i) const { return at_.eviction[i]; }
  // Rows of one of the program's tables as in the file, [n_batch][row_bytes].
  [[nodiscard]] uint8_t* table_rows(size_t table) const { return at_.table_rows[table]; }
  [[nodiscard]] EmbeddingRowCache& embedding_row_cache(size_t table) { return row_caches_[table]; }
  [[nodiscard]] const EmbeddingRowCache& embedding_row_cache(size_t table) const {
    return row_caches_[table];
  }
  // Gathered tokens of one expert: its inputs, then its outputs, [2][n_batch][n_embd].
  [[nodiscard]] float* experts() const { return at_.experts; }
  // Mixture of experts: [n_batch][n_used], the same sorted by expert, and the experts with tokens.
  [[nodiscard]] Choice* choices() const { return at_.choices; }
  [[nodiscard]] Routed* routed() const { return at_.routed; }
  [[nodiscard]] ExpertRun* expert_runs() const { return at_.expert_runs; }
  // One token's outputs [parts][heads][dv], then maxima [parts][heads], then sums.
  [[nodiscard]] float* attention_partials() const { return at_.partials; }
  // Sums over an input's rows for pooling, [2][n_embd]: of earlier batches, and including this one.
  // allocate() keeps them.
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
