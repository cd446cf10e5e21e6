// Which experts a token is given to, and with what weights: softmax or sigmoid of the router's
// logits, groups (DeepSeek-V3, https://arxiv.org/abs/2412.19437), a bias for the choice alone.
// A token's choice depends on its own logits only, so it is the same however long the batch is.
#pragma once

#include <cstdint>

#include "kernels/kernels.h"
#include "model/program.h"

namespace sluice::session {

struct Choice {
  int32_t expert = 0;  // of moe.down; -1: one that stands before it, whose weight has grown
  float weight = 0;
};
// A token that an expert computes.
struct Routed {
  int32_t token = 0;
  float weight = 0;
};
// An expert that tokens of the batch were given to, and where these are in the list of Routed.
struct ExpertRun {
  int32_t expert = 0;
  int32_t first = 0, count = 0;
};

// The `moe.n_used` experts of a token, the best first. `logits` [n_expert]; `room` [3][n_expert] is
// written over; `bias` [n_expert] or null.
void choose_experts(const model::Moe& moe, const kernels::Table& table, const float* logits,
                    const float* bias, float* room, Choice* out);

// Sorts the choices of `n_tokens` tokens, [n_tokens][n_used], by expert, tokens in their order:
// fills `routed` [n_tokens * n_used] and `runs` [experts], and returns how many experts there are.
int32_t group_by_expert(const Choice* choices, int32_t n_tokens, int32_t n_used, int32_t n_experts,
                        Routed* routed, ExpertRun* runs);

}  // namespace sluice::session
