// Packs weights that have arrived.
#include "session/weights.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace sluice::session {
namespace {

using residency::MatrixKind;

float half_to_float(uint16_t bits, bool bfloat) {
  uint32_t out = static_cast<uint32_t>(bits) << 16;
  if (!bfloat) {
    const uint32_t sign = (bits & 0x8000u) << 16;
    const uint32_t exponent = (bits >> 10) & 0x1fu;
    const uint32_t mantissa = bits & 0x3ffu;
    if (exponent == 0) {  // zero and subnormals: exact
      const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
      return sign ? -magnitude : magnitude;
    }
    const uint32_t wide = exponent == 31 ? 255u : exponent + 112u;
    out = sign | (wide << 23) | (mantissa << 13);
  }
  float value;
  std::memcpy(&value, &out, sizeof value);
  return value;
}

// Transposes [columns][rows] to [rows][columns] in place, one cycle of the permutation at a time.
void transpose(float* x, int64_t rows, int64_t columns) {
  const auto source = [=](int64_t to) { return to % rows * columns + to / rows; };
  for (int64_t first = 1; first < rows * columns; ++first) {
    int64_t lowest = source(first);
    while (lowest > first) lowest = source(lowest);
    if (lowest < first) continue;
    const float carried = x[first];
    int64_t to = first;
    for (int64_t from = source(to); from != first; from = source(from)) {
      x[to] = x[from];
      to = from;
    }
    x[to] = carried;
  }
}

// Converts a small tensor to f32 in place: its file bytes are at the end of `memory`.
void convert_vector(const model::Vec& v, uint8_t* memory, uint64_t memory_bytes) {
  float* out = reinterpret_cast<float*>(memory);
  const uint8_t* in = memory + (memory_bytes - v.bytes);
  const bool wide = v.type == static_cast<uint32_t>(gguf::TensorType::kF32);
  const bool bfloat = v.type == static_cast<uint32_t>(gguf::TensorType::kBF16);
  for (int64_t i = 0; i < v.n; ++i) {
    float value;
    if (wide) {
      std::memcpy(&value, in + i * 4, 4);
    } else {
      uint16_t bits;
      std::memcpy(&bits, in + i * 2, 2);
      value = half_to_float(bits, bfloat);
    }
    out[i] = value + v.add;
  }
  if (v.columns > 0) transpose(out, v.n / v.columns, v.columns);
}

}  // namespace

void Weights::start(const kernels::Table& table, ThreadPool& pool, RangeReader* reader) {
  table_ = &table;
  pool_ = &pool;
  reader_ = reader;
  item_mat_.assign(plan_.weights.first_unit.size(), -1);
  item_vec_.assign(plan_.weights.first_unit.size(), -1);
  for (size_t i = 0; i < plan_.items.mat.size(); ++i) {
    if (plan_.items.mat[i] >= 0) {
      item_mat_[static_cast<size_t>(plan_.items.mat[i])] = static_cast<int32_t>(i);
    }
  }
  for (size_t i = 0; i < plan_.items.vec.size(); ++i) {
    if (plan_.items.vec[i] >= 0) {
      item_vec_[static_cast<size_t>(plan_.items.vec[i])] = static_cast<int32_t>(i);
    }
  }
}

Status Weights::allocate(residency::DirectReads direct_reads) {
  SLUICE_RETURN_IF_ERROR(residency_.init(plan_.weights, direct_reads, plan_.threads.n_threads));
  check_.reset(plan_.weights.units.size());
  return {};
}

Status Weights::replan() {
  ++replans_;
  SLUICE_RETURN_IF_ERROR(residency_.replan(plan_.weights));
  check_.reset(plan_.weights.units.size());
  return {};
}

const float* Weights::vec(int32_t index) const {
  const int32_t item = plan_.items.vec[static_cast<size_t>(index)];
  const uint32_t unit = residency_.plan().first_unit_of(item);
  return residency_.ready(unit) ? reinterpret_cast<const float*>(residency_.data(unit)) : nullptr;
}

void Weights::settle_unit(uint32_t unit, int thread) {
  const residency::Unit& u = residency_.plan().units[unit];
  uint8_t* memory = residency_.data(unit);
  if (u.kind == MatrixKind::kVector) {
    const int32_t index = item_vec_[static_cast<size_t>(u.matrix)];
    const model::Vec& v = program_.vecs[static_cast<size_t>(index)];
    const uint8_t* in = memory + (u.packed_bytes - v.bytes);
    check_.look(unit, static_cast<kernels::Type>(v.type), in, v.n);
    convert_vector(v, memory, u.packed_bytes);
    return;
  }
  const model::Mat& m =
      program_.mats[static_cast<size_t>(item_mat_[static_cast<size_t>(u.matrix)])];
  if (u.plain) {
    check_.look(unit, m.type, memory, u.rows * m.cols);
    return;
  }
  // Packed groups grow from the front towards the file bytes at the end. A group's file bytes are
  // copied aside first, so packing never overwrites unread bytes.
  const uint8_t* from = memory + (u.packed_bytes - u.bytes);
  const size_t group_bytes = table_->packed_group_bytes(m.type, m.cols);
  uint8_t* aside = working_.scratch(thread);
  uint8_t* to = memory;
  for (int64_t row = 0; row < u.rows; row += table_->row_group) {
    const int64_t rows = std::min<int64_t>(table_->row_group, u.rows - row);
    std::memcpy(aside, from + row * m.row_bytes, static_cast<size_t>(rows * m.row_bytes));
    check_.look(unit, m.type, aside, rows * m.cols);
    table_->pack_group(m.type, aside, static_cast<int32_t>(rows), m.cols, to);
    to += group_bytes;
  }
}

void Weights::pack_loaded() {
  const std::span<const uint32_t> arrived = residency_.arrived();
  if (arrived.empty()) return;
  pool_->parallel_for(static_cast<int64_t>(arrived.size()), [&](int64_t task, int thread) {
    settle_unit(arrived[static_cast<size_t>(task)], thread);
  });
  for (const uint32_t unit : arrived) check_.done(unit);
  residency_.mark_arrived_ready();
  settle_check();
}

void Weights::settle_check() {
  if (check_.bad() == residency::kNoUnit) return;
  const residency::Unit& u = residency_.plan().units[check_.bad()];
  const size_t item = static_cast<size_t>(u.matrix);
  const std::string& name = u.kind == MatrixKind::kVector
                                ? program_.vecs[static_cast<size_t>(item_vec_[item])].name
                                : program_.mats[static_cast<size_t>(item_mat_[item])].name;
  refuse(name, u.row0, u.row0 + u.rows - 1);
}

void Weights::refuse(const std::string& tensor, int64_t first, int64_t last) {
  if (!failure_.ok()) return;
  std::string rows = first == last ? "row " : "rows " + std::to_string(first) + " to ";
  rows += std::to_string(last);
  failure_ = error(Code::kBadWeights, "the tensor %s has a value that is not finite (%s)",
                   tensor.c_str(), rows.c_str());
}

bool Weights::poll() {
  const bool any = residency_.poll();
  pack_loaded();
  return any;
}

bool Weights::help_reading() {
  std::array<uint32_t, 8> numbers{};
  std::array<bool, 8> good{};
  const size_t max_requests = std::min(numbers.size(), static_cast<size_t>(pool_->n_threads()));
  const size_t n = residency_.take_requests({numbers.data(), max_requests});
  if (n == 0) return false;
  pool_->parallel_for(static_cast<int64_t>(n), [&](int64_t task, int) {
    const size_t i = static_cast<size_t>(task);
    const residency::FillRequest& r =
        residency_.requests().queue().ring[numbers[i] % residency::kFillCapacity];
    uint8_t* dst = reinterpret_cast<uint8_t*>(static_cast<uintptr_t>(r.dst));
    good[i] = reader_->read(r.file, r.offset, {dst, r.length});
  });
  for (size_t i = 0; i < n; ++i) {
    if (!good[i]) residency_.forbid_direct_reads();
    residency_.requests().finish(numbers[i], good[i]);
  }
  return true;
}

}  // namespace sluice::session
