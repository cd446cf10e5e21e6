// Requests rows and dequantizes them.
#include "session/embedding_rows.h"

#include <algorithm>

namespace sluice::session {

static_assert(model::kMaxTables <= residency::FillRequests::kMaxTables);

EmbeddingRows::EmbeddingRows(const ExecutionContext& context) : cx_(context) {
  unit_of_.resize(static_cast<size_t>(context.largest_batch));
}

const model::Mat& EmbeddingRows::mat(size_t table) const {
  const model::Program& p = cx_.program;
  return p.mats[static_cast<size_t>(p.tables[table])];
}

uint8_t* EmbeddingRows::row(size_t table, int32_t t) const {
  return cx_.working.table_rows(table) + t * mat(table).row_bytes;
}

bool EmbeddingRows::begin(std::span<const Token> tokens) {
  for (size_t i = 0; i < model::kMaxTables; ++i) {
    if (cx_.weights.residency().requests().rows_under_way(i) > 0) return false;
  }
  tokens_ = tokens;
  table_ = 0;
  asked_ = {};
  return true;
}

uint32_t EmbeddingRows::held(Token token) const {
  residency::Residency& r = cx_.weights.residency();
  const int32_t item = cx_.weights.item_of_mat(cx_.program.embedding);
  for (uint32_t u = r.plan().first_unit_of(item); u < r.plan().end_unit_of(item); ++u) {
    const residency::Unit& unit = r.plan().units[u];
    if (token < unit.row0 + unit.rows) return unit.pinned && r.ready(u) ? u : residency::kNoUnit;
  }
  return residency::kNoUnit;
}

void EmbeddingRows::request() {
  residency::Residency& r = cx_.weights.residency();
  for (const size_t n = cx_.program.tables.size(); table_ < n; ++table_) {
    const model::Mat& m = mat(table_);
    for (int32_t& t = asked_[table_].rows; t < n_tokens(); ++t) {
      const Token token = token_at(t);
      const uint32_t unit = table_ == 0 ? held(token) : residency::kNoUnit;
      if (table_ == 0) unit_of_[static_cast<size_t>(t)] = unit;
      if (unit != residency::kNoUnit) continue;
      EmbeddingRowCache& cache = cx_.working.embedding_row_cache(table_);
      if (const uint8_t* known = cache.find(token)) {
        std::copy_n(known, m.row_bytes, row(table_, t));
        continue;
      }
      const uint64_t offset = m.offset + static_cast<uint64_t>(token * m.row_bytes);
      const uint32_t bytes = static_cast<uint32_t>(m.row_bytes);
      if (!r.requests().request_row(table_, m.file, offset, bytes, row(table_, t))) return;
      cache.count_read();
    }
  }
}

bool EmbeddingRows::ready(size_t table) {
  request();
  Asked& asked = asked_[table];
  if (asked.rows < n_tokens() || cx_.weights.residency().requests().rows_under_way(table) > 0)
    return false;
  if (asked.looked_at) return true;
  asked.looked_at = true;
  const model::Mat& m = mat(table);
  for (int32_t t = 0; t < n_tokens(); ++t) {
    if (table == 0 && unit_of_[static_cast<size_t>(t)] != residency::kNoUnit) continue;
    const Token token = token_at(t);
    if (kernels::all_finite(m.type, row(table, t), m.cols)) {
      cx_.working.embedding_row_cache(table).keep(token, row(table, t));
      continue;
    }
    cx_.weights.refuse(m.name, token, token);
  }
  return true;
}

void EmbeddingRows::read(size_t table, int32_t t, int64_t col, int64_t n, float* out) const {
  const model::Mat& m = mat(table);
  const uint8_t* from = row(table, t);
  const uint32_t u = table == 0 ? unit_of_[static_cast<size_t>(t)] : residency::kNoUnit;
  if (u != residency::kNoUnit) {
    residency::Residency& r = cx_.weights.residency();
    const residency::Unit& unit = r.plan().units[u];
    const int64_t at = token_at(t) - unit.row0;
    if (r.packed(u)) {  // packed units are read by whole rows
      cx_.table.unpack_row({m.type, true, unit.rows, m.cols, r.data(u)}, at, out);
      return;
    }
    from = r.data(u) + at * m.row_bytes;
  }
  cx_.table.dequantize(m.type, from + col * m.row_bytes / m.cols, n, out);
}

}  // namespace sluice::session
