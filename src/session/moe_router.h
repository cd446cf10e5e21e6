// Chooses the experts of a token and their weights: softmax or sigmoid of the router's logits,
// expert groups (DeepSeek-V3, https://arxiv.org/abs/2412.19437), a bias that affects only the
// choice. The choice depends on the token's own logits alone, so it does not depend on the batch.
#pragma once

#include <cstdint>

#include "kernels/kernels.h"
#include "model/program.h"

namespace sluice::session {

struct Choice {
  int32_t expert = 0;  // of moe.down; -1: merged into an earlier choice, which has its weight
  float weight = 0;
};
// A token routed to an expert.
struct Routed {
  int32_t token = 0;
  float weight = 0;
};
// An expert with tokens in this batch, and their range in the list of Routed.
struct ExpertRun {
  int32_t expert = 0;
  int32_t first = 0, count = 0;
};

// Writes a token's `moe.n_used` experts to `out`, best first. `logits` [n_expert]; `room`
// [3][n_expert] is scratch; `bias` [n_expert] or null.
void choose_experts(const model::Moe& moe, const kernels::Table& table, const float* logits,
                    const float* bias, float* room, Choice* out);

// Sorts the choices of `n_tokens` tokens, [n_tokens][n_used], by expert, then by token. Fills
// `routed` [n_tokens * n_used] and `runs` [experts]; returns the number of runs.
int32_t group_by_expert(const Choice* choices, int32_t n_tokens, int32_t n_used, int32_t n_experts,
                        Routed* routed, ExpertRun* runs);

}  // namespace sluice::session
