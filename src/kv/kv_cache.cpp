// Layout of the pool: one sequence after another, and within each its layers in order.
#include "kv/kv_cache.h"

#include <cstring>

namespace sluice::kv {
namespace {

int64_t head_bytes(const LayerShape& l) {
  int64_t bytes = 0;
  for (const KvPart part : kKvParts) bytes += l.part(part).total();
  return bytes;
}

// Bytes of a layer's KV cache. The recurrent state, if any, follows it.
uint64_t attention_bytes(const KvShape& s, const LayerShape& l) {
  if (s.on_gpu) return 0;
  const uint64_t bytes = static_cast<uint64_t>(l.heads) * static_cast<uint64_t>(head_bytes(l));
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

uint64_t layer_bytes(const KvShape& s, const LayerShape& l) {
  const uint64_t copies = 2 + static_cast<uint64_t>(s.n_checkpoints);
  const uint64_t bytes =
      attention_bytes(s, l) + copies * static_cast<uint64_t>(l.state) * sizeof(float);
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

int32_t LayerShape::seen_from(int32_t position) const {
  if (slots > 0) return eviction.gone(position);
  return window == 0 || position < window + sinks ? 0 : position + 1 - window;
}

int32_t LayerShape::apart(int32_t position) const {
  const int32_t gone = seen_from(position);
  return slots > 0 ? std::min(slots, gone) : gone > 0 ? sinks : 0;
}

LayerShape::Part LayerShape::part(KvPart part) const {
  const auto ring = [this](KvType type, int32_t n) -> Part {
    const int32_t positions = kernels::kv_grouped(type) ? kernels::kKvGroup : 1;
    return {positions, (capacity + positions - 1) / positions,
            positions * kernels::kv_row_bytes(type, n)};
  };
  const auto copies = [](int32_t positions, int32_t n) -> Part {
    return {1, positions, kernels::kv_row_bytes(KvType::kF16, n)};
  };
  const int32_t kept = slots > 0 ? slots : sinks;
  switch (part) {
    case KvPart::kKeys:
      return ring(k_type, dk);
    case KvPart::kValues:
      return ring(v_type, own_values());
    case KvPart::kRecentKeys:
      return copies(kernels::kv_grouped(k_type) ? recent : 0, dk);
    case KvPart::kRecentValues:
      return copies(kernels::kv_grouped(v_type) ? recent : 0, own_values());
    case KvPart::kKeptKeys:
      return copies(kept, dk);
    case KvPart::kKeptValues:
      return copies(kept, own_values());
    case KvPart::kAttended:
      return {1, slots > 0 ? slots + capacity : 0, sizeof(float)};
    case KvPart::kObservers:
      break;
  }
  return {1, observers, int64_t{group} * dk * int64_t{sizeof(float)}};
}

bool KvShape::recurrent() const {
  return state_bytes() > 0;
}

bool KvShape::quantized() const {
  for (const LayerShape& l : layers) {
    if (l.quantized()) return true;
  }
  return false;
}

int32_t KvShape::recent() const {
  int32_t max = 0;
  for (const LayerShape& l : layers) max = l.recent > max ? l.recent : max;
  return max;
}

uint64_t KvShape::state_bytes() const {
  uint64_t bytes = 0;
  for (const LayerShape& l : layers) bytes += static_cast<uint64_t>(l.state) * sizeof(float);
  return bytes;
}

uint64_t KvShape::bytes() const {
  uint64_t bytes = 0;
  for (const LayerShape& l : layers) bytes += layer_bytes(*this, l);
  return bytes;
}

uint8_t* KvCache::part(int32_t layer, int32_t head, KvPart part) const {
  if (shape().on_gpu) return nullptr;
  const LayerShape& l = this->layer(layer);
  int64_t at = head * head_bytes(l);
  for (const KvPart before : kKvParts) {
    if (before == part) break;
    at += l.part(before).total();
  }
  return base(layer) + at;
}

float* KvCache::state(int32_t layer, int32_t copy) const {
  const LayerShape& l = this->layer(layer);
  uint8_t* states = base(layer) + attention_bytes(shape(), l);
  return reinterpret_cast<float*>(states) + copy * l.state;
}

Status KvPool::init(const KvShape& shape, int32_t n_sequences) {
  layout_.shape = shape;
  layout_.offset.clear();
  layout_.stride = 0;
  for (const LayerShape& l : shape.layers) {
    layout_.offset.push_back(layout_.stride);
    layout_.stride += layer_bytes(shape, l);
  }
  taken_.resize(static_cast<size_t>(n_sequences));
  return layout_.memory.allocate(layout_.stride * static_cast<uint64_t>(n_sequences));
}

void KvPool::zero() {
  if (layout_.stride > 0) std::memset(layout_.memory.data(), 0, layout_.memory.size());
}

bool KvPool::acquire(KvCache* out) {
  for (size_t i = 0; i < taken_.size(); ++i) {
    if (taken_[i] != 0) continue;
    taken_[i] = 1;
    out->layout_ = &layout_;
    out->index_ = i;
    return true;
  }
  return false;
}

void KvPool::release(const KvCache& cache) {
  taken_[cache.index_] = 0;
}

}  // namespace sluice::kv
