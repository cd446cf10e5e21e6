// Layout of the pool: timelines one after the other, in each the layers in order.
#include "kv/kv_cache.h"

namespace sluice::kv {
namespace {

constexpr uint64_t kHalf = sizeof(uint16_t);

// Of keys and values; a state may follow.
uint64_t attention_bytes(const LayerShape& l) {
  const uint64_t bytes = static_cast<uint64_t>(l.heads) * static_cast<uint64_t>(l.capacity) *
                         static_cast<uint64_t>(l.dk + l.own_values()) * kHalf;
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

uint64_t layer_bytes(const KvShape& s, const LayerShape& l) {
  const uint64_t copies = 2 + static_cast<uint64_t>(s.n_checkpoints);
  const uint64_t bytes =
      attention_bytes(l) + copies * static_cast<uint64_t>(l.state) * sizeof(float);
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

bool KvShape::recurrent() const {
  return state_bytes() > 0;
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

uint16_t* KvCache::keys(int32_t layer, int32_t head) const {
  const LayerShape& l = this->layer(layer);
  const int64_t per_head = static_cast<int64_t>(l.capacity) * (l.dk + l.own_values());
  return reinterpret_cast<uint16_t*>(base_ + layout_->offset[static_cast<size_t>(layer)]) +
         head * per_head;
}

uint16_t* KvCache::values(int32_t layer, int32_t head) const {
  const LayerShape& l = this->layer(layer);
  if (l.values_in_keys) return keys(layer, head);
  return keys(layer, head) + static_cast<int64_t>(l.capacity) * l.dk;
}

float* KvCache::state(int32_t layer, int32_t copy) const {
  const LayerShape& l = this->layer(layer);
  uint8_t* states = base_ + layout_->offset[static_cast<size_t>(layer)] + attention_bytes(l);
  return reinterpret_cast<float*>(states) + copy * l.state;
}

Status KvPool::init(KvShape shape, int32_t n_timelines) {
  layout_.shape = std::move(shape);
  stride_ = 0;
  for (const LayerShape& l : layout_.shape.layers) {
    layout_.offset.push_back(stride_);
    stride_ += layer_bytes(layout_.shape, l);
  }
  taken_.assign(static_cast<size_t>(n_timelines), 0);
  return memory_.allocate(stride_ * static_cast<uint64_t>(n_timelines));
}

bool KvPool::acquire(KvCache* out) {
  for (size_t i = 0; i < taken_.size(); ++i) {
    if (taken_[i] != 0) continue;
    taken_[i] = 1;
    out->layout_ = &layout_;
    out->base_ = memory_.as<uint8_t>() + i * stride_;
    return true;
  }
  return false;
}

void KvPool::release(const KvCache& cache) {
  const uint64_t at = static_cast<uint64_t>(cache.base_ - memory_.as<uint8_t>());
  taken_[stride_ == 0 ? 0 : at / stride_] = 0;
}

}  // namespace sluice::kv
