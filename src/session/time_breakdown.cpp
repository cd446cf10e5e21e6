// Which part of a breakdown an operation belongs to. Matrices are told apart by GGUF's names.
#include "session/time_breakdown.h"

namespace sluice::session {
namespace {

TimePart part_of_matrix(const model::Mat& mat) {
  const std::string_view name = mat.name;
  const auto has = [name](std::string_view part) { return name.find(part) != name.npos; };
  if (has("ffn_") || has("channel_mix")) {
    return has("exp") || has("gate_inp") ? TimePart::kExperts : TimePart::kFeedForward;
  }
  for (const char* const mixer : {"attn_", "ssm_", "time_mix", "shortconv"}) {
    if (has(mixer)) return TimePart::kProjections;
  }
  for (const char* const head : {"output", "token_embd", "cls", "dense_"}) {
    if (name.starts_with(head)) return TimePart::kOutput;
  }
  return TimePart::kOther;
}

}  // namespace

TimePart part_of(const model::Program& program, const model::Op& op) {
  switch (op.kind()) {
    case model::OpKind::kMatmul:
      return part_of_matrix(program.mats[static_cast<size_t>(op.as<model::MatmulOp>().all[0].mat)]);
    case model::OpKind::kMoe:
      return TimePart::kExperts;
    case model::OpKind::kHeadMatmul:
      return TimePart::kProjections;
    case model::OpKind::kApproximate:
      return op.out == model::Buf::kLogits ? TimePart::kOutput : TimePart::kOther;
    case model::OpKind::kAttention:
    case model::OpKind::kCross:
    case model::OpKind::kFill:
    case model::OpKind::kStore:
    case model::OpKind::kRope:
    case model::OpKind::kConv:
    case model::OpKind::kState:
    case model::OpKind::kScan:
    case model::OpKind::kRwkv7Mix:
    case model::OpKind::kRwkv7Bonus:
    case model::OpKind::kRwkv7Keys:
      return TimePart::kAttention;
    default:
      return TimePart::kOther;
  }
}

}  // namespace sluice::session
