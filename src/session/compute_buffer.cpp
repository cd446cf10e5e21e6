// Lays out the compute buffer and computes its sizes.
#include "session/compute_buffer.h"

#include <algorithm>

namespace sluice::session {
namespace {

using model::Buf;
using model::Program;

uint64_t logits_bytes(const Program& p, const ComputeBufferShape& shape) {
  return static_cast<uint64_t>(shape.logits_rows) *
         static_cast<uint64_t>(p.width[static_cast<size_t>(Buf::kLogits)]) * sizeof(float);
}

uint64_t pool_bytes(const Program& p) {
  return 2 * static_cast<uint64_t>(p.hp.n_embd) * sizeof(double);
}

uint64_t thread_scratch(const Program& p, const kernels::Table& table,
                        const ComputeBufferShape& shape) {
  uint64_t bytes = std::max(shape.min_scratch, p.approximated.scratch);
  for (size_t i = 0; i < p.mats.size(); ++i) {
    const model::Mat& m = p.mats[i];
    if (p.by_rows(i)) continue;
    bytes = std::max<uint64_t>(bytes, table.matmul_scratch(m.type, m.cols));
    bytes = std::max(bytes, static_cast<uint64_t>(m.row_bytes * table.row_group));  // packing
  }
  for (const model::Op& op : p.ops) {
    if (op.is<model::RowsOp>()) {
      bytes = std::max(bytes, static_cast<uint64_t>(op.n) * sizeof(float));
    }
    const auto* attention = op.get<model::AttentionOp>();
    if (attention == nullptr) continue;
    const model::AttentionShape& att = attention->att;
    const int32_t rows = attention_tile_tokens(att, shape.n_batch) * att.group();
    const TileScratch tile(Carver(nullptr), table, rows, att.dk, att.dv, shape.attention_parts(),
                           shape.evicts);
    bytes = std::max(bytes, tile.bytes);
    if (shape.eviction == 0) continue;
    bytes = std::max(
        bytes, PickScratch(Carver(nullptr), table, att.group(), att.dk, att.dv, shape.n_ctx).bytes);
  }
  return round_up_to_line(bytes) + kAlignment;
}

// Bytes per token: the widest multiplication, or all heads of one if each has its own matrix.
uint64_t q8_bytes(const Program& p, const kernels::Table& table) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < p.mats.size(); ++i) {
    if (!p.by_rows(i)) bytes = std::max<uint64_t>(bytes, table.q8_bytes(p.mats[i].cols));
  }
  for (const model::Op& op : p.ops) {
    const auto* product = op.get<model::HeadMatmulOp>();
    if (product == nullptr) continue;
    bytes = std::max(bytes, static_cast<uint64_t>(product->heads) * table.q8_bytes(op.n));
  }
  return bytes;
}

// Floats per part of the positions: for each head an output, a maximum and a sum.
uint64_t partial_floats(const Program& p) {
  int64_t max = 0;
  for (const model::Op& op : p.ops) {
    if (const auto* attention = op.get<model::AttentionOp>()) {
      max = std::max(max, int64_t{attention->att.heads} * (attention->att.dv + 2));
    }
  }
  return static_cast<uint64_t>(max);
}

}  // namespace

int32_t attention_split(int32_t n_ctx) {
  int32_t split = kMinSplit;
  while (split * kMaxSplits < n_ctx) split *= 2;
  return split;
}

int32_t attention_tile_tokens(const model::AttentionShape& att, int32_t n_batch) {
  return std::clamp(kMaxTileRows / att.group(), 1, n_batch);
}

TileScratch::TileScratch(Carver carve, const kernels::Table& table, int32_t rows, int32_t dk,
                         int32_t dv, int32_t splits, bool evicts) {
  const uint64_t n = static_cast<uint64_t>(rows), parts = n * static_cast<uint64_t>(splits);
  kernel = carve.take<uint8_t>(table.attention_scratch(rows, dk, dv));
  q = carve.take<float>(n * static_cast<uint64_t>(dk));
  out = carve.take<float>(parts * static_cast<uint64_t>(dv));
  max = carve.take<float>(parts);
  sum = carve.take<float>(parts);
  begin = carve.take<int32_t>(n);
  end = carve.take<int32_t>(n);
  position = carve.take<int32_t>(n);
  slope = carve.take<float>(n);
  sink = carve.take<float>(n);
  turned = carve.take<float>(evicts ? n * static_cast<uint64_t>(dk) : 0);
  bytes = carve.used();
}

PickScratch::PickScratch(Carver carve, const kernels::Table& table, int32_t group, int32_t dk,
                         int32_t dv, int32_t places) {
  const uint64_t n = static_cast<uint64_t>(group), all = static_cast<uint64_t>(places);
  const int32_t widest = std::max(dk, dv);
  kernel = carve.take<uint8_t>(table.attention_scratch(group, dk, std::max(kChunk, widest)));
  unit = carve.take<kernels::f16>(kChunk * kChunk);
  weights = carve.take<float>(n * all);
  turned = carve.take<float>(n * static_cast<uint64_t>(widest));
  const uint64_t chunks = all / 32;  // a chunk has at least 32
  max = carve.take<float>(n * chunks);
  sum = carve.take<float>(n * chunks);
  begin = carve.take<int32_t>(n);
  end = carve.take<int32_t>(n);
  behind = carve.take<int32_t>(n);
  bytes = carve.used();
}

ComputeBuffer::Places ComputeBuffer::lay_out(Carver& carve, const Program& p,
                                             const kernels::Table& table,
                                             const ComputeBufferShape& shape) {
  Places at;
  const uint64_t n_batch = static_cast<uint64_t>(shape.n_batch);
  for (size_t b = 0; b < model::kBufCount; ++b) {
    if (b == static_cast<size_t>(Buf::kLogits)) continue;  // allocated separately
    at.buffers[b] = carve.take<float>(n_batch * static_cast<uint64_t>(p.width[b]));
  }
  at.q8 = carve.take<uint8_t>(n_batch * q8_bytes(p, table));
  for (const model::Rope& r : p.ropes) {
    const uint64_t n = n_batch * static_cast<uint64_t>(r.hp.n_rot);
    at.ropes.push_back(carve.take<float>(n));
    at.turns.push_back(carve.take<float>(shape.evicts ? n : 0));
    const int32_t rows = shape.eviction > 0 ? shape.eviction + 1 : 0;
    at.eviction.push_back(
        carve.take<float>(static_cast<uint64_t>(rows) * static_cast<uint64_t>(r.hp.n_rot)));
  }
  for (size_t i = 0; i < p.tables.size(); ++i) {
    const model::Mat& table = p.mats[static_cast<size_t>(p.tables[i])];
    const uint64_t bytes = static_cast<uint64_t>(table.row_bytes);
    at.table_rows[i] = carve.take<uint8_t>(n_batch * bytes);
    at.cached_rows[i] = carve.take<uint8_t>(EmbeddingRowCache::bytes(shape.cached_rows[i], bytes));
  }
  if (!p.moes.empty()) {
    const uint64_t n_used = static_cast<uint64_t>(p.hp.moe.n_expert_used);
    at.experts = carve.take<float>(2 * n_batch * static_cast<uint64_t>(p.hp.n_embd));
    at.choices = carve.take<Choice>(n_batch * n_used);
    at.routed = carve.take<Routed>(n_batch * n_used);
    at.expert_runs = carve.take<ExpertRun>(static_cast<uint64_t>(p.hp.moe.n_expert));
  }
  if (const uint64_t parts = static_cast<uint64_t>(shape.attention_parts()); parts > 1) {
    at.partials = carve.take<float>(parts * partial_floats(p));
  }
  return at;
}

ComputeBuffer::Sizes ComputeBuffer::measure(const Program& p, const kernels::Table& table,
                                            const ComputeBufferShape& shape) {
  Carver carve(nullptr);
  lay_out(carve, p, table, shape);
  Sizes sizes;
  sizes.activations =
      carve.used() + round_up_to_line(logits_bytes(p, shape)) + round_up_to_line(pool_bytes(p));
  sizes.scratch = thread_scratch(p, table, shape);
  return sizes;
}

Status ComputeBuffer::allocate(const Program& p, const kernels::Table& table,
                               const ComputeBufferShape& shape) {
  at_ = {};
  activations_ = AlignedBuffer();
  scratch_ = AlignedBuffer();
  if (logits_.size() != logits_bytes(p, shape)) {
    SLUICE_RETURN_IF_ERROR(logits_.allocate(logits_bytes(p, shape)));
  }
  if (pool_sums_.size() != pool_bytes(p)) {
    SLUICE_RETURN_IF_ERROR(pool_sums_.allocate(pool_bytes(p)));
  }
  Carver measured(nullptr);
  lay_out(measured, p, table, shape);
  SLUICE_RETURN_IF_ERROR(activations_.allocate(measured.used()));
  scratch_stride_ = static_cast<size_t>(thread_scratch(p, table, shape));
  SLUICE_RETURN_IF_ERROR(scratch_.allocate(scratch_stride_ * static_cast<size_t>(shape.n_threads)));
  Carver carve(activations_.as<uint8_t>());
  at_ = lay_out(carve, p, table, shape);
  for (size_t i = 0; i < p.tables.size(); ++i) {
    const model::Mat& m = p.mats[static_cast<size_t>(p.tables[i])];
    row_caches_[i].place(at_.cached_rows[i], shape.cached_rows[i],
                         static_cast<uint64_t>(m.row_bytes));
  }
  at_.buffers[static_cast<size_t>(Buf::kLogits)] = logits_.as<float>();
  return {};
}

}  // namespace sluice::session
