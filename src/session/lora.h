// LoRA: adds scale * b (a x) to a matrix multiplication, in f32 for any type of the weights.
#pragma once

#include <cstdint>
#include <span>

#include "base/thread_pool.h"
#include "session/adapter_set.h"
#include "session/compute_buffer.h"
#include "session/sequence.h"
#include "session/weight_stream.h"

namespace sluice::session {

class Lora {
 public:
  Lora(const AdapterSet& adapters, const kernels::Table& table, ThreadPool& pool,
       const ComputeBuffer& working)
      : adapters_(adapters), table_(table), pool_(pool), working_(working) {}
  // Adds the adapters' terms of a matrix to its product.
  void add(const Product& product) const;
  // The same for the embeddings of tokens, [tokens][ld].
  void add_rows(std::span<const Token> tokens, float scale, float* out, int64_t ld) const;

 private:
  const AdapterSet& adapters_;
  const kernels::Table& table_;
  ThreadPool& pool_;
  const ComputeBuffer& working_;
};

}  // namespace sluice::session
