// Copies the rows of a partial forward pass in and out.
#include <algorithm>

#include "session/cpu_executor.h"
#include "session/partial_forward.h"
#include "session/session.h"

namespace sluice::session {

Status Session::begin_part(std::span<const Token> tokens, const PartialForward& part) {
  const model::Program& p = engine_.program();
  const auto width = static_cast<size_t>(engine_.width(model::Buf::kX));
  const auto max_rows = static_cast<size_t>(engine_.plan().batch.n_batch);
  const bool inside = part.first < part.end && part.end <= static_cast<size_t>(p.pool);
  const bool logits = part.end == static_cast<size_t>(p.pool);
  const size_t rows = part.from.empty() ? tokens.size() : part.from.size() / width;
  const bool approximate =
      inside && std::any_of(p.ops.begin() + static_cast<ptrdiff_t>(part.first),
                            p.ops.begin() + static_cast<ptrdiff_t>(part.end),
                            [](const model::Op& op) { return op.is<model::ApproximateOp>(); });
  if (batcher_ != nullptr || !inside || approximate || tokens.size() > max_rows ||
      rows > max_rows || (logits && rows > static_cast<size_t>(engine_.plan().batch.logits_rows)) ||
      part.from.size() % width != 0) {
    return error(Code::kInvalidArgument, "cannot run this partial forward pass on %zu tokens",
                 tokens.size());
  }
  SLUICE_RETURN_IF_ERROR(admit(tokens, 0, 1));
  sequence_.clear();
  BatchSpec spec;
  spec.n_rows = 1;
  spec.first_row = static_cast<int32_t>(tokens.size()) - 1;
  spec.part = &part;
  const auto text = static_cast<int32_t>(tokens.size());
  begin_pass(tokens, spec, {&text, bidirectional() ? size_t{1} : size_t{0}});
  return {};
}

void CpuExecutor::enter_part() {
  if (!in_part()) return;
  pc_ = spec_.part->first;
  const std::span<const float> from = spec_.part->from;
  if (from.empty()) return;
  std::copy(from.begin(), from.end(), buffer(model::Buf::kX));
  lanes_[0].rows =
      static_cast<int32_t>(from.size()) / static_cast<int32_t>(engine_.width(model::Buf::kX));
  enter(lanes_[0]);
}

void CpuExecutor::end_part() {
  if (!in_part() || spec_.part->to == nullptr) return;
  const float* x = buffer(model::Buf::kX);
  spec_.part->to->assign(x, x + rows_ * engine_.width(model::Buf::kX));
}

}  // namespace sluice::session
