// Multiplies by the two thin matrices.
#include "session/lora.h"

#include <algorithm>

namespace sluice::session {

namespace {

// A thread's scratch: a x of a tile of tokens, then the kernel's scratch.
struct LowRankScratch {
  float* low;
  uint8_t* product;
  LowRankScratch(uint8_t* scratch, int64_t rank)
      : low(reinterpret_cast<float*>(scratch)),
        product(scratch +
                round_up_to_line(static_cast<size_t>(kLowRankTokens * rank) * sizeof(float))) {}
};

}  // namespace

// Splits the tokens into tiles; with few tokens, also the rows, and each task computes a x itself.
void Lora::add(const Product& p) const {
  const std::span<const AdapterSet::Term> terms = adapters_.of_mat(p.mat);
  if (terms.empty()) return;
  const int64_t rows = terms[0].b.rows, group = table_.row_group;
  const int64_t n_threads = pool_.n_threads(), tokens = p.acts.n_tokens;
  const int64_t tiles = (tokens + kLowRankTokens - 1) / kLowRankTokens;
  const int64_t max_chunks = tiles >= n_threads ? 1 : n_threads;
  const int64_t wanted =
      std::clamp<int64_t>(rows * terms[0].b.cols * tokens / kTaskWork, 1, max_chunks);
  const int64_t chunk = ((rows + wanted - 1) / wanted + group - 1) / group * group;
  const int64_t parts = (rows + chunk - 1) / chunk;
  pool_.parallel_for(tiles * parts, [&](int64_t task, int thread) {
    const int64_t first = task / parts * kLowRankTokens, r0 = task % parts * chunk;
    const int32_t n = static_cast<int32_t>(std::min<int64_t>(kLowRankTokens, tokens - first));
    for (const AdapterSet::Term& term : terms) {
      const LowRankScratch s(working_.scratch(thread), term.b.cols);
      const kernels::Acts x = {p.acts.f32 + first * p.acts.ld, p.acts.ld, nullptr, n};
      table_.matmul({term.a, 0, term.a.rows, x, nullptr, 1, false, s.low, term.a.rows, s.product});
      const kernels::Acts low = {s.low, term.a.rows, nullptr, n};
      table_.matmul({term.b, r0, std::min(r0 + chunk, rows), low, nullptr, p.scale * term.scale,
                     true, p.y + first * p.ldy, p.ldy, s.product});
    }
  });
}

// The same for embeddings, where a x is the token's row of a.
void Lora::add_rows(std::span<const Token> tokens, float scale, float* out, int64_t ld) const {
  const kernels::Table& k = table_;
  for (const AdapterSet::Term& term : adapters_.of_embedding()) {
    const int64_t rank = term.a.cols;
    const int64_t row_bytes = rank * (term.a.type == kernels::Type::kF32 ? 4 : 2);
    const LowRankScratch s(working_.scratch(0), rank);
    for (int32_t first = 0; first < static_cast<int32_t>(tokens.size()); first += kLowRankTokens) {
      const int32_t n = std::min(kLowRankTokens, static_cast<int32_t>(tokens.size()) - first);
      for (int32_t i = 0; i < n; ++i) {
        const Token token = tokens[static_cast<size_t>(first + i)];
        k.dequantize(term.a.type, static_cast<const uint8_t*>(term.a.data) + token * row_bytes,
                     rank, s.low + i * rank);
      }
      k.matmul({term.b,
                0,
                term.b.rows,
                {s.low, rank, nullptr, n},
                nullptr,
                scale * term.scale,
                true,
                out + first * ld,
                ld,
                s.product});
    }
  }
}

}  // namespace sluice::session
