// Layout of the cache and of its saved form: for each layer, for each head the first n keys then
// the first n values; for convolution layers all kept rows. No header: the session adds one.
#include "kv/kv_cache.h"

#include <algorithm>
#include <cstring>

namespace sluice::kv {
namespace {

// Elements of 2 bytes that one layer takes.
uint64_t layer_elements(const KvShape& s, size_t layer) {
  const uint64_t heads = static_cast<uint64_t>(s.n_head_kv[layer]);
  if (heads == 0)
    return 2ull * static_cast<uint64_t>(s.conv_width) * static_cast<uint64_t>(s.conv_rows);
  return heads * static_cast<uint64_t>(s.n_ctx) * static_cast<uint64_t>(s.dk + s.dv);
}

uint64_t padded(uint64_t elements) {
  return (elements + 31) / 32 * 32;
}

}  // namespace

uint64_t KvShape::bytes() const {
  uint64_t elements = 0;
  for (size_t i = 0; i < n_head_kv.size(); ++i) elements += padded(layer_elements(*this, i));
  return elements * sizeof(uint16_t);
}

Status KvCache::init(KvShape shape) {
  shape_ = std::move(shape);
  layer_offset_.clear();
  uint64_t at = 0;
  for (size_t i = 0; i < shape_.n_head_kv.size(); ++i) {
    layer_offset_.push_back(at);
    at += padded(layer_elements(shape_, i));
  }
  SLUICE_RETURN_IF_ERROR(memory_.allocate(at * sizeof(uint16_t)));
  // Convolutions read rows before the first position: they must be zero.
  for (size_t i = 0; i < shape_.n_head_kv.size(); ++i) {
    if (shape_.n_head_kv[i] == 0) {
      std::memset(memory_.as<uint16_t>() + layer_offset_[i], 0,
                  layer_elements(shape_, i) * sizeof(uint16_t));
    }
  }
  return {};
}

uint16_t* KvCache::keys(int32_t layer, int32_t head) const {
  const int64_t per_head = static_cast<int64_t>(shape_.n_ctx) * (shape_.dk + shape_.dv);
  return memory_.as<uint16_t>() + layer_offset_[static_cast<size_t>(layer)] + head * per_head;
}

uint16_t* KvCache::values(int32_t layer, int32_t head) const {
  return keys(layer, head) + static_cast<int64_t>(shape_.n_ctx) * shape_.dk;
}

float* KvCache::conv_row(int32_t layer, int64_t pos) const {
  const int64_t rows = shape_.conv_rows;
  const int64_t row = ((pos % rows) + rows) % rows;
  return reinterpret_cast<float*>(memory_.as<uint16_t>() +
                                  layer_offset_[static_cast<size_t>(layer)]) +
         row * shape_.conv_width;
}

int64_t KvCache::rewind_limit(int64_t n, int64_t position, int32_t conv_kernel) const {
  if (shape_.conv_width == 0 || n >= position) return std::min(n, position);
  // Rows n-K+1 .. n-1 must not have been overwritten by later positions.
  return n - (conv_kernel - 1) >= position - shape_.conv_rows ? n : 0;
}

uint64_t KvCache::saved_bytes(int64_t n) const {
  uint64_t elements = 0;
  for (size_t i = 0; i < shape_.n_head_kv.size(); ++i) {
    const uint64_t heads = static_cast<uint64_t>(shape_.n_head_kv[i]);
    elements += heads == 0 ? layer_elements(shape_, i)
                           : heads * static_cast<uint64_t>(n) *
                                 static_cast<uint64_t>(shape_.dk + shape_.dv);
  }
  return elements * sizeof(uint16_t);
}

void KvCache::save(int64_t n, std::span<uint8_t> out) const {
  uint8_t* to = out.data();
  const auto put = [&to](const void* from, uint64_t bytes) {
    std::memcpy(to, from, bytes);
    to += bytes;
  };
  for (size_t i = 0; i < shape_.n_head_kv.size(); ++i) {
    const int32_t layer = static_cast<int32_t>(i);
    if (shape_.n_head_kv[i] == 0) {
      put(conv_row(layer, 0), layer_elements(shape_, i) * sizeof(uint16_t));
    }
    for (int32_t h = 0; h < shape_.n_head_kv[i]; ++h) {
      put(keys(layer, h), static_cast<uint64_t>(n * shape_.dk) * sizeof(uint16_t));
      put(values(layer, h), static_cast<uint64_t>(n * shape_.dv) * sizeof(uint16_t));
    }
  }
}

bool KvCache::restore(int64_t n, std::span<const uint8_t> in) {
  if (n < 0 || n > shape_.n_ctx || in.size() != saved_bytes(n)) return false;
  const uint8_t* from = in.data();
  const auto get = [&from](void* to, uint64_t bytes) {
    std::memcpy(to, from, bytes);
    from += bytes;
  };
  for (size_t i = 0; i < shape_.n_head_kv.size(); ++i) {
    const int32_t layer = static_cast<int32_t>(i);
    if (shape_.n_head_kv[i] == 0) {
      get(conv_row(layer, 0), layer_elements(shape_, i) * sizeof(uint16_t));
    }
    for (int32_t h = 0; h < shape_.n_head_kv[i]; ++h) {
      get(keys(layer, h), static_cast<uint64_t>(n * shape_.dk) * sizeof(uint16_t));
      get(values(layer, h), static_cast<uint64_t>(n * shape_.dv) * sizeof(uint16_t));
    }
  }
  return true;
}

}  // namespace sluice::kv
