// Copies the rows of a partial forward pass in and out.
#include <algorithm>

#include "session/cpu_batch.h"
#include "session/session.h"

namespace sluice::session {

Status Session::begin_part(std::span<const Token> tokens, const PartialForward& part) {
  const model::Program& p = cx_.program;
  const auto width = static_cast<size_t>(cx_.width(model::Buf::kX));
  const auto max_rows = static_cast<size_t>(cx_.plan.batch.n_batch);
  const bool inside = part.first < part.end && part.end <= static_cast<size_t>(p.pool);
  const bool logits = part.end == static_cast<size_t>(p.pool);
  const size_t rows = part.from.empty() ? tokens.size() : part.from.size() / width;
  const bool approximate =
      inside && std::any_of(p.ops.begin() + static_cast<ptrdiff_t>(part.first),
                            p.ops.begin() + static_cast<ptrdiff_t>(part.end),
                            [](const model::Op& op) { return op.is<model::ApproximateOp>(); });
  if (batcher_ != nullptr || !inside || approximate || tokens.size() > max_rows ||
      rows > max_rows || (logits && rows > static_cast<size_t>(cx_.plan.batch.logits_rows)) ||
      part.from.size() % width != 0) {
    return error(Code::kInvalidArgument, "cannot run this partial forward pass on %zu tokens",
                 tokens.size());
  }
  SLUICE_RETURN_IF_ERROR(admission().text(tokens, 0, 1));
  sequence_.clear();
  BatchSpec spec;
  spec.n_rows = 1;
  spec.first_row = static_cast<int32_t>(tokens.size()) - 1;
  spec.part = &part;
  const auto text = static_cast<int32_t>(tokens.size());
  begin_pass(tokens, spec, {&text, sequence_.bidirectional() ? size_t{1} : size_t{0}});
  return {};
}

void enter_part(CpuBatch& cx) {
  const std::span<const float> from = cx.spec.part->from;
  if (from.empty()) return;
  std::copy(from.begin(), from.end(), cx.buffer(model::Buf::kX));
  cx.lanes[0].rows =
      static_cast<int32_t>(from.size()) / static_cast<int32_t>(cx.width(model::Buf::kX));
  cx.enter(cx.lanes[0]);
}

void end_part(const CpuBatch& cx) {
  if (cx.spec.part->to == nullptr) return;
  const float* x = cx.buffer(model::Buf::kX);
  cx.spec.part->to->assign(x, x + cx.rows * cx.width(model::Buf::kX));
}

}  // namespace sluice::session
