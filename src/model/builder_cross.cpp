// What encoder-decoder models add to other transformers: relative position buckets, and
// cross-attention. The KV cache of each decoder layer holds the encoder's output first, at the
// encoder's positions; the decoder's own positions follow.
#include <algorithm>
#include <cmath>

#include "model/builder.h"

namespace sluice::model {

// Small distances have one bucket each. From half of the buckets on, buckets grow with the
// logarithm of the distance (https://arxiv.org/abs/1910.10683, 2.1). With `both_ways`, keys after
// the query use the second half of all buckets; otherwise they count as distance 0.
int32_t Builder::add_buckets(bool both_ways) {
  const auto all = static_cast<int32_t>(hp().attention.n_relative_buckets);
  const int32_t n = both_ways ? all / 2 : all, exact = n / 2;
  constexpr int32_t kReach = kernels::kRelativeReach;
  const float span = std::log(static_cast<float>(kReach) / static_cast<float>(exact));
  Program::Buckets buckets{};
  for (int32_t d = -kReach; d <= kReach; ++d) {
    const int32_t far = both_ways ? std::abs(d) : std::max(-d, 0);
    int32_t bucket = far;
    if (far >= exact) {
      const float grown = std::log(static_cast<float>(far) / static_cast<float>(exact)) / span;
      bucket = std::min(n - 1, exact + static_cast<int32_t>(grown * static_cast<float>(n - exact)));
    }
    if (both_ways && d > 0) bucket += n;
    buckets[static_cast<size_t>(d + kReach)] = static_cast<uint8_t>(bucket);
  }
  p.buckets.push_back(buckets);
  return static_cast<int32_t>(p.buckets.size()) - 1;
}

void Builder::begin_decoder() {
  p.decoder = static_cast<int32_t>(p.ops.size());
  embed_tokens(1);
}

void Builder::store_source(int64_t layer) {
  const AttentionShape att = attention_shape(layer, {});
  const int64_t nk = int64_t{att.kv_heads} * att.dk, nv = int64_t{att.kv_heads} * att.dv;
  const int32_t k = mat(layer, "cross_attn_k", nk, hp().n_embd);
  const int32_t v = mat(layer, "cross_attn_v", nv, hp().n_embd);
  matmul(layer, Buf::kH, Buf::kQkv, {{k, -1, att.keys()}, {v, -1, att.values()}});
  op(layer, Buf::kQkv, Buf::kX, 0, StoreOp{att});
}

void Builder::cross_attention(int64_t layer) {
  const AttentionShape att = attention_shape(layer, {});
  const int32_t q = mat(layer, "cross_attn_q", att.keys(), hp().n_embd);
  matmul(layer, Buf::kH, Buf::kQkv, {{q, -1, 0}});
  op(layer, Buf::kQkv, Buf::kAtt, 0, CrossOp{att, hp().attention.scale, hp().attention.softcap});
}

}  // namespace sluice::model
