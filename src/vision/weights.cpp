#include "vision/weights.h"

#include <algorithm>
#include <atomic>
#include <cstring>

namespace sluice::vision {
namespace {

constexpr int64_t kTokensPerTask = 256;  // a multiple of kernels::kActTile
constexpr int64_t kTasksPerThread = 4;

}  // namespace

Status Weights::adopt(residency::Plan plan) {
  const size_t n = plan.units.size();
  checked_.assign(n, 0);
  if (open_) return residency_.replan(std::move(plan));
  open_ = true;
  return residency_.init(std::move(plan));
}

bool Weights::idle() {
  if (!open_) return true;
  residency_.collect();
  return residency_.requests().under_way() == 0;
}

uint32_t Weights::unit_of(int32_t mat, uint32_t n) const {
  return residency_.plan().first_unit_of(static_cast<int32_t>(program_.vecs.size()) + mat) + n;
}

uint32_t Weights::n_units(int32_t mat) const {
  const int32_t item = static_cast<int32_t>(program_.vecs.size()) + mat;
  return residency_.plan().end_unit_of(item) - residency_.plan().first_unit_of(item);
}

bool Weights::vectors_ready() const {
  for (int32_t i = 0; i < static_cast<int32_t>(program_.vecs.size()); ++i) {
    if (!residency_.ready(residency_.plan().first_unit_of(i))) return false;
  }
  return true;
}

const float* Weights::vec(int32_t index) const {
  if (index < 0) return nullptr;
  return reinterpret_cast<const float*>(residency_.data(residency_.plan().first_unit_of(index)));
}

void Weights::refuse(const std::string& name) {
  if (!failure_.ok()) return;
  failure_ = error(Code::kBadWeights, "the projector's tensor %s has a value that is not finite",
                   name.c_str());
}

// The file's bytes are at the end of the unit's memory; what the kernels read grows from its front.
// Bytes are copied aside first, so that nothing is overwritten before it is read.
bool Weights::settle(uint32_t unit, uint8_t* scratch) {
  const residency::Unit& u = residency_.plan().units[unit];
  uint8_t* memory = residency_.data(unit);
  const uint8_t* from = memory + (u.packed_bytes - u.bytes);
  if (u.kind == residency::MatrixKind::kVector) {
    const Vec& vec = program_.vecs[static_cast<size_t>(u.matrix)];
    if (!kernels::all_finite(vec.type, from, vec.n)) return false;
    if (vec.type == kernels::Type::kF32) return true;
    constexpr int64_t kChunk = 64;
    uint8_t aside[kChunk * sizeof(kernels::f16)];
    auto* out = reinterpret_cast<float*>(memory);
    for (int64_t i = 0; i < vec.n; i += kChunk) {
      const int64_t n = std::min(kChunk, vec.n - i);
      std::memcpy(aside, from + i * 2, static_cast<size_t>(n) * sizeof(kernels::f16));
      table_.dequantize(vec.type, aside, n, out + i);
    }
    return true;
  }
  const Mat& mat = program_.mats[static_cast<size_t>(u.matrix) - program_.vecs.size()];
  if (!kernels::all_finite(mat.type, from, u.rows * mat.cols)) return false;
  if (u.plain) return true;
  const size_t group_bytes = table_.packed_group_bytes(mat.type, mat.cols);
  uint8_t* to = memory;
  for (int64_t row = 0; row < u.rows; row += table_.row_group) {
    const int64_t rows = std::min<int64_t>(table_.row_group, u.rows - row);
    std::memcpy(scratch, from + row * mat.row_bytes, static_cast<size_t>(rows * mat.row_bytes));
    table_.pack_group(mat.type, scratch, static_cast<int32_t>(rows), mat.cols, to);
    to += group_bytes;
  }
  return true;
}

void Weights::poll(uint8_t* scratch, size_t stride) {
  residency_.poll();
  const std::span<const uint32_t> arrived = residency_.arrived();
  if (arrived.empty()) return;
  std::atomic<uint32_t> bad{residency::kNoUnit};  // the first of them
  pool_.parallel_for(static_cast<int64_t>(arrived.size()), [&](int64_t task, int thread) {
    const uint32_t unit = arrived[static_cast<size_t>(task)];
    if (settle(unit, scratch + static_cast<size_t>(thread) * stride)) return;
    uint32_t first = bad.load(std::memory_order_relaxed);
    while (unit < first && !bad.compare_exchange_weak(first, unit, std::memory_order_relaxed)) {
    }
  });
  for (const uint32_t unit : arrived) checked_[unit] = 1;
  if (bad != residency::kNoUnit) {
    const auto item = static_cast<size_t>(residency_.plan().units[bad].matrix);
    const size_t n_vecs = program_.vecs.size();
    refuse(item < n_vecs ? program_.vecs[item].name : program_.mats[item - n_vecs].name);
  }
  residency_.mark_arrived_ready();
}

bool Weights::need(int32_t mat, uint32_t n) {
  const uint32_t unit = unit_of(mat, n);
  if (residency_.ready(unit)) return true;
  residency_.set_cursor(unit);
  return false;
}

void Weights::check(uint32_t unit, const Mat& mat, const uint8_t* rows, int64_t n_rows) {
  if (checked_[unit] != 0) return;
  checked_[unit] = 1;
  if (!kernels::all_finite(mat.type, rows, n_rows * mat.cols)) refuse(mat.name);
}

void Weights::multiply(const Product& product, uint32_t n, uint8_t* scratch, size_t stride) {
  const Mat& mat = program_.mats[static_cast<size_t>(product.mat)];
  const uint32_t unit = unit_of(product.mat, n);
  const residency::Unit& u = residency_.plan().units[unit];
  const bool packed = residency_.packed(unit);
  const uint8_t* data = residency_.data(unit);
  check(unit, mat, data, packed ? 0 : u.rows);
  const int64_t n_tokens = product.x.n_tokens;
  const int64_t blocks = (n_tokens + kTokensPerTask - 1) / kTokensPerTask;
  const int64_t wanted = std::max<int64_t>(1, pool_.n_threads() * kTasksPerThread / blocks);
  const int64_t group = table_.row_group;
  const int64_t chunk = ((u.rows + wanted - 1) / wanted + group - 1) / group * group;
  const int64_t chunks = (u.rows + chunk - 1) / chunk;
  const size_t q8_bytes = table_.q8_bytes(mat.cols);
  pool_.parallel_for(chunks * blocks, [&](int64_t task, int thread) {
    const int64_t row = task / blocks * chunk, token = task % blocks * kTokensPerTask;
    kernels::MatmulArgs args{};
    args.w = {mat.type, packed, u.rows, mat.cols, data};
    args.r0 = row;
    args.r1 = std::min(row + chunk, u.rows);
    args.x = product.x;
    args.x.f32 += token * product.x.ld;
    if (args.x.q8 != nullptr) {
      args.x.q8 = static_cast<const uint8_t*>(args.x.q8) + static_cast<size_t>(token) * q8_bytes;
    }
    args.x.n_tokens = static_cast<int32_t>(std::min(kTokensPerTask, n_tokens - token));
    args.bias = product.bias == nullptr ? nullptr : product.bias + u.row0;
    args.scale = 1;
    args.add = product.add;
    args.y = product.y + u.row0 + token * product.ldy;
    args.ldy = product.ldy;
    args.scratch = scratch + static_cast<size_t>(thread) * stride;
    table_.matmul(args);
  });
  residency_.advance_past(unit);
}

void Weights::read_rows(int32_t mat, uint32_t n, const RowsOf& f) {
  const uint32_t unit = unit_of(mat, n);
  const residency::Unit& u = residency_.plan().units[unit];
  const uint8_t* data = residency_.data(unit);
  check(unit, program_.mats[static_cast<size_t>(mat)], data, u.rows);
  if (failure_.ok()) f(u.row0, u.rows, data);
  residency_.advance_past(unit);
}

}  // namespace sluice::vision
